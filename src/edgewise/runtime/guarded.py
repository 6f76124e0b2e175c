"""Somebody's policy asked in a thread of its own: whatever it raises, and however long it takes, we go on."""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from edgewise.core.guard import Resting

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
        if self._owed or time.monotonic() < self._until_s:
            raise Resting(self._why)
        self._begin()
        self._questions.put(question)
        try:
            answer, error = self._answers.get(timeout=self._patience_s)
        except queue.Empty:
            self._owed, self._until_s = True, time.monotonic() + self._rest_s
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
