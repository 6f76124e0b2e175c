"""A policy under guard: policies are foreign code, and whatever they do must not stop who asks.

Another answer is taken where a policy raises, does not answer in time, or answers what cannot be done. How
long that may take says whoever hands in what asks (`Caller`), for here are neither clocks nor threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

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
        self, asking: Caller = at_once, told: Callable[[Guard, str], None] = lambda guard, kind: None
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
