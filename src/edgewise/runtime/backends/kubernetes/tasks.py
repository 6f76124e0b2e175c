"""Tasks of pipelines on a cluster: each is a pod, and a connection to it stands for its standard streams.

A pod waits for its controller, and its container ends with the connection, as a process ends with its
standard input. What a controller that was killed has left is ended by the next one before it starts any.

Frames go from pod to pod, and senders hold their flows to the rates of the plan. In the ledger the cores of
tasks give way to workers, so a pod asks for none, and has what others leave; its memory it asks for.
"""

import contextlib
import socket
import threading
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from edgewise.errors import RunError
from edgewise.runtime import clock
from edgewise.runtime.backends.contract import Answering
from edgewise.runtime.backends.kubernetes.manifest import STARTS_WITHIN_S, Give
from edgewise.runtime.backends.tasks import TaskReached, WantedTask
from edgewise.runtime.process.pod import MODELS_FOLDER, TASK
from edgewise.runtime.store import Process

TASK_PORT = 8100  # where a pod waits for its controller
TASK_GONE_S = 10.0  # after that a pod is taken away by force: a node that is lost ends none
LOOK_S, CONNECT_S = 0.05, 10.0
SILENT_S, ASKED = 5, 3  # the other side is asked then whether it is there, and how often


class TaskPods(Protocol):
    """What is used of `KubernetesBackend`."""

    def start(self, process: Process) -> str:
        """See `Backend`."""

    def alive(self, handle: str) -> bool:
        """See `Backend`."""

    def stop(self, handle: str, force: bool = False) -> None:
        """See `Backend`."""

    def look(self, process: Process, handle: str) -> Answering:
        """See `ServingBackend`."""

    def there(self, kind: str) -> list[str]:
        """Handles of all starts of a kind of process that are there."""


class ClusterTasks:
    """See `TaskBackend`.

    Args:
        pods: starts and watches them.
        give: has pods get a file, and says its SHA-256.
        token: that a task is shown by its controller.
    """

    patience_s = TASK_GONE_S

    def __init__(self, pods: TaskPods, give: Give, token: str) -> None:
        self._pods, self._give, self._token = pods, give, token
        self._started: dict[str, Process] = {}
        self._names: dict[str, str] = {}  # of files, in pods
        for handle in pods.there(TASK):
            pods.stop(handle, force=True)

    def start(self, task: WantedTask) -> str:
        """See `Backend`.

        Raises:
            OSError: a file cannot be read.
        """
        needs = {"cpu_cores": 0.0, "memory_bytes": task.memory_bytes}
        files = dict(self._given(file) for file in task.files)
        process = Process(task.name, TASK, TASK_PORT, {"node": task.node, "needs": needs, "files": files})
        handle = self._pods.start(process)
        self._started[handle] = process
        return handle

    def _given(self, file: str) -> tuple[str, str]:
        """Name of a file in pods, and its SHA-256."""
        sha256 = self._give(Path(file))
        self._names[file] = f"{sha256}{Path(file).suffix}"
        return self._names[file], sha256

    def alive(self, handle: str) -> bool:
        """See `Backend`."""
        alive = self._pods.alive(handle)
        if not alive:
            self._started.pop(handle, None)
        return alive

    def stop(self, handle: str, force: bool = False) -> None:
        """See `Backend`."""
        self._pods.stop(handle, force)

    def path(self, file: str) -> str:
        """See `TaskBackend`."""
        return f"{MODELS_FOLDER}/{self._names[file]}"

    def reach(self, handle: str) -> TaskReached:
        """See `TaskBackend`: its pod has to be ready."""
        host, port = self._waited(handle)
        try:
            sock = socket.create_connection((host, port), CONNECT_S)
            sock.sendall(self._token.encode())
        except OSError as error:
            raise RunError(f"its pod at {host} takes no connection: {error}") from error
        sock.settimeout(None)
        notice_silence(sock)
        return _reached(host, sock)

    def _waited(self, handle: str) -> tuple[str, int]:
        """Address and port of a pod, once it is ready."""
        until_s = clock.monotonic_s() + STARTS_WITHIN_S
        while True:
            process = self._started.get(handle)
            if process is None or not self.alive(handle):
                raise RunError("its pod was taken away before it began")
            seen = self._pods.look(process, handle)
            if seen.ready:
                where = urlsplit(seen.url)
                return str(where.hostname), int(where.port or process.port)
            if clock.monotonic_s() > until_s:
                raise RunError(f"its pod is not ready after {STARTS_WITHIN_S} s; kubectl describe deployment")
            threading.Event().wait(LOOK_S)


def notice_silence(sock: socket.socket) -> None:
    """Have a connection end where the other side is gone without a word."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL):
        sock.setsockopt(socket.IPPROTO_TCP, option, SILENT_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, ASKED)


def _reached(host: str, sock: socket.socket) -> TaskReached:
    said, told = sock.makefile("rb"), sock.makefile("wb")

    def hang_up() -> None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        for each in (told, sock):
            with contextlib.suppress(OSError):
                each.close()

    return TaskReached(host, said, told, lambda: "its connection has ended", hang_up)
