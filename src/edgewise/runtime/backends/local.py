"""`local`: all nodes are this machine. Senders pace themselves, so rates are real and paths are not.

A flow over a link that is down stops, as it would; which links carried what is not measured here.
"""Processes on this machine, each in its own session, optionally pinned to cores.

A process is forked by a nursery (`runtime.nursery`) when there is one, which takes milliseconds, and
started with the interpreter otherwise, which takes seconds. It lives on when its starter dies.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgewise.model.network import Network
from edgewise.runtime.backends.base import Flow, nodes_on


class LocalBackend:
    """Every node is 127.0.0.1; see `Backend`."""

    name = "local"
    shapes = False

    def __init__(self, network: Network) -> None:
        self.network = network
        self.flows: dict[int, Flow] = {}
        self._down: set[int] = set()

    def address(self, node: int) -> str:
        """Localhost, whatever the node."""
        return "127.0.0.1"

    def port(self) -> int:
        """A port that is free now."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])

    def command(self, node: int, argv: Sequence[str]) -> list[str]:
        """As it is."""
        return list(argv)

    def apply(self, flows: Sequence[Flow]) -> int:
        """Note the flows; the session tells the senders their rates."""
        for flow in flows:
            nodes_on(self.network, flow)
        wanted = {flow.port: flow for flow in flows}
        changed = sum(self.flows.get(port) != flow for port, flow in wanted.items())
        changed += len(self.flows.keys() - wanted.keys())
        self.flows = wanted
        return changed

    def sender_rate_bps(self, port: int) -> float:
        """What the sender of a flow may send now; infinite for a flow that is not planned."""
        flow = self.flows.get(port)
        if flow is None:
            return math.inf
        return 0.0 if self._down.intersection(flow.path) else flow.rate_bps

    def set_link(self, link: int, up: bool) -> None:
        """Flows over a link that is down get nothing."""
        (self._down.discard if up else self._down.add)(link)

    def link_bytes(self) -> NDArray[np.int64]:
        """Nothing is known: all zero."""
        return np.zeros((len(self.network.bandwidth_bps), 2), dtype=np.int64)

    def close(self) -> None:
        """Nothing to remove."""
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from edgewise.errors import RunError
from edgewise.runtime.store import Process, as_json


class LocalBackend:
    """Starts processes here.

    Args:
        folder: state of the system; logs go to `folder/logs/NAME.log`.
        fork: starts a process and returns its id; OSError when it cannot. None starts interpreters.
    """

    def __init__(self, folder: Path, fork: Callable[[Process], int] | None = None) -> None:
        self.folder, self._fork = folder, fork

    def start(self, process: Process) -> str:
        """See `Backend`; the handle is "pid:start", start in clock ticks since boot."""
        number = None
        if self._fork is not None:
            with contextlib.suppress(OSError):  # the nursery is gone
                number = self._fork(process)
        if number is None:
            number = self._spawn(process)
        return handle_of(number)

    def alive(self, handle: str) -> bool:
        """See `Backend`."""
        number, begun = handle.split(":")
        with contextlib.suppress(ChildProcessError):  # reap it where it is ours
            os.waitpid(int(number), os.WNOHANG)
        return begun != "None" and _begun(int(number)) == begun

    def stop(self, handle: str, force: bool = False) -> None:
        """See `Backend`."""
        if self.alive(handle):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(handle.split(":")[0]), signal.SIGKILL if force else signal.SIGTERM)

    def _spawn(self, process: Process) -> int:
        command = [sys.executable, "-m", "edgewise.runtime.process", str(self.folder), as_json(process)]
        try:
            with log_file(self.folder, process.name).open("ab") as log:
                child = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
        except OSError as error:
            raise RunError(f"{process.name}: cannot be started: {error}") from error
        child.returncode = 0  # `alive` reaps it; Popen must not warn
        return child.pid


def handle_of(number: int) -> str:
    """The handle of a process of this machine."""
    return f"{number}:{_begun(number)}"


def log_file(folder: Path, name: str) -> Path:
    """Where a process writes its log."""
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    return folder / "logs" / f"{name}.log"


def _begun(number: int) -> str | None:
    """When a process began, None when there is none or it has ended (a zombie)."""
    try:
        text = Path(f"/proc/{number}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]
