"""Splitting over groups of servers of different power, joined by several links.

A layout has groups of servers (a site, a rack) and links; messages between groups take a route over
links. Placements say, beyond who shares a server, in which group each part runs. Two things are added to
Nona's formula: a message waits at each link of its route, and a task waits for its server.
With n_r = 1 for a link,

    wait_r = Σ λ s² / (2 (n_r - Σ λ s))            servers chosen uniformly: n M/G/1 queues that share the
                                                   traffic evenly (Pollaczek-Khinchine)
    wait_r = Σ λ s² / (2 n_r (n_r - Σ λ s))        any other rule: M/G/c in heavy traffic (Köllerström 1974)

for every resource r, link or group. The second is Allen and Cunneen's M/G/c with Erlang's C replaced by
the load, which is never smaller: a plan for it is careful, and exact as a group fills. Servers of different
power are groups of their own, down to one server each.

The sink of one sub-graph is the root of the next, so the chance that it runs in a group is the same in
both: one more linear constraint. `program_of` sees the split models of a scenario as equal servers on one
link, or so.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgewise.arrays import Floats, Ints
from edgewise.core.split import QueryClass, closed
from edgewise.errors import PolicyError, ScenarioError
from edgewise.model.graphs import ServerGroup, group_links, server_groups
from edgewise.model.topology import Topology
from edgewise.policies.split.program import ServerChoice, SplitProgram, build_program
from edgewise.policies.split.subgraphs import SubGraph, placements, subgraphs

MOST = 20_000
ALONE = SubGraph(0, 0, (), ())  # what a graph of one task has


@dataclass(frozen=True, slots=True)
class Layout:
    """Groups of servers and what joins them.

    Attributes:
        groups: of servers.
        links: name → capacity in bit/s.
        rule: which server of its group a part gets.
        routes: (group, group) → links of a message between two servers; a pair may be given in one
            direction, and a group to itself; pairs left out are free of charge.
    Raises:
        PolicyError: a number is not positive, or a route names an unknown group or link.
    """

    groups: tuple[ServerGroup, ...]
    links: Mapping[str, float]
    routes: Mapping[tuple[str, str], tuple[str, ...]]
    rule: ServerChoice = ServerChoice.UNIFORM

    def __post_init__(self) -> None:
        for group in self.groups:
            if group.servers < 1 or not group.power_ops > 0:
                raise PolicyError(f"group {group.name!r}: needs at least 1 server and a power above 0")
        for name, capacity in self.links.items():
            if not capacity > 0:
                raise PolicyError(f"link {name!r}: its capacity must be above 0, got {capacity}")
        names = {group.name for group in self.groups}
        for pair, route in self.routes.items():
            strange = [n for n in pair if n not in names] + [n for n in route if n not in self.links]
            if strange:
                raise PolicyError(f"route {pair}: no group or link is called {strange[0]!r}")

    def route(self, a: int, b: int) -> tuple[int, ...]:
        """Links between two groups, by their places in `links`."""
        first, second = self.groups[a].name, self.groups[b].name
        route = self.routes.get((first, second), self.routes.get((second, first), ()))
        places = list(self.links)
        return tuple(places.index(name) for name in route)


def joined(
    groups: Sequence[ServerGroup],
    links: Mapping[tuple[str, str], float],
    rule: ServerChoice = ServerChoice.LEAST_LOADED,
) -> Layout:
    """The layout of a topology: a link joins two groups, messages take a path with the fewest links.

    Args:
        links: (group, group) → capacity in bit/s; a group and itself: between its own servers, else free.
        rule: which server of its group a part gets.
    Raises:
        PolicyError: a link names an unknown group, or no path joins two groups.
    """
    import networkx as nx  # type: ignore[import-untyped]  # slow to import

    graph = nx.Graph()
    graph.add_nodes_from(group.name for group in groups)
    graph.add_edges_from((a, b, {"name": f"{a}-{b}"}) for a, b in links if a != b)
    routes = {pair: (f"{pair[0]}-{pair[1]}",) for pair in links}
    for a, b in itertools.combinations([group.name for group in groups], 2):
        try:
            path = nx.shortest_path(graph, a, b)
        except nx.NetworkXNoPath:
            raise PolicyError(f"no link joins {a!r} and {b!r}; add one") from None
        routes[a, b] = tuple(graph.edges[hop]["name"] for hop in itertools.pairwise(path))
    routes = {pair: route for pair, route in routes.items() if pair[::-1] not in routes or pair <= pair[::-1]}
    return Layout(tuple(groups), {f"{a}-{b}": bps for (a, b), bps in links.items()}, routes, rule)


def layout_of(program: "SplitProgram | LayoutProgram") -> Layout:
    """Where a program's queries run; equal servers are one group, every message takes their link."""
    if isinstance(program, LayoutProgram):
        return program.layout
    groups = (ServerGroup("server", program.servers, program.power_ops),)
    return Layout(groups, {"link": program.link_bps}, {("server", "server"): ("link",)})


class Stage(NamedTuple):
    """The placements of one sub-graph of one class; P parts, R resources: links, then groups.

    Attributes:
        job: its class.
        root, sink: (K,) group of each.
        part: (K, B + 1) part of each branch and of the sink; 0 is the root's.
        group: (K, M) group of each part.
        base_s: (K, P) time of each part without waiting.
        visits: (K, P, R) how often it waits.
        load_s, load_s2: (K, R) Σ s and Σ s² of one query.
    """

    job: int
    root: Ints
    sink: Ints
    part: Ints
    group: Ints
    base_s: Floats
    visits: Floats
    load_s: Floats
    load_s2: Floats


@dataclass(frozen=True, slots=True)
class LayoutProgram:
    """The optimisation problem of some classes on a layout.

    Attributes:
        classes, layout: the problem.
        stages: sub-graphs with their placements, by class and in order.
        capacity: (R,) 1 for a link, the number of servers for a group.
        pooled: (R,) servers that share one queue: 1 for a link, and for a group with a uniform rule.
    """

    classes: tuple[QueryClass, ...]
    layout: Layout
    stages: tuple[Stage, ...]
    capacity: Floats
    pooled: Floats

    @property
    def server_ops(self) -> Floats:
        """(S,) operations per second of each server."""
        groups = self.layout.groups
        return np.repeat([group.power_ops for group in groups], [group.servers for group in groups])

    @property
    def variables(self) -> int:
        """Number of probabilities."""
        return sum(len(stage.root) for stage in self.stages)

    def stacked(self, name: str) -> NDArray[np.generic]:
        """One attribute of all stages, one after the other; parts that a stage lacks are 0."""
        rows = [getattr(stage, name) for stage in self.stages]
        if rows[0].ndim > 1:
            width = max(row.shape[1] for row in rows)
            rows = [
                np.pad(row, [(0, 0), (0, width - row.shape[1])] + [(0, 0)] * (row.ndim - 2)) for row in rows
            ]
        return np.asarray(np.concatenate(rows))

    def with_rates(self, rates_qps: Sequence[float]) -> "LayoutProgram":
        """The same problem at other rates; placements are not enumerated again."""
        if len(rates_qps) != len(self.classes) or not all(rate > 0 for rate in rates_qps):
            raise PolicyError(
                f"rates {list(rates_qps)}: give one above 0 for each of {len(self.classes)} classes"
            )
        pairs = zip(self.classes, rates_qps, strict=True)
        return replace(self, classes=tuple(replace(job, rate_qps=float(rate)) for job, rate in pairs))

    def rates_qps(self) -> Floats:
        """(N,) rate of the class of each placement."""
        return np.concatenate(
            [np.full(len(stage.root), self.classes[stage.job].rate_qps) for stage in self.stages]
        )


def layout_program(classes: Sequence[QueryClass], layout: Layout, limit: int = MOST) -> LayoutProgram:
    """Enumerate the placements of all classes on a layout.

    Raises:
        PolicyError: there are more than `limit` placements in all.
    """
    stages: list[Stage] = []
    for job, item in enumerate(classes):
        graph = closed(item.graph)
        work = [task.work_ops for task in graph.tasks]
        pieces = subgraphs(item.graph) or (ALONE,)
        for number, piece in enumerate(pieces):
            rows = _assignments(piece, layout, limit, item.graph.name)
            stages.append(_stage(job, piece, rows, layout, work, first=number == 0))
            if sum(len(stage.root) for stage in stages) > limit:
                raise PolicyError(
                    f"{item.graph.name!r} on {len(layout.groups)} groups has more than {limit:,} placements; "
                    "contract further with limit_branches(…)"
                )
    capacity = np.array([1.0] * len(layout.links) + [float(g.servers) for g in layout.groups])
    pooled = np.ones_like(capacity) if layout.rule is ServerChoice.UNIFORM else capacity
    return LayoutProgram(tuple(classes), layout, tuple(stages), capacity, pooled)


def _assignments(
    piece: SubGraph, layout: Layout, limit: int, name: str
) -> list[tuple[list[int], tuple[int, ...]]]:
    """(part of each branch and of the sink, group of each part), parts on distinct servers."""
    if piece.root == piece.sink:
        return [([0], (g,)) for g in range(len(layout.groups))]
    servers = sum(group.servers for group in layout.groups)
    found = []
    for row in placements(piece, servers, limit, repr(name)).part.tolist():
        for groups in itertools.product(range(len(layout.groups)), repeat=max(row) + 1):
            if all(groups.count(g) <= group.servers for g, group in enumerate(layout.groups)):
                found.append((row, groups))
    return found


def _stage(
    job: int,
    piece: SubGraph,
    rows: Sequence[tuple[list[int], tuple[int, ...]]],
    layout: Layout,
    work: Sequence[float],
    first: bool,
) -> Stage:
    links, count = len(layout.links), len(rows)
    parts = max(len(groups) for _, groups in rows)
    resources = links + len(layout.groups)
    stage = Stage(
        job,
        np.array([groups[0] for _, groups in rows]),
        np.array([groups[row[-1]] for row, groups in rows]),
        np.array([row for row, _ in rows]),
        np.array([[*groups, *[-1] * (parts - len(groups))] for _, groups in rows]),
        np.zeros((count, parts + 1)),
        np.zeros((count, parts + 1, resources)),
        np.zeros((count, resources)),
        np.zeros((count, resources)),
    )
    capacities = list(layout.links.values())

    def serve(k: int, lines: slice | int, group: int, work_ops: Sequence[float]) -> None:
        """Work of one part, one task after the other: it waits once, and each task is a customer."""
        times = np.array(work_ops) / layout.groups[group].power_ops
        stage.base_s[k, lines] += times.sum()
        stage.visits[k, lines, links + group] += 1.0
        stage.load_s[k, links + group] += times.sum()
        stage.load_s2[k, links + group] += (times**2).sum()

    def send(k: int, line: int, a: int, b: int, sizes_bytes: Sequence[float]) -> None:
        for size in sizes_bytes:
            for link in layout.route(a, b):
                s = 8.0 * size / capacities[link]
                stage.base_s[k, line] += s
                stage.visits[k, line, link] += 1.0
                stage.load_s[k, link] += s
                stage.load_s2[k, link] += s * s

    for k, (row, groups) in enumerate(rows):
        if first:
            serve(k, slice(None), groups[0], [work[piece.root]])
        if piece.root == piece.sink:
            continue
        sink = row[-1]
        own: dict[int, list[float]] = {}
        for branch, part in zip(piece.branches, row, strict=False):
            own.setdefault(part, []).append(branch.work_ops)
            send(k, part, groups[0], groups[part], branch.into_bytes if part != 0 else ())
            send(k, part, groups[part], groups[sink], branch.out_bytes if part != sink else ())
        for part, works in own.items():
            serve(k, part, groups[part], works)
        send(k, parts, groups[0], groups[sink], piece.direct_bytes if sink != 0 else ())
        serve(k, slice(None), groups[sink], [work[piece.sink]])
    return stage


def program_of(
    topology: Topology, classes: Sequence[QueryClass], queues: bool = False
) -> SplitProgram | LayoutProgram:
    """What is to be planned: a `SplitProgram` where all servers are in one cluster, else a `LayoutProgram`.

    Args:
        classes: contract their graphs first.
        queues: of a `SplitProgram`: add bursts and waiting for servers to Nona's formula.
    Raises:
        ScenarioError: servers or links cannot be seen this way.
        PolicyError: there are too many placements.
    """
    groups, links = server_groups(topology), group_links(topology)
    if len(groups) > 1:
        return layout_program(classes, joined(groups, links))
    (group,) = groups
    if (group.name, group.name) not in links:
        raise ScenarioError(
            f"links: none joins the servers of {group.name!r}; "
            f"add {{between: [{group.name}, {group.name}], bandwidth_bps: …, shared: both}}"
        )
    return build_program(
        classes, group.servers, group.power_ops, links[group.name, group.name], queues=queues
    )
