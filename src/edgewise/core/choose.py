"""Decisions in compiled code: score, choose, bind and release without leaving the kernel.

`DispatchCore.play` comes here with a `ScorePolicy` whose `score` numba can compile; any other
policy, and single events, run as plain Python. Both give the same answers.

Scores enter as first-class functions, so one compiled loop serves every policy.
"""

from __future__ import annotations

import inspect
import warnings
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import numba
import numpy as np
from numba import types
from numba.core.errors import NumbaWarning
from numpy.typing import NDArray

from edgewise.arrays import Bools, Floats, Ints
from edgewise.core.compiled import JIT, PACKAGE, keep, kernel
from edgewise.core.feasibility import NO_NUMBER, TOLERANCE, lay_out, least, refusal, share_of
from edgewise.core.held import held, held_type
from edgewise.core.policy import ScorePolicy
from edgewise.core.views import Bound, Candidates, DispatchView, Item, Rows, Violation
from edgewise.core.world import Links, Tables

BOUND = int(Violation.NONE)
WRONG_SIZE, RAISED = NO_NUMBER - 1, NO_NUMBER - 2  # what else may be wrong with scores
OPEN, CLOSE = 1, 0  # kinds of events that `play` takes


class Load(NamedTuple):
    """The load ledger, (W,) each; kernels write to it.

    `load_qps` is all that is reserved, of which `elsewhere_qps` was granted to other cores.
    """

    load_qps: Floats
    streams: Ints
    up: Bools
    elsewhere_qps: Floats


class Measured(NamedTuple):
    """What telemetry said last, (W,) each."""

    queue: Floats
    throughput_qps: Floats
    delay_mean_s: Floats
    delay_p95_s: Floats


class Batch(NamedTuple):
    """Openings and closings in order of time, (E,) each; `row` points into `Rows`."""

    time_s: Floats
    kind: Ints
    row: Ints


@kernel
def bind(t: Tables, load: Load, w: int, item: Item) -> None:
    """Book an item on worker `w`."""
    load.load_qps[w] += share_of(t, w, item.rate_qps, item.size_bytes)
    load.streams[w] += 1


@kernel
def release(t: Tables, load: Load, w: int, item: Item) -> None:
    """Take an item off worker `w`; one without streams of ours forgets rounding errors."""
    load.streams[w] -= 1
    load.load_qps[w] -= share_of(t, w, item.rate_qps, item.size_bytes)
    if load.streams[w] == 0:
        load.load_qps[w] = load.elsewhere_qps[w]


@kernel
def _shares(t: Tables, worker: Ints, rate_qps: Floats, size_bytes: Floats) -> Floats:
    """(N,) share of each stream on its worker."""
    shares_qps = np.empty(worker.size)
    for i in range(worker.size):
        shares_qps[i] = share_of(t, worker[i], rate_qps[i], size_bytes[i])
    return shares_qps


def load_of(tables: Tables, view: DispatchView, bound: Bound) -> Load:
    """The ledger that a view shows; what its bound streams do not explain is reserved elsewhere."""
    shares_qps = _shares(tables, bound.worker, bound.items.rate_qps, bound.items.size_bytes)
    rest_qps = view.load_qps - np.bincount(bound.worker, shares_qps, view.load_qps.size)
    elsewhere_qps = np.where(rest_qps > TOLERANCE * tables.capacity_qps, rest_qps, 0.0)
    return Load(view.load_qps.copy(), view.streams.copy(), view.up.copy(), elsewhere_qps)


@kernel
def item_of(rows: Rows, i: int) -> Item:
    """Row `i` as an item."""
    return Item(
        rows.id[i],
        rows.site[i],
        rows.task[i],
        rows.rate_qps[i],
        rows.size_bytes[i],
        rows.deadline_s[i],
        rows.min_accuracy[i],
        rows.priority[i],
    )


@kernel
def choose(
    score: Any,
    t: Tables,
    links: Links,
    load: Load,
    measured: Measured,
    now_s: float,
    measured_s: float,
    seed: np.uint64,
    item: Item,
) -> tuple[int, int]:
    """Decide one item: (worker, 0), (-1, reason), or (`NO_NUMBER` | `WRONG_SIZE` | `RAISED`, 0).

    Args:
        score: a compiled score, called as score(None, view, item).
    """
    way = Links(links.delay_s[item.site], links.deviation_s[item.site], links.bandwidth_bps[item.site])
    a = lay_out(t, held(way), load.load_qps, load.up, seed, item)
    if not a.feasible.any():
        return -1, refusal(a.violation)
    view = Candidates(
        now_s,
        load.load_qps,
        load.streams,
        load.up,
        t.capacity_qps,
        t.accuracy,
        t.cluster,
        t.node,
        a.network_s,
        a.processing_s,
        a.impedance_s,
        a.share_qps,
        a.violation,
        a.feasible,
        a.draw,
        measured.queue,
        measured.throughput_qps,
        measured.delay_mean_s,
        measured.delay_p95_s,
        now_s - measured_s,
    )
    scores = a.draw
    try:
        scores = score(None, held(view), item)
    except Exception:  # foreign code; whatever it raises, plain Python will raise again and be caught
        return RAISED, BOUND
    if scores.size != a.feasible.size:
        return WRONG_SIZE, BOUND
    return least(scores, a.feasible, seed, item.id), BOUND


@kernel
def play(
    score: Any,
    t: Tables,
    links: Links,
    load: Load,
    measured: Measured,
    measured_s: float,
    seed: np.uint64,
    batch: Batch,
    rows: Rows,
    worker: Ints,
    reason: NDArray[np.int8],
) -> int:
    """Decide openings and book closings in order.

    Args:
        worker: (N,) where each row is or was bound last, -1 nowhere; written to.
        reason: (N,) why a row was refused, 0 when it was not; written to.
    Returns:
        How many events were played; fewer than given when the next one's scores are wrong.
    """
    p, ways, ledger, seen, needs = held(t), held(links), held(load), held(measured), held(rows)
    for e in range(batch.row.size):
        i = batch.row[e]
        item = item_of(needs, i)
        if batch.kind[e] == CLOSE:
            if worker[i] >= 0:
                release(p, ledger, worker[i], item)
            continue
        w, why = choose(score, p, ways, ledger, seen, batch.time_s[e], measured_s, seed, item)
        if w < -1:
            return e
        worker[i] = w
        reason[i] = why
        if w >= 0:
            bind(p, ledger, w, item)
    return batch.row.size


def compiled(policy: object) -> Any | None:
    """The policy's score as a compiled function, None when it has to run as plain Python.

    It has to when `decide` is its own, or when numba cannot compile `score` for `self` being
    None: a score that keeps state in `self` is Python's.
    """
    if not isinstance(policy, ScorePolicy):
        return None
    cls: Any = type(policy)
    if not JIT or cls.decide is not ScorePolicy.decide:
        return None
    return _compiled(cls)


@cache
def _compiled(cls: Any) -> Any | None:
    file = inspect.getsourcefile(cls.score) or ""
    shipped = PACKAGE in Path(file).parents
    _prepare()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NumbaWarning)
            # Foreign code. An index out of bounds must raise, as it does in Python.
            options: dict[str, Any] = {"boundscheck": True, "error_model": "numpy"}
            score: Any = numba.njit(**options | {"no_cpython_wrapper": True})
            if not shipped:
                # A score that writes to its view must not compile, so that plain Python refuses it.
                score(cls.score).compile(_types().reading)
            made = score(cls.score)
            if shipped:
                keep(made)
            made.compile(_types().score)
            made.disable_compile()
            return made
    except Exception:  # numba raises many kinds; each only means: not compilable
        return None


class _Types(NamedTuple):
    score: Any
    reading: Any  # the same over arrays that must not be written to
    play: Any


@cache
def _types() -> _Types:
    """Signatures, spelled out because a first-class function cannot be inferred."""
    real, whole, reals, wholes = types.float64, types.int64, types.float64[::1], types.int64[::1]
    table = types.float64[:, ::1]
    kinds = {"float": real, "int": whole, "Floats": reals, "Ints": wholes}
    kinds |= {"NDArray[np.int8]": types.int8[::1], "Bools": types.boolean[::1]}

    def of(cls: Any, every: Any = None) -> Any:
        fields = [every or kinds[cls.__annotations__[name].__forward_arg__] for name in cls._fields]
        same = len(set(fields)) == 1
        uniform, mixed = cast(Any, types.NamedUniTuple), cast(Any, types.NamedTuple)
        return uniform(fields[0], len(fields), cls) if same else mixed(fields, cls)

    read_only = [
        types.Array(kind.dtype, 1, "C", readonly=True) if isinstance(kind, types.Array) else kind
        for kind in of(Candidates).types
    ]
    score = reals(types.none, held_type(of(Candidates)), of(Item))
    before = (types.FunctionType(score), of(Tables), of(Links, table), of(Load), of(Measured))
    return _Types(
        score=score,
        reading=(types.none, held_type(cast(Any, types.NamedTuple)(read_only, Candidates)), of(Item)),
        play=whole(*before, real, types.uint64, of(Batch), of(Rows), wholes, types.int8[::1]),
    )


@cache
def _prepare() -> None:
    """Compile, or load from the cache, the one version of the loop."""
    loop: Any = play
    loop.compile(_types().play)
    loop.disable_compile()
