"""What an engine is made of, in words: stations, routes, graph classes; compiled into arrays.

Everything that serves is a `Station`. Nodes and workers serve tasks (work in operations), links and
shaped flows serve transfers (work in bits).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from edgewise.arrays import Ints, Records, records
from edgewise.errors import ScenarioError
from edgewise.model.work import TaskGraph
from edgewise.sim.stations import state as k

DISCIPLINES = {"fifo": k.FIFO, "edf": k.EDF, "ps": k.PS, "oldest": k.OLDEST}
LAWS = {"fixed": k.FIXED, "exponential": k.EXPONENTIAL, "normal": k.NORMAL, "lognormal": k.LOGNORMAL}
ON_DOWN = {"resume": k.RESUME, "restart": k.RESTART, "lose": k.LOSE}


@dataclass(frozen=True, slots=True)
class Station:
    """A node, worker, link or shaped flow.

    Attributes:
        name: unique in the network.
        rate: work of one server per second: operations/s of a node, bits/s of a link. Infinite: a
            pure delay.
        servers: items (or batches) served at the same time.
        discipline: "fifo"; "edf", earliest deadline first; "oldest", that of the query sent first; "ps",
            processor sharing.
        law, deviation: noise on the work, mean 1: "fixed", "exponential", "normal" (truncated at 0)
            or "lognormal", with the standard deviation of the factor.
        batch, batch_timeout_s, batch_slope: up to `batch` waiting items are served together as soon
            as they are that many or the first has waited for the timeout; the work of n items is the
            largest of them times 1 + slope (n - 1).
        room: items that may wait (with "ps": be inside); math.inf for no bound.
        on_full: "block": items wait upstream and hold their server there; "drop": their query fails.
        renege: items leave the line at their query's deadline, and the query fails.
        on_down: work in service at a failure resumes after the repair ("resume"), starts again
            ("restart") or fails its query ("lose").
        drop_waiting: a failure or draining also fails what waits and what arrives.
        up: whether it works from the start; else a change with `appear=True` starts it.
        start_delay_s: from appearing to working.
        delay_s, delay_deviation_s: propagation after service, normal truncated at 0.
        place: stations at one place exchange data at once; None is a place of its own, and links have none.
    """

    name: str
    rate: float
    servers: int = 1
    discipline: str = "fifo"
    law: str = "fixed"
    deviation: float = 0.0
    batch: int = 1
    batch_timeout_s: float = 0.0
    batch_slope: float = 0.0
    room: float = math.inf
    on_full: str = "block"
    renege: bool = False
    on_down: str = "resume"
    drop_waiting: bool = False
    up: bool = True
    start_delay_s: float = 0.0
    delay_s: float = 0.0
    delay_deviation_s: float = 0.0
    place: str | None = None

    def __post_init__(self) -> None:
        self._one_of("discipline", DISCIPLINES)
        self._one_of("law", LAWS)
        self._one_of("on_down", ON_DOWN)
        self._one_of("on_full", ("block", "drop"))
        numbers = ("rate", "deviation", "batch_timeout_s", "batch_slope", "room", "start_delay_s", "delay_s")
        bounds = {name: 0 for name in (*numbers, "delay_deviation_s")} | {"servers": 1, "batch": 1}
        for name, least in bounds.items():
            value = getattr(self, name)
            if not value >= least:
                raise ScenarioError(f"station {self.name!r}: {name} is {value}; it must be >= {least}")
        if self.discipline == "ps" and self.batch > 1:
            raise ScenarioError(f"station {self.name!r}: batch is {self.batch}; with ps it must be 1")

    def _one_of(self, name: str, known: Sequence[str] | Mapping[str, int]) -> None:
        if getattr(self, name) not in known:
            raise ScenarioError(
                f"station {self.name!r}: {name} is {getattr(self, name)!r}; use one of {', '.join(known)}"
            )


@dataclass(frozen=True, slots=True)
class StationNetwork:
    """Stations and the ways between their places.

    Attributes:
        nodes: stations that tasks are placed on; `placement` counts them from 0 in this order.
        links: stations that routes go through.
        routes: (place, place) -> names of the links in order; ("*", "*") is for all other pairs of
            different places. An empty route is instantaneous.
        places: places without a node, such as the sites that queries come from.
    """

    nodes: Sequence[Station]
    links: Sequence[Station] = ()
    routes: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)
    places: Sequence[str] = ()

    def __post_init__(self) -> None:
        names = [station.name for station in self.stations]
        for name in names:
            if names.count(name) > 1:
                raise ScenarioError(f"network: two stations are called {name!r}; rename one")
        for (a, b), links in self.routes.items():
            for end in (a, b):
                if end != "*" and end not in self.place_names:
                    raise ScenarioError(f"route {a!r} -> {b!r}: no place is called {end!r}")
            for link in links:
                self.index(link, f"route {a!r} -> {b!r}")

    @property
    def stations(self) -> tuple[Station, ...]:
        """Nodes, then links: the order of the engine's stations."""
        return (*self.nodes, *self.links)

    @property
    def place_names(self) -> tuple[str, ...]:
        """All places, in the order of their indices."""
        return tuple(dict.fromkeys([*(n.place or n.name for n in self.nodes), *self.places]))

    def index(self, name: str, where: str = "network") -> int:
        """Position of a station.

        Raises:
            ScenarioError: there is none of that name.
        """
        for at, station in enumerate(self.stations):
            if station.name == name:
                return at
        raise ScenarioError(f"{where}: no station is called {name!r}")


@dataclass(frozen=True, slots=True)
class GraphClass:
    """A class of queries: a task graph and the transfers around it.

    Attributes:
        graph: tasks and the data between them.
        input_bytes: sent from the query's source to every first task; None: no transfer.
        output_bytes: sent from every last task to the source; None: no transfer.
        routes: (source task, target task) -> links for this edge alone, such as its shaped flow; None as
            a source (target) is the query's source.
    """

    graph: TaskGraph
    input_bytes: float | None = None
    output_bytes: float | None = None
    routes: Mapping[tuple[str | None, str | None], Sequence[str]] = field(default_factory=dict)


def station_records(network: StationNetwork) -> tuple[Records, Records]:
    """Compile stations into (S,) STATION and their servers into SLOT records."""
    stations = network.stations
    places = network.place_names
    out = records((len(stations),), k.STATION)
    for row, s in zip(out, stations, strict=True):
        for name in ("rate", "batch_timeout_s", "batch_slope", "deviation", "delay_s", "delay_deviation_s",
                     "start_delay_s", "servers", "batch", "renege", "drop_waiting"):  # fmt: skip
            row[name] = getattr(s, name)
        row.log_deviation = math.sqrt(math.log1p(s.deviation**2))  # deviation is that of the factor itself
        row.room = -1 if math.isinf(s.room) else int(s.room)
        row.discipline, row.law, row.on_down = DISCIPLINES[s.discipline], LAWS[s.law], ON_DOWN[s.on_down]
        row.drop_full, row.mode = s.on_full == "drop", k.UP if s.up else k.DOWN
        row.place = places.index(s.place or s.name) if s in network.nodes else -1
        for name in ("head", "tail", "outside_head", "outside_tail", "root", "idle"):
            row[name] = -1
        row.gather_s = -1.0
    servers = np.array([0 if s.discipline == "ps" else s.servers for s in stations], dtype=np.int64)
    slots = records((max(int(servers.sum()), 1),), k.SLOT)
    slots.leader = -1
    out.slot = np.concatenate([[0], np.cumsum(servers)[:-1]])
    for at, row in enumerate(out):
        own = np.arange(row.slot, row.slot + servers[at])
        if own.size:
            row.idle = own[0]
            slots.station[own] = at
            slots.next[own] = [*own[1:], -1]
    return out, slots


class _Routes:
    """Collects routes, each once."""

    def __init__(self, network: StationNetwork) -> None:
        self.network = network
        self.known: dict[tuple[int, ...], int] = {}

    def add(self, links: Sequence[str], where: str) -> int:
        hops = tuple(self.network.index(link, where) for link in links)
        return self.known.setdefault(hops, len(self.known))


def _pair_routes(network: StationNetwork, routes: _Routes) -> Ints:
    places = network.place_names
    table = np.full((len(places), len(places)), -1, dtype=np.int64)
    if ("*", "*") in network.routes:
        table[:] = routes.add(network.routes["*", "*"], "route '*' -> '*'")
    for (a, b), links in network.routes.items():
        rows = range(len(places)) if a == "*" else [places.index(a)]
        columns = range(len(places)) if b == "*" else [places.index(b)]
        if (a, b) != ("*", "*"):
            table[np.ix_(list(rows), list(columns))] = routes.add(links, f"route {a!r} -> {b!r}")
    return table


def _edges(c: GraphClass, routes: _Routes) -> tuple[list[list[tuple[float, int, int, int]]], list[int]]:
    """Edges (bits, source, target, route) out of every task, last those out of the source; and inputs."""
    names = [task.name for task in c.graph.tasks]
    where = f"task graph {c.graph.name!r}"

    def route(a: str | None, b: str | None) -> int:
        return routes.add(c.routes[a, b], where) if (a, b) in c.routes else -1

    out: list[list[tuple[float, int, int, int]]] = [[] for _ in range(len(names) + 1)]
    inputs = [0] * len(names)
    for edge in c.graph.edges:
        a, b = names.index(edge.source), names.index(edge.target)
        out[a].append((8.0 * edge.size_bytes, a, b, route(edge.source, edge.target)))
        inputs[b] += 1
    first = [t for t in range(len(names)) if inputs[t] == 0]
    for t, name in enumerate(names):
        if not out[t] and c.output_bytes is not None:
            out[t].append((8.0 * c.output_bytes, t, -1, route(name, None)))
    if c.input_bytes is not None:
        for t in first:
            out[-1].append((8.0 * c.input_bytes, -1, t, route(None, names[t])))
            inputs[t] += 1
    return out, inputs


def compile_plan(network: StationNetwork, classes: Sequence[GraphClass]) -> k.GraphTables:
    """Compile routes and graph classes into the arrays that kernels read."""
    routes = _Routes(network)
    table = _pair_routes(network, routes)
    graphs = records((len(classes),), k.GRAPH)
    tasks = records((sum(len(c.graph.tasks) for c in classes),), k.TASK)
    edges: list[tuple[float, int, int, int]] = []
    at, widest = 0, 1
    for g, c in enumerate(classes):
        out, inputs = _edges(c, routes)
        graphs[g].task, graphs[g].tasks = at, len(inputs)
        for t, task in enumerate(c.graph.tasks):
            row = tasks[at + t]
            row.work, row.inputs, row.out, row.outs = task.work_ops, inputs[t], len(edges), len(out[t])
            edges += out[t]
        at += len(inputs)
        graphs[g].entry, graphs[g].entries = len(edges), len(out[-1])
        edges += out[-1]
        widest = max(widest, len(inputs), *(len(o) for o in out))
    table_edges = records((len(edges),), k.EDGE)
    for row, edge in zip(table_edges, edges, strict=True):
        row.amount, row.source, row.target, row.route = edge
    lengths = [len(hops) for hops in routes.known]
    batch = max(s.batch for s in network.stations)
    servers = max(s.servers for s in network.stations)
    return k.GraphTables(
        graphs, tasks, table_edges, table,
        np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64),
        np.array([hop for hops in routes.known for hop in hops], dtype=np.int64),
        4 * batch * (widest + 1) + 2 * servers * (batch + 1) + 128,
    )  # fmt: skip
