"""Kernels of the joint scheduler: pipelines use links (and nodes), a fast filling, and local search."""

import numpy as np
from numpy.typing import NDArray

from edgewise.arrays import Floats, Ints
from edgewise.core.keyed import Purpose, uniform_of
from edgewise.kernels.compiled import inner, kernel
from edgewise.policies.place.paths import PathRows
from edgewise.policies.place.plan import PlacementPlan, SearchInput

HUGE = 1e9
GAIN = 1e-6  # least relative improvement that counts
REROUTE, BLOCK = 0.3, 0.65  # 30 % of the moves change a path, 35 % move a block, the others one task
SPREAD, LEAST_SHARE = 0.5, 0.1
POLICY = int(Purpose.POLICY)


@inner
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
    plan.uses[pipeline], plan.price[pipeline] = count, 0.0
    for i in range(count):
        plan.price[pipeline] += amount[i] / max(limits.capacity[used[i]], 1e-300)
    plan.cap[pipeline] = 1.0 / slowest_s if slowest_s > 0.0 else HUGE
    return True


@inner
def _add(used: NDArray[np.int32], amount: Floats, count: int, resource: int, more: float) -> int:
    for i in range(count):
        if used[i] == resource:
            amount[i] += more
            return count
    used[count] = resource
    amount[count] = more
    return count + 1


@inner
def fill(plan: PlacementPlan, limits: SearchInput, pipelines: int) -> None:
    """Set the throughput of the first `pipelines` pipelines: a floor for each, then the cheapest first.

    First every pipeline gets `floor` times the rate at which all users of its tightest resource run alike
    (never more than its cap): feasible, as on each resource Σ a_{J,r} x <= capacity. Then, in order of the
    share of all its resources that a frame takes, each pipeline gets all that it can still use.
    """
    used, amount, rate, left, total = plan.used, plan.amount, plan.rate, plan.left, plan.total
    for r in range(total.size):
        left[r], total[r] = limits.capacity[r], 0.0
    for j in range(pipelines):
        for i in range(plan.uses[j]):
            total[used[j, i]] += amount[j, i]
    for r in range(total.size):
        total[r] = limits.capacity[r] / total[r]  # from here on the frames that all users have alike
    for j in range(pipelines):
        rate[j] = plan.cap[j]
        for i in range(plan.uses[j]):
            rate[j] = min(rate[j], total[used[j, i]])
        rate[j] *= limits.floor
    for j in range(pipelines):
        for i in range(plan.uses[j]):
            left[used[j, i]] -= amount[j, i] * rate[j]
    _sort(plan.price, plan.order, pipelines)
    for at in range(pipelines):
        j = plan.order[at]
        more = plan.cap[j] - rate[j]
        for i in range(plan.uses[j]):
            more = min(more, left[used[j, i]] / amount[j, i])
        if more > 0.0:
            rate[j] += more
            for i in range(plan.uses[j]):
                left[used[j, i]] -= amount[j, i] * more


@inner
def _sort(price: Floats, order: Ints, count: int) -> None:
    """Bring the first places of `order` by rising price, equal ones in their order: mostly they are."""
    for i in range(1, count):
        new, j = order[i], i
        while j > 0 and (
            price[new] < price[order[j - 1]] or (price[new] == price[order[j - 1]] and new < order[j - 1])
        ):
            order[j] = order[j - 1]
            j -= 1
        order[j] = new


@inner
def value(plan: PlacementPlan, limits: SearchInput, pipelines: int) -> float:
    """Sum of the throughput of so many pipelines, less what it costs to move those that move."""
    fill(plan, limits, pipelines)
    worth = 0.0
    for j in range(pipelines):
        moved = False
        for t in range(plan.task_begin[j], plan.task_begin[j + 1]):
            moved = moved or (plan.home[t] >= 0 and plan.node[t] != plan.home[t])
        worth += plan.rate[j] * (1.0 - limits.penalty) if moved else plan.rate[j]
    return worth


@kernel(allocates=False)
def enter(
    plan: PlacementPlan, limits: SearchInput, rows: PathRows, first: int, last: int, hosts: Ints, given: Ints
) -> None:
    """Take in pipelines `first` to `last` - 1: those that are placed as they stand, new ones by `_seed`."""
    for pipeline in range(first, last):
        there = plan.node[plan.task_begin[pipeline]] >= 0
        if there or _seed(plan, limits, rows, pipeline, hosts, given):
            measure(plan, limits, rows, pipeline)


@inner
def _seed(
    plan: PlacementPlan, limits: SearchInput, rows: PathRows, pipeline: int, hosts: Ints, given: Ints
) -> bool:
    """Place a new pipeline: the best of `given` nodes (-1: none) and of all cuts between source and one host.

    A cut leaves the first tasks in topological order at the source, as far as its memory goes, and puts the
    others on the host. False when nothing fits; the plan is then as before.
    """
    a, b = plan.task_begin[pipeline], plan.task_begin[pipeline + 1]
    best, best_host, best_cut = -1.0, -1, 0
    for h in range(0 if given[0] < 0 else -1, hosts.size):
        host = hosts[h] if h >= 0 else -1
        for cut in range(b - a + 1 if h >= 0 else 1):
            if not _put(plan, pipeline, cut, host, given):
                continue
            if measure(plan, limits, rows, pipeline):
                worth = value(plan, limits, pipeline + 1)
                if worth > best * (1.0 + GAIN):
                    best, best_host, best_cut = worth, host, cut
            for t in range(a, b):
                plan.free[plan.node[t]] += plan.memory[t]
    if best < 0.0:
        for t in range(a, b):
            plan.node[t] = -1
        plan.uses[pipeline], plan.cap[pipeline], plan.price[pipeline] = 0, 0.0, 0.0
        return False
    return _put(plan, pipeline, best_cut, best_host, given)


@inner
def _put(plan: PlacementPlan, pipeline: int, cut: int, host: int, given: Ints) -> bool:
    """Put a pipeline if memory allows, on shortest paths: on source and host, or as `given` (host -1)."""
    a, b = plan.task_begin[pipeline], plan.task_begin[pipeline + 1]
    for t in range(a, b):
        to = plan.source[pipeline] if t - a < cut else host
        if host < 0:
            to = given[t - a]
        if plan.free[to] < plan.memory[t]:
            for back in range(a, t):
                plan.free[plan.node[back]] += plan.memory[back]
            return False
        plan.free[to] -= plan.memory[t]
        plan.node[t] = to
    for e in range(plan.edge_begin[pipeline], plan.edge_begin[pipeline + 1]):
        plan.path[e] = 0
    return True


@kernel(allocates=False)
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
    use of pipelines, which bounds its time whatever the size of the network. `kept_rate` is then their
    throughput.
    """
    entries = 4 * pipelines  # looked at for one value
    for j in range(pipelines):
        entries += plan.uses[j]
    best, kept, spent, step, pipeline, fits = -1.0, -1, 0, 0, 0, True
    while True:
        worth = value(plan, limits, pipelines) if fits else -1.0
        if worth > best * (1.0 + GAIN):  # at first what is there
            best = worth
            kept += 1
            _remember(plan, limits, pipelines)
        else:
            _undo(plan, pipeline)
            measure(plan, limits, rows, pipeline)
        changed = False
        while not changed:
            if spent >= budget:
                return kept
            spent += entries
            step += 1
            pipeline = int(uniform_of(seed, POLICY, call, 4 * step) * pipelines)
            if plan.cap[pipeline] == 0.0:
                continue
            changed = _change(plan, rows, pipeline, hosts, seed, call, 4 * step)
            if not changed:
                spent -= entries - 16
        if uniform_of(seed, POLICY, call, (1 << 40) + step) < SPREAD:
            spent += _spread(plan, limits, rows, pipeline)
        fits = measure(plan, limits, rows, pipeline)


@inner
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


@inner
def _remember(plan: PlacementPlan, limits: SearchInput, pipelines: int) -> None:
    """Keep the decision, the throughput of each pipeline as filled, and what they leave of each resource."""
    left = plan.kept_left
    for t in range(plan.node.size):
        plan.kept_node[t] = plan.node[t]
    for e in range(plan.path.size):
        plan.kept_path[e] = plan.path[e]
    for r in range(left.size):
        left[r] = limits.capacity[r]
    for j in range(pipelines):
        plan.kept_rate[j] = plan.rate[j]
        for i in range(plan.uses[j]):
            left[plan.used[j, i]] -= plan.amount[j, i] * plan.rate[j]


@inner
def _spread(plan: PlacementPlan, limits: SearchInput, rows: PathRows, pipeline: int) -> int:
    """Route a pipeline's flows, largest first, over what others leave (LEAST_SHARE at least); links seen."""
    own, left, rate = plan.total, plan.kept_left, plan.kept_rate[pipeline]
    for r in range(limits.links):
        own[r] = 0.0
    looked = limits.links // 8
    for i in range(plan.uses[pipeline]):  # as it was before the move
        left[plan.used[pipeline, i]] += plan.amount[pipeline, i] * rate
    for at in range(plan.edge_begin[pipeline], plan.edge_begin[pipeline + 1]):
        e = plan.by_volume[at]
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
        first, last = rows.start[u, v * rows.k + best], rows.start[u, v * rows.k + best + 1]
        for i in range(rows.offset[u] + first, rows.offset[u] + last):
            own[rows.links[i]] += plan.volume[e]
    for i in range(plan.uses[pipeline]):
        left[plan.used[pipeline, i]] -= plan.amount[pipeline, i] * rate
    return looked


@inner
def _undo(plan: PlacementPlan, pipeline: int) -> None:
    """Go back to the decision that is remembered."""
    a, b = plan.task_begin[pipeline], plan.task_begin[pipeline + 1]
    for t in range(a, b):
        plan.free[plan.node[t]] += plan.memory[t]
    for t in range(a, b):
        plan.node[t] = plan.kept_node[t]
        plan.free[plan.node[t]] -= plan.memory[t]
    for e in range(plan.edge_begin[pipeline], plan.edge_begin[pipeline + 1]):
        plan.path[e] = plan.kept_path[e]


@inner
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


@inner
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
