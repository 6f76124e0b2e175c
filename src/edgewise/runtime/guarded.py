"""Somebody's policy asked in a thread of its own: whatever it raises, and however long it takes, we go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")
PATIENCE_S = 0.5  # the controller waits so long for an answer
REST_S = 10.0  # and does not ask again for so long when there was none


class Guarded(Generic[T]):
    """Asks, and takes another answer where there is none.

    Args:
        patience_s: to wait for an answer.
        rest_s: not to ask again after none came in time.
    Attributes:
        fault: why the last answer was not the policy's own; "" when it was.
    """

    def __init__(self, patience_s: float = PATIENCE_S, rest_s: float = REST_S) -> None:
        self._patience_s, self._rest_s = patience_s, rest_s
        self._until_s = 0.0
        self._thread: threading.Thread | None = None
        self.fault = ""

    def ask(self, question: Callable[[], T], instead: Callable[[], T]) -> T:
        """The answer to `question`, or `instead` when it raises, takes too long, or still thinks."""
        if self._thread is not None and (self._thread.is_alive() or time.monotonic() < self._until_s):
            return instead()
        found: dict[str, Any] = {}

        def run() -> None:
            try:
                found["answer"] = question()
            except Exception as error:  # see the module
                found["fault"] = f"{type(error).__name__}: {error}"

        self._thread = threading.Thread(target=run, daemon=True, name="policy")
        self._thread.start()
        self._thread.join(self._patience_s)
        if not found:
            self.fault = f"no answer within {self._patience_s:g} s; asked again after {self._rest_s:g} s"
            self._until_s = time.monotonic() + self._rest_s
            return instead()
        self._thread = None
        self.fault = found.get("fault", "")
        if self.fault:
            return instead()
        answer: T = found["answer"]
        return answer
