"""A second policy in shadow: it is asked what the one in use is asked, and never followed.

One class for all decisions, so that all are compared, counted and shown alike. An answer is laid out as a
choice for each item: a stream's worker, a request's station, a task's node, what becomes of a replica, that
a job starts. Whoever asks says how (`choices`), and what else of an answer is a figure (`figures`).
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, TypeVar

from edgewise.core.guard import Check, Guard

A = TypeVar("A")
Choices = Mapping[Hashable, str]


class Shadow(Generic[A]):
    """Counts how often a second policy would have decided the same.

    Args:
        policy: has begun.
        guard: asks it; without an answer there is nothing to compare, and the fault is counted.
        choices: of each item that an answer is about.
        figures: what an answer comes to, by name.
    Attributes:
        policy, guard: who watches, and who asks it.
    """

    def __init__(
        self,
        policy: Any,
        guard: Guard,
        choices: Callable[[A], Choices],
        figures: Callable[[A], Mapping[str, float]] = lambda _: {},
    ) -> None:
        self.policy, self.guard = policy, guard
        self._choices, self._figures = choices, figures
        self._began_s: float | None = None
        self._now_s = 0.0
        self._decisions = self._alike = 0
        self._items = {"same": 0, "other": 0, "only_shadow": 0, "only_policy": 0}
        self._chosen: Counter[str] = Counter()
        self._last: dict[str, tuple[float, float]] = {}

    def watch(
        self, question: Callable[[], A], decided: A, now_s: float, check: Check[A] | None = None
    ) -> None:
        """Ask what the policy in use was asked.

        Args:
            decided: what was decided in use, whoever did.
            check: what an answer breaks, or None.
        """
        answer = self.guard.ask(question, lambda: None, check)
        self._began_s = now_s if self._began_s is None else self._began_s
        self._decisions, self._now_s = self._decisions + 1, now_s
        if answer is None:
            return
        here, there = dict(self._choices(answer)), dict(self._choices(decided))
        self._alike += here == there
        for item in here.keys() | there.keys():
            self._items[_beside(here.get(item), there.get(item))] += 1
        self._chosen.update(here.values())
        own, used = self._figures(answer), self._figures(decided)
        self._last = {name: (own[name], used[name]) for name in own}

    def report(self) -> dict[str, Any]:
        """What it would have done so far.

        `items` counts those for which both, or only one of the two, chose something, and whether that was
        the same; `chosen` how often the shadow chose what; `figures` are of the last decision, the shadow's
        and that of the policy in use.
        """
        return {
            "policy": self.policy.name,
            "seconds": 0.0 if self._began_s is None else self._now_s - self._began_s,
            "decisions": self._decisions,
            "alike": self._alike,
            "items": dict(self._items),
            "chosen": dict(self._chosen),
            "figures": {name: {"shadow": own, "in_use": used} for name, (own, used) in self._last.items()},
            "faults": dict(self.guard.faults),
        }


def _beside(here: str | None, there: str | None) -> str:
    if here == there:
        return "same"
    return "only_policy" if here is None else "only_shadow" if there is None else "other"
