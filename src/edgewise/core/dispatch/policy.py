"""The protocol of dispatch policies for streams, and the base of every score-based one.

Policies read views and return decisions. They do no I/O and know no clock; randomness comes from the key
handed to `reset` or from `view.draw`.

Many decisions are made in one compiled loop (`play`); the score of a policy enters as a first-class function.
So one loop serves every policy, and gives the answers of `DispatchCore.handle`.
"""

import inspect
import warnings
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from numba.core.errors import NumbaWarning
from numpy.typing import NDArray

from edgewise.arrays import Floats, Ints
from edgewise.core.dispatch import state
from edgewise.core.dispatch.state import (
    DELAY_MEAN,
    DELAY_P95,
    DRAW,
    IMPEDANCE,
    LINK_LOAD,
    LOAD,
    NETWORK,
    NO_NUMBER,
    NONE,
    PROCESSING,
    QUEUE,
    READY,
    SENDING,
    SHARE,
    STREAMS,
    THROUGHPUT,
    WAIT,
    State,
    Weights,
    bind,
    item_of,
    least,
    release,
    weigh,
)
from edgewise.core.dispatch.views import (
    Candidates,
    Decisions,
    DispatchView,
    Item,
    Items,
    Rows,
    Violation,
    read_only,
)
from edgewise.core.keyed import Key
from edgewise.core.world import ACCURACY, CAPACITY, CLUSTER, NODE, World
from edgewise.kernels.compiled import JIT, PACKAGE, held, held_type, keep, kernel, numba

WRONG_SIZE, RAISED = -3, -4  # what may be wrong with scores, beside `state.NO_NUMBER`
OPEN, CLOSE = 1, 0  # kinds of events


class Batch(NamedTuple):
    """Openings and closings in order of time, (E,) each; `row` points into `Rows`."""

    time_s: Floats
    kind: Ints
    row: Ints


@kernel
def choose(score: Any, x: State, now_s: float, item: Item, found: Weights) -> tuple[int, int]:
    """Decide one item: (worker, 0), (-1, reason), or (`NO_NUMBER` | `WRONG_SIZE` | `RAISED`, 0).

    Args:
        score: a compiled score, called as score(None, view, item).
    """
    why = weigh(x, item, found)
    if why != NONE:
        return -1, why
    view = Candidates(
        now_s,
        x.real[LOAD],
        x.whole[STREAMS],
        x.up,
        x.real[CAPACITY],
        x.real[ACCURACY],
        x.whole[CLUSTER],
        x.whole[NODE],
        found.figures[NETWORK],
        found.figures[PROCESSING],
        found.figures[IMPEDANCE],
        found.figures[SHARE],
        found.violation,
        found.feasible,
        found.figures[DRAW],
        x.real[QUEUE],
        x.real[THROUGHPUT],
        x.real[DELAY_MEAN],
        x.real[DELAY_P95],
        found.figures[WAIT],
        found.figures[SENDING],
        found.figures[LINK_LOAD],
        now_s - x.measured_s,
        x.real[READY],
    )
    scores = found.figures[DRAW]
    try:
        scores = score(None, held(view), item)
    except Exception:  # foreign code; whatever it raises, plain Python will raise again and be caught
        return RAISED, NONE
    if scores.size != x.up.size:
        return WRONG_SIZE, NONE
    return least(scores, found.violation, x.seed, item.id), NONE


@kernel
def play(
    score: Any, state: State, room: Weights, batch: Batch, rows: Rows, worker: Ints, reason: NDArray[np.int8]
) -> int:
    """Decide openings and book closings in order.

    Args:
        room: to weigh items in.
        worker: (N,) where each row is or was bound last, -1 nowhere; written to.
        reason: (N,) why a row was refused, 0 when it was not; written to.
    Returns:
        How many events were played; fewer than given when the next one's scores are wrong.
    """
    x, needs, found = held(state), held(rows), held(room)
    for e in range(batch.row.size):
        i = batch.row[e]
        if batch.kind[e] == CLOSE:
            if worker[i] >= 0:
                release(x, needs.site[i], worker[i], needs.rate_qps[i], needs.size_bytes[i])
            continue
        item = item_of(needs, i)
        w, why = choose(score, x, batch.time_s[e], item, found)
        if w < -1:
            return e
        worker[i] = w
        reason[i] = why
        if w >= 0:
            bind(x, item.site, w, item.rate_qps, item.size_bytes)
    return batch.row.size


class DispatchPolicy(Protocol):
    """Streams → workers, in milliseconds; what it may have besides says `core.hooks`."""

    name: str

    def reset(self, world: World, key: Key) -> None:
        """Start anew on a world; all randomness comes from `key`."""

    def decide(self, view: DispatchView, items: Items) -> Decisions:
        """A worker for each item, or -1 with a reason."""


class ScorePolicy:
    """Base of policies that are one function: smallest score among the feasible workers wins.

    Subclasses define `score(view, item)`. Ties are broken at random, keyed by run and item. A
    score that reads only its arguments is compiled where numba can (`core.choose`); one that
    uses `self` runs as it stands.
    """

    decision = "dispatch"
    name: str = ""

    def reset(self, world: World, key: Key) -> None:
        """Nothing to forget: a score depends on the view alone."""

    def score(self, view: Candidates, item: Item) -> Floats:
        """(W,) cost of each worker for this item, smaller is better."""
        raise NotImplementedError(f"{type(self).__name__} must define score(view, item)")

    def decide(self, view: DispatchView, items: Items) -> Decisions:
        """The feasible worker of smallest score for each item."""
        worker = np.full(len(items), -1, dtype=np.int64)
        reason = np.zeros(len(items), dtype=np.int8)
        for i, item in enumerate(items):
            seen, reason[i] = _weighed(view, item)
            if reason[i] == Violation.NONE:
                worker[i] = best_of(
                    self, seen, item, np.uint64(view.seed & 0xFFFFFFFFFFFFFFFF), seen.violation
                )
        return Decisions(worker, reason)


def best_of(
    policy: ScorePolicy, view: Candidates, item: Item, seed: np.uint64, violation: NDArray[np.int8]
) -> int:
    """The worker of smallest score among those without a violation.

    Raises:
        ValueError: there is not one number for each worker.
        Exception: whatever the score raises.
    """
    score = np.array(policy.score(view, item), dtype=np.float64)
    if score.shape != violation.shape:
        raise ValueError(
            f"policy {policy.name!r}: score has shape {score.shape} for {violation.size} workers"
        )
    best = state.least(score, violation, seed, item.id)
    if best == NO_NUMBER:
        raise ValueError(f"policy {policy.name!r}: score is NaN for item {item.id}")
    return best


def assess(view: DispatchView, item: Item) -> Candidates:
    """The view of one item: what `score(view, item)` reads."""
    return _weighed(view, item)[0]


def _weighed(view: DispatchView, item: Item) -> tuple[Candidates, int]:
    """As `assess`, and why no worker can serve the item, or 0."""
    found = Weights.of(view.world.workers)
    why = weigh(State.of(view, item.site), item._replace(site=0), found)
    told = (view.queue, view.throughput_qps, view.delay_mean_s, view.delay_p95_s)
    seen = candidates(view.world, (view.load_qps, view.streams, view.up), found, told, view.ready_s)
    return seen._replace(now_s=view.now_s, age_s=view.age_s), why


def candidates(world: World, ledger: Any, found: Weights, told: Any, ready_s: Floats) -> Candidates:
    """The view of an item that was weighed, but for its times.

    Args:
        ledger: (load_qps, streams, up). told: what telemetry said. ready_s: see `DispatchView`.
    """
    network, processing, impedance, share, draw, wait, sending, link_load = found.figures
    static = (world.capacity_qps, world.accuracy, world.cluster, world.node)
    weighed = (network, processing, impedance, share, found.violation, found.feasible, draw)
    rest = (wait, sending, link_load, 0.0, ready_s)
    return Candidates._make((0.0, *ledger, *static, *weighed, *told, *rest))


class ChoosingPolicy:
    """Base of policies that have others decide, one at a time.

    The score of `current` is compiled, so such a policy decides at the pace of the one that it has chosen.
    `tick` is the place to choose.

    Attributes:
        current: the policy that decides now.
    """

    decision = "dispatch"
    name: str = ""
    current: ScorePolicy

    def decide(self, view: DispatchView, items: Items) -> Decisions:
        """As the chosen policy decides."""
        return self.current.decide(view, items)


class LeastImpedanceFallback(ScorePolicy):
    """Decides when the policy cannot: least 2(d + 2σ) + D_v, which needs no measurement."""

    name = "fallback"

    def score(self, view: Candidates, item: Item) -> Floats:
        """Impedance."""
        return view.impedance_s


def broken(view: DispatchView, items: Items, decisions: Decisions) -> str | None:
    """What a policy's answer breaks, or None."""
    workers, reasons = np.asarray(decisions.worker), np.asarray(decisions.reason)
    if workers.shape != (len(items),) or reasons.size not in (0, len(items)):
        return "wrong shape"
    if workers.dtype.kind not in "iu":
        return "worker is no whole number"
    if not set(reasons.tolist()) <= set(Violation):
        return "refuses for no known reason"
    for item, worker in zip(items, workers, strict=True):
        violation = assess(view, item).violation
        if worker >= view.world.workers or (worker >= 0 and violation[worker] != Violation.NONE):
            return "bound what is not feasible"
        if worker < -1:
            return "worker below -1"
    return None


def score_of(policy: Any) -> ScorePolicy | None:
    """Whose score decides until the next tick, if one does."""
    named = policy.current if isinstance(policy, ChoosingPolicy) else policy
    own = isinstance(named, ScorePolicy) and getattr(named.decide, "__func__", None) is ScorePolicy.decide
    return named if own else None


def compiled(policy: object) -> Any | None:
    """The policy's score as a compiled function, None when it has to run as plain Python.

    It has to when `decide` is its own, or when numba cannot compile `score` for `self` being
    None: a score that keeps state in `self` is Python's.
    """
    own = policy is not None and score_of(policy) is policy
    return _compiled(cast(Any, type(policy))) if JIT and own else None


@cache
def _compiled(cls: Any) -> Any | None:
    file = inspect.getsourcefile(cls.score) or ""
    shipped = PACKAGE in Path(file).parents
    score, reading = prepared()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NumbaWarning)
            # Foreign code. An index out of bounds must raise, as it does in Python.
            options: dict[str, Any] = {"boundscheck": True, "error_model": "numpy"}
            compiler: Any = numba.njit(**options | {"no_cpython_wrapper": True})
            if not shipped:
                # A score that writes to its view must not compile, so that plain Python refuses it.
                compiler(cls.score).compile(reading)
            made = compiler(cls.score)
            if shipped:
                keep(made)
            made.compile(score)
            made.disable_compile()
            return _pointed_at(made, score)
    except Exception:  # numba raises many kinds; each only means: not compilable
        return None


def _pointed_at(score: Any, signature: Any) -> Any:
    """A compiled score with its addresses at hand: numba looks for them at every call that it is given to."""
    code = score.get_compile_result(signature)
    names = code.fndesc.llvm_cfunc_wrapper_name, code.fndesc.llvm_func_name
    address = {name: code.library.get_pointer_to_function(name) for name in names}
    library = SimpleNamespace(get_pointer_to_function=address.__getitem__)
    found = SimpleNamespace(fndesc=code.fndesc, library=library)
    score.get_compile_result = lambda _: found
    return score


@cache
def prepared() -> tuple[Any, Any]:
    """Compile the one version of the loop, or load it; numba's types of a score, and of what it may read.

    Signatures are spelled out because a first-class function cannot be inferred.
    """
    typeof: Any = numba.typeof
    real, whole, codes = np.zeros(1), np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int8)
    item = Item(0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0)
    flags = np.zeros(1, dtype=np.bool_)
    weighed = (real, real, real, real, codes, flags, real)
    arrays = (real, whole, flags, real, real, whole, whole, *weighed, *[real] * 7)
    seen, shown = (
        Candidates._make((0.0, *these, 0.0, kind(real)))
        for these, kind in ((arrays, np.asarray), (map(read_only, arrays), read_only))
    )
    score = typeof(real)(numba.types.none, held_type(typeof(seen)), typeof(item))
    ways: Any = np.zeros((1, 1), dtype=state.WAY).view(np.recarray)
    real_rows, whole_rows, links = np.zeros((12, 1)), np.zeros((4, 1), dtype=np.int64), np.zeros((3, 0))
    path = read_only(np.zeros((1, 1, 0), dtype=np.int64))
    world = State(real_rows, whole_rows, flags, ways, links, path, 0.0, np.uint64(0))
    given = (world, Weights.of(1), Batch(real, whole, whole), Rows.of([item]), whole, codes)
    loop: Any = play
    loop.compile(numba.int64(numba.types.FunctionType(score), *map(typeof, given)))
    loop.disable_compile()
    return score, (numba.types.none, held_type(typeof(shown)), typeof(item))
