"""What is asked of an API server, by a thread: again and again while the server is away."""

import logging
import queue
import threading
from collections.abc import Callable

ASK_AGAIN_S, ASK_AGAIN_AT_MOST_S = 0.2, 5.0

log = logging.getLogger("edgewise.kubernetes")


class Errands:
    """Carries out what it is given in turn, in a thread; what fails is done again after what else there is.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._asked: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._carry_out, name=name, daemon=True)
        self._thread.start()

    def put(self, do: Callable[[], None]) -> None:
        """Have something done; it may be done twice, where an answer was lost."""
        self._asked.put(do)

    def close(self, patience_s: float = 0.0) -> None:
        """End once all that was asked before is done; wait so long for that."""
        self._asked.put(None)
        if patience_s > 0.0:
            self._thread.join(patience_s)

    def _carry_out(self) -> None:
        pause_s = ASK_AGAIN_S
        while (do := self._asked.get()) is not None:
            try:
                do()
                pause_s = ASK_AGAIN_S
            except Exception as error:  # the API server is away, or busy: asked again, in turn
                log.warning("asked again", extra={"why": str(error)[:200]})
                self._asked.put(do)
                threading.Event().wait(pause_s)
                pause_s = min(2 * pause_s, ASK_AGAIN_AT_MOST_S)
