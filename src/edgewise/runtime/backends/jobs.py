"""What deferrable jobs ask of a backend beyond a lifecycle: starts that happen once, and how a run ended."""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple, Protocol

from edgewise.runtime.backends.lifecycle import Backend
from edgewise.runtime.store.jobs import Job, Wish


class JobStage(Enum):
    """Where the command of a job stands."""

    ABSENT = "nobody has taken it"
    DIED = "its runner died before it took it"
    RUNNING = "it runs, or is about to"
    ALONE = "it runs, and its runner was killed: nobody would know how it ends"
    ENDED = "its exit status is known"
    VANISHED = "it has ended, nobody knows how"
    FORBIDDEN = "it must not start any more"


class SeenStage(NamedTuple):
    """Stage, and exit status where it is known: below 0 the signal that ended it; `why` in more words."""

    stage: JobStage
    code: int | None = None
    why: str = ""


class JobBackend(Backend[Job], Protocol):
    """Runs each attempt at a job at most once; a handle is a `run`, see `Job.run`."""

    def keep(self, wish: Wish) -> Wish:
        """Keep a job that was submitted, as its users keep jobs there; its key may be another then.

        May wait.

        Raises:
            RunError: that is refused, or nobody answers.
        """

    def take_in(self) -> None:
        """Have the book know what users have asked for or taken back there; done in each pass."""

    def look(self, run: str) -> SeenStage:
        """Where the command of a run stands.

        Raises:
            OSError: that cannot be read.
        """

    def forbid(self, run: str) -> bool:
        """Take the only start away; False when it was used.

        Raises:
            OSError: that cannot be written down.
        """

    def suspend(self, run: str) -> None:
        """Stop a job where it is; its memory stays."""

    def resume(self, run: str) -> None:
        """Let it go on."""

    def running(self) -> Iterable[str]:
        """Whatever runs, whether anybody wrote down that it does."""

    def clear(self, run: str) -> None:
        """Remove what only a running job needs."""

    def remove(self, number: int) -> None:
        """Remove what is kept of a job that has ended, of all its attempts."""

    def written(self, job: Job, most: int) -> tuple[int, bytes]:
        """How many bytes a job has written, and the last of them, at most so many.

        May wait, and in any thread.

        Raises:
            RunError: nobody answers.
        """

    def last_line(self, number: int) -> str:
        """The last thing that a job, or what starts it, has said; "" where nothing was."""
