"""From scores to starts: rank, and start what fits.

OSDEC sorts by falling score and starts the longest prefix whose cores fit (section 4.1.2; the paper
prints the order rising). `skip` goes on past a job that does not fit. `room` may look ahead, so that a
job starts only if it fits in every slot it would run in.
"""

from __future__ import annotations

import numpy as np

from edgewise.arrays import Bools, Floats, Ints
from edgewise.core.compiled import kernel
from edgewise.core.defer import CapacityView

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
        _choose_world(
            scores[world], startable[world], demand[world], duration[world], room[world], skip, out[world]
        )


@kernel
def _choose_world(
    scores: Floats,
    startable: Bools,
    demand: Floats,
    duration: Ints,
    room: Floats,
    skip: bool,
    out: Bools,
) -> None:
    jobs = np.flatnonzero(startable)
    for rank in np.argsort(-scores[jobs], kind="mergesort"):
        job = jobs[rank]
        if _fits(room, demand[job], duration[job]):
            out[job] = True
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
