"""The protocol of dispatch policies, and the base of every score-based one.

Policies read views and return decisions. They do no I/O and know no clock; randomness comes
from the key handed to `reset` or from `view.draw`.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from edgewise.arrays import Floats
from edgewise.core.feasibility import NO_NUMBER, assess, least, refusal
from edgewise.core.keyed import Key
from edgewise.core.views import Candidates, Decisions, DispatchView, Item, Items, Violation
from edgewise.core.world import World
from edgewise.errors import EdgewiseError, PolicyError


class DispatchPolicy(Protocol):
    """Streams → workers, in milliseconds; it may have `tick(view)`, called when a window begins."""

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
    of = "streams"
    name: str = ""

    def reset(self, world: World, key: Key) -> None:
        """Nothing to forget: a score depends on the view alone."""

    def tick(self, view: DispatchView) -> None:
        """Nothing to choose."""

    def score(self, view: Candidates, item: Item) -> Floats:
        """(W,) cost of each worker for this item, smaller is better."""
        raise NotImplementedError(f"{type(self).__name__} must define score(view, item)")

    def decide(self, view: DispatchView, items: Items) -> Decisions:
        """The feasible worker of smallest score for each item."""
        worker = np.full(len(items), -1, dtype=np.int64)
        reason = np.zeros(len(items), dtype=np.int8)
        for i, item in enumerate(items):
            worker[i], reason[i] = self._best(view.seed, assess(view, item), item)
        return Decisions(worker, reason)

    def _best(self, seed: int, view: Candidates, item: Item) -> tuple[int, int]:
        if not view.feasible.any():
            return -1, refusal(view.violation)
        score = np.array(self.score(view, item), dtype=np.float64)
        if score.shape != view.feasible.shape:
            raise ValueError(
                f"policy {self.name!r}: score has shape {score.shape} for {view.feasible.size} workers"
            )
        best = least(score, view.feasible, np.uint64(seed & 0xFFFFFFFFFFFFFFFF), item.id)
        if best == NO_NUMBER:
            raise ValueError(f"policy {self.name!r}: score is NaN for item {item.id}")
        return best, int(Violation.NONE)


class LeastImpedanceFallback(ScorePolicy):
    """Decides when the policy cannot: least 2(d + 2σ) + D_v, which needs no measurement."""

    name = "fallback"

    def score(self, view: Candidates, item: Item) -> Floats:
        """Impedance."""
        return view.impedance_s


def begin(policy: Any, *given: Any) -> None:
    """Reset a policy of any kind.

    Raises:
        PolicyError: whatever it raises, said as one line.
    """
    try:
        policy.reset(*given)
    except EdgewiseError:
        raise
    except Exception as error:  # foreign code
        name = getattr(policy, "name", type(policy).__name__)
        raise PolicyError(f"policy {name!r}: {type(error).__name__} when it begins: {error}") from error


def broken(view: DispatchView, items: Items, decisions: Decisions) -> str | None:
    """What a policy's answer breaks, or None."""
    if decisions.worker.shape != (len(items),):
        return "wrong shape"
    for item, worker in zip(items, decisions.worker, strict=True):
        violation = assess(view, item).violation
        if worker >= view.world.workers or (worker >= 0 and violation[worker] != Violation.NONE):
            return "bound what is not feasible"
        if worker < -1:
            return "worker below -1"
    return None
