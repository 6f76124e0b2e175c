"""Heuristics for deferrable jobs: one score each, the same in simulation and live.

A rule is one function of the view, `score(view) -> (W, P)`, larger first. A new one is a subclass of
`ScoreDeferral` with that function and the decorator `@policy("name")`.

From scores to starts: OSDEC sorts by falling score and starts the longest prefix whose cores fit (section
4.1.2; the paper prints the order rising). `skip` goes on past a job that does not fit. `room` may look
ahead, so that a job starts only if it fits in every slot it would run in.
"""

from __future__ import annotations

import numpy as np

from edgewise.arrays import Bools, Floats, Ints
from edgewise.core.compiled import kernel
from edgewise.core.defer import CapacityView, Slots
from edgewise.core.keyed import Key
from edgewise.policies.registry import policy

TOLERANCE = 1e-9


def choose(view: CapacityView, scores: Floats, *, room: Floats | None = None, skip: bool = False) -> Bools:
    """Start by falling score what fits.

    Args:
        scores: (W, P), larger first; ties in order of submission. Only startable jobs count.
        room: (W, K, R) free resources in this slot and the next ones; None takes what is free now (K = 1).
        skip: go on past a job that does not fit, instead of stopping there.
    Returns:
        (W, P) jobs to start.
    Raises:
        ValueError: scores have the wrong shape or a startable job's score is NaN.
    """
    startable = view.startable
    if scores.shape != startable.shape:
        raise ValueError(f"scores have shape {scores.shape} for a pool of shape {startable.shape}")
    if np.isnan(scores[startable]).any():
        raise ValueError("the score of a startable job is NaN")
    free = view.free[:, None] if room is None else room
    out = np.zeros(startable.shape, dtype=np.bool_)
    _choose(np.asarray(scores, np.float64), startable, view.demand, view.duration, free.copy(), skip, out)
    return out


@kernel
def _choose(
    scores: Floats,
    startable: Bools,
    demand: Floats,
    duration: Ints,
    room: Floats,
    skip: bool,
    out: Bools,
) -> None:
    for world in range(scores.shape[0]):
        jobs = np.flatnonzero(startable[world])
        for rank in np.argsort(-scores[world][jobs], kind="mergesort"):
            job = jobs[rank]
            if _fits(room[world], demand[world, job], duration[world, job]):
                out[world, job] = True
            elif not skip:
                break


@kernel
def _fits(room: Floats, demand: Floats, duration: int) -> bool:
    """Whether a job fits in every slot of `room` that it would run in; takes its share if so."""
    slots = min(duration, room.shape[0])
    for slot in range(slots):
        for kind in range(demand.size):
            if demand[kind] > room[slot, kind] + TOLERANCE:
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

    def decide(self, view: CapacityView) -> Bools:
        """Jobs to start now."""
        return choose(view, self.score(view), skip=self.skip)


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
