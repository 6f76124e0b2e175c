"""What to change of a scenario so that a limit is raised: settings, as `--set` takes them."""

import math
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from edgewise.limits.reach import Reach, WorkerGroup
from edgewise.limits.rooms import NodeRoom, more
from edgewise.limits.words import Cure, percent, took
from edgewise.model.grammar.places import OWN, SITE, ClusterSpec, LinkSpec, NodeSpec, WorkerSpec
from edgewise.model.scenario import Scenario
from edgewise.report.summary import rate

ROOMY = 0.8  # of what a cure gives, that much is asked for


def rounded_up(value: float, digits: int = 2) -> float:
    """To so many digits."""
    if value <= 0.0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return float(f"{math.ceil(value / unit - 1e-9) * unit:.12g}")


def link(scenario: Scenario, name: str, asked_bps: float) -> tuple[Cure, ...]:
    """More bandwidth for a link that is called as in `model.ways.Routes`."""
    base, bps = name.rpartition(":")[0], rounded_up(asked_bps / ROOMY)
    for i, spec in enumerate(scenario.spec.links or ()):
        if base in _names(scenario, i, spec):
            path = f"links.{spec.name}" if spec.name else f"links.{i}"
            return (Cure(f"{path}.bandwidth_bps = {rate(bps)}", ((f"{path}.bandwidth_bps", bps),)),)
    return (Cure(f"a link {base} of {rate(bps)}"),)


def _names(scenario: Scenario, number: int, spec: LinkSpec) -> set[str]:
    """What the links of an entry are called."""
    sites = scenario.topology.sites
    if spec.name is not None:
        return {spec.name.replace(SITE, site.name) for site in sites} | {spec.name}
    if spec.site is None or spec.over:
        return set()
    found = set()
    for site in sites:
        for cluster in scenario.topology.clusters:
            own = cluster.name == site.cluster
            ends = [cluster.name, *([OWN] if own else []), "*"]
            entries = [
                k
                for where in (site.name, "*")
                for end in ends
                for k, each in enumerate(scenario.spec.links or ())
                if (each.site, each.cluster) == (where, end)
            ]
            if entries and entries[0] == number:
                found.add(f"{site.name}-{cluster.name}")
    return found


def workers(
    scenario: Scenario, rooms: Mapping[str, NodeRoom], group: WorkerGroup, share: float
) -> tuple[Cure, ...]:
    """More workers where their nodes have room, or else more nodes; as many as the load asks for."""
    wanted = max(math.ceil(group.most * (share / ROOMY - 1.0)), 1)
    at = _entry(scenario, group)
    if at is not None and at[1].scales:
        return _pool(group, *at, wanted) or nodes(scenario, group, wanted)
    alike = len(group.nodes) if at is not None and _for_each_node(scenario, at[1]) else 1
    room = more(scenario, rooms, group.variant, group.nodes) // alike
    if room and at is not None and at[1].count != "fill":
        number, spec = at
        raised = int(spec.count) + min(math.ceil(wanted / alike), room)
        text = f"workers.{number}.count = {raised} ({group.variant} at {spec.node or spec.cluster})"
        return (Cure(text, ((f"workers.{number}.count", raised),)),)
    return nodes(scenario, group, wanted)


def _pool(group: WorkerGroup, number: int, spec: WorkerSpec, wanted: int) -> tuple[Cure, ...]:
    """More workers that there may be at once, where their nodes have room."""
    if spec.most is None or group.most == len(group.workers):
        return ()
    raised = min(spec.most + wanted, len(group.workers))
    text = f"workers.{number}.most = {raised} ({group.variant} at {spec.node or spec.cluster})"
    return (Cure(text, ((f"workers.{number}.most", raised),)),)


def nodes(scenario: Scenario, group: WorkerGroup, wanted: int) -> tuple[Cure, ...]:
    """More nodes like those that a group is on, with its workers."""
    if scenario.spec.topology is not None:
        return _generated(scenario, group, wanted)
    found = _node(scenario, group)
    if found is None:
        return ()
    cluster, node = found
    each = max(group.most // max(len(group.nodes), 1), 1)
    extra = math.ceil(wanted / each)
    one = "one more node" if extra == 1 else f"{extra} more nodes"
    at = _entry(scenario, group)
    if node.count is None:
        return (
            Cure(
                f"{one} like {group.nodes[0]} in cluster {group.cluster}",
                _added(scenario, cluster, node, extra),
            ),
        )
    path = f"clusters.{cluster.name}.nodes.{node.name}.count"
    changes: list[tuple[str, Any]] = [(path, node.count + extra)]
    spread = at is not None and at[1].cluster is not None and not _for_each_node(scenario, at[1])
    if at is not None and spread and at[1].count != "fill":
        changes.append((f"workers.{at[0]}.count", int(at[1].count) + each * extra))
    text = ", ".join(f"{where} = {value}" for where, value in changes)
    return (Cure(f"{one} in cluster {group.cluster} ({text})", tuple(changes)),)


def _added(
    scenario: Scenario, cluster: ClusterSpec, node: NodeSpec, extra: int
) -> tuple[tuple[str, Any], ...]:
    """Beside a node that is called by its name: others with the same workers."""
    spec, known = scenario.spec, {each.name for each in cluster.nodes}
    name = next(name for k in count(1) if (name := f"{node.name}-more-{k}") not in known)
    listed = [each.model_dump(mode="json") for each in cluster.nodes]
    listed.append({**node.model_dump(mode="json"), "name": name, "count": extra})
    given = [each.model_dump(mode="json") for each in spec.workers or ()]
    whole = [dict(each) for each in given]
    for each in given:
        if each["node"] == node.name:
            whole += [{**each, "node": f"{name}-{k}"} for k in range(extra)]
    for each, spread in zip(whole, spec.workers or (), strict=False):
        over_nodes = spread.cluster == cluster.name and not _for_each_node(scenario, spread)
        if over_nodes and spread.count != "fill" and len(cluster.nodes) == 1:
            each["count"] = int(spread.count) * (1 + extra)
    return ((f"clusters.{cluster.name}.nodes", listed), ("workers", whole))


def _generated(scenario: Scenario, group: WorkerGroup, wanted: int) -> tuple[Cure, ...]:
    """More servers in a tier of a generated topology."""
    spec: Any = scenario.spec.topology
    for tier in ("access", "central_office", "data_centre", "cloud"):
        given = getattr(spec, tier, None)
        level = {"access": "access-", "central_office": "office-"}.get(tier, tier.replace("_", "-"))
        if given is not None and group.cluster.startswith(level):
            servers = given.servers + max(math.ceil(wanted * given.servers / max(group.most, 1)), 1)
            path = f"topology.{tier}.servers"
            return (Cure(f"{path} = {servers}", ((path, servers),)),)
    return ()


def _entry(scenario: Scenario, group: WorkerGroup) -> tuple[int, WorkerSpec] | None:
    """Number and entry of `workers` that a group comes from."""
    kinds = {
        each.name
        for each in scenario.spec.clusters or ()
        if group.cluster in {f"{each.name}-{k}" for k in range(each.count or 0)}
    }
    places = {group.cluster, *group.nodes, *kinds}
    for number, spec in enumerate(scenario.spec.workers or ()):
        if spec.variant == group.variant and {spec.node, spec.cluster} & places:
            return number, spec
    return None


def _for_each_node(scenario: Scenario, spec: WorkerSpec) -> bool:
    """Whether an entry's count is of each node, as of a kind of clusters, and not of all nodes together."""
    return any(each.name == spec.cluster and each.count for each in scenario.spec.clusters or ())


def _node(scenario: Scenario, group: WorkerGroup) -> tuple[ClusterSpec, NodeSpec] | None:
    """Cluster and entry of its nodes that a group is on."""
    for cluster in scenario.spec.clusters or ():
        numbered = [f"{cluster.name}-{k}" for k in range(cluster.count or 0)] or [cluster.name]
        if group.cluster in numbered:
            for node in cluster.nodes:
                name = group.nodes[0].removeprefix(f"{group.cluster}.")
                if name == node.name or (node.count and name.rpartition("-")[0] == node.name):
                    return cluster, node
    return None


def variants(
    reach: Reach, rooms: Mapping[str, NodeRoom], need: int, in_time: bool = True
) -> tuple[Cure, ...]:
    """Another variant of the catalog that could serve a need, where a node has room for it."""
    asked, world, scenario = reach.needs[need], reach.world, reach.scenario
    models = {model.name: model for model in scenario.catalog.models}
    found = []
    for variant in scenario.catalog.variants:
        model = models[variant.model]
        if model.task != asked.task or model.accuracy < asked.min_accuracy:
            continue
        for c, cluster in enumerate(scenario.topology.clusters):
            fitting = [
                node.name for node in cluster.nodes if rooms[node.name].lacks(variant.resources) is None
            ]
            out_s = world.access_delay_s[asked.site] + world.delay_s[asked.site, c]
            out_s += 2.0 * world.deviation_s[asked.site, c]
            bps = min(world.uplink_bps[asked.site], world.bandwidth_bps[asked.site, c])
            all_s = 2.0 * out_s + 8.0 * asked.size_bytes / bps + variant.profile.delay_s(asked.size_bytes)
            if fitting and (all_s <= asked.deadline_s[0] or not in_time):
                found.append((all_s, variant.name, cluster.name))
    if not found or scenario.spec.workers is None:
        return ()
    all_s, name, place = min(found)
    given = [each.model_dump(mode="json") for each in scenario.spec.workers]
    added = [*given, {"variant": name, "cluster": place, "count": 1}]
    text = f"a worker of {name} at {place}, which answers in {took(all_s)}"
    return (Cure(text, (("workers", added),)),)


def _asker(scenario: Scenario, of: str) -> str:
    """Where an application or a source stands."""
    sources = {each.name for each in scenario.streams.sources}
    return f"streams.{'sources' if of in sources else 'applications'}.{of}"


def accuracy(scenario: Scenario, of: str, best: float) -> Cure:
    """What there is will do."""
    path = f"{_asker(scenario, of)}.min_accuracy"
    return Cure(f"{path} = {best:g}, the best there is", ((path, best),))


def deadline(scenario: Scenario, of: str, needed_s: float, ends_s: tuple[float, float]) -> Cure:
    """A longer one."""
    path, least = f"{_asker(scenario, of)}.deadline_s", rounded_up(needed_s * 1.02)
    most = max(least, ends_s[1])
    value: Any = least if least == most else [least, most]
    said = took(least) if least == most else f"{took(least)} to {took(most)}"
    return Cure(f"{path} = {said}", ((path, value),))


def joined(names: Sequence[str]) -> str:
    """Names in a sentence, a few of many."""
    few = list(names[:3])
    return ", ".join(few) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


__all__ = ["accuracy", "deadline", "joined", "link", "nodes", "percent", "rounded_up", "variants", "workers"]
