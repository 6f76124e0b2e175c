"""What one kind of work is to a joint run: a part, which knows how long things take, and decides nothing."""

import math
from collections.abc import Iterable
from enum import IntEnum
from typing import Any, Protocol


class Rank(IntEnum):
    """At equal times: what ends gives back first, then changes are heard of, then work comes, then ticks.

    Who waits for room that work of the same kind has left hears of it last, when it is known who else came.
    """

    ENDED, FAILED, NEWS, CLOSED, OPENED, TICK, ROOM = range(7)


class WorkPart(Protocol):
    """One kind of work on the clock of a joint run."""

    @property
    def commands(self) -> tuple[type, ...]:
        """Those that it carries out."""

    def next_s(self) -> float:
        """When it has something to tell next; infinite: never, unless something changes."""

    def advance(self, to_s: float) -> None:
        """Its data plane goes on up to `to_s`, which is not after `next_s`."""

    def change_node(self, node: str, up: bool, now_s: float) -> None:
        """A node died or came back; no core has heard of it yet."""

    def due(self, now_s: float) -> Iterable[tuple[Rank, Any]]:
        """What the cores are told now, once each: a rank and an event."""

    def takes(self, command: Any) -> bool:
        """Whether a command of such a kind is for it; the first part that says so gets it."""

    def take(self, command: Any, now_s: float) -> Iterable[Any]:
        """Carry out a command of a core; events that follow of it at once."""

    def finish(self) -> None:
        """The clock has stopped: what is under way is served, or counted as it stands."""


class Bystander:
    """A part to which nothing happens: base of those that do not need every method."""

    commands: tuple[type, ...] = ()

    def next_s(self) -> float:
        """Never."""
        return math.inf

    def advance(self, to_s: float) -> None:
        """Nothing is done on the way."""

    def change_node(self, node: str, up: bool, now_s: float) -> None:
        """Nodes are nothing to it, or it knows of the timeline by itself."""

    def due(self, now_s: float) -> Iterable[tuple[Rank, Any]]:
        """Nothing."""
        return ()

    def takes(self, command: Any) -> bool:
        """All of its kinds are."""
        return True

    def take(self, command: Any, now_s: float) -> Iterable[Any]:
        """No command is for it."""
        raise AssertionError(command)

    def finish(self) -> None:
        """There is nothing left."""


class StartTimes(dict[Any, float]):
    """What starts, and when it will be up."""

    def next_s(self) -> float:
        """When the next one is up; infinite: nothing starts."""
        return min(self.values(), default=math.inf)

    def up(self, now_s: float) -> list[Any]:
        """Those that are up by now, which start no more."""
        found = [each for each, at_s in self.items() if at_s <= now_s]
        for each in found:
            del self[each]
        return found
