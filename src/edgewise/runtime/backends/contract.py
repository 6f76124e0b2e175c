"""What a lifecycle asks of a backend; `edgewise.testing.check_backend` checks it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from edgewise.model.topology import Resources
from edgewise.runtime.store import Process
from edgewise.runtime.store.jobs import JobTable

if TYPE_CHECKING:
    from edgewise.runtime.backends.jobs import JobBackend

What = TypeVar("What", contravariant=True)


class Backend(Protocol[What]):
    """Starts, watches and ends processes of one kind. No method waits for a process.

    A handle names one start of a process. It is text, kept by its owner (in the store, or a job's folder),
    and means the same to a backend that is made later: a controller that starts again finds its processes by
    their handles.
    """

    def start(self, process: What) -> str:
        """Start a process and return its handle.

        Raises:
            RunError: it cannot be started; says why.
        """

    def alive(self, handle: str) -> bool:
        """Whether the process of a handle runs. One that ended never runs again."""

    def stop(self, handle: str, force: bool = False) -> None:
        """Ask the process of a handle to finish what it accepted and end; `force` ends it at once.

        A handle whose process has ended is no error.
        """


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

    def jobs(self, book: JobTable) -> "JobBackend | None":
        """Who runs the jobs of a book; None where they are processes of the controller's machine."""

    def counted(self) -> Sequence[Counted]:
        """What it costs whom it asks; empty where it asks nobody."""
