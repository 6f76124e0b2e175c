"""Deferrable jobs by scores: heuristics, and trained policies; the same in simulation and live.

A rule is one function of the view, `score(view) -> (W, P)`, larger first. A new one is a subclass of
`ScoreDeferral` with that function and the decorator `@policy("name")`.

From scores to starts: OSDEC sorts by falling score and starts the longest prefix whose cores fit (section
4.1.2; the paper prints the order rising). `skip` goes on past a job that does not fit. `room` may look
ahead, so that a job starts only if it fits in every slot it would run in.

A trained policy as any other: features in, scores out, the same ranking as all rules.

What it reads are one row for each job of the pool, and one summary of the slot, in units of `Scale`, so that
figures are near one. The same functions serve training and use.

How the network is run is handed in, so that an agent in training decides by the same code; `of_card` does so
with onnxruntime.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from edgewise.arrays import Bools, Floats, Floats32, Ints
from edgewise.core.defer import CapacityView, JobState, Slots
from edgewise.core.keyed import Key
from edgewise.core.ledger import has_room
from edgewise.kernels.compiled import kernel
from edgewise.policies.cards import Card, Run
from edgewise.policies.registry import policy


def choose(view: CapacityView, scores: Floats, *, room: Floats | None = None, skip: bool = False) -> Bools:
    """(W, P) jobs to start, whatever their order; see `turns`."""
    return turns(view, scores, room=room, skip=skip) > 0


def turns(view: CapacityView, scores: Floats, *, room: Floats | None = None, skip: bool = False) -> Ints:
    """Start by falling score what fits.

    Args:
        scores: (W, P), larger first; ties in order of submission. Only startable jobs count.
        room: (W, K, R) free resources in this slot and the next ones; None takes what is free now (K = 1).
        skip: go on past a job that does not fit, instead of stopping there.
    Returns:
        (W, P) jobs to start: 1 first, then 2 …; 0 does not.
    Raises:
        ValueError: scores have the wrong shape or a startable job's score is NaN.
    """
    startable = view.startable
    if scores.shape != startable.shape:
        raise ValueError(f"scores have shape {scores.shape} for a pool of shape {startable.shape}")
    if np.isnan(scores[startable]).any():
        raise ValueError("the score of a startable job is NaN")
    free = view.free[:, None] if room is None else room
    out = np.zeros(startable.shape, dtype=np.int64)
    given = np.asarray(scores, np.float64), startable, view.demand, view.duration
    _choose(*given, free.copy(), np.asarray(view.total, np.float64), skip, out)
    return out


@kernel
def _choose(
    scores: Floats,
    startable: Bools,
    demand: Floats,
    duration: Ints,
    room: Floats,
    total: Floats,
    skip: bool,
    out: Ints,
) -> None:
    for world in range(scores.shape[0]):
        jobs, turn = np.flatnonzero(startable[world]), 0
        for rank in np.argsort(-scores[world][jobs], kind="mergesort"):
            job = jobs[rank]
            if _fits(room[world], total, demand[world, job], duration[world, job]):
                turn += 1
                out[world, job] = turn
            elif not skip:
                break


@kernel
def _fits(room: Floats, total: Floats, demand: Floats, duration: int) -> bool:
    """Whether a job fits in every slot of `room` that it would run in; takes its share if so."""
    slots = min(duration, room.shape[0])
    for slot in range(slots):
        for kind in range(demand.size):
            if not has_room(demand[kind], room[slot, kind], total[kind]):
                return False
    for slot in range(slots):
        for kind in range(demand.size):
            room[slot, kind] -= demand[kind]
    return True


class ScoreDeferral:
    """Base of rules: by falling score, start what fits now.

    Attributes:
        skip: go on past a job that does not fit; False stops there, as OSDEC does.
    """

    decision, batched = "defer", True
    name: str = ""
    skip: bool = False

    def reset(self, world: Slots, key: Key) -> None:
        """Nothing to forget: a score depends on the view alone."""

    def score(self, view: CapacityView) -> Floats:
        """(W, P) worth of starting each job now; only startable jobs are read."""
        raise NotImplementedError(f"{type(self).__name__} must define score(view)")

    def decide(self, view: CapacityView) -> Ints:
        """Jobs to start now, in turns."""
        return turns(view, self.score(view), skip=self.skip)


@policy("fifo")
class Fifo(ScoreDeferral):
    """First in, first out: by submission."""

    def score(self, view: CapacityView) -> Floats:
        """-g_i."""
        return -view.submitted.astype(np.float64)


@policy("sjf")
class ShortestJobFirst(ScoreDeferral):
    """Shortest job first."""

    def score(self, view: CapacityView) -> Floats:
        """-d_i."""
        return -view.duration.astype(np.float64)


@policy("earliest-deadline")
class EarliestDeadline(ScoreDeferral):
    """The job whose window closes first."""

    def score(self, view: CapacityView) -> Floats:
        """-l_i."""
        return -view.latest.astype(np.float64)


@policy("hrrn")
class HighestResponseRatio(ScoreDeferral):
    """Highest response ratio next: waiting raises a job's turn, and more so a short one's."""

    def score(self, view: CapacityView) -> Floats:
        """(w + d) / d with w = t - e_i."""
        wait = np.maximum(view.now - view.earliest, 0)
        return (wait + view.duration) / np.maximum(view.duration, 1)


@policy("tetris")
class Tetris(ScoreDeferral):
    """Packing score of Tetris (Grandl et al. 2014, section 3.2): demand aligned with what is free.

    Both are shares of the platform. Jobs that do not fit are passed over, as there.
    """

    skip = True

    def score(self, view: CapacityView) -> Floats:
        """Σ_r demand_r free_r."""
        free = np.maximum(view.free, 0.0) / view.total
        return np.asarray(np.einsum("wpr,wr->wp", view.demand / view.total, free))


@policy("best-fit")
class BestFit(ScoreDeferral):
    """The job that would leave least: smallest norm of what stays free, among those that fit."""

    skip = True

    def score(self, view: CapacityView) -> Floats:
        """-‖free - demand‖², as shares of the platform."""
        rest = (view.free[:, None, :] - view.demand) / view.total
        return np.asarray(-(rest * rest).sum(axis=2))


@policy("random")
class RandomOrder(ScoreDeferral):
    """A random order, keyed by world, place in the pool and slot."""

    def __init__(self) -> None:
        self._key = Key(0)

    def reset(self, world: Slots, key: Key) -> None:
        """Draw from `key`."""
        self._key = key

    def score(self, view: CapacityView) -> Floats:
        """Uniform."""
        places: Ints = np.arange(view.state.size).reshape(view.state.shape)
        return self._key.uniform(places, view.now)


CLOSE = 1e-4  # golden scores of another machine
GOLDEN, GOLDEN_JOBS, GOLDEN_SEED, GOLDEN_SLOT_S = 16, 6, 20_260_101, 900.0
JOB_FEATURES = (
    "cores",
    "duration",
    "time since the earliest start",
    "time until the latest start",
    "time until it ends, if it runs",
    "is submitted for later",
    "is startable",
    "runs",
    "free cores",
    "left-over cores",
    "fits now",
)
SUMMARY_FEATURES = (
    "left-over cores",
    "mean cores of startable jobs",
    "mean duration of startable jobs",
    "violation",
    "cores in use",
    "startable jobs",
)
TARGETS = (
    4  # the first so many features of the next slot's summary are the auxiliary tasks (OSDEC section 4.2.2)
)


class Scale(NamedTuple):
    """Units: what counts as one. Times are not in slots, so that a policy may be asked more often than the
    quarters of an hour it was trained with.
    """

    cores: float = 8.0
    time_s: float = 7200.0
    capacity: float = 40.0
    jobs: float = 20.0


def job_features(view: CapacityView, scale: Scale = Scale()) -> Floats32:  # noqa: B008
    """(W, P, 11) features of each job, in the order of `JOB_FEATURES`; 0 where there is no job."""
    cores, free = view.demand[:, :, 0], view.free[:, :1]
    shape, slots = cores.shape, scale.time_s / view.slot_s
    columns = (
        cores / scale.cores,
        view.duration / slots,
        (view.now - view.earliest) / slots,
        (view.latest - view.now) / slots,
        np.maximum(view.ends - view.now, 0) / slots,
        view.state == JobState.FUTURE,
        view.state == JobState.STARTABLE,
        view.state == JobState.RUNNING,
        np.broadcast_to(free / scale.cores, shape),
        np.broadcast_to(view.left_over[:, :1] / scale.capacity, shape),
        cores <= free,
    )
    out = np.stack(columns, axis=2).astype(np.float32)
    out[view.state == JobState.EMPTY] = 0.0
    return out


def summary_features(view: CapacityView, scale: Scale = Scale()) -> Floats32:  # noqa: B008
    """(W, 6) features of the slot, in the order of `SUMMARY_FEATURES`."""
    startable = view.startable
    count = startable.sum(axis=1)
    some = np.maximum(count, 1)
    left, used = view.left_over[:, 0], view.used()[:, 0, 0]
    columns = (
        left / scale.capacity,
        (view.demand[:, :, 0] * startable).sum(axis=1) / some / scale.cores,
        (view.duration * startable).sum(axis=1) / some / (scale.time_s / view.slot_s),
        np.maximum(used - left, 0.0) / scale.cores,
        used / scale.capacity,
        count / scale.jobs,
    )
    return np.stack(columns, axis=1).astype(np.float32)


def pool_rows(view: CapacityView, places: int) -> Floats32:
    """(W, places, 17) of each place of a pool: its job's features, 0 where there is none, and the slot's."""
    jobs, slot = job_features(view), summary_features(view)
    seen = np.zeros((jobs.shape[0], places, len(JOB_FEATURES) + len(SUMMARY_FEATURES)), dtype=np.float32)
    seen[:, : jobs.shape[1], : jobs.shape[2]] = jobs
    seen[:, :, jobs.shape[2] :] = slot[:, None]
    return seen


def feature_hash() -> str:
    """Hash of what the features mean; a policy trained on others is refused."""
    text = json.dumps([JOB_FEATURES, SUMMARY_FEATURES, Scale()])
    return hashlib.sha256(text.encode()).hexdigest()


def of_card(card: Card) -> "LearnedDeferral":
    """The policy of a card.

    Raises:
        PolicyError: its files were changed, are for other features, or decide otherwise than they did.
    """
    card.check_features(feature_hash())
    slot_s = card.part.get("slot_s", 0.0)
    policy = LearnedDeferral(card.name, card.network(), card.part["memory"], card.part["skip"], slot_s)
    card.check_golden(golden_scores(policy), card.part["golden"], CLOSE)
    return policy


def golden_views() -> Iterator[CapacityView]:
    """16 slots of a made-up world, the same on every machine: capacity falls, jobs are in any state."""
    key, shape = Key(GOLDEN_SEED), (1, GOLDEN_JOBS)
    past = np.floor(40.0 * (1.0 - np.arange(GOLDEN) / GOLDEN) * (0.5 + key.uniform(0, np.arange(GOLDEN))))

    def whole(slot: int, what: int, below: int) -> Ints:
        return (key.uniform(what, GOLDEN_JOBS * slot + np.arange(GOLDEN_JOBS)) * below).astype(np.int64)[None]

    for now in range(GOLDEN):
        state, duration, waits = whole(now, 1, 4), 1 + whole(now, 2, 12), whole(now, 3, 4)
        earliest = now + np.where(state == JobState.FUTURE, 1 + waits, -waits)
        yield CapacityView(
            now=now, past=past[None, : now + 1, None], total=np.array([100.0]),
            job=np.arange(GOLDEN_JOBS).reshape(shape), state=state.astype(np.int8),
            demand=np.exp2(whole(now, 4, 4))[..., None], duration=duration, submitted=earliest - waits,
            earliest=earliest, latest=np.maximum(earliest, now) + whole(now, 5, 5),
            ends=np.where(state == JobState.RUNNING, now + np.maximum(duration - waits, 1), -1),
            slot_s=GOLDEN_SLOT_S,
        )  # fmt: skip


def golden_scores(policy: "LearnedDeferral") -> Floats:
    """(16, 6) what a policy scores in the golden views; it begins anew before and after."""
    found = [policy.score(view)[0] for view in golden_views()]
    policy.reset(Slots(GOLDEN_SLOT_S, 1), Key(0))
    return np.array(found)


class LearnedDeferral(ScoreDeferral):
    """Falling confidence score; `osdec` stops at a job that does not fit, `osdec-skip` goes on.

    Args:
        name: of the policy.
        infer: runs the network: jobs (W, P, F), summary (W, S), memory (W, H) → scores (W, P), memory (W, H).
        memory: H, what the network carries from slot to slot in each world.
        skip: go on past a job that does not fit, where OSDEC stops.
        slot_s: length of the slots it was trained with. Its memory moves on once in that time, however
            often it is asked; 0 takes the slots it is asked in.
    """

    def __init__(self, name: str, infer: Run, memory: int, skip: bool = False, slot_s: float = 0.0) -> None:
        self.name, self.skip, self.slot_s = name, skip, slot_s
        self._infer, self._size = infer, memory
        self.reset(Slots(slot_s, 1), Key(0))

    def reset(self, world: Slots, key: Key) -> None:
        """Forget the past; without noise nothing is drawn."""
        self._slot = -1
        self.before = self._after = np.zeros((0, self._size), dtype=np.float32)

    def score(self, view: CapacityView) -> Floats:
        """Confidence, in (-1, 1)."""
        if self._after.shape[0] != view.state.shape[0]:
            self._after = np.zeros((view.state.shape[0], self._size), dtype=np.float32)
            self._slot = -1
        slot = int(view.now * view.slot_s / self.slot_s) if self.slot_s else view.now
        if slot != self._slot:
            self._slot, self.before = slot, self._after
        scores, self._after = self._infer(job_features(view), summary_features(view), self.before)
        return scores.astype(np.float64)
