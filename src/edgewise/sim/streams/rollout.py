"""Many policies rolled forward from one view over one future, fast enough for every window.

A `Twin` simulates every query of a horizon. Here bindings evolve over the whole horizon, which is
cheap, and queries are simulated in short slices of it: tight deadlines are lost or kept within
milliseconds, so a second tells as much as a minute. Both start from a view, never from the truth.

How much switching between static policies could gain in a setting, before anything is trained.

A chooser that knows what comes rolls every policy forward at each window and keeps the best. It is
greedy, so not a bound; but where it gains nothing, a learned chooser has little to find.

An upper bound on success with hindsight: what no dispatch of a run can exceed.

It knows every query and every network delay that the run will draw, and relaxes three things:

1. each query, not each stream, is served where it suits that query best;
2. no query waits: workers, the ledger and batches have room without end;
3. every service is the fastest that its law can draw (normal noise is at least -6.75 deviations).

Proof: an answered query was on a worker that `core.dispatch.state` allows on an idle world (load only
takes workers away), and its delay was network there and back as drawn, plus access, transmission,
waiting >= 0 and a service >= the fastest. If that sum is within the deadline, so is the bound's.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgewise import policies
from edgewise.arrays import Bools, Floats, Ints, records
from edgewise.core.dispatch.policy import CLOSE, OPEN, Batch, ScorePolicy, assess, compiled, play
from edgewise.core.dispatch.state import State, Weights, state_of, way_arrays
from edgewise.core.dispatch.views import Bound, DispatchView, Items, Rows
from edgewise.core.keyed import LARGEST_NORMAL, normal_pair_of
from edgewise.core.world import LAWS, World
from edgewise.errors import RunError
from edgewise.kernels.compiled import kernel
from edgewise.model.scenario import Scenario
from edgewise.policies.dispatch.meta import ALL
from edgewise.sim.streams import queues as kernels, tables
from edgewise.sim.streams.queues import NETWORK, make_query
from edgewise.sim.streams.state import MEMBER, STREAM, WAITING
from edgewise.workloads.generate import generate_streams


class EstimatedFuture(NamedTuple):
    """An estimated future; times count from the view's now. N = bound streams, then those to come.

    rows: (N,) what they need. open_s, close_s: (N,) when they open (0: bound already) and close.
    """

    rows: Rows
    open_s: Floats
    close_s: Floats


class Slice(NamedTuple):
    """When queries are simulated, and for how long."""

    at_s: float
    lasts_s: float


class Bindings(NamedTuple):
    """What is bound on the way: a core's state, (N,) workers and refusals, how many events were played."""

    state: State
    worker: Ints
    reason: NDArray[np.int8]
    played: int

    def copy(self) -> "Bindings":
        """The same, to go another way from here."""
        return Bindings(self.state.copy(), self.worker.copy(), self.reason.copy(), self.played)


class Rollout:
    """One view, one future, any number of policies.

    Args:
        view: as `tick` gets it, with the bound streams.
        plan: the same future for every policy.
        slices: in order of time.
        seed: keys noise and ties; not the run's.
    Raises:
        RunError: the view does not list its bound streams.
    """

    def __init__(
        self, view: DispatchView, plan: EstimatedFuture, slices: tuple[Slice, ...], seed: int
    ) -> None:
        if view.bound is None:
            raise RunError("rollout: the view lists no bound streams; use the view that `tick` gets")
        self._view, self._plan, self._slices = view, plan, slices
        self._seed = np.uint64(seed & 0xFFFFFFFFFFFFFFFF)
        begun = state_of(view, view.bound.items, view.bound.worker)
        self._state = begun._replace(measured_s=view.measured_s - view.now_s, seed=self._seed)
        count, held = plan.open_s.size, view.bound.worker.size
        self._worker = np.full(count, -1, dtype=np.int64)
        self._worker[:held] = view.bound.worker
        times = np.concatenate([plan.open_s[held:], plan.close_s])
        kinds = np.repeat([OPEN, CLOSE], [count - held, count])
        rows = np.concatenate([np.arange(held, count), np.arange(count)])
        order = np.lexsort((rows, kinds, times))
        self._events = Batch(times[order], kinds[order], rows[order])

    def success(self, policy: ScorePolicy) -> float:
        """Share of the queries of all slices that are answered in time if `policy` decides.

        Raises:
            RunError: numba cannot compile its score.
        """
        at, ok, total = self.begin(), 0.0, 0.0
        for piece in self._slices:
            at = self.play(at, policy, piece.at_s)
            good, sent = self.serve(piece, at)
            ok, total = ok + good, total + sent
        return ok / max(total, 1.0)

    def begin(self) -> Bindings:
        """As the view has it; nothing of the plan has happened."""
        return Bindings(self._state, self._worker, np.zeros(self._worker.size, dtype=np.int8), 0).copy()

    def play(self, at: Bindings, policy: ScorePolicy, until_s: float) -> Bindings:
        """Open and close streams up to a time as `policy` decides; `at` is used up.

        Raises:
            RunError: numba cannot compile its score.
        """
        score = compiled(policy)
        if score is None:
            raise RunError(f"rollout: {policy.name!r} cannot be compiled, so it cannot be rolled forward")
        end = int(np.searchsorted(self._events.time_s, until_s, side="right"))
        batch, room = _part(self._events, at.played, end), Weights.of(at.state.up.size)
        play(score, at.state, room, batch, self._plan.rows, at.worker, at.reason)
        return at._replace(played=end)

    def serve(self, piece: Slice, at: Bindings) -> tuple[float, float]:
        """(answered in time, sent) of one slice; refused streams send in vain."""
        plan, world, worker = self._plan, self._view.world, at.worker
        alive = (plan.open_s <= piece.at_s) & (plan.close_s > piece.at_s)
        refused = float(plan.rows.rate_qps[alive & (worker < 0)].sum()) * piece.lasts_s
        chosen = np.flatnonzero(alive & (worker >= 0))
        where = worker[chosen]
        workers = tables.worker_arrays(world)
        room = int(np.bincount(where, minlength=1).max(initial=1))
        workers = workers._replace(members=records((world.workers, room), MEMBER))
        streams = self._streams(piece, chosen, where)
        tally = tables.new_tally(piece.lasts_s, piece.at_s + piece.lasts_s + 1.0, ())
        from_s = np.full(chosen.size, piece.at_s)
        ways = self._state.ways
        kernels.attach(np.arange(chosen.size), from_s, where, streams, workers, ways, self._seed, tally)
        kernels.advance_all(np.inf, streams, workers, ways, self._seed, tally)
        ok, failed, rejected = tally.queries.sum(axis=1).tolist()
        return float(ok), float(ok + failed + rejected) + refused

    def _streams(self, piece: Slice, chosen: Ints, worker: Ints) -> Any:
        rows = self._plan.rows
        s = np.zeros(chosen.size, dtype=STREAM).view(np.recarray)
        s.id = chosen
        for name in ("site", "rate_qps", "size_bytes", "deadline_s"):
            s[name] = getattr(rows, name)[chosen]
        cluster = self._view.world.cluster[worker]
        s.deadline_s -= self._view.backlog_s[s.site, cluster]  # held up on the way
        s.sent_s = s.from_s = piece.at_s
        s.close_s = piece.at_s + piece.lasts_s
        return s


def empty_view(world: World) -> DispatchView:
    """What a policy sees before anything came."""
    none, zeros = np.zeros(0), np.zeros(world.workers)
    bound = Bound(Rows.of([]), none.astype(np.int64), none)
    streams, up = zeros.astype(np.int64), zeros == 0.0
    return DispatchView(world, 0.0, 0, zeros, streams, up, zeros, zeros, zeros, zeros, 0.0, bound=bound)


def _part(events: Batch, start: int, end: int) -> Batch:
    return Batch(events.time_s[start:end], events.kind[start:end], events.row[start:end])


def hindsight_bound(scenario: Scenario, seed: int, world: World | None = None) -> float:
    """Largest share of the run's queries that any dispatch could answer in time; 1 without queries.

    Raises:
        RunError: the scenario has a timeline; links that change are not covered.
    """
    if scenario.timeline:
        raise RunError(f"scenario {scenario.name!r}: the bound does not cover a timeline; leave it out")
    world = world or World.build(scenario.catalog, scenario.topology, scenario.sharing)
    trace = generate_streams(scenario, seed)
    if not trace:
        return 1.0
    streams = tables.stream_arrays(trace, scenario.decision_delay_s)
    fastest = _fastest_s(world, Items.of(world, trace))
    ways = way_arrays(world, world.links)
    ok, total = _count(streams, fastest, ways, np.uint64(seed & 0xFFFFFFFFFFFFFFFF))
    return ok / max(total, 1)


def _fastest_s(world: World, items: Items) -> Floats:
    """(N, C) least service of a feasible worker in each cluster, infinite where none is."""
    zeros, nothing = np.zeros(world.workers), np.zeros(world.workers, dtype=np.int64)
    up: Bools = np.ones(world.workers, dtype=np.bool_)
    view = DispatchView(world, 0.0, 0, zeros, nothing, up, zeros, zeros, zeros, zeros, -np.inf)
    noise = np.maximum(1.0 - LARGEST_NORMAL * world.deviation, 0.0)
    noise[world.distribution == LAWS.index("exponential")] = 0.0
    known: dict[tuple[float, ...], Floats] = {}
    found = np.full((len(items), len(world.cluster_names)), np.inf)
    for i, item in enumerate(items):
        kind = (item.site, item.task, item.rate_qps, item.size_bytes, item.deadline_s, item.min_accuracy)
        if kind not in known:
            service = (world.fixed_s + world.per_byte_s * item.size_bytes) * noise
            row = np.full(len(world.cluster_names), np.inf)
            feasible = assess(view, item).feasible
            np.minimum.at(row, world.cluster[feasible], service[feasible])
            known[kind] = row
        found[i] = known[kind]
    return found


@kernel
def _count(streams: Any, fastest: Floats, ways: Any, seed: np.uint64) -> tuple[int, int]:
    """(could be in time, all) queries."""
    ok = total = 0
    for i in range(streams.size):
        q = streams[i]
        make_query(q, seed)
        while q.state == WAITING:
            up, down = normal_pair_of(seed, NETWORK, q.id, q.number - 1)
            held = max(q.sent_s, q.from_s) - q.sent_s
            total += 1
            for c in range(fastest.shape[1]):
                way = ways[q.site, c]
                if fastest[i, c] == np.inf or way.delay_s == np.inf:
                    continue
                travel = max(way.delay_s + way.deviation_s * up, 0.0)
                travel += max(way.delay_s + way.deviation_s * down, 0.0) + 2.0 * way.access_s
                if held + travel + q.size_bytes * 8.0 / way.bps + fastest[i, c] <= q.deadline_s + 1e-9:
                    ok += 1
                    break
            make_query(q, seed)
    return ok, total


PIECE_S = 0.6  # queries are simulated for so long in the middle of each window


class Room(NamedTuple):
    """Success of each static policy alone, of the chooser that knows what comes, and what it chose."""

    static: dict[str, float]
    switching: float
    chosen: tuple[str, ...]

    @property
    def gain(self) -> float:
        """Success above the best static policy."""
        return self.switching - max(self.static.values())


def room_for_switching(
    scenario: Scenario, seed: int, names: Sequence[str] = ALL, horizon_s: float = 75.0
) -> Room:
    """Roll the run of a seed under each static policy, and under the best of them for each window.

    Args:
        seed: a training seed; test seeds are for `edgewise reproduce`.
        names: static policies that numba can compile.
        horizon_s: how far the chooser looks.
    Raises:
        RunError: a policy cannot be rolled forward, or the scenario has changes on the way.
    """
    if scenario.timeline:
        raise RunError(f"scenario {scenario.name!r}: has a timeline, which rollouts do not follow; remove it")
    candidates = [_score_policy(name) for name in names]
    starts = np.arange(0.0, scenario.duration_s, scenario.window_s)
    middles = tuple(Slice(float(start) + scenario.window_s / 2.0, PIECE_S) for start in starts)
    rollout = _whole(scenario, seed, middles)
    static = {name: rollout.success(policy) for name, policy in zip(names, candidates, strict=True)}
    at, ok, total, chosen = rollout.begin(), 0.0, 0.0, list[str]()
    for middle in middles:
        end_s = middle.at_s + scenario.window_s / 2.0
        ways = (middle.at_s, end_s, min(middle.at_s + horizon_s, scenario.duration_s))
        best = int(np.argmax([_share(rollout, at.copy(), policy, ways) for policy in candidates]))
        chosen.append(names[best])
        at = rollout.play(at, candidates[best], middle.at_s)
        good, sent = rollout.serve(middle, at)
        ok, total = ok + good, total + sent
        at = rollout.play(at, candidates[best], end_s)
    return Room(static, ok / max(total, 1.0), tuple(chosen))


def _whole(scenario: Scenario, seed: int, slices: tuple[Slice, ...]) -> Rollout:
    """The whole run as a plan that begins with an empty world."""
    world = World.build(scenario.catalog, scenario.topology, scenario.sharing)
    streams = list(generate_streams(scenario, seed))
    open_s, close_s = (np.array([getattr(s, name) for s in streams]) for name in ("open_s", "close_s"))
    plan = EstimatedFuture(Rows.of(Items.of(world, streams).rows), open_s, close_s)
    return Rollout(empty_view(world), plan, slices, seed)


def _share(rollout: Rollout, at: Bindings, policy: ScorePolicy, times_s: Sequence[float]) -> float:
    """Success in slices at these times if the policy decides from here on."""
    ok = total = 0.0
    for time_s in times_s:
        at = rollout.play(at, policy, time_s)
        good, sent = rollout.serve(Slice(time_s, PIECE_S), at)
        ok, total = ok + good, total + sent
    return ok / max(total, 1.0)


def _score_policy(name: str) -> ScorePolicy:
    policy = policies.load("dispatch", name)
    if not isinstance(policy, ScorePolicy):
        raise RunError(
            f"policy {name!r}: only score policies can be rolled forward; use some of {', '.join(ALL)}"
        )
    return policy
