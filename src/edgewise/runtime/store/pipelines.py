"""Pipelines as they are kept.

    waiting ⇄ running ─▶ done, failed, cancelled

What a method has written when it returns survives the death of any process.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from edgewise.runtime import clock
from edgewise.runtime.pipelines.live import LivePipeline
from edgewise.runtime.store.submitted import PipelineSchema

KEEP_S = 30 * 86400.0  # those that have ended


@dataclass(frozen=True, slots=True)
class KeptPipeline:
    """A pipeline as it stands.

    Attributes:
        state, why: `why` says how it ended, or what went wrong last.
        started_s: when it ran first; `ended_s`: None before its end.
        nodes: of its tasks, by name, while it runs.
        frames, ran_s: done so far, and the time that it ran.
        moves: how often tasks went to other nodes, or were stopped.
        cancel: somebody asked for its end.
        measured: of tasks with code: the node that each was on last, frames since it was started there, and
            their mean time.
    """

    id: int
    live: LivePipeline
    submitted_s: float
    state: str
    why: str | None
    started_s: float | None
    ended_s: float | None
    nodes: Mapping[str, str]
    frames: float
    ran_s: float
    moves: int
    cancel: bool
    measured: Mapping[str, tuple[str, float, float]]

    def row(self) -> dict[str, Any]:
        """For JSON."""
        names = ("id", "submitted_s", "state", "why", "started_s", "ended_s", "frames", "ran_s", "moves")
        return {"name": self.live.pipeline.name, "nodes": dict(self.nodes)} | {
            name: getattr(self, name) for name in names
        }

    @property
    def over(self) -> bool:
        """Whether it has run as long as it was to."""
        frames, length_s = self.live.pipeline.frames, self.live.pipeline.duration_s
        return self.frames >= frames if frames is not None else self.ran_s >= (length_s or 0.0)


class PipelineTable(PipelineSchema):
    """The pipelines of one live system."""

    def submit(self, key: str, live: LivePipeline) -> KeptPipeline:
        """Keep a pipeline; the same key is the same one."""
        self.db.run(
            "INSERT OR IGNORE INTO pipeline (key, live, submitted_s) VALUES (?, ?, ?)",
            (key, msgspec.json.encode(live).decode(), clock.unix_s()),
        )
        return self._some("key = ?", (key,))[0]

    def get(self, number: int) -> KeptPipeline | None:
        """A pipeline, None when there is none."""
        return next(iter(self._some("id = ?", (number,))), None)

    def listed(self) -> list[KeptPipeline]:
        """All of the last month, oldest first."""
        return self._some("ended_s IS NULL OR ended_s > ?", (clock.unix_s() - KEEP_S,))

    def open(self) -> list[KeptPipeline]:
        """Those that wait or run."""
        return self._some("ended_s IS NULL", ())

    def cancel(self, number: int) -> None:
        """Somebody asks for its end."""
        self.db.run("UPDATE pipeline SET cancel = 1 WHERE id = ? AND ended_s IS NULL", (number,))

    def runs(self, number: int, nodes: Mapping[str, str], moved: bool) -> None:
        """It runs on these nodes from now on, unless it has ended while it was started."""
        self.db.run(
            "UPDATE pipeline SET state = 'running', nodes = ?2, moves = moves + ?3,"
            " started_s = coalesce(started_s, ?4) WHERE id = ?1 AND ended_s IS NULL",
            (number, msgspec.json.encode(nodes).decode(), moved, clock.unix_s()),
        )

    def waits(self, number: int, why: str | None = None) -> None:
        """It stands still, for there is no room, or nobody carries it on; `why`: what went wrong."""
        self.db.run(
            "UPDATE pipeline SET nodes = '{}', moves = moves + (state = 'running'), state = 'waiting',"
            " why = coalesce(?2, why) WHERE id = ?1 AND ended_s IS NULL",
            (number, why),
        )

    def went_on(
        self,
        number: int,
        frames: float,
        ran_s: float,
        measured: Mapping[str, tuple[str, float, float]] | None = None,
    ) -> None:
        """It has done so many frames, and ran for so long, since this was said last.

        Args:
            measured: see `KeptPipeline`; None: as before.
        """
        self.db.run(
            "UPDATE pipeline SET frames = frames + ?2, ran_s = ran_s + ?3, measured = coalesce(?4, measured)"
            " WHERE id = ?1 AND ended_s IS NULL",
            (number, frames, ran_s, None if measured is None else msgspec.json.encode(measured).decode()),
        )

    def end(self, number: int, state: str, why: str) -> None:
        """It has ended."""
        self.db.run(
            "UPDATE pipeline SET state = ?2, why = ?3, ended_s = ?4 WHERE id = ?1 AND ended_s IS NULL",
            (number, state, why, clock.unix_s()),
        )

    def _some(self, which: str, values: Sequence[Any]) -> list[KeptPipeline]:
        as_json = "live", "nodes", "measured"
        return self.db.kept(KeptPipeline, f"pipeline WHERE {which} ORDER BY id", values, as_json)
