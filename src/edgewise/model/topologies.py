"""Generated topologies: antennas, and clusters in tiers above them, filled with workers.

ASET, section V-A describes three of them in ranges (`dc-cloud`, `co-dc-cloud`, `full-edge`); kind
`isp` places the same tiers on the graph of a real operator. Every antenna is a site. Two schedulers
that sit in the same cluster decide alike, since they share one ledger; so there is one site for each
antenna even where its scheduler sits higher up, and arrivals are the same under every kind.

Forbidden here: I/O, and randomness.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.errors import ScenarioError
from edgewise.model.deploy import Placed, check_mix, fill, named
from edgewise.model.edge_network import edge_network
from edgewise.model.grammar.generated import (
    MOST_ANTENNAS,
    TIERS,
    AccessSpec,
    CentralOfficeSpec,
    CloudSpec,
    DataCentreSpec,
    EdgeNetworkSpec,
    TopologySpec,
)
from edgewise.model.grammar.scenario import Backbone, Library
from edgewise.model.problems import Problems
from edgewise.model.topology import Catalog, Cluster, Node, Resources, Site, Topology, WayTable

Tier = AccessSpec | CentralOfficeSpec | DataCentreSpec | CloudSpec

SECONDS_PER_KM = 5e-6  # light in fibre, two thirds of its speed in vacuum
LEVEL = {name: level for level, name in enumerate(TIERS["full-edge"])}  # Cluster.tier


@dataclass(frozen=True, slots=True)
class _Plan:
    """Where the S antennas and the O central offices are.

    Attributes:
        sites: names of the antennas.
        offices: names of the central offices.
        office: (S,) index of each antenna's central office.
        path_s: tier → (S, clusters of the tier) delay of the way through the graph; None: a tree.
    """

    sites: tuple[str, ...]
    offices: tuple[str, ...]
    office: Ints
    path_s: dict[str, Floats] | None = None


def generate(
    spec: TopologySpec | EdgeNetworkSpec, catalog: Catalog, library: Library, problems: Problems
) -> Topology:
    """Build the topology of a kind.

    Problems: a mix with an unknown variant, a tier whose servers no variant of its mix fits, an
    operator's graph that cannot be had.
    """
    if isinstance(spec, EdgeNetworkSpec):
        return edge_network(spec)
    tiers: dict[str, Tier] = {name: getattr(spec, name) for name in TIERS[spec.kind]}
    usable = [check_mix(f"topology.{name}.mix", tier.mix, catalog, problems) for name, tier in tiers.items()]
    try:
        plan = _plan(spec, library)
    except ScenarioError as error:
        problems.append(f"topology.graph: {error}")
        plan = None
    if plan is None or not all(usable):
        return Topology((), (), (), ())
    clusters = {name: _clusters(name, tier, plan) for name, tier in tiers.items()}
    every = tuple(cluster for tier_clusters in clusters.values() for cluster in tier_clusters)
    placed: Placed = []
    for name, tier_clusters in clusters.items():
        before = len(placed)
        for cluster in tier_clusters:
            placed += fill(cluster.nodes, tiers[name].mix, catalog)
        if len(placed) == before:
            problems.append(f"topology.{name}.mix: no variant fits a server; change mix or shapes")
    return Topology(
        sites=tuple(Site(name, spec.access_delay_s, spec.uplink_bps) for name in plan.sites),
        clusters=every,
        ways=_links(tiers, clusters, plan, every),
        workers=named(placed),
    )


def _plan(spec: TopologySpec, library: Library) -> _Plan:
    per_office = spec.central_office.antennas if spec.central_office else spec.antennas or 1
    if spec.kind == "isp":
        assert spec.graph is not None
        return _on_graph(library.graph(spec.graph), spec.antennas, per_office)
    assert spec.antennas is not None
    office = np.arange(spec.antennas) // per_office
    return _Plan(
        sites=tuple(f"antenna-{k}" for k in range(spec.antennas)),
        offices=tuple(f"office-{k}" for k in range(int(office[-1]) + 1)),
        office=office,
    )


def _clusters(name: str, tier: Tier, plan: _Plan) -> tuple[Cluster, ...]:
    """The clusters of a tier, their servers scaled to the antennas, shapes in turn."""
    antennas = len(plan.sites)
    if isinstance(tier, AccessSpec):
        sizes = {f"access-{site}".replace("access-antenna", "access"): tier.servers for site in plan.sites}
    elif isinstance(tier, CentralOfficeSpec):
        share = np.bincount(plan.office, minlength=len(plan.offices)) / tier.antennas
        sizes = {office: math.ceil(tier.servers * s) for office, s in zip(plan.offices, share, strict=True)}
    else:
        sizes = {name.replace("_", "-"): math.ceil(tier.servers * antennas / MOST_ANTENNAS)}
    clusters, turn = [], 0
    for cluster, size in sizes.items():
        shapes = [Resources(**dict(tier.shapes[(turn + k) % len(tier.shapes)])) for k in range(size)]
        turn += size
        nodes = tuple(Node(f"{cluster}-node-{k}", cluster, shape) for k, shape in enumerate(shapes))
        clusters.append(Cluster(cluster, LEVEL[name], nodes))
    return tuple(clusters)


def _links(
    tiers: dict[str, Tier], clusters: dict[str, tuple[Cluster, ...]], plan: _Plan, every: Sequence[Cluster]
) -> WayTable:
    ways = [
        _tree_ways(name, tiers, plan) if plan.path_s is None else _graph_ways(name, tiers, plan.path_s[name])
        for name in tiers
    ]
    bandwidth = np.concatenate(
        [np.full(len(clusters[name]), tier.bandwidth_bps) for name, tier in tiers.items()]
    )
    return WayTable(
        plan.sites,
        tuple(cluster.name for cluster in every),
        np.concatenate([delay for delay, _ in ways], axis=1),
        np.sqrt(np.concatenate([variance for _, variance in ways], axis=1)),
        np.repeat(bandwidth[None, :], len(plan.sites), axis=0),
    )


def _tree_ways(name: str, tiers: dict[str, Tier], plan: _Plan) -> tuple[Floats, Floats]:
    """(S, clusters of the tier) one-way delays and variances in a tree.

    To what lies under another branch the way goes up to where the branches meet and down again:
    another antenna of the same central office is reached through the office, any other antenna and
    any other office through the data centre. Variances of parts add up.
    """
    tier, top = tiers[name], tiers["data_centre"]
    count = len(plan.sites)
    own = np.array([tier.delay_s, tier.deviation_s**2])
    over = np.array([top.delay_s, top.deviation_s**2])
    if isinstance(tier, AccessSpec):
        office = tiers["central_office"]
        near = 2.0 * np.array([office.delay_s, office.deviation_s**2])
        same = plan.office[:, None] == plan.office[None, :]
        table = np.where(same[None], near[:, None, None], 2.0 * over[:, None, None])
        table[:, np.arange(count), np.arange(count)] = own[:, None]
    elif isinstance(tier, CentralOfficeSpec):
        mine = plan.office[:, None] == np.arange(len(plan.offices))[None, :]
        down = over + np.abs(over - own)
        table = np.where(mine[None], own[:, None, None], down[:, None, None])
    else:
        table = np.broadcast_to(own[:, None, None], (2, count, 1))
    return table[0], table[1]


def _graph_ways(name: str, tiers: dict[str, Tier], path_s: Floats) -> tuple[Floats, Floats]:
    """The same on a graph: the delay of the tier plus that of the way through the graph.

    An antenna reaches another one's cluster through the office tier, up and down.
    """
    tier = tiers[name]
    delay, variance = path_s + tier.delay_s, np.full(path_s.shape, tier.deviation_s**2)
    if isinstance(tier, AccessSpec):
        office, own = tiers["central_office"], np.eye(len(path_s), dtype=bool)
        delay = np.where(own, tier.delay_s, path_s + 2.0 * office.delay_s)
        variance = np.where(own, tier.deviation_s**2, 2.0 * office.deviation_s**2)
    return delay, variance


def _on_graph(graph: Backbone, antennas: int | None, per_office: int) -> _Plan:
    """Put antennas, offices, data centre and cloud on the nodes of an operator's graph.

    Antennas take the nodes in turn. Offices: as many as the antennas need; the first at the best
    connected node, each further one at the node furthest from those before (Gonzalez's k-centre
    rule); an antenna belongs to the nearest. Data centre: the node with the least mean delay to the
    antennas. Cloud: the best connected node.
    """
    delay_s, degree = _shortest(graph)
    nodes = len(graph.nodes)
    where = np.arange(nodes if antennas is None else antennas) % nodes
    used = np.unique(where)
    hub = int(np.lexsort((delay_s.sum(axis=1), -degree))[0])
    first = hub if hub in used else int(used[0])
    chosen = np.array([first])
    while len(chosen) < min(math.ceil(len(where) / per_office), len(used)):
        furthest = delay_s[np.ix_(chosen, used)].min(axis=0).argmax()
        chosen = np.append(chosen, used[furthest])
    centre = int(delay_s[:, where].mean(axis=1).argmin())
    names = [graph.nodes[node] for node in where]
    return _Plan(
        sites=tuple(f"{name}-{k // nodes}" if k >= nodes else name for k, name in enumerate(names)),
        offices=tuple(f"office-{graph.nodes[node]}" for node in chosen),
        office=delay_s[np.ix_(where, chosen)].argmin(axis=1),
        path_s={
            "access": delay_s[np.ix_(where, where)],
            "central_office": delay_s[np.ix_(where, chosen)],
            "data_centre": delay_s[np.ix_(where, np.array([centre]))],
            "cloud": delay_s[np.ix_(where, np.array([hub]))],
        },
    )


def _shortest(graph: Backbone) -> tuple[Floats, Ints]:
    """(N, N) delays of the shortest ways, and (N,) degrees.

    Raises:
        ScenarioError: some nodes cannot be reached.
    """
    from scipy.sparse import coo_array  # slow to import, and most processes make no topology
    from scipy.sparse.csgraph import shortest_path

    count = len(graph.nodes)
    ends = np.array([edge[:2] for edge in graph.edges], dtype=np.int64).reshape(-1, 2)
    adjacent = np.full((count, count), np.inf)
    for a, b, km in graph.edges:
        adjacent[a, b] = adjacent[b, a] = min(adjacent[a, b], km * SECONDS_PER_KM)
    rows, columns = np.nonzero(np.isfinite(adjacent))
    # Two places in one city have length 0, which a sparse matrix keeps as a link.
    weights = coo_array((adjacent[rows, columns], (rows, columns)), shape=(count, count)).tocsr()
    delay_s: Floats = shortest_path(weights, directed=False)
    if not np.isfinite(delay_s).all():
        raise ScenarioError("the graph is in several pieces; choose a connected one")
    return delay_s, np.bincount(ends.ravel(), minlength=count)
