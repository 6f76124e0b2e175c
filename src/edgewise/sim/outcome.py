"""What one run left behind: records, and the conversation with the decision core."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from edgewise.core.dispatch.events import Bind, Command, Refuse, Release
from edgewise.core.dispatch.playing import OPEN
from edgewise.core.dispatch.streams import DispatchCore
from edgewise.core.dispatch.views import REASONS, Violation


@dataclass(slots=True)
class Outcome:
    """What one run left behind.

    Attributes:
        streams, windows: columns of the two record tables.
        core: the decision core as it stood at the end.
        log: the conversation with the core; `commands` spells it out.
        use: columns of the tables of `edgewise.report.use` that streams know of.
    """

    streams: dict[str, Any]
    windows: dict[str, Any]
    core: DispatchCore
    log: list[Said]
    use: dict[str, dict[str, Any]]

    @property
    def commands(self) -> list[tuple[float, Command]]:
        """(time, command) in order."""
        return [pair for said in self.log for pair in said.pairs()]


@dataclass(slots=True)
class Said:
    """Commands of the core: those of one event, or those of many streams played at once."""

    time_s: float
    commands: list[Command]
    played: tuple[NDArray[Any], ...] = ()  # time, kind, stream, worker, reason

    def pairs(self) -> Iterator[tuple[float, Command]]:
        """Each command with its time."""
        yield from ((self.time_s, command) for command in self.commands)
        for time_s, kind, i, w, why in zip(*(column.tolist() for column in self.played), strict=True):
            if kind == OPEN:
                yield time_s, Bind(i, w) if w >= 0 else Refuse(i, REASONS[Violation(why)])
            elif w >= 0:
                yield time_s, Release(i, w)
