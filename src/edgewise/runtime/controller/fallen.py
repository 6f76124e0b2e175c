"""Pipelines that lost processes though their code did not fail, and when they may start again.

A pipeline comes back where it was, as workers do: at once, and where it does no frame in between again and
again, each time later.
"""

import logging
from dataclasses import dataclass

from edgewise.runtime.pipelines.processes import PipelineTasks
from edgewise.runtime.process.lifecycle import pause_s

log = logging.getLogger("edgewise.pipelines")
SAY_S = 1.0  # whoever failed first may not have said so yet


@dataclass(slots=True)
class Fallen:
    """A pipeline that lost processes.

    Attributes:
        since_s: when that was seen; None while it stands, or waits to be started.
        times: in a row, without a frame in between.
        retry_s: it may be started again.
    """

    since_s: float | None = None
    times: int = 0
    retry_s: float = 0.0


class FallenPipelines:
    """Those of a live system, by number."""

    def __init__(self) -> None:
        self._known: dict[int, Fallen] = {}

    def seen(self, number: int, processes: PipelineTasks, now_s: float) -> str | None:
        """Why a pipeline must be started again, where processes of it have ended that did not fail."""
        running = processes.running.get(number)
        ended = [each for each in running.processes.values() if each.said] if running else []
        if not ended:
            return None
        fallen = self._known.setdefault(number, Fallen())
        fallen.since_s = fallen.since_s or now_s
        died = next((each for each in ended if each.died), None)
        if died is None and now_s - fallen.since_s < SAY_S:
            return None
        return str((died or ended[0]).said)

    def again(self, number: int, now_s: float, why: str, did_frames: bool) -> None:
        """Note when a pipeline may be started again.

        Args:
            did_frames: since it was started last.
        """
        fallen = self._known.setdefault(number, Fallen())
        fallen.since_s, fallen.times = None, 0 if did_frames else fallen.times + 1
        fallen.retry_s = now_s + pause_s(fallen.times)
        log.warning("pipeline starts again", extra={"pipeline": number, "why": why, "times": fallen.times})

    def waits(self, number: int, now_s: float) -> bool:
        """Whether it may not start again yet."""
        return number in self._known and now_s < self._known[number].retry_s

    def times(self, number: int) -> int | None:
        """How often in a row, without a frame in between, it was started again; None: it never fell."""
        return self._known[number].times if number in self._known else None

    def forget(self, number: int) -> None:
        """It is over."""
        self._known.pop(number, None)
