"""From the YAML form to a catalog and a topology, with every wrong reference named.

Forbidden here: I/O, and stopping at the first problem: they are collected in a list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from edgewise.model.catalog import Catalog, Model, Profile, Variant
from edgewise.model.problems import nearest
from edgewise.model.resources import KINDS, Resources
from edgewise.model.spec import (
    CatalogSpec,
    ClusterSpec,
    LinkSpec,
    ResourcesSpec,
    ScenarioSpec,
    SiteSpec,
    VariantSpec,
    WorkerSpec,
)
from edgewise.model.topology import Cluster, Link, Node, Site, Topology, Worker

Problems = list[str]
SLACK = 1e-9  # relative, so that ten workers of 0.1 cores fit one core
MOST_WORKERS = 100_000


def build_catalog(spec: CatalogSpec, problems: Problems) -> Catalog:
    """Models and variants; a variant of an unknown model, and a name given twice, are problems."""
    _unique("catalog.models", [model.name for model in spec.models], problems)
    _unique("catalog.variants", [variant.name for variant in spec.variants], problems)
    names = [model.name for model in spec.models]
    for i, variant in enumerate(spec.variants):
        _known(f"catalog.variants[{i}].model", "model", variant.model, names, problems)
    return Catalog(
        models=tuple(Model(model.name, model.task, model.accuracy) for model in spec.models),
        variants=tuple(_variant(variant) for variant in spec.variants),
    )


def build_topology(spec: ScenarioSpec, catalog: Catalog, problems: Problems) -> Topology:
    """Sites, clusters, links and workers, with counts expanded.

    Problems: names given twice, unknown names, a site without a link to a cluster, workers
    that do not fit their node.
    """
    sites = tuple(_site(name, site) for site in spec.sites for name in expand(site.name, site.count))
    clusters = tuple(_cluster(cluster) for cluster in spec.clusters)
    _unique("sites", [site.name for site in sites], problems)
    _unique("clusters", [cluster.name for cluster in clusters], problems)
    _unique("clusters.nodes", [node.name for c in clusters for node in c.nodes], problems)
    links = _links(spec.links, sites, clusters, problems)
    before = len(problems)
    for i, worker in enumerate(spec.workers):
        _known(
            f"workers[{i}].variant", "variant", worker.variant, [v.name for v in catalog.variants], problems
        )
        if worker.node is not None:
            nodes = [node.name for c in clusters for node in c.nodes]
            _known(f"workers[{i}].node", "node", worker.node, nodes, problems)
        if worker.cluster is not None:
            _known(f"workers[{i}].cluster", "cluster", worker.cluster, [c.name for c in clusters], problems)
    workers = _deploy(spec.workers, catalog, clusters, problems) if len(problems) == before else ()
    return Topology(sites, clusters, links, workers)


def check_applications(spec: ScenarioSpec, catalog: Catalog, problems: Problems) -> None:
    """Every task has a model, and some application has weight."""
    _unique("applications", [application.name for application in spec.applications], problems)
    tasks = [model.task for model in catalog.models]
    for i, application in enumerate(spec.applications):
        if application.task not in tasks:
            problems.append(
                f"applications[{i}].task: no model has task {application.task!r}; "
                f"{nearest(application.task, tasks)}"
            )
    if not any(application.weight > 0 for application in spec.applications):
        problems.append("applications: every weight is 0; give one application a weight > 0")


def expand(name: str, count: int | None) -> tuple[str, ...]:
    """`name` itself, or name-0 … name-(count-1)."""
    return (name,) if count is None else tuple(f"{name}-{k}" for k in range(count))


def _unique(where: str, names: Sequence[str], problems: Problems) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    problems.extend(f"{where}: the name {name!r} is given twice; rename one" for name in twice)


def _known(where: str, kind: str, name: str, known: Iterable[str], problems: Problems) -> None:
    names = list(known)
    if name not in names:
        problems.append(f"{where}: unknown {kind} {name!r}; {nearest(name, names)}")


def _resources(spec: ResourcesSpec) -> Resources:
    return Resources(*(getattr(spec, kind) for kind in KINDS))


def _variant(spec: VariantSpec) -> Variant:
    p = spec.profile
    profile = Profile(p.fixed_s, p.per_byte_s, p.batch_slope, p.deviation, p.source)
    capacity = spec.capacity_qps
    if capacity is None:
        capacity = spec.servers * spec.max_batch / profile.delay_s(spec.largest_bytes, spec.max_batch)
    return Variant(
        name=spec.name,
        model=spec.model,
        resources=_resources(spec.resources),
        profile=profile,
        capacity_qps=capacity,
        largest_bytes=spec.largest_bytes,
        max_batch=spec.max_batch,
        servers=spec.servers,
        file=spec.file,
    )


def _site(name: str, spec: SiteSpec) -> Site:
    return Site(name, spec.access_delay_s, spec.uplink_bps)


def _cluster(spec: ClusterSpec) -> Cluster:
    nodes = tuple(
        Node(name, spec.name, _resources(node.resources))
        for node in spec.nodes
        for name in expand(node.name, node.count)
    )
    return Cluster(spec.name, spec.tier, nodes)


def _links(
    specs: Sequence[LinkSpec], sites: Sequence[Site], clusters: Sequence[Cluster], problems: Problems
) -> tuple[Link, ...]:
    cluster_names = [cluster.name for cluster in clusters]
    given: dict[tuple[str, str], LinkSpec] = {}
    for i, spec in enumerate(specs):
        _known(f"links[{i}].site", "site", spec.site, ["*", *(site.name for site in sites)], problems)
        _known(f"links[{i}].cluster", "cluster", spec.cluster, cluster_names, problems)
        if (spec.site, spec.cluster) in given:
            problems.append(
                f"links[{i}]: a second link from {spec.site!r} to {spec.cluster!r}; remove one of them"
            )
        given[spec.site, spec.cluster] = spec
    links = []
    for site in sites:
        for cluster in cluster_names:
            found = given.get((site.name, cluster)) or given.get(("*", cluster))
            if found is None:
                problems.append(
                    f"links: no link from site {site.name!r} to cluster {cluster!r}; "
                    f"add {{site: {site.name}, cluster: {cluster}, delay_s: …}}"
                )
                continue
            links.append(Link(site.name, cluster, found.delay_s, found.deviation_s, found.bandwidth_bps))
    return tuple(links)


def _deploy(
    specs: Sequence[WorkerSpec], catalog: Catalog, clusters: Sequence[Cluster], problems: Problems
) -> tuple[Worker, ...]:
    """Place workers in order, first fit; what has been placed before keeps its resources."""
    left = {node.name: list(node.resources.as_tuple()) for c in clusters for node in c.nodes}
    total = {node.name: node.resources.as_tuple() for c in clusters for node in c.nodes}
    placed: list[tuple[str, str]] = []
    for i, spec in enumerate(specs):
        need = catalog.variant(spec.variant).resources.as_tuple()
        nodes = (
            [spec.node]
            if spec.node
            else [n.name for c in clusters if c.name == spec.cluster for n in c.nodes]
        )
        if spec.count == "fill" and not any(need):
            problems.append(
                f"workers[{i}].count: 'fill' never ends, variant {spec.variant!r} reserves nothing; "
                "give it resources or a number"
            )
            continue
        wanted = MOST_WORKERS if spec.count == "fill" else int(spec.count)
        done = 0
        for node in nodes:
            while done < wanted and _fits(need, left[node], total[node]):
                left[node] = [have - take for have, take in zip(left[node], need, strict=True)]
                placed.append((spec.variant, node))
                done += 1
        if done < wanted and (spec.count != "fill" or done == 0):
            problems.append(_does_not_fit(i, spec, need, nodes, left, done))
    return _named(placed)


def _fits(need: Sequence[float], left: Sequence[float], total: Sequence[float]) -> bool:
    return all(n <= have + SLACK * all_ for n, have, all_ in zip(need, left, total, strict=True))


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
    place = f"node {spec.node!r}" if spec.node else f"cluster {spec.cluster!r}"
    return (
        f"workers[{i}].count: {done} of {spec.count} workers of {spec.variant!r} fit {place}; "
        f"on {best!r} {', '.join(lacking(best))}; lower count or add resources"
    )


def _named(placed: Sequence[tuple[str, str]]) -> tuple[Worker, ...]:
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
