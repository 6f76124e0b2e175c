"""The slot loop for deferrable jobs: thousands of worlds in step, on arrays.

In each slot: jobs are submitted; those whose window has closed are lost; those that are done leave;
the policy sees the pool and starts jobs; running cores beyond C_t are a violation. A job started in
slot s runs in slots s … s + d - 1 (the paper's sum from t - d counts one slot too many).
"""

from typing import NamedTuple

import numpy as np

from edgewise.arrays import Bools, Floats, Ints
from edgewise.core.defer import (
    CapacityView,
    DeferralPolicy,
    JobState,
    Objective,
    Slots,
    Trajectories,
    check,
)
from edgewise.core.keyed import Key
from edgewise.core.one_world import batched
from edgewise.errors import PolicyError
from edgewise.kernels.compiled import kernel

FUTURE, STARTABLE, RUNNING = int(JobState.FUTURE), int(JobState.STARTABLE), int(JobState.RUNNING)


class DeferralOutcome(NamedTuple):
    """What a schedule came to, per world; every array is (W,) but `start`.

    Attributes:
        revenue: Σ c d of the jobs that started, in core-slots ("utilisation" in the paper).
        delay: Σ (start - e) in slots.
        violation: Σ_t v_t, in cores; of other resources in the cores that are the same share of the platform.
        reward: revenue - ω1 delay - ω2 violation.
        started, lost, jobs: numbers of jobs; what is neither has its window open at the end.
        start: (W, J) slot in which each job started, -1 if it did not.
    """

    revenue: Floats
    delay: Floats
    violation: Floats
    reward: Floats
    started: Ints
    lost: Ints
    jobs: Ints
    start: Ints


class DeferralWorlds:
    """W worlds that go through their slots together.

    Args:
        worlds: jobs and left-over capacity.
        objective: weights of delay and violation.
    Raises:
        ValueError: the worlds break a rule; see `core.defer.check`.
    """

    def __init__(self, worlds: Trajectories, objective: Objective = Objective()) -> None:  # noqa: B008
        check(worlds)
        self.worlds, self.objective = worlds, objective
        self._share = worlds.total[0] / worlds.total  # of each resource, in cores
        shape = (worlds.worlds, pool_size(worlds))

        def whole() -> Ints:
            return np.zeros(shape, dtype=np.int64)

        self._pool = CapacityView(  # what is now and past is up to `view`
            0, worlds.left_over[:, :0], worlds.total, whole(), whole().astype(np.int8),
            np.zeros((*shape, worlds.demand.shape[2])), whole(), whole(), whole(), whole(), whole(),
            worlds.slot_s,
        )  # fmt: skip
        self.reset()

    def reset(self) -> CapacityView:
        """Back to slot 0; returns what is seen there."""
        count = self.worlds.worlds
        self.now = 0
        self.start = np.full(self.worlds.submitted.shape, -1, dtype=np.int64)
        self._pool.job[:] = -1
        self._pool.state[:] = 0
        self._pool.ends[:] = -1
        self._size = np.zeros(count, dtype=np.int64)
        self._next = np.zeros(count, dtype=np.int64)
        self._lost = np.zeros(count, dtype=np.int64)
        self._sums = np.zeros((count, 3))  # revenue, delay, violation
        self._refresh()
        return self.view()

    @property
    def done(self) -> bool:
        """Whether all slots have passed."""
        return self.now >= self.worlds.slots

    def view(self) -> CapacityView:
        """What a policy sees in this slot; its arrays hold until the next `step`."""
        return self._pool._replace(now=self.now, past=self.worlds.left_over[:, : self.now + 1])

    def step(self, starts: Bools) -> Floats:
        """Start jobs and let the slot pass.

        R_t = Σ a (r - ω1 p) - ω2 v                                                  (OSDEC eq. 6)

        Args:
            starts: (W, P) jobs to start, by their place in the pool.
        Returns:
            (W,) reward of the slot.
        Raises:
            PolicyError: a job that is not startable was to be started; nothing has changed then.
        """
        if self.done:
            raise PolicyError(f"all {self.worlds.slots} slots have passed; call reset()")
        if starts.shape != self._pool.state.shape or starts.dtype != np.bool_:
            raise PolicyError(
                f"starts must be booleans of shape {self._pool.state.shape}, "
                f"got {starts.dtype} of {starts.shape}"
            )
        wrong = starts & (self._pool.state != STARTABLE)
        if wrong.any():
            world, place = np.argwhere(wrong)[0]
            raise PolicyError(f"world {world}, slot {self.now}: the job in place {place} is not startable")
        sums = np.zeros((self.worlds.worlds, 3))
        left = self.worlds.left_over[:, self.now]
        _start(self.now, starts, self._pool, left, self._share, self.start, sums)
        self._sums += sums
        self.now += 1
        if not self.done:
            self._refresh()
        return np.asarray(sums @ np.array([1.0, -self.objective.delay, -self.objective.violation]))

    def outcome(self) -> DeferralOutcome:
        """What the schedule came to so far."""
        revenue, delay, violation = self._sums.T.copy()
        reward = revenue - self.objective.delay * delay - self.objective.violation * violation
        started = (self.start >= 0).sum(axis=1)
        return DeferralOutcome(
            revenue,
            delay,
            violation,
            reward,
            started,
            self._lost.copy(),
            self.worlds.jobs,
            self.start.copy(),
        )

    def _refresh(self) -> None:
        _refresh(self.now, self.worlds, self._size, self._next, self._lost, self._pool)


def simulate(
    worlds: Trajectories,
    policy: DeferralPolicy,
    objective: Objective = Objective(),  # noqa: B008
    seed: int = 0,
) -> DeferralOutcome:
    """Run a policy through every slot of every world.

    Args:
        seed: keys the policy's own draws.
    Raises:
        PolicyError: the policy starts a job that is not startable.
    """
    loop = DeferralWorlds(worlds, objective)
    asked = batched(policy)
    asked.reset(Slots(worlds.slot_s, worlds.total.size), Key(seed))
    while not loop.done:
        loop.step(np.asarray(asked.decide(loop.view())) != 0)
    return loop.outcome()


def pool_size(worlds: Trajectories) -> int:
    """Most jobs that can be in one pool at once, whatever the policy: submitted, and not yet surely gone."""
    gone = worlds.latest + worlds.duration
    real = np.arange(gone.shape[1]) < worlds.jobs[:, None]
    change = np.zeros((worlds.worlds, int(gone[real].max(initial=0)) + 1), dtype=np.int64)
    world = np.nonzero(real)[0]
    np.add.at(change, (world, worlds.submitted[real]), 1)
    np.add.at(change, (world, gone[real]), -1)
    return max(1, int(np.cumsum(change, axis=1).max()))


@kernel
def _refresh(
    now: int, worlds: Trajectories, size: Ints, following: Ints, lost: Ints, pool: CapacityView
) -> None:
    """Let jobs in and out of every pool. Order of submission is kept."""
    for world in range(size.size):
        kept = 0
        for place in range(size[world]):
            ends = pool.ends[world, place]
            if ends < 0 and pool.latest[world, place] < now:
                lost[world] += 1
            elif ends < 0 or ends > now:
                _move(world, place, kept, pool)
                if ends < 0 and pool.earliest[world, kept] <= now:
                    pool.state[world, kept] = STARTABLE
                kept += 1
        while following[world] < worlds.jobs[world] and worlds.submitted[world, following[world]] <= now:
            _enter(now, world, following[world], kept, worlds, pool)
            following[world] += 1
            kept += 1
        for place in range(kept, size[world]):
            pool.job[world, place] = -1
            pool.state[world, place] = 0
            pool.ends[world, place] = -1
        size[world] = kept


@kernel
def _move(world: int, source: int, target: int, pool: CapacityView) -> None:
    """Close a gap in a pool."""
    if source == target:
        return
    pool.state[world, target] = pool.state[world, source]
    for column in (pool.job, pool.duration, pool.submitted, pool.earliest, pool.latest, pool.ends):
        column[world, target] = column[world, source]
    for kind in range(pool.demand.shape[2]):
        pool.demand[world, target, kind] = pool.demand[world, source, kind]


@kernel
def _enter(now: int, world: int, job: int, place: int, worlds: Trajectories, pool: CapacityView) -> None:
    """A job is submitted."""
    pool.job[world, place] = job
    pool.state[world, place] = STARTABLE if worlds.earliest[world, job] <= now else FUTURE
    pool.duration[world, place] = worlds.duration[world, job]
    pool.submitted[world, place] = worlds.submitted[world, job]
    pool.earliest[world, place] = worlds.earliest[world, job]
    pool.latest[world, place] = worlds.latest[world, job]
    pool.ends[world, place] = -1
    for kind in range(worlds.demand.shape[2]):
        pool.demand[world, place, kind] = worlds.demand[world, job, kind]


@kernel
def _start(
    now: int, starts: Bools, pool: CapacityView, left: Floats, share: Floats, start: Ints, sums: Floats
) -> None:
    """Start jobs; add revenue, delay and violation of this slot to `sums`."""
    for world in range(starts.shape[0]):
        use = np.zeros(share.size)
        for place in range(starts.shape[1]):
            if starts[world, place]:
                start[world, pool.job[world, place]] = now
                pool.state[world, place] = RUNNING
                pool.ends[world, place] = now + pool.duration[world, place]
                sums[world, 0] += pool.demand[world, place, 0] * pool.duration[world, place]
                sums[world, 1] += now - pool.earliest[world, place]
            if pool.state[world, place] == RUNNING:
                for kind in range(share.size):
                    use[kind] += pool.demand[world, place, kind]
        for kind in range(share.size):
            sums[world, 2] += max(0.0, use[kind] - left[world, kind]) * share[kind]
