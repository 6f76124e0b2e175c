"""The loop of gateways at sites, as the simulation calls it: room, scores, and what changes beside it."""

import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numba.core.errors import NumbaWarning

from edgewise.arrays import Bools, Floats
from edgewise.core.dispatch.policy import LeastImpedanceFallback, compiled, prepared
from edgewise.core.dispatch.state import State, Weights
from edgewise.core.dispatch.views import Rows
from edgewise.core.grant_rules import NOBODY, Granted, forget
from edgewise.kernels.compiled import JIT, numba
from edgewise.sim.streams.desk_steps import list_bound, settle
from edgewise.sim.streams.mail import COUNT, Mail
from edgewise.sim.streams.site_arrays import FIRST, LAST, Cores, SiteArrays, SiteDesks

SCORES = 10  # that may be used at one time; what is beyond them, Python decides


def cores_of(known: Sequence[State]) -> Cores:
    """States of cores as rows of one array each."""
    one, sites = known[0], len(known)
    real, whole, up, link = (
        np.stack([getattr(each, name) for each in known]) for name in ("real", "whole", "up", "link")
    )
    ways: Any = np.stack([each.ways for each in known]).view(np.recarray)
    return Cores(
        real, whole, up, ways, link, one.path, np.full(sites, -np.inf), one.seed,
        np.full(sites, NOBODY), np.zeros(sites),
    )  # fmt: skip


def site_of(
    cores: Cores, rows: Rows, capacity_qps: Floats, delay_s: Floats, alive: Bools, again: Bools,
    renewals: int, all_heard: bool,
) -> SiteArrays:  # fmt: skip
    """Nothing has happened yet."""
    sites, streams, workers = cores.now_s.size, rows.id.size, alive.size
    nobody, none = np.full(streams, NOBODY), np.zeros(streams, dtype=np.bool_)
    desks = SiteDesks(
        nobody, np.zeros(streams, dtype=np.int8), none, none.copy(), nobody.copy(), again,
        np.full((2, streams), NOBODY), np.full((2, sites), NOBODY),
        np.zeros((sites, workers)), np.zeros((sites, workers)), np.zeros(1024),
        np.zeros((5, 1024), dtype=np.int64), np.zeros(1024), np.array([0, 0, 0, NOBODY, 0]), all_heard,
    )  # fmt: skip
    granted = Granted.none(capacity_qps, sites, streams, 64)
    mail = Mail.none(4 * delay_s.size + 64, 1024, (sites + 1) * workers)
    return SiteArrays(cores, desks, granted, mail, rows, Weights.of(workers), delay_s, alive, renewals)


def doubled(x: SiteArrays) -> SiteArrays:
    """The same with twice the room."""
    d = x.desks
    time_s, what, qps = (np.concatenate([a, np.zeros_like(a)], axis=-1) for a in (d.time_s, d.what, d.qps))
    room = x.granted.stream.shape[1]
    return x._replace(
        desks=d._replace(time_s=time_s, what=what, qps=qps),
        granted=x.granted.with_room(room=room),
        mail=x.mail.doubled(),
    )


def loop_for(loop: Any, scores: int, answers: int, *given: Any) -> Any:
    """A loop for so many scores, ready to be called.

    Args:
        answers: whole numbers that it returns.
        given: what it is given beside the scores, of these types.
    """
    return _compiled(loop, scores, answers, *map(numba.typeof, given)) if JIT else loop


def filled(scores: list[Any]) -> tuple[Any, ...]:
    """As many scores as a loop takes, 1 or `SCORES`: handing one over takes as long as playing a second."""
    if not JIT:
        return ()
    room = 1 if len(scores) < 2 else SCORES
    return (*scores, *[compiled(LeastImpedanceFallback())] * room)[:room]


@cache
def _compiled(loop: Any, count: int, answers: int, *given: Any) -> Any:
    """The loop for these types; to look for it at every call takes a millisecond, for that of the scores."""
    score, _ = prepared()
    types: Any = numba.types
    signature = (types.UniTuple(types.FunctionType(score), count), *given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumbaWarning)
        loop.compile(types.UniTuple(types.int64, answers)(*signature))
    return loop.overloads[signature].entry_point


def rebind(x: SiteArrays, site: int, bindings: Mapping[int, int], refused: Mapping[int, int]) -> None:
    """A core has decided itself: where its streams are bound now, in order, and why others are refused."""
    d = x.desks
    for i, why in refused.items():
        d.worker[i], d.why[i] = NOBODY, why
    d.ends[FIRST, site] = d.ends[LAST, site] = NOBODY
    for i, worker in bindings.items():
        list_bound(d, site, i, worker)


def settled(x: SiteArrays, now_s: float, site: int, stream: int) -> SiteArrays:
    """Tell workers what was bound to them, and what is given back; with more room where it needs that."""
    if x.mail.figures[COUNT] + 2 > x.mail.heap.size:
        x = doubled(x)
    settle(x, now_s, site, stream)
    return x


def forget_all(x: Granted, worker: int) -> None:
    """A worker has granted nothing."""
    for gateway in range(x.heard_s.shape[1]):
        forget(x, worker, gateway)
