"""A policy under guard: policies are foreign code, and whatever they do must not stop who asks.

Another answer is taken where a policy raises, does not answer in time, or answers what cannot be done. How
long that may take says whoever hands in what asks (`Caller`), for here are neither clocks nor threads.

A second policy in shadow is asked what the one in use is asked, and never followed. One class for all
decisions, so that all are compared, counted and shown alike. An answer is laid out as a choice for each item:
a stream's worker, a request's station, a task's node, what becomes of a replica, that a job starts. Whoever
asks says how (`choices`), and what else of an answer is a figure (`figures`).
"""

import sysconfig
import traceback
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast

from edgewise.errors import EdgewiseError, PolicyError

T = TypeVar("T")
U = TypeVar("U")
Check = Callable[[T], str | None]  # what an answer breaks, or None
LATE, RESTING, ENDED, STARTING = UNANSWERED = (
    "no answer in time",
    "not asked, for it was late",
    "its process ended",
    "not asked, for its process starts anew",
)


PACKAGE = Path(__file__).parents[1]
POLICIES = PACKAGE / "policies"
LIBRARIES = tuple(Path(sysconfig.get_path(of)) for of in ("stdlib", "purelib", "platlib"))


class Resting(TimeoutError):
    """A policy is not asked, because it did not answer in time a short while ago."""

    kind = RESTING


class Ended(TimeoutError):
    """The process in which a policy decides has ended."""

    kind = ENDED


class Starting(TimeoutError):
    """A policy is not asked, because its process has ended and starts anew."""

    kind = STARTING


class Caller(Protocol):
    """How foreign code is called."""

    def __call__(self, question: Callable[[], T]) -> T:
        """The answer to a question.

        Raises:
            TimeoutError: there was none in time; `Ended`: nor can there be; `Resting`, `Starting`: nor was it
                asked.
            Exception: whatever the question raises.
        """


def at_once(question: Callable[[], T]) -> T:
    """Ask here, for as long as it takes."""
    return question()


@dataclass(frozen=True, slots=True)
class Decided:
    """How often a policy was to decide, and how often another answer was taken in place of its own.

    Attributes:
        policy: its name.
        questions: decisions that were due.
        instead: of these, how many were not its own.
        faults: by kind, how often each, and the first in more words, with file and line.
    """

    policy: str
    questions: int = 0
    instead: int = 0
    faults: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """Of decisions that were not its own."""
        return self.instead / self.questions if self.questions else 0.0

    @property
    def nothing(self) -> bool:
        """Whether it was to decide, and not one decision was its own."""
        return 0 < self.questions == self.instead

    def __add__(self, other: "Decided") -> "Decided":
        """Both together, as of two runs."""
        faults = dict(self.faults)
        for kind, (times, why) in other.faults.items():
            before, first = faults.get(kind, (0, why))
            faults[kind] = before + times, first
        return Decided(self.policy, self.questions + other.questions, self.instead + other.instead, faults)

    def __str__(self) -> str:
        """In a line."""
        faults = "; ".join(f"{why} ({times} times)" for times, why in self.faults.values())
        return f"{self.instead} of {self.questions} decisions ({100.0 * self.share:.1f} %): {faults}"


class Guard:
    """Asks a policy of any decision, and takes another answer in place of one that is of no use.

    Args:
        asking: calls the policy, and may limit how long that takes.
        told: is handed this guard and the kind of each fault.
    Attributes:
        questions: decisions that were due, `instead`: of these, how many were not the policy's own.
        fault: why the last answer was not the policy's own; "" when it was.
        new: whether that was not so of the answer before: worth a line in a log.
        late: whether it was for want of an answer in time.
        faults: kinds of faults, and how often each.
    """

    def __init__(
        self, asking: Caller = at_once, told: "Callable[[Guard, str], None]" = lambda guard, kind: None
    ) -> None:
        self.asking, self._told, self.fault = asking, told, ""
        self._why, self.new, self.late = "", False, False
        self.questions = self.instead = 0
        self.faults: Counter[str] = Counter()
        self._first: dict[str, tuple[str, str]] = {}  # of each kind, in more words, and where it was raised

    def ask(
        self,
        question: Callable[[], T],
        instead: Callable[[], U],
        check: Check[T] | None = None,
        questions: int | None = 1,
    ) -> T | U:
        """The answer to `question`, or to `instead` when it raises, is late, or breaks something.

        Args:
            check: what an answer breaks, or None; it is called as the question is, for it may raise, too.
            questions: so many decisions are due; None: the policy is only told something.
        """
        due = questions or 0
        self.questions += due
        try:
            answer, broken = self.asking(lambda: _checked(question(), check))
        except TimeoutError as error:
            kind, why, where = getattr(error, "kind", LATE), str(error) or LATE, ""
        except Exception as error:  # see the module
            first = cause_of(error)
            kind, where = type(first).__name__, place_of(first)
            kind, why = f"raised {kind}", f"{kind}: {first}"
        else:
            if broken is None:
                self.fault, self.new, self.late = "", False, False
                return answer
            kind, why, where = broken, broken, ""
        self.instead += due
        self._note(kind, why, where, 1 if questions is None else due)
        return instead()

    def tell(self, news: Callable[[], object]) -> bool:
        """Let the policy hear something that it has nothing to answer to; whether it did without a fault."""
        self.ask(news, lambda: None, questions=None)
        return not self.fault

    def blame(self, kind: str, why: str = "") -> None:
        """Count a decision for which the policy was not even asked.

        Args:
            kind: of few: they are counted one by one.
            why: in more words.
        """
        self.questions += 1
        self.replaced(kind, 1, why)

    def replaced(self, kind: str, times: int, why: str = "") -> None:
        """Of decisions that were counted when they were asked for, so many are not the policy's own."""
        self.instead += times
        self._note(kind, why or kind, "", times)

    def decided(self, policy: Any) -> Decided:
        """How often the policy that is asked was to decide, and did not."""
        own, faults = line_of(policy), dict[str, tuple[int, str]]()
        for kind, times in self.faults.items():
            why, where = self._first[kind]
            faults[kind] = times, placed(why, where or own)
        return Decided(str(policy.name), self.questions, self.instead, faults)

    def _note(self, kind: str, why: str, where: str, times: int) -> None:
        if times:  # else nothing was due
            self.faults[kind] += times
            self._first.setdefault(kind, (why, where))
        self.new = why != self._why or not self.fault
        self.fault, self._why, self.late = placed(why, where), why, kind in UNANSWERED
        self._told(self, kind)


class Strict(Guard):
    """Lets nobody else answer: what is wrong with a policy is raised, for it is tried out.

    Args:
        name: of the policy.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def _note(self, kind: str, why: str, where: str, times: int) -> None:
        """Raise it.

        Raises:
            PolicyError: always.
        """
        raise PolicyError(f"policy {self._name!r} cannot decide: {placed(why, where)}")


def _checked(answer: T, check: Check[T] | None) -> tuple[T, str | None]:
    return answer, check(answer) if check is not None else None


def cause_of(error: BaseException) -> BaseException:
    """What a policy raised, where that was said anew as an error of ours."""
    return error.__cause__ if isinstance(error, EdgewiseError) and error.__cause__ else error


def placed(why: str, where: str) -> str:
    """A message with file and line, where these are known."""
    return f"{why} ({where})" if where else why


def place_of(error: BaseException) -> str:
    """Where in a policy's own file something was raised, as "mine.py:12"; "" where no policy was under way.

    That is the innermost line of the first file that is neither ours nor a library's; where there is none,
    the policy ships.
    """
    frames = [(Path(each.filename), each.lineno) for each in traceback.extract_tb(error.__traceback__)]
    own = [file for file, _ in frames if not _below(file, PACKAGE, *LIBRARIES)]
    own = own or [file for file, _ in frames if _below(file, POLICIES)]
    own = own or [file for file, _ in frames if not _below(file, PACKAGE)]
    lines = [line for file, line in frames if own and file == own[0]]
    return f"{own[0].name}:{lines[-1]}" if lines else ""


def line_of(policy: Any) -> str:
    """Where a policy that does not ship says how it decides, as "mine.py:8"; "" where that is not known."""
    policy = getattr(policy, "policy", policy)  # of one world, see `one_world`
    for name in ("score", "rule", "decide"):
        found = getattr(policy, name, None)
        code = getattr(getattr(found, "py_func", found), "__code__", None)
        if code is not None and not _below(Path(code.co_filename), PACKAGE):
            return f"{Path(code.co_filename).name}:{code.co_firstlineno}"
    return ""


def _below(file: Path, *folders: Path) -> bool:
    return any(file.is_relative_to(folder) for folder in folders)


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
        said = placed(f"{type(error).__name__} when it begins: {error}", place_of(error))
        raise PolicyError(f"policy {name!r}: {said}") from error
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
