"""The event-driven engine of task graphs over stations, for use from Python.

network = Network([Station("a", rate=1e9), Station("b", rate=1e9)],
                  [Station("bus", rate=1e8)], {("*", "*"): ["bus"]})
engine = GraphEngine(network, [graph], sent_s=arrivals_s, placement=[[0, 1]])
engine.run()
engine.queries.done_s - engine.queries.sent_s
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from edgewise.arrays import Floats, Ints, Records, records
from edgewise.errors import ScenarioError
from edgewise.model.work import TaskGraph
from edgewise.sim.stations import state as k
from edgewise.sim.stations.events import EVENT
from edgewise.sim.stations.loop import advance, advance_deciding
from edgewise.sim.stations.network import GraphClass, StationNetwork, compile_plan, station_records
from edgewise.sim.stations.wired import come_back, take_sent


def free_list(rows: Records, start: int, head: int) -> None:
    """Chain rows from `start` on into a free list that ends in `head`."""
    rows.next[start:] = np.arange(start + 1, rows.size + 1)
    rows.next[-1] = head


def longer(rows: Any, size: int) -> Any:
    """A copy with `size` rows, the new ones zero."""
    out = np.zeros((size, *rows.shape[1:]), dtype=rows.dtype)
    out[: len(rows)] = rows
    return out.view(type(rows))


def enlarged(world: k.StationWorld, rows: Mapping[str, int]) -> k.StationWorld:
    """The same world with so many rows of what grows (`GROWING`); never fewer than it has."""
    more = world._replace(**{
        part: longer(getattr(world, part), rows[name]) for name in rows for part in k.GROWING[name]
    })  # fmt: skip
    c = world.clock[0]
    for name, head in (("items", "item_free"), ("flights", "flight_free")):
        was, pool = len(getattr(world, name)), getattr(more, name)
        if len(pool) > was:
            free_list(pool, was, int(c[head]) if c[name] < was else -1)
            c[head] = was
    return more


def copied(world: k.StationWorld) -> k.StationWorld:
    """An independent copy."""
    return k.StationWorld._make(part.copy() for part in world)


def query_records(
    sent_s: ArrayLike,
    graph: ArrayLike,
    source: ArrayLike = -1,
    deadline_s: ArrayLike = np.inf,
    scale: ArrayLike = 1.0,
) -> Records:
    """(Q,) QUERY records, not yet placed."""
    times = np.atleast_1d(np.asarray(sent_s, dtype=np.float64))
    out = records((times.size,), k.QUERY)
    out.sent_s, out.graph, out.source = times, graph, source
    out.deadline_s, out.scale, out.done_s, out.row = deadline_s, scale, np.nan, -1
    return out


def check_queries(queries: Records, classes: int, places: int) -> None:
    """Raise ScenarioError unless times ascend and classes and places exist."""
    if np.any(np.diff(queries.sent_s) < 0):
        raise ScenarioError("sent_s must be ascending; sort the queries")
    for name, low, high in (("graph", 0, classes), ("source", -1, places)):
        values = queries[name]
        wrong = np.flatnonzero((values < low) | (values >= high))
        if wrong.size:
            raise ScenarioError(f"{name} of query {wrong[0]} is {values[wrong[0]]}; use {low}..{high - 1}")


def placement_rows(
    placement: ArrayLike | None, queries: Records, classes: Sequence[GraphClass], stations: int
) -> Ints:
    """Rows of placements, and in `queries` which row is whose."""
    tasks = max(len(c.graph.tasks) for c in classes)
    if placement is None:
        return np.zeros((0, tasks), dtype=np.int64)
    rows = np.array(placement, dtype=np.int64, ndmin=2)
    if rows.shape == (len(classes), tasks):
        queries.row = queries.graph
    elif rows.shape == (queries.size, tasks):
        queries.row = np.arange(queries.size)
    else:
        raise ScenarioError(
            f"placement has shape {rows.shape}; use ({len(classes)}, {tasks}) or ({queries.size}, {tasks})"
        )
    if rows.size and not (rows.min() >= -1 and rows.max() < stations):
        raise ScenarioError(f"placement names a station outside 0..{stations - 1}")
    return rows


def new_world(
    network: StationNetwork,
    plan: k.GraphTables,
    queries: Records,
    mapped: Ints,
    tasks: int,
    seed: int,
    log: bool,
) -> k.StationWorld:
    """A world at time 0."""
    stations, slots = station_records(network)
    clock = records((1,), k.CLOCK)
    clock.pending, clock.logging, clock.seed = -1, log, seed & 0xFFFFFFFFFFFFFFFF
    items, flights = records((2 * plan.slack,), k.ITEM), records((64,), k.FLIGHT)
    free_list(items, 0, -1)
    free_list(flights, 0, -1)
    table = np.zeros((flights.size, tasks), dtype=np.int64)
    return k.StationWorld(
        clock, records((2 * plan.slack,), EVENT), items, flights, table, table.copy(), queries, mapped,
        stations, slots, records((0,), k.CHANGE), records((2 * plan.slack if log else 0,), k.LOG),
    )  # fmt: skip


Carry = Callable[[Ints, Ints, Floats], float]
OUTCOMES = ("open", "done", "dropped", "reneged", "lost", "rejected")


def deciding(
    decide: Callable[..., None], memory: Any = 0
) -> Callable[[k.GraphTables, k.StationWorld, float], int]:
    """A loop in which a compiled `decide(plan, world, flight, memory)` writes `world.placement[flight]`.

    Args:
        memory: what it may read and write, such as a NamedTuple of arrays.
    """
    return lambda plan, world, until_s: advance_deciding(plan, world, until_s, decide, memory)


class GraphEngine:
    """A world of stations and the queries that go through it.

    Args:
        network: stations and routes.
        graphs: classes of queries.
        sent_s: (Q,) when queries are sent, ascending.
        graph: (Q,) class of each query; a number for all.
        placement: station index of every task: (graphs, tasks), the same for all queries of a class;
            (Q, tasks); or None: `advance` stops at every query, see `pending`, unless a loop decides.
        loop: of plan, world and until_s, in place of `advance`, see `deciding`.
        fields: source, (Q,) index in `network.place_names` of where queries come from, -1 for nowhere;
            deadline_s, (Q,) after `sent_s`; scale, (Q,) factor on the work of all tasks.
        seed: of all noise.
        log: keep every service in `log`.

    Raises:
        ScenarioError: times are not ascending, or a class, place or station does not exist.
    """

    def __init__(
        self,
        network: StationNetwork,
        graphs: Sequence[GraphClass | TaskGraph],
        sent_s: ArrayLike,
        graph: ArrayLike = 0,
        placement: ArrayLike | None = None,
        *,
        loop: Callable[[k.GraphTables, k.StationWorld, float], int] = advance,
        seed: int = 0,
        log: bool = False,
        **fields: ArrayLike,
    ) -> None:
        classes = [c if isinstance(c, GraphClass) else GraphClass(c) for c in graphs]
        self.network = network
        self.plan = compile_plan(network, classes)
        self._loop = loop
        queries = query_records(sent_s, graph, **fields)
        check_queries(queries, len(classes), len(network.place_names))
        tasks = max(len(c.graph.tasks) for c in classes)
        mapped = placement_rows(placement, queries, classes, len(network.stations))
        self.world = new_world(network, self.plan, queries, mapped, tasks, seed, log)
        self._carry: Carry | None = None

    def wire(self, stations: Sequence[str], carry: Carry) -> None:
        """Let links outside carry what these stations have to send.

        Args:
            carry: given items, their stations and bits, it has them carried, and says until when the engine
                may go on; `come_back` brings them.
        """
        self._carry = carry
        self.world.stations.wired[[self.network.index(name) for name in stations]] = 1

    def come_back(self, item: int, at_s: float, lost: bool) -> None:
        """An item that was sent is there at `at_s`, or is lost on the way with its query."""
        if self.world.clock[0].events + self.plan.slack > self.world.events.size:
            self.enlarge("events")
        come_back(self.world, item, max(at_s, self.now_s), lost)

    def advance(self, until_s: float) -> bool:
        """Run to `until_s`; True when it is reached, False when a query waits for `place`.

        Raises:
            ScenarioError: a placement names no station, or there is no route between two places.
        """
        while True:
            if self._carry is not None:  # even if nothing was sent: what was before may come sooner
                until_s = min(until_s, self._carry(*take_sent(self.world)))
            status = self._loop(self.plan, self.world, float(until_s))
            if status == k.GROW:
                self.enlarge(k.SHORT_OF[int(self.world.clock[0].short)])
            elif status == k.SENT:
                continue
            elif status in (k.NO_ROUTE, k.NO_STATION):
                raise ScenarioError(
                    "a placement needs a route between two places that have none; add it to Network.routes"
                    if status == k.NO_ROUTE
                    else f"a placement names a station outside 0..{self.world.stations.size - 1}"
                )
            else:
                return bool(status == k.REACHED)

    def enlarge(self, name: str) -> None:
        """Give what grows, see `state.GROWING`, twice as much room."""
        self.world = enlarged(self.world, {name: 2 * len(getattr(self.world, name))})

    def run(self) -> None:
        """Run until nothing is left to happen.

        Raises:
            ScenarioError: a query needs a placement; give one, or use `advance` and `place`.
        """
        if not self.advance(math.inf):
            raise ScenarioError("a query has no placement; give the engine one, or call advance and place")

    @property
    def now_s(self) -> float:
        """Time of the world."""
        return float(self.world.clock[0].now_s)

    @property
    def pending(self) -> int | None:
        """The query that waits for a placement."""
        flight = self.world.clock[0].pending
        return None if flight < 0 else int(self.world.flights[flight].query)

    def place(self, stations: ArrayLike) -> None:
        """Place the tasks of the pending query; a first station of -1 rejects it.

        Raises:
            ScenarioError: no query is pending.
        """
        flight = self.world.clock[0].pending
        if flight < 0:
            raise ScenarioError("no query waits for a placement; call advance first")
        row = np.atleast_1d(np.asarray(stations, dtype=np.int64))
        self.world.placement[flight, : row.size] = row

    def send(self, sent_s: ArrayLike, graph: ArrayLike = 0, placement: ArrayLike | None = None,
             **fields: ArrayLike) -> None:  # fmt: skip
        """Add queries sent from now on: (Q,) times, classes and a row of stations for each (or None).

        `fields` are source, deadline_s and scale as for the engine.
        """
        world = self.world
        more = query_records(sent_s, graph, **fields)
        check_queries(more, self.plan.graphs.size, len(self.network.place_names))
        next_query = int(world.clock[0].query)
        if more.size and (more.sent_s[0] < self.now_s):
            raise ScenarioError(f"sent_s is {more.sent_s[0]}; it must not be before now, {self.now_s}")
        mapped = world.mapped
        if placement is not None:
            rows = np.broadcast_to(
                np.asarray(placement, dtype=np.int64), (more.size, world.placement.shape[1])
            )
            more.row = len(mapped) + np.arange(more.size)
            mapped = np.concatenate([mapped, rows])
        rest = np.concatenate([world.queries[next_query:], more])
        rest = rest[np.argsort(rest["sent_s"], kind="stable")]
        queries = np.concatenate([world.queries[:next_query], rest]).view(np.recarray)
        self.world = world._replace(queries=queries, mapped=mapped)

    def change(self, at_s: float, station: str, *, rate: float | None = None, up: bool | None = None,
               drain: bool = False, appear: bool = False) -> None:  # fmt: skip
        """Add to the timeline: a new rate, a failure or repair, draining, or appearing after its start delay.

        Raises:
            ScenarioError: the time has passed or the station does not exist.
        """
        if not at_s >= self.now_s:
            raise ScenarioError(
                f"change of {station!r}: at_s is {at_s}; it must not be before now, {self.now_s}"
            )
        if rate is not None and not rate >= 0:
            raise ScenarioError(f"change of {station!r}: rate is {rate}; it must be >= 0")
        kinds = [
            (k.TO_RATE, rate is not None), (k.TO_UP, up is True), (k.TO_DOWN, up is False),
            (k.TO_DRAINING, drain), (k.TO_APPEAR, appear),
        ]  # fmt: skip
        more = records((sum(wanted for _, wanted in kinds),), k.CHANGE)
        more.kind = [kind for kind, wanted in kinds if wanted]
        more.at_s, more.value, more.station = at_s, rate or 0.0, self.network.index(station)
        changes, done = self.world.changes, int(self.world.clock[0].change)
        at = done + int(np.searchsorted(changes.at_s[done:], at_s, side="right"))
        merged = np.concatenate([changes[:at], more, changes[at:]]).view(np.recarray)
        self.world = self.world._replace(changes=merged)

    def copy(self) -> "GraphEngine":
        """An independent engine in the same state."""
        other = object.__new__(GraphEngine)
        other.__dict__.update(self.__dict__)
        other.world = copied(self.world)
        return other

    @property
    def queries(self) -> Records:
        """(Q,) QUERY records; `done_s` is when a query ended (nan: not yet), `outcome` indexes OUTCOMES."""
        return self.world.queries

    @property
    def sojourn_s(self) -> Floats:
        """(done,) time from sent to done of the queries that were done."""
        q = self.queries
        done = q.outcome == k.DONE
        return np.asarray(q.done_s[done] - q.sent_s[done])

    @property
    def log(self) -> Records:
        """LOG records of every service that has ended, if the engine keeps them."""
        return self.world.log[: int(self.world.clock[0].logged)].view(np.recarray)

    def tallies(self) -> dict[str, Floats]:
        """(S,) for each station up to now: served, failed, busy_s (server-seconds), mean_number inside."""
        st, now = self.world.stations, self.now_s
        gap = now - st.area_s
        number_s = st.number_s + gap * st.inside
        return {
            "served": st.served.astype(np.float64),
            "failed": st.failed.astype(np.float64),
            "busy_s": st.busy_s + gap * np.minimum(st.serving, st.servers),
            "mean_number": number_s / now if now > 0 else 0.0 * number_s,
        }
