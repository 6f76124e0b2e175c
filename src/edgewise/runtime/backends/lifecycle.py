"""What a lifecycle asks of a backend; `edgewise.testing.check_backend` checks it."""

from typing import Protocol, TypeVar

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
