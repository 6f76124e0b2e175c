"""A limit and its cures from what was asked for and what there is."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from edgewise.errors import ScenarioError
from edgewise.limits import cures
from edgewise.limits.load import edges_of, in_steps, when_over
from edgewise.limits.reach import Reach, WorkerGroup
from edgewise.limits.rooms import NodeRoom, amount, more
from edgewise.limits.words import Cure, Limit, alike, percent, since, took
from edgewise.model.grammar.pipelines import PipelineSpec
from edgewise.model.pipelines import Pipeline
from edgewise.model.scenario import Scenario
from edgewise.model.topology import Resources
from edgewise.report.summary import rate
from edgewise.workloads.pipelines import pipelines_of
from edgewise.workloads.services import PROFILED

FULL = 0.95  # share of a capacity from which on people call it full


class Load(NamedTuple):
    """What was asked of something at its busiest, and what was lost to it.

    Attributes:
        share: of its capacity.
        lost: share of the work of its kind.
        when_s: since when work is lost, or it is full; None: never.
    """

    share: float
    lost: float = 0.0
    when_s: float | None = None


def _loses(load: Load) -> str:
    return f"; {percent(load.lost)} of the work is lost to it" if load.lost > 0.0 else ""


def link(scenario: Scenario, name: str, has_bps: float, load: Load, names: Sequence[str] = ()) -> Limit:
    """Of a link that is called as in `model.ways.Routes`; `names`: of it and those that are alike."""
    base, _, way = name.rpartition(":")
    one = alike([base if way == "both" else f"{base} ({way})", *names[1:]])
    asked, has = rate(float(f"{load.share * has_bps:.3g}")), rate(has_bps)
    amount = f"{asked.split()[0]} of {has}" if asked.split()[1] == has.split()[1] else f"{asked} of {has}"
    state = "is full" if load.share >= FULL else f"is {percent(load.share)} full at its busiest"
    text = f"the link {one} {state}: {amount}{since(load.when_s)}{_loses(load)}"
    found = cures.link(scenario, name, load.share * has_bps)
    return Limit("link", name, load.share, load.lost, load.when_s, text, found)


def workers(
    scenario: Scenario, rooms: Mapping[str, NodeRoom], groups: Sequence[WorkerGroup], load: Load
) -> Limit:
    """Of groups that are alike: workers where a node has room for more of them, or else their nodes."""
    group, names = groups[0], alike([each.name for each in groups])
    count, room = group.most, more(scenario, rooms, groups[0].variant, group.nodes)
    room = len(group.workers) - group.most if group.pooled else room
    are, they = ("is", "it can") if count == 1 else ("are", "they can")
    all_of = "the worker of" if count == 1 else f"the {count} workers of"
    asked = f"{are} {percent(load.share)} busy at the busiest"
    if load.share >= FULL:
        asked = f"{are} full: {percent(load.share)} of what {they} do is asked for"
    elif load.lost > 0.0:
        asked += ", so that queries wait for each other longer than their deadlines leave"
    text = f"{all_of} {names} {asked}{since(load.when_s)}"
    raised = cures.workers(scenario, rooms, group, load.share)
    if room:
        fit = f"there is room for {room} more" if room > 1 else "there is room for one more"
        text += f", and {fit}{_loses(load)}"
        return Limit("worker", group.name, load.share, load.lost, load.when_s, text, raised)
    lacks = rooms[group.nodes[0]].lacks(scenario.catalog.variant(group.variant).resources)
    where = group.nodes[0] if len(group.nodes) == 1 else f"no node of {group.cluster}"
    has_no = "has no room" if len(group.nodes) == 1 else "has room"
    text += f", and {where} {has_no} for another ({lacks}){_loses(load)}"
    name = group.nodes[0] if len(group.nodes) == 1 else group.cluster
    return Limit("node", name, load.share, load.lost, load.when_s, text, raised)


def unserved(reach: Reach, rooms: Mapping[str, NodeRoom], needs: Sequence[int], load: Load) -> Limit:
    """An application that no worker can serve, at sites where that is so.

    Args:
        needs: of one application; the one that is furthest from being served is described.
    """
    need = max(needs, key=lambda k: _over_s(reach, k))
    asked, sites = reach.needs[need], [reach.world.site_names[reach.needs[k].site] for k in needs]
    every = len(sites) == len(reach.world.site_names)
    where = "" if every else f" at {alike(sites)}"
    nearest = reach.nearest(need)
    lost = f"{since(load.when_s)}{_loses(load)}"
    if nearest is None:
        right = [g for g, x in enumerate(reach.groups) if _task(reach, x) == asked.task]
        best = max((_accuracy(reach, reach.groups[g]) for g in right), default=None)
        if best is None:
            why = f"no worker does {asked.task}"
        else:
            why = f"it wants an accuracy of {asked.min_accuracy:g}, the best worker has {best:g}"
        found = cures.variants(reach, rooms, need)
        found += () if best is None else (cures.accuracy(reach.scenario, asked.of, best),)
        text = f"no variant can serve {asked.of}{where}: {why}{lost}"
        return Limit("variant", asked.of, None, load.lost, load.when_s, text, found)
    least_s, (low_s, high_s) = float(reach.delay_s[need, nearest]), asked.deadline_s
    group = reach.groups[nearest]
    by = f"{took(least_s - high_s)} too long"
    what = f"no worker can keep {asked.of}'s deadline of {_range(asked.deadline_s)}{where}"
    if least_s <= high_s:
        what = f"no worker can keep {asked.of}'s deadlines below {took(least_s)}{where}"
        by = f"deadlines are {_range(asked.deadline_s)}"
    text = f"{what}: the fastest that is accurate enough, {group.name}, takes {took(least_s)}, {by}{lost}"
    found = (
        *cures.variants(reach, rooms, need),
        cures.deadline(reach.scenario, asked.of, least_s, asked.deadline_s),
    )
    return Limit("deadline", asked.of, least_s / low_s, load.lost, load.when_s, text, found)


def _over_s(reach: Reach, need: int) -> float:
    nearest = reach.nearest(need)
    return float("inf") if nearest is None else float(reach.delay_s[need, nearest])


def _range(ends_s: tuple[float, float]) -> str:
    low, high = ends_s
    return took(low) if low == high else f"{took(low)} to {took(high)}"


def _task(reach: Reach, group: WorkerGroup) -> str:
    catalog = reach.scenario.catalog
    return catalog.model(catalog.variant(group.variant).model).task


def _accuracy(reach: Reach, group: WorkerGroup) -> float:
    catalog = reach.scenario.catalog
    return catalog.model(catalog.variant(group.variant).model).accuracy


def cores(scenario: Scenario, name: str, kind: str, has: float, load: Load) -> Limit:
    """Of a node's cores that workers leave to replicas, or of services' workers in the cloud."""
    what = f"the {has:.3g} cores that workers leave on {name}" if kind == "node" else f"the workers {name}"
    state = "are full" if load.share >= FULL else f"are {percent(load.share)} busy at the busiest"
    text = f"{what} {state} with requests: {percent(load.share)} asked for{since(load.when_s)}{_loses(load)}"
    return Limit(kind, name, load.share, load.lost, load.when_s, text)


def jobs(scenario: Scenario, rooms: Mapping[str, NodeRoom]) -> list[Limit]:
    """How much of the cores that workers leave jobs ask for, over the whole run."""
    if scenario.jobs is None:
        return []
    pattern = scenario.jobs.pattern
    asked = sum(job.resources.cpu_cores * job.duration_s for job in scenario.jobs.submitted)
    drawn = float(
        np.dot(pattern.cores, pattern.core_shares) * np.dot(pattern.durations, pattern.duration_shares)
    )
    asked += drawn * pattern.jobs_per_slot * pattern.slots * pattern.slot_s
    left = sum(room.free[0] for room in rooms.values()) * (1.0 - pattern.load_mean) * scenario.duration_s
    share = asked / left if left > 0.0 else float("inf")
    text = f"jobs ask for {percent(share)} of the core-seconds that other work leaves"
    return [Limit("node", "all nodes", share, 0.0, None, text)]


def pipelines(scenario: Scenario, rooms: Mapping[str, NodeRoom]) -> list[Limit]:
    """How much of the memory that workers leave pipelines hold at the busiest, where none waits.

    One whose length is in frames stays at least as long as its slowest task takes on the fastest node.
    """
    if not scenario.pipelines:
        return []
    nodes = [node for node in scenario.topology.nodes if node.speed_ops > 0.0]
    free, fastest_ops = sum(rooms[node.name].free[1] for node in nodes), max(node.speed_ops for node in nodes)
    if not (known := pipelines_known(scenario)):
        return []
    start_s = np.array([each.arrival_s for each in known])
    holds = np.array([sum(task.memory_bytes for task in each.graph.tasks) for each in known])
    stays_s = [
        each.duration_s
        if each.duration_s is not None
        else (each.frames or 0.0) * max(task.work_ops for task in each.graph.tasks) / fastest_ops
        for each in known
    ]
    edges = edges_of(scenario.duration_s)
    held = in_steps(start_s, np.minimum(start_s + stays_s, scenario.duration_s), holds, edges)
    shares = held / free if free > 0.0 else np.full(held.shape, np.inf)
    share = float(shares.max())
    over = np.maximum(shares - 1.0, 0.0) / np.maximum(shares, 1.0)
    lost = float(np.average(over, weights=held)) if share > 1.0 and np.isfinite(share) else float(share > 1.0)
    load = Load(share, lost, when_over(shares, FULL, edges))
    text = (
        f"pipelines hold {percent(share)} of the {amount('memory', free)} of memory that workers leave, "
        f"at the busiest{since(load.when_s)}{_loses(load)}"
    )
    return [Limit("node", "all nodes", share, lost, load.when_s, text)]


def pipelines_known(scenario: Scenario) -> list[Pipeline]:
    """Those of one seed that nobody runs; what has still to be profiled is left out."""
    try:
        return list(pipelines_of(scenario, PROFILED))
    except ScenarioError:
        return []


def too_large(scenario: Scenario, rooms: Mapping[str, NodeRoom]) -> list[Limit]:
    """Jobs and tasks of pipelines for which no node has room beside its workers."""
    wanted = [
        (f"job {number}", job.resources)
        for number, job in enumerate(scenario.jobs.submitted if scenario.jobs else ())
    ]
    for spec in scenario.pipelines or ():
        if isinstance(spec, PipelineSpec):
            wanted += [(f"task {t.name} of {spec.name}", Resources(0.0, t.memory_bytes)) for t in spec.tasks]
    found = []
    for name, needs in wanted:
        lacks = {room.node: room.lacks(needs) for room in rooms.values()}
        if all(lacks.values()):
            best = max(rooms.values(), key=lambda room: room.free[:2])
            text = f"no node has room for {name} beside its workers: {best.node} has {lacks[best.node]}"
            found.append(Limit("node", best.node, None, 0.0, None, text))
    return found


def policy(lost: float, when_s: float) -> Limit:
    """Queries that are lost though there was room."""
    text = (
        f"{percent(lost)} of the work comes late or is refused though nothing it needs is full: a policy "
        "that chooses otherwise may serve it"
    )
    cure = Cure("another policy: edgewise compare --policies all")
    return Limit("policy", "dispatch", None, lost, when_s, text, (cure,))


def down(node: str | None, lost: float, when_s: float) -> Limit:
    """Of a node that failed."""
    who = "nodes are" if node is None else f"the node {node} is"
    text = f"{who} down{since(when_s)}; {percent(lost)} of the work is lost to it"
    return Limit("node", node or "nodes", None, lost, when_s, text, (Cure("a second node for its work"),))
