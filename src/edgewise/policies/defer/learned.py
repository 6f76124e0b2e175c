"""A trained policy as any other: features in, scores out, the same ranking as all rules.

What it reads are one row for each job of the pool, and one summary of the slot, in units of `Scale`, so that
figures are near one. The same functions serve training and use.

How the network is run is handed in, so that an agent in training decides by the same code; `of_card` does so
with onnxruntime.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from edgewise.arrays import Floats, Floats32, Ints
from edgewise.core.defer import CapacityView, JobState, Slots
from edgewise.core.keyed import Key
from edgewise.policies.cards import Card, Run
from edgewise.policies.defer.rules import ScoreDeferral

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


def feature_hash() -> str:
    """Hash of what the features mean; a policy trained on others is refused."""
    text = json.dumps([JOB_FEATURES, SUMMARY_FEATURES, Scale()])
    return hashlib.sha256(text.encode()).hexdigest()


def of_card(card: Card) -> LearnedDeferral:
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


def golden_scores(policy: LearnedDeferral) -> Floats:
    """(16, 6) what a policy scores in the golden views; it begins anew before and after."""
    found = [policy.score(view)[0] for view in golden_views()]
    policy.reset(Slots(GOLDEN_SLOT_S, 1), Key(0))
    return np.array(found)


class LearnedDeferral(ScoreDeferral):
    """Starts by falling confidence score.

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
        self._before = self._after = np.zeros((0, self._size), dtype=np.float32)

    def score(self, view: CapacityView) -> Floats:
        """Confidence, in (-1, 1)."""
        if self._after.shape[0] != view.state.shape[0]:
            self._after = np.zeros((view.state.shape[0], self._size), dtype=np.float32)
            self._slot = -1
        slot = int(view.now * view.slot_s / self.slot_s) if self.slot_s else view.now
        if slot != self._slot:
            self._slot, self._before = slot, self._after
        scores, self._after = self._infer(job_features(view), summary_features(view), self._before)
        return scores.astype(np.float64)
