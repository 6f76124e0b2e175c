"""A task's process as the session sees it: start it on a node, tell it things, read its reports."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from edgewise.errors import RunError
from edgewise.runtime.pipelines.task import LOST, PERIOD_S, TaskSetting
from edgewise.runtime.testbeds.base import Testbed


class StartedTask:
    """One process of `edgewise.runtime.pipelines.task`.

    Args:
        backend, node: where it runs.
        label: for messages.
        setting: what it is told first.
    """

    def __init__(self, backend: Testbed, node: int, label: str, setting: TaskSetting) -> None:
        self.label = label
        command = backend.command(node, [sys.executable, "-m", "edgewise.runtime.pipelines.task"])
        self._popen = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._latest: dict[str, float] = {}
        self._error: str | None = None
        self._ready = threading.Event()
        self._fresh = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        self.tell(json.dumps(setting))

    def tell(self, line: str) -> None:
        """A line on its standard input."""
        assert self._popen.stdin is not None
        with contextlib.suppress(OSError):  # it has ended; `report` says why
            self._popen.stdin.write(line + "\n")
            self._popen.stdin.flush()

    def tell_json(self, rates: Mapping[str, float]) -> None:
        """New rates by port."""
        self.tell(json.dumps(dict(rates)))

    def wait_ready(self, timeout_s: float) -> None:
        """Until it listens.

        Raises:
            RunError: it failed, or takes too long.
        """
        if not self._ready.wait(timeout_s):
            raise RunError(f"{self.label}: did not start within {timeout_s:g} s; load less at import")
        self.check()

    def report(self) -> dict[str, float]:
        """Its newest report, not older than a few periods: frames, busy_s, at_s and bytes by port.

        Raises:
            RunError: it failed, or no longer says anything.
        """
        self._fresh.clear()
        if not self._fresh.wait(20 * PERIOD_S):
            self.check()
            raise RunError(f"{self.label}: says nothing any more; the machine may be too busy")
        self.check()
        return self._latest

    @property
    def latest(self) -> dict[str, float]:
        """Its newest report, however old; empty before the first."""
        return self._latest

    @property
    def culprit(self) -> bool:
        """Whether it failed by itself, not because a neighbour did."""
        return self._error is not None and not self._error.startswith(LOST)

    def stop(self) -> None:
        """End it, by closing its input and then by force."""
        with contextlib.suppress(OSError):
            if self._popen.stdin is not None:
                self._popen.stdin.close()
        try:
            self._popen.wait(0.5)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()

    def check(self) -> None:
        """Raise RunError when it has failed."""
        if self._error is not None:
            raise RunError(f"{self.label}: {self._error}")

    def _read(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            said: dict[str, Any] = json.loads(line)
            if "error" in said:
                self._error = said["error"]
            elif "at_s" in said:
                flat = {"at_s": said["at_s"], "frames": said["frames"], "busy_s": said["busy_s"]}
                self._latest = flat | said["bytes"]
            self._ready.set()
            self._fresh.set()
        if self._error is None:
            self._error = f"ended with status {_status(self._popen)}"
        self._ready.set()
        self._fresh.set()


def _status(popen: subprocess.Popen[str]) -> int:
    until_s = time.monotonic() + 1.0
    while popen.poll() is None and time.monotonic() < until_s:
        time.sleep(0.01)
    return -1 if popen.returncode is None else popen.returncode
