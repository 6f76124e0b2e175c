"""A dispatch policy under guard: policies are foreign code, and whatever they do must not stop dispatch.

The fallback decides when the policy raises, binds what is not feasible, or saw too old a view. After an error
in a tick, and when the policy does not answer in time, it decides until the next tick. Whoever runs the core
says how long that may take: it hands in what asks (`Caller`), for here are neither clocks nor threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from edgewise.core.keyed import Key
from edgewise.core.policy import DispatchPolicy, LeastImpedanceFallback, begin, broken
from edgewise.core.views import Decisions, DispatchView, Item, Items
from edgewise.core.world import World

T = TypeVar("T")


class Caller(Protocol):
    """How foreign code is called."""

    def __call__(self, question: Callable[[], T]) -> T:
        """The answer to a question.

        Raises:
            TimeoutError: there was none in time.
            Exception: whatever the question raises.
        """


def at_once(question: Callable[[], T]) -> T:
    """Ask here, for as long as it takes."""
    return question()


class Guard:
    """Asks a policy, and the fallback in its place.

    Args:
        fallback, asking: see `DispatchCore`.
    Attributes:
        suspended: whether the fallback decides until the next tick.
        faults: what made the fallback decide, and how often.
    """

    policy: DispatchPolicy

    def __init__(self, fallback: DispatchPolicy | None, asking: Caller) -> None:
        default: DispatchPolicy = LeastImpedanceFallback()
        self._fallback, self._asking = fallback or default, asking
        self.suspended = False
        self.faults: dict[str, int] = {}

    def use(self, policy: DispatchPolicy, world: World, key: Key, asking: Caller | None = None) -> None:
        """Switch the policy; it and the fallback start anew.

        Args:
            asking: calls it; None: what called the former one.
        Raises:
            PolicyError: it cannot begin; the former one stays.
        """
        begin(policy, world, key)
        self.policy, self._asking = policy, asking or self._asking
        self._fallback.reset(world, key)
        self.suspended = False

    def fresh(self, age_s: float) -> bool:
        """Whether the policy takes measurements of this age."""
        max_age_s = getattr(self.policy, "max_age_s", None)
        return max_age_s is None or age_s <= max_age_s

    def tell(self, listen: Callable[[DispatchView], None], view: DispatchView) -> None:
        """Show the policy the view; until the next tick the fallback decides when that raises."""
        try:
            self._asking(lambda: listen(view))
        except TimeoutError:
            self._late()
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
            view = look()
            try:
                worker, reason, why = self._asking(lambda: self._ask(item, view))
            except TimeoutError:
                self._late()
            except Exception as error:  # see the module
                why = f"raised {type(error).__name__}"
            else:
                if why is None:
                    return worker, reason
        if why is not None:
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

    def _late(self) -> None:
        self._fault("no answer in time")
        self.suspended = True

    def _fault(self, why: str) -> None:
        self.faults[why] = self.faults.get(why, 0) + 1


def _first(decisions: Decisions) -> tuple[int, int]:
    return int(decisions.worker[0]), int(decisions.reason[0]) if decisions.reason.size else 0
