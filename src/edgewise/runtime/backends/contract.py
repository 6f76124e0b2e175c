"""What is asked of a live system's backend beyond a lifecycle: where processes answer, nodes, other work."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from edgewise.model.topology import Resources
from edgewise.runtime.backends.jobs import JobBackend
from edgewise.runtime.backends.lifecycle import Backend
from edgewise.runtime.backends.tasks import TaskBackend
from edgewise.runtime.store import Process, Store
from edgewise.runtime.store.jobs import JobTable


@dataclass(frozen=True, slots=True)
class Answering:
    """Where a process answers now, and whether it can take requests.

    Attributes:
        url: it may be another one at each look.
        ready: None where the backend does not know: whoever wants to know asks the process there.
    """

    url: str
    ready: bool | None


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node as whoever manages it says.

    Attributes:
        up: whether it runs work.
        has: what of it can be given to work.
        others: what work that is none of this system's holds of that.
        takes: whether it takes new work, as well; what runs there goes on.
    """

    up: bool
    has: Resources
    others: Resources
    takes: bool = True


@dataclass(frozen=True, slots=True)
class Counted:
    """Something that a backend counts since it was made, for who watches the system.

    Attributes:
        name, about: of the metric; `label`: what `counts` are by.
    """

    name: str
    about: str
    label: str
    counts: Mapping[str, float]


class ServingBackend(Backend[Process], Protocol):
    """A backend of processes that answer requests.

    It may have others beside us: a process may end between any two looks without being told, and move. Who
    says itself whether a process is ready also ends what hangs; who says None leaves both to the owner.
    """

    def look(self, process: Process, handle: str) -> Answering:
        """What is known of a process at once, without asking it; one that has ended is never ready.

        Args:
            process: what was started, as its owner wants it.
            handle: of its start.
        """

    def nodes(self) -> Mapping[str, NodeSeen]:
        """Nodes by name, as they were last seen; empty where this system alone decides about its nodes."""

    def jobs(self, book: JobTable) -> JobBackend | None:
        """Who runs the jobs of a book; None where they are processes of the controller's machine."""

    def tasks(self) -> TaskBackend | None:
        """Who runs tasks of pipelines, for the controller; None where the controller's machine does."""

    @property
    def stays(self) -> bool:
        """Whether what runs goes on when its controller is told to end, for the next one."""

    def keep(self, store: Store) -> None:
        """Keep what is wanted and runs where the next controller finds it, if that has another disk.

        It is asked every now and then, and waits for nobody.
        """

    def leave(self, store: Store) -> None:
        """Do so for the last time, where what runs goes on; nothing is asked for afterwards."""

    def counted(self) -> Sequence[Counted]:
        """What it costs whom it asks; empty where it asks nobody."""
