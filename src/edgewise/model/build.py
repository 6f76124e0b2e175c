"""From the YAML form to a catalog and a topology, with every wrong reference named; workers onto nodes.

Workers: a stated number, as many as fit, or a mix of variants until nothing fits.
Forbidden here: I/O, and stopping at the first problem: they are collected in a list.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from edgewise.model.grammar.places import (
    CatalogSpec,
    ClusterSpec,
    SiteSpec,
    VariantSpec,
    WorkerSpec,
)
from edgewise.model.grammar.scenario import ChangeSpec, ScenarioSpec
from edgewise.model.grammar.services import ApplicationSpec
from edgewise.model.kinds import meant, places_named
from edgewise.model.problems import Problems, known, nearest, unique
from edgewise.model.topology import (
    KINDS,
    Catalog,
    Change,
    Cluster,
    LinkChange,
    Model,
    Node,
    NodeChange,
    Profile,
    Resources,
    Site,
    Topology,
    Variant,
    Worker,
    have_room,
)
from edgewise.model.ways import build_cables, build_links, build_ways, check_over

SLACK = 1e-3  # relative: a stated capacity may be rounded


def build_catalog(spec: CatalogSpec, problems: Problems) -> Catalog:
    """Models and variants; a variant of an unknown model, and a name given twice, are problems."""
    unique("catalog.models", [model.name for model in spec.models], problems)
    unique("catalog.variants", [variant.name for variant in spec.variants], problems)
    names = [model.name for model in spec.models]
    variants = tuple(_variant(variant) for variant in spec.variants)
    for i, variant in enumerate(variants):
        known(f"catalog.variants[{i}].model", "model", variant.model, names, problems)
        batches = (1, variant.max_batch)  # with every server busy, in those that are quickest per query
        most = variant.servers * max(b / variant.profile.delay_s(variant.largest_bytes, b) for b in batches)
        if variant.capacity_qps > most * (1.0 + SLACK):
            problems.append(
                f"catalog.variants[{i}].capacity_qps: {variant.capacity_qps:g} is more than the {most:g} "
                "queries/s that servers, max_batch and profile give; lower it or leave it out"
            )
    return Catalog(tuple(Model(**dict(model)) for model in spec.models), variants)


def build_topology(spec: ScenarioSpec, catalog: Catalog, problems: Problems) -> Topology:
    """Sites, clusters, links and workers, with counts expanded.

    Problems: names given twice, unknown names, a site without a link to a cluster, workers
    that do not fit their node, links between a node and a cluster.
    """
    site_specs, worker_specs = spec.sites or (), spec.workers or ()
    clusters = tuple(
        _cluster(name, cluster)
        for cluster in spec.clusters or ()
        for name in expand(cluster.name, cluster.count)
    )
    sites = tuple(site for i, each in enumerate(site_specs) for site in _sites(i, each, clusters, problems))
    unique("sites", [*(site.name for site in sites), *_kinds(site_specs)], problems)
    unique("clusters", [*(c.name for c in clusters), *_kinds(spec.clusters or ())], problems)
    unique("clusters.nodes", [node.name for c in clusters for node in c.nodes], problems)
    cables = build_cables(spec.links or (), sites, problems)
    check_over(spec.links or (), sites, cables, problems)
    ways = build_ways(spec.links or (), sites, clusters, cables, problems)
    links = build_links(spec.links or (), clusters, cables, problems)
    before = len(problems)
    variants = [variant.name for variant in catalog.variants]
    nodes = [node.name for c in clusters for node in c.nodes]
    for i, worker in enumerate(worker_specs):
        known(f"workers[{i}].variant", "variant", worker.variant, variants, problems)
        if worker.node is not None:
            known(f"workers[{i}].node", "node", worker.node, nodes, problems)
        if worker.cluster is not None:
            places_named(f"workers[{i}].cluster", "cluster", worker.cluster, clusters, problems)
    workers = deploy(worker_specs, catalog, clusters, problems) if len(problems) == before else ()
    return Topology(sites, clusters, ways, workers, links, tuple(cables.values()))


def build_timeline(
    specs: Sequence[ChangeSpec], duration_s: float, topology: Topology, problems: Problems
) -> tuple[Change, ...]:
    """Changes in order of time; those of a cluster, or of a kind of them, become changes of their nodes.

    Problems: unknown nodes, clusters and sites, and changes that come at or after the end.
    """
    nodes = [node.name for node in topology.nodes]
    changes: list[Change] = []
    for i, spec in enumerate(specs):
        where = f"timeline[{i}]"
        if spec.at_s >= duration_s:
            problems.append(
                f"{where}.at_s: {spec.at_s:g} is not before the end; use less than {duration_s:g}"
            )
        if spec.node is not None:
            known(f"{where}.node", "node", spec.node, nodes, problems)
        changes += _changes(where, spec, topology, problems)
    return tuple(sorted(changes, key=lambda change: change.at_s))


def _changes(where: str, spec: ChangeSpec, topology: Topology, problems: Problems) -> list[Change]:
    if spec.link is not None:
        sites = places_named(f"{where}.link.site", "site", spec.link.site, topology.sites, problems, ("*",))
        of = places_named(f"{where}.link.cluster", "cluster", spec.link.cluster, topology.clusters, problems)
        values = (spec.up, spec.delay_s, spec.deviation_s, spec.bandwidth_bps)
        return [LinkChange(spec.at_s, site.name, to.name, *values) for site in sites for to in of]
    names = [str(spec.node)]
    if spec.cluster is not None:
        of = places_named(f"{where}.cluster", "cluster", spec.cluster, topology.clusters, problems)
        names = [node.name for cluster in of for node in cluster.nodes]
    return [NodeChange(spec.at_s, name, bool(spec.up)) for name in names]


def check_applications(applications: Sequence[ApplicationSpec], catalog: Catalog, problems: Problems) -> None:
    """Every task has a model, and some application has weight."""
    unique("streams.applications", [application.name for application in applications], problems)
    tasks = [model.task for model in catalog.models]
    for i, application in enumerate(applications):
        if application.task not in tasks:
            problems.append(
                f"streams.applications[{i}].task: no model has task {application.task!r}; "
                f"{nearest(application.task, tasks)}"
            )
    if not any(application.weight > 0 for application in applications):
        problems.append("streams.applications: every weight is 0; give one application a weight > 0")


def expand(name: str, count: int | None) -> tuple[str, ...]:
    """`name` itself, or name-0 … name-(count-1)."""
    return (name,) if count is None else tuple(f"{name}-{k}" for k in range(count))


def _kinds(specs: Iterable[SiteSpec | ClusterSpec]) -> list[str]:
    """Names that stand for several places."""
    return [spec.name for spec in specs if spec.count is not None]


def _variant(spec: VariantSpec) -> Variant:
    profile = Profile(**dict(spec.profile))
    capacity = spec.capacity_qps
    if capacity is None:
        capacity = spec.servers * spec.max_batch / profile.delay_s(spec.largest_bytes, spec.max_batch)
    return Variant(
        name=spec.name,
        model=spec.model,
        resources=Resources(**dict(spec.resources)),
        profile=profile,
        capacity_qps=capacity,
        largest_bytes=spec.largest_bytes,
        max_batch=spec.max_batch,
        servers=spec.servers,
        file=spec.file,
        batch_timeout_s=spec.batch_timeout_s,
    )


def _sites(i: int, spec: SiteSpec, clusters: Sequence[Cluster], problems: Problems) -> Iterable[Site]:
    """Sites of a form; the k-th of a kind has the k-th cluster of a kind for its own."""
    where, names, own = f"sites[{i}].cluster", expand(spec.name, spec.count), list[str]()
    if spec.cluster is not None:
        found = places_named(where, "cluster", spec.cluster, clusters, problems)
        own = [cluster.name for cluster in found]
        if own == [spec.cluster]:
            own *= len(names)
        if (found and len(own) < len(names)) or len(own) > len(names) == 1:
            which = f"{len(own)} clusters, {', '.join(own[:3])}{', …' if len(own) > 3 else ''}"
            problems.append(
                f"{where}: {spec.cluster!r} stands for {which}, for {len(names)} sites; "
                + ("name one of them" if len(names) == 1 else "give as many")
            )
    for k, name in enumerate(names):
        mine = own[k] if k < len(own) else ""
        yield Site(name, spec.access_delay_s, spec.uplink_bps, mine)


def _cluster(name: str, spec: ClusterSpec) -> Cluster:
    before = "" if spec.count is None else f"{name}."
    nodes = tuple(
        Node(before + each, name, Resources(**dict(node.resources)), node.speed_ops, node.speed_cores)
        for node in spec.nodes
        for each in expand(node.name, node.count)
    )
    return Cluster(name, spec.tier, nodes)


Placed = list[tuple[str, str]]  # (variant, node)
MOST_WORKERS = 100_000


def deploy(
    specs: Sequence[WorkerSpec], catalog: Catalog, clusters: Sequence[Cluster], problems: list[str]
) -> tuple[Worker, ...]:
    """Place workers in order; what has been placed before keeps its resources.

    A node takes all that a form says, and so does each node of a kind of cluster; over the nodes of one
    cluster they are spread, first fit.
    """
    left = {node.name: list(node.resources.as_tuple()) for c in clusters for node in c.nodes}
    total = {node.name: node.resources.as_tuple() for c in clusters for node in c.nodes}
    placed: list[tuple[str, str]] = []
    for i, spec in enumerate(specs):
        need = catalog.variant(spec.variant).resources.as_tuple()
        if spec.count == "fill" and not any(need):
            problems.append(
                f"workers[{i}].count: 'fill' never ends, variant {spec.variant!r} reserves nothing; "
                "give it resources or a number"
            )
            continue
        wanted = MOST_WORKERS if spec.count == "fill" else int(spec.count)
        for nodes in _where(spec, clusters):
            done = 0
            for node in nodes:
                while done < wanted and fits(need, left[node], total[node]):
                    left[node] = [have - take for have, take in zip(left[node], need, strict=True)]
                    placed.append((spec.variant, node))
                    done += 1
            if done < wanted and (spec.count != "fill" or done == 0):
                problems.append(_does_not_fit(i, spec, need, nodes, left, done))
                break
    return named(placed)


def _where(spec: WorkerSpec, clusters: Sequence[Cluster]) -> list[list[str]]:
    """Groups of nodes, each of which takes `count` workers: a node, those of a cluster, each of a kind."""
    if spec.node is not None:
        return [[spec.node]]
    of = [[node.name for node in c.nodes] for c in meant(str(spec.cluster), clusters)]
    is_one = spec.cluster in [c.name for c in clusters]
    return of if is_one else [[name] for names in of for name in names]


def fits(need: Sequence[float], left: Sequence[float], total: Sequence[float]) -> bool:
    """Whether `need` is left, up to rounding: ten workers of 0.1 cores fit one core."""
    return bool(have_room(np.array(need), np.array(left), np.array(total)).all())


def _does_not_fit(
    i: int,
    spec: WorkerSpec,
    need: Sequence[float],
    nodes: Sequence[str],
    left: dict[str, list[float]],
    done: int,
) -> str:
    """What is missing on the node that has the most room."""

    def lacking(node: str) -> list[str]:
        return [
            f"{kind} needs {n:g}, {max(have, 0.0):g} left"
            for kind, n, have in zip(KINDS, need, left[node], strict=True)
            if n > have
        ]

    best = min(nodes, key=lambda node: len(lacking(node)))
    each = spec.cluster is not None and len(nodes) == 1
    place = f"node {nodes[0]!r}" if spec.node or each else f"cluster {spec.cluster!r}"
    return (
        f"workers[{i}].count: {done} of {spec.count} workers of {spec.variant!r} fit {place}; "
        f"on {best!r} {', '.join(lacking(best))}; lower count or add resources"
    )


def named(placed: Sequence[tuple[str, str]]) -> tuple[Worker, ...]:
    """variant@node, numbered where a node has several workers of one variant."""
    several = Counter(placed)
    seen: dict[tuple[str, str], int] = {}
    workers = []
    for pair in placed:
        variant, node = pair
        number = seen.get(pair, 0)
        seen[pair] = number + 1
        workers.append(
            Worker(f"{variant}@{node}" + (f"#{number}" if several[pair] > 1 else ""), variant, node)
        )
    return tuple(workers)


def fill(nodes: Sequence[Node], mix: Mapping[str, float], catalog: Catalog) -> Placed:
    """Fill the nodes of a cluster, one after the other, with a mix of variants until nothing fits.

    Each turn places the variant whose number in the cluster, divided by its share, is least among
    those that fit the node (ties: the earlier in the mix). So variants that compete for the same
    resource keep their shares, and no resource stays free that a variant of the mix could use.

    Args:
        mix: variant name → share > 0; every variant reserves something.
    """
    need = {name: catalog.variant(name).resources.as_tuple() for name in mix}
    count = dict.fromkeys(mix, 0)
    placed: Placed = []
    for node in nodes:
        total = node.resources.as_tuple()
        left = list(total)
        while fitting := [name for name in mix if fits(need[name], left, total)]:
            name = min(fitting, key=lambda name: count[name] / mix[name])
            left = [have - take for have, take in zip(left, need[name], strict=True)]
            count[name] += 1
            placed.append((name, node.name))
    return placed


def check_mix(where: str, mix: Mapping[str, float], catalog: Catalog, problems: list[str]) -> bool:
    """Whether every variant of a mix exists and reserves something; else problems are added."""
    needs = {variant.name: variant.resources.as_tuple() for variant in catalog.variants}
    before = len(problems)
    for name in mix:
        known(where, "variant", name, needs, problems)
        if not any(needs.get(name, (1.0,))):
            problems.append(
                f"{where}: variant {name!r} reserves nothing, so nothing limits it; give it resources"
            )
    return len(problems) == before
