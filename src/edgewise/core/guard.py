"""A policy under guard: policies are foreign code, and whatever they do must not stop who asks.

Another answer is taken where a policy raises, does not answer in time, or answers what cannot be done. How
long that may take says whoever hands in what asks (`Caller`), for here are neither clocks nor threads.

A second policy in shadow is asked what the one in use is asked, and never followed. One class for all
decisions, so that all are compared, counted and shown alike. An answer is laid out as a choice for each item:
a stream's worker, a request's station, a task's node, what becomes of a replica, that a job starts. Whoever
asks says how (`choices`), and what else of an answer is a figure (`figures`).
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, Protocol, TypeVar, cast

from edgewise.errors import EdgewiseError, PolicyError

T = TypeVar("T")
U = TypeVar("U")
Check = Callable[[T], str | None]  # what an answer breaks, or None
LATE, RESTING = "no answer in time", "not asked, for it was late"


class Resting(TimeoutError):
    """A policy is not asked, because it did not answer in time a short while ago."""


class Caller(Protocol):
    """How foreign code is called."""

    def __call__(self, question: Callable[[], T]) -> T:
        """The answer to a question.

        Raises:
            TimeoutError: there was none in time; `Resting`: nor was it asked.
            Exception: whatever the question raises.
        """


def at_once(question: Callable[[], T]) -> T:
    """Ask here, for as long as it takes."""
    return question()


class Guard:
    """Asks a policy of any decision, and takes another answer in place of one that is of no use.

    Args:
        asking: calls the policy, and may limit how long that takes.
        told: is handed this guard and the kind of each fault.
    Attributes:
        fault: why the last answer was not the policy's own; "" when it was.
        new: whether that was not so of the answer before: worth a line in a log.
        late: whether it was for want of an answer in time.
        faults: kinds of faults, and how often each.
    """

    def __init__(
        self, asking: Caller = at_once, told: "Callable[[Guard, str], None]" = lambda guard, kind: None
    ) -> None:
        self.asking, self._told, self.fault = asking, told, ""
        self.new = self.late = False
        self.faults: Counter[str] = Counter()

    def ask(
        self, question: Callable[[], T], instead: Callable[[], U], check: Check[T] | None = None
    ) -> T | U:
        """The answer to `question`, or to `instead` when it raises, is late, or breaks something.

        Args:
            check: what an answer breaks, or None; it is called as the question is, for it may raise, too.
        """
        try:
            answer, broken = self.asking(lambda: _checked(question(), check))
        except TimeoutError as error:
            self.blame(RESTING if isinstance(error, Resting) else LATE, str(error) or LATE)
        except Exception as error:  # see the module
            self.blame(f"raised {type(error).__name__}", f"{type(error).__name__}: {error}")
        else:
            if broken is None:
                self.fault, self.new, self.late = "", False, False
                return answer
            self.blame(broken)
        return instead()

    def blame(self, kind: str, why: str = "") -> None:
        """Count a fault; also one for which the policy was not even asked.

        Args:
            kind: of few: they are counted one by one.
            why: in more words.
        """
        why = why or kind
        self.faults[kind] += 1
        self.fault, self.new, self.late = why, why != self.fault, kind in (LATE, RESTING)
        self._told(self, kind)


class Strict(Guard):
    """Lets nobody else answer: what is wrong with a policy is raised, for it is tried out.

    Args:
        name: of the policy.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def blame(self, kind: str, why: str = "") -> None:
        """Raise it.

        Raises:
            PolicyError: always.
        """
        raise PolicyError(f"policy {self._name!r} cannot decide: {why or kind}")


def _checked(answer: T, check: Check[T] | None) -> tuple[T, str | None]:
    return answer, check(answer) if check is not None else None


def begin(policy: T, *given: Any) -> T:
    """A policy of any kind, reset.

    Raises:
        PolicyError: whatever it raises, said as one line.
    """
    try:
        cast(Any, policy).reset(*given)
    except EdgewiseError:
        raise
    except Exception as error:  # foreign code
        name = getattr(policy, "name", type(policy).__name__)
        raise PolicyError(f"policy {name!r}: {type(error).__name__} when it begins: {error}") from error
    return policy


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
