"""Processes and folders of a bed: they end with whoever started them, however that ends.

A process is killed by the kernel when its starter dies (`setpriv --pdeathsig`). A folder is named after its
starter's process, so that the next start removes what a killed one has left.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

REPOSITORY = Path(__file__).resolve().parents[1]


class BedError(Exception):
    """A bed cannot be had here, or something in it has failed; the message says what to do."""


class Started(contextlib.ExitStack):
    """What `_start` has started, ended with the block; a start that fails leaves nothing."""

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def _start(self) -> None:
        raise NotImplementedError


def cache() -> Path:
    """Where beds keep what takes long to build, outside the clone: binaries by version."""
    base = os.environ.get("EDGEWISE_BEDS") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "edgewise-beds"


def dying(command: Sequence[str | Path]) -> list[str]:
    """A command whose process is killed when its starter dies.

    It asks for that itself: between fork and exec, a starter with threads (of gRPC, say) can hang.
    """
    return ["setpriv", "--pdeathsig", "KILL", *map(str, command)]


def start(
    command: Sequence[str | Path], log: Path, *, groups: Sequence[Path] = (), **options: Any
) -> subprocess.Popen[bytes]:
    """Start a process that writes to `log` and dies with this one.

    Args:
        groups: control groups that it is put into before it begins.
    """
    if groups:
        joins = [f"echo 0 > {shlex.quote(str(group))}/cgroup.procs && " for group in groups]
        command = ["sh", "-c", f'{"".join(joins)}exec "$@"', "sh", *command]
    with log.open("ab") as to:
        return subprocess.Popen(dying(command), stdout=to, stderr=to, **options)


def end_by_signals() -> None:
    """Let SIGTERM and SIGINT end this process as Ctrl-C does, also where a shell has it ignore SIGINT."""
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.default_int_handler)


def end(process: subprocess.Popen[bytes], grace_s: float = 5.0) -> None:
    """End a process: asked first, then killed."""
    process.terminate()
    try:
        process.wait(grace_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def root_folder(kind: str) -> Path:
    """Where the folders of all runs of a bed lie; private."""
    root = Path(tempfile.gettempdir()) / f"edgewise-beds-{os.getuid()}" / kind
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    root.parent.chmod(0o700)
    return root


@contextlib.contextmanager
def folder(kind: str) -> Iterator[Path]:
    """A private folder for one run of a bed; those of runs that were killed are removed."""
    root = root_folder(kind)
    for left in root.iterdir():
        if not Path(f"/proc/{left.name.partition('-')[0]}").exists():
            shutil.rmtree(left, ignore_errors=True)
    made = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=root))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def wait(what: str, ready: Callable[[], bool], within_s: float, log: Path | None = None) -> None:
    """Wait until something holds.

    Raises:
        BedError: it does not in time; the end of `log` says why.
    """
    until_s = time.monotonic() + within_s
    while not ready():
        if time.monotonic() > until_s:
            tail = log.read_text(errors="replace")[-1500:] if log is not None and log.exists() else ""
            raise BedError(f"{what}: not within {within_s:g} s\n{tail}".rstrip())
        time.sleep(0.02)


def listens(port: int, host: str = "127.0.0.1") -> bool:
    """Whether somebody accepts connections there."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), 0.5):
        return True
    return False
