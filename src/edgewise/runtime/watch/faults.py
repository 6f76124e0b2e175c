"""What policies of a process fail at: counted, said in the log, and kept for whoever writes it down.

Every guard of a running system is made here, so that a policy that raises, answers what cannot be done, or
exceeds its budget is recorded alike for all decisions. A policy that ships is asked in a thread of its own
(`Limited`), any other decides in a process of its own (`runtime.apart`): however long it takes, we go on.
"""

import logging
import queue
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from edgewise.core.guard import LATE, Caller, Guard, Resting, at_once
from edgewise.runtime import clock
from edgewise.runtime.store.faults import Fault

log = logging.getLogger("edgewise.policies")
INSTEAD = {
    "dispatch": "least impedance decides until the next window",
    "requests": "the request goes to the cloud",
    "split": "the query runs whole where there is least to do",
    "place": "what runs goes on as it is",
    "orchestrate": "no replica comes or goes",
    "defer": "'fifo' decides",
}
COMPARED = "nothing; it is in shadow"


class Faults:
    """Makes guards, and hears from them.

    Args:
        process: its name.
    Attributes:
        counts: by decision and kind, of policies in use.
    """

    def __init__(self, process: str) -> None:
        self.process = process
        self.counts: Counter[tuple[str, str]] = Counter()
        self._fresh: dict[tuple[str, str, bool, str], Fault] = {}

    def guard(
        self, decision: str, policy: str, budget_s: float, shadow: bool = False, apart: bool = False
    ) -> Guard:
        """A guard that waits so long for an answer of a policy.

        Args:
            apart: it decides in a process of its own, and answers in time by itself (`runtime.apart`).
        """
        asking: Caller = at_once if apart else Limited(budget_s)
        return Guard(asking, partial(self._note, decision, policy, budget_s, shadow))

    def drain(self) -> list[Fault]:
        """Those since the last call."""
        found, self._fresh = list(self._fresh.values()), {}
        return found

    def _note(
        self, decision: str, policy: str, budget_s: float, shadow: bool, guard: Guard, kind: str
    ) -> None:
        instead = COMPARED if shadow else INSTEAD[decision]
        key = decision, policy, shadow, kind
        before, now_s = self._fresh.get(key), clock.unix_s()
        since_s, times = (now_s, 1) if before is None else (before.since_s, before.times + 1)
        waited_s = budget_s if kind == LATE else 0.0
        self._fresh[key] = Fault(since_s, now_s, self.process, *key, guard.fault, waited_s, times, instead)
        if not shadow:
            self.counts[decision, kind] += 1
        if guard.new or kind == LATE:
            who = f"policy {policy!r} of {decision}{' in shadow' if shadow else ''}"
            log.error("%s failed: %s; %s", who, guard.fault, instead)


T = TypeVar("T")
REST_S = 10.0  # and does not ask again for so long when there was none
Question = Callable[[], Any]


class Limited:
    """Asks in a thread that is kept, which costs less than 0.1 ms a question (`core.guard.Caller`).

    A thread cannot be ended: nothing is asked while it still thinks.

    Args:
        patience_s: to wait for an answer.
        rest_s: not to ask again after none came in time.
    """

    def __init__(self, patience_s: float, rest_s: float = REST_S) -> None:
        self._patience_s, self._rest_s = patience_s, rest_s
        self._why = f"no answer within {patience_s:g} s; asked again after {rest_s:g} s"
        self._questions: queue.SimpleQueue[Question | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[Any, Exception | None]] = queue.SimpleQueue()
        self._begun, self._owed, self._until_s = False, False, 0.0

    def __call__(self, question: Callable[[], T]) -> T:
        """The answer to a question.

        Raises:
            TimeoutError: there is none in time.
            Resting: there was none a short while ago, or it still thinks.
            Exception: whatever the question raises.
        """
        if self._owed and not self._answers.empty():
            self._answers.get()  # it came too late
            self._owed = False
        if self._owed or clock.monotonic_s() < self._until_s:
            raise Resting(self._why)
        self._begin()
        self._questions.put(question)
        try:
            answer, error = self._answers.get(timeout=self._patience_s)
        except queue.Empty:
            self._owed, self._until_s = True, clock.monotonic_s() + self._rest_s
            raise TimeoutError(self._why) from None
        if error is not None:
            raise error
        found: T = answer
        return found

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            channels = self._questions, self._answers
            threading.Thread(target=_answer, args=channels, daemon=True, name="policy").start()
            weakref.finalize(self, self._questions.put, None)  # nobody asks any more


def _answer(
    questions: queue.SimpleQueue[Question | None], answers: queue.SimpleQueue[tuple[Any, Exception | None]]
) -> None:
    """Answer questions until there is none."""
    while (question := questions.get()) is not None:
        try:
            answers.put((question(), None))
        except Exception as error:  # see the module
            answers.put((None, error))
