"""A dispatch policy under guard: policies are foreign code, and whatever they do must not stop dispatch.

The fallback decides when the policy raises, binds what is not feasible, saw too old a view, or took too long.
After an error in a tick, and after a decision over the budget, it decides until the next tick.
"""

from __future__ import annotations

from collections.abc import Callable

from edgewise.core.keyed import Key
from edgewise.core.policy import DispatchPolicy, LeastImpedanceFallback, begin, broken
from edgewise.core.views import Decisions, DispatchView, Item, Items
from edgewise.core.world import World


class Guard:
    """Asks a policy, and the fallback in its place.

    Args:
        fallback, timer, budget_s: see `DispatchCore`.
    Attributes:
        suspended: whether the fallback decides until the next tick.
        timed: whether decisions are timed.
        faults: what made the fallback decide, and how often.
    """

    policy: DispatchPolicy

    def __init__(
        self,
        fallback: DispatchPolicy | None,
        timer: Callable[[], float] | None,
        budget_s: float | None,
    ) -> None:
        default: DispatchPolicy = LeastImpedanceFallback()
        self._fallback = fallback or default
        self._timer, self._budget_s = timer, budget_s
        self.timed = timer is not None
        self.suspended = False
        self.faults: dict[str, int] = {}

    def use(self, policy: DispatchPolicy, world: World, key: Key) -> None:
        """Switch the policy; it and the fallback start anew.

        Raises:
            PolicyError: it cannot begin; the former one stays.
        """
        begin(policy, world, key)
        self.policy = policy
        self._fallback.reset(world, key)
        self.suspended = False

    def fresh(self, age_s: float) -> bool:
        """Whether the policy takes measurements of this age."""
        max_age_s = getattr(self.policy, "max_age_s", None)
        return max_age_s is None or age_s <= max_age_s

    def tell(self, listen: Callable[[DispatchView], None], view: DispatchView) -> None:
        """Show the policy the view; until the next tick the fallback decides when that raises."""
        try:
            listen(view)
        except Exception as error:  # see the module
            self._fault(f"{listen.__name__} raised {type(error).__name__}")
            self.suspended = True

    def decide(self, item: Item, look: Callable[[], DispatchView], age_s: float) -> tuple[int, int]:
        """Worker, or -1, and the reason of a refusal, or 0.

        Args:
            look: makes the view.
            age_s: of its measurements.
        """
        why = self._why_not(age_s)
        if why is None:
            started = self._timer() if self._timer else 0.0
            try:
                worker, reason, why = self._ask(item, look())
            except Exception as error:  # see the module
                why = f"raised {type(error).__name__}"
            if self._timer and self._budget_s is not None and self._timer() - started > self._budget_s:
                self._fault("over budget")
                self.suspended = True
            if why is None:
                return worker, reason
        self._fault(why)
        return _first(self._fallback.decide(look(), Items((item,))))

    def _ask(self, item: Item, view: DispatchView) -> tuple[int, int, str | None]:
        """The policy's answer, and what it breaks, if anything."""
        items = Items((item,))
        decisions = self.policy.decide(view, items)
        why = broken(view, items, decisions)
        return (*_first(decisions), None) if why is None else (-1, 0, why)

    def _why_not(self, age_s: float) -> str | None:
        if self.suspended:
            return "suspended until the next tick"
        return None if self.fresh(age_s) else "stale view"

    def _fault(self, why: str) -> None:
        self.faults[why] = self.faults.get(why, 0) + 1


def _first(decisions: Decisions) -> tuple[int, int]:
    return int(decisions.worker[0]), int(decisions.reason[0]) if decisions.reason.size else 0
