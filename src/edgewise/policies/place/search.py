"""Kernels of the joint scheduler: pipelines use links (and nodes), a fast filling, and local search.

A placed pipeline J that runs at x frames per second takes a_{J,r} x of each resource r: on a link volume of
its flows there, on a node (when tasks share it) the work of its tasks there. Bandwidth follows from x as
b_f = V_f x_J, so nothing is reserved that the pipeline cannot use.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgewise.arrays import Floats, Ints
from edgewise.core.compiled import kernel
from edgewise.core.keyed import Purpose, uniform_of
from edgewise.core.order import rising
from edgewise.policies.place.paths import PathRows

HUGE = 1e9
GAIN = 1e-6  # least relative improvement that counts
REROUTE, BLOCK = 0.3, 0.65  # 30 % of the moves change a path, 35 % move a block, the others one task
SPREAD, LEAST_SHARE = 0.5, 0.1
POLICY = int(Purpose.POLICY)


class PlacementPlan(NamedTuple):
    """Jobs, their present decision, and what they use; kernels change the decision in place.

    Attributes:
        task_begin, edge_begin: (J + 1,) first task and edge of each pipeline.
        source: (J,) node of the input.
        work, memory: (T,) of all tasks.
        tail, head: (E,) indices over all tasks; tail -1 is the source.
        volume: (E,) bits.
        node: (T,) node of each task.
        path: (E,) candidate path of each edge.
        home: (T,) nodes of a running pipeline now; -1 for a new pipeline.
        used, amount, uses: (J, R), (J, R), (J,) the resources that a pipeline uses, a_{J,r} of each, and how
            many; links come first, then nodes.
        cap: (J,) frames per second that the nodes allow; 0: the pipeline is not placed and uses nothing.
        free: (N,) memory left.
    """

    task_begin: Ints
    edge_begin: Ints
    source: Ints
    work: Floats
    memory: Floats
    tail: Ints
    head: Ints
    volume: Floats
    node: Ints
    path: Ints
    home: Ints
    used: NDArray[np.int32]
    amount: Floats
    uses: Ints
    cap: Floats
    free: Floats


class SearchInput(NamedTuple):
    """What there is, and how the search values it.

    Attributes:
        capacity: (R,) bandwidth of links, then speed of nodes.
        speed: (N,) of nodes.
        links: how many of the resources are links.
        share_cpu: tasks share their node.
        floor: part of its equal share that every pipeline is given before the rest goes where it does most.
        penalty: part of a pipeline's throughput that moving it costs.
    """

    capacity: Floats
    speed: Floats
    links: int
    share_cpu: bool
    floor: float
    penalty: float


@kernel
def measure(plan: PlacementPlan, limits: SearchInput, rows: PathRows, pipeline: int) -> bool:
    """Set use and cap of one pipeline from its nodes and paths; False when a flow has no path."""
    count, slowest_s = 0, 0.0
    used, amount = plan.used[pipeline], plan.amount[pipeline]
    for t in range(plan.task_begin[pipeline], plan.task_begin[pipeline + 1]):
        slowest_s = max(slowest_s, plan.work[t] / limits.speed[plan.node[t]])
        if limits.share_cpu and plan.work[t] > 0.0:
            count = _add(used, amount, count, limits.links + plan.node[t], plan.work[t])
    for e in range(plan.edge_begin[pipeline], plan.edge_begin[pipeline + 1]):
        u = plan.source[pipeline] if plan.tail[e] < 0 else plan.node[plan.tail[e]]
        v = plan.node[plan.head[e]]
        if u == v or plan.volume[e] == 0.0:
            continue
        at = v * rows.k + plan.path[e]
        a, b = rows.start[u, at], rows.start[u, at + 1]
        if a == b:
            plan.path[e] = 0  # this pair has fewer candidates
            a, b = rows.start[u, v * rows.k], rows.start[u, v * rows.k + 1]
            if a == b:
                return False
        for i in range(rows.offset[u] + a, rows.offset[u] + b):
            count = _add(used, amount, count, rows.links[i], plan.volume[e])
    plan.uses[pipeline] = count
    plan.cap[pipeline] = 1.0 / slowest_s if slowest_s > 0.0 else HUGE
    return True


@kernel
def _add(used: NDArray[np.int32], amount: Floats, count: int, resource: int, more: float) -> int:
    for i in range(count):
        if used[i] == resource:
            amount[i] += more
            return count
    used[count] = resource
    amount[count] = more
    return count + 1


@kernel
def fill(plan: PlacementPlan, limits: SearchInput, pipelines: int) -> Floats:
    """(pipelines,) throughput of the first `pipelines` pipelines: a floor for each, then the cheapest first.

    First every pipeline gets `floor` times the rate at which all users of its tightest resource run alike
    (never more than its cap): feasible, as on each resource Σ a_{J,r} x <= capacity. Then, in order of the
    share of all its resources that a frame takes, each pipeline gets all that it can still use.
    """
    total = np.zeros(limits.capacity.size)
    for j in range(pipelines):
        for i in range(plan.uses[j]):
            total[plan.used[j, i]] += plan.amount[j, i]
    rate = np.zeros(pipelines)
    price = np.zeros(pipelines)
    for j in range(pipelines):
        rate[j] = plan.cap[j]
        for i in range(plan.uses[j]):
            r = plan.used[j, i]
            rate[j] = min(rate[j], limits.capacity[r] / total[r])
            price[j] += plan.amount[j, i] / max(limits.capacity[r], 1e-300)
        rate[j] *= limits.floor
    left = limits.capacity.copy()
    for j in range(pipelines):
        for i in range(plan.uses[j]):
            left[plan.used[j, i]] -= plan.amount[j, i] * rate[j]
    for j in rising(price):
        more = plan.cap[j] - rate[j]
        for i in range(plan.uses[j]):
            more = min(more, left[plan.used[j, i]] / plan.amount[j, i])
        if more > 0.0:
            rate[j] += more
            for i in range(plan.uses[j]):
                left[plan.used[j, i]] -= plan.amount[j, i] * more
    return rate


@kernel
def value(plan: PlacementPlan, limits: SearchInput, pipelines: int) -> float:
    """Sum of the throughput of so many pipelines, less what it costs to move those that move."""
    rate = fill(plan, limits, pipelines)
    worth = 0.0
    for j in range(pipelines):
        moved = False
        for t in range(plan.task_begin[j], plan.task_begin[j + 1]):
            moved = moved or (plan.home[t] >= 0 and plan.node[t] != plan.home[t])
        worth += rate[j] * (1.0 - limits.penalty) if moved else rate[j]
    return worth


@kernel
def seed_pipeline(
    plan: PlacementPlan, limits: SearchInput, rows: PathRows, pipeline: int, hosts: Ints, given: Ints
) -> bool:
    """Place a new pipeline: the best of `given` nodes (-1: none) and of all cuts between source and one host.

    A cut leaves the first tasks in topological order at the source, as far as its memory goes, and puts the
    others on the host. False when nothing fits; the plan is then as before.
    """
    a, b = plan.task_begin[pipeline], plan.task_begin[pipeline + 1]
    best, best_nodes = -1.0, np.full(b - a, -1)
    trial = np.zeros(b - a, dtype=np.int64)
    for h in range(-1, hosts.size):
        for cut in range(b - a + 1):
            if h < 0:
                if cut > 0 or given[0] < 0:
                    break
                trial[:] = given
            else:
                trial[:cut] = plan.source[pipeline]
                trial[cut:] = hosts[h]
            if not _put(plan, pipeline, trial):
                continue
            if measure(plan, limits, rows, pipeline):
                worth = value(plan, limits, pipeline + 1)
                if worth > best * (1.0 + GAIN):
                    best = worth
                    best_nodes[:] = trial
            _lift(plan, pipeline)
    if best < 0.0:
        plan.node[a:b] = -1
        plan.uses[pipeline] = 0
        plan.cap[pipeline] = 0.0
        return False
    _put(plan, pipeline, best_nodes)
    measure(plan, limits, rows, pipeline)
    return True


@kernel
def _put(plan: PlacementPlan, pipeline: int, nodes: Ints) -> bool:
    """Put a whole pipeline on nodes if their memory allows, on the shortest paths."""
    a = plan.task_begin[pipeline]
    for i in range(nodes.size):
        if plan.free[nodes[i]] < plan.memory[a + i]:
            for back in range(i):
                plan.free[nodes[back]] += plan.memory[a + back]
            return False
        plan.free[nodes[i]] -= plan.memory[a + i]
        plan.node[a + i] = nodes[i]
    plan.path[plan.edge_begin[pipeline] : plan.edge_begin[pipeline + 1]] = 0
    return True


@kernel
def _lift(plan: PlacementPlan, pipeline: int) -> None:
    for t in range(plan.task_begin[pipeline], plan.task_begin[pipeline + 1]):
        plan.free[plan.node[t]] += plan.memory[t]


@kernel
def improve(
    plan: PlacementPlan,
    limits: SearchInput,
    rows: PathRows,
    pipelines: int,
    hosts: Ints,
    seed: np.uint64,
    call: int,
    budget: int,
) -> int:
    """Local search: keep every random move that raises the value; returns how many were kept.

    A move changes the path of one flow, or brings one task, or all tasks of a pipeline that share a node, to
    the node of a neighbouring task, the source or a host; in half of the moves all flows of the pipeline are
    then spread over what the others leave. The search ends when it has looked at `budget` entries of the
    use of pipelines, which bounds its time whatever the size of the network.
    """
    best = value(plan, limits, pipelines)
    rate, left = _state(plan, limits, pipelines)
    kept, spent, step = 0, 0, 0
    entries = plan.uses[:pipelines].sum() + 4 * pipelines  # looked at for one value
    old_node, old_path = plan.node.copy(), plan.path.copy()
    while spent < budget:
        spent += entries
        step += 1
        pipeline = int(uniform_of(seed, POLICY, call, 4 * step) * pipelines)
        if plan.cap[pipeline] == 0.0:
            continue
        if not _change(plan, rows, pipeline, hosts, seed, call, 4 * step):
            spent -= entries - 16
            continue
        if uniform_of(seed, POLICY, call, (1 << 40) + step) < SPREAD:
            spent += _spread(plan, limits, rows, pipeline, rate, left)
        worth = value(plan, limits, pipelines) if measure(plan, limits, rows, pipeline) else -1.0
        if worth > best * (1.0 + GAIN):
            best = worth
            kept += 1
            _keep(plan, pipeline, old_node, old_path)
            rate, left = _state(plan, limits, pipelines)
        else:
            _undo(plan, pipeline, old_node, old_path)
            measure(plan, limits, rows, pipeline)
    return kept


@kernel
def _change(
    plan: PlacementPlan, rows: PathRows, pipeline: int, hosts: Ints, seed: np.uint64, call: int, counter: int
) -> bool:
    """Make one random move; False when it changes nothing or its memory is not there."""
    draw = uniform_of(seed, POLICY, call, counter + 1)
    where = uniform_of(seed, POLICY, call, counter + 2)
    kind = uniform_of(seed, POLICY, call, counter + 3)
    if kind < REROUTE:
        return _reroute(plan, rows, pipeline, draw, where)
    return _move(plan, pipeline, draw, where, hosts, kind < BLOCK)


@kernel
def _state(plan: PlacementPlan, limits: SearchInput, pipelines: int) -> tuple[Floats, Floats]:
    """(pipelines,) throughput of each pipeline, and (R,) what they leave of each resource."""
    rate, left = fill(plan, limits, pipelines), limits.capacity.copy()
    for j in range(pipelines):
        for i in range(plan.uses[j]):
            left[plan.used[j, i]] -= plan.amount[j, i] * rate[j]
    return rate, left


@kernel
def _spread(
    plan: PlacementPlan, limits: SearchInput, rows: PathRows, pipeline: int, rate: Floats, left: Floats
) -> int:
    """Route a pipeline's flows, largest first, over what others leave (LEAST_SHARE at least); links seen."""
    a, b = plan.edge_begin[pipeline], plan.edge_begin[pipeline + 1]
    own = np.zeros(limits.links)
    looked = limits.links // 8
    for i in range(plan.uses[pipeline]):  # as it was before the move
        left[plan.used[pipeline, i]] += plan.amount[pipeline, i] * rate[pipeline]
    for e in a + rising(-plan.volume[a:b]):
        u = plan.source[pipeline] if plan.tail[e] < 0 else plan.node[plan.tail[e]]
        v = plan.node[plan.head[e]]
        if u == v or plan.volume[e] == 0.0:
            continue
        best_s, best = np.inf, 0
        for path in range(rows.k):
            first, last = rows.start[u, v * rows.k + path], rows.start[u, v * rows.k + path + 1]
            slowest_s = 0.0 if last > first else np.inf
            for i in range(rows.offset[u] + first, rows.offset[u] + last):
                r = rows.links[i]
                offer = max(left[r], LEAST_SHARE * limits.capacity[r], 1e-300)
                slowest_s = max(slowest_s, (own[r] + plan.volume[e]) / offer)
            looked += last - first
            if slowest_s < best_s * (1.0 - GAIN):
                best_s, best = slowest_s, path
        plan.path[e] = best
        at = v * rows.k + best
        for i in range(rows.offset[u] + rows.start[u, at], rows.offset[u] + rows.start[u, at + 1]):
            own[rows.links[i]] += plan.volume[e]
    for i in range(plan.uses[pipeline]):
        left[plan.used[pipeline, i]] -= plan.amount[pipeline, i] * rate[pipeline]
    return looked


@kernel
def _keep(plan: PlacementPlan, pipeline: int, node: Ints, path: Ints) -> None:
    """Remember the decision on a pipeline."""
    a, b = plan.task_begin[pipeline], plan.task_begin[pipeline + 1]
    c, d = plan.edge_begin[pipeline], plan.edge_begin[pipeline + 1]
    node[a:b] = plan.node[a:b]
    path[c:d] = plan.path[c:d]


@kernel
def _undo(plan: PlacementPlan, pipeline: int, node: Ints, path: Ints) -> None:
    """Go back to the decision that is remembered."""
    a, b = plan.task_begin[pipeline], plan.task_begin[pipeline + 1]
    c, d = plan.edge_begin[pipeline], plan.edge_begin[pipeline + 1]
    _lift(plan, pipeline)
    plan.node[a:b] = node[a:b]
    plan.path[c:d] = path[c:d]
    for t in range(a, b):
        plan.free[plan.node[t]] -= plan.memory[t]


@kernel
def _reroute(plan: PlacementPlan, rows: PathRows, pipeline: int, draw: float, where: float) -> bool:
    a, b = plan.edge_begin[pipeline], plan.edge_begin[pipeline + 1]
    e = a + int(draw * (b - a))
    u = plan.source[pipeline] if plan.tail[e] < 0 else plan.node[plan.tail[e]]
    v = plan.node[plan.head[e]]
    path = int(where * rows.k)
    if (
        u == v
        or path == plan.path[e]
        or rows.start[u, v * rows.k + path] == rows.start[u, v * rows.k + path + 1]
    ):
        return False
    plan.path[e] = path
    return True


@kernel
def _move(plan: PlacementPlan, pipeline: int, draw: float, where: float, hosts: Ints, block: bool) -> bool:
    a, b = plan.task_begin[pipeline], plan.task_begin[pipeline + 1]
    task = a + int(draw * (b - a))
    at = plan.node[task]
    if where < 0.5:  # the node of another task, or the source
        other = a - 1 + int(2.0 * where * (b - a + 1))
        to = plan.source[pipeline] if other < a else plan.node[other]
    else:
        to = hosts[int((2.0 * where - 1.0) * hosts.size)] if hosts.size > 0 else at
    if to == at:
        return False
    need = 0.0
    for t in range(a, b):
        if t == task or (block and plan.node[t] == at):
            need += plan.memory[t]
    if plan.free[to] < need:
        return False
    plan.free[to] -= need
    plan.free[at] += need
    for t in range(a, b):
        if t == task or (block and plan.node[t] == at):
            plan.node[t] = to
    for e in range(plan.edge_begin[pipeline], plan.edge_begin[pipeline + 1]):
        if (plan.tail[e] >= 0 and plan.node[plan.tail[e]] == to) or plan.node[plan.head[e]] == to:
            plan.path[e] = 0
    return True
