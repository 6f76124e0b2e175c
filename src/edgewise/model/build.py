"""From the YAML form to a catalog and a topology, with every wrong reference named.

Forbidden here: I/O, and stopping at the first problem: they are collected in a list.
"""

from collections.abc import Iterable, Sequence

from edgewise.model.deploy import deploy
from edgewise.model.grammar.places import (
    CatalogSpec,
    ClusterSpec,
    SiteSpec,
    VariantSpec,
)
from edgewise.model.grammar.scenario import ChangeSpec, ScenarioSpec
from edgewise.model.grammar.services import ApplicationSpec
from edgewise.model.kinds import places_named
from edgewise.model.problems import Problems, known, nearest, unique
from edgewise.model.topology import (
    CPU,
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
)
from edgewise.model.ways import build_cables, build_links, build_ways, check_over, unused_of

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
    deployed = deploy(worker_specs, catalog, clusters, problems) if len(problems) == before else ((), ())
    unused = unused_of(spec.links or (), ways, links, sites)
    return Topology(sites, clusters, ways, deployed[0], links, tuple(cables.values()), deployed[1], unused)


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
        image_bytes=spec.image_bytes,
        start_s=spec.start_s,
        providers=spec.providers or (CPU,),
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
        Node(
            before + each,
            name,
            Resources(**dict(node.resources)),
            node.speed_ops,
            node.speed_cores,
            node.cost,
        )
        for node in spec.nodes
        for each in expand(node.name, node.count)
    )
    return Cluster(name, spec.tier, nodes)
