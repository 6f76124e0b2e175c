"""The root of a live system: has everything loaded, forks in milliseconds, keeps a controller.

    nursery ──forks──▶ controller, restarted when it dies
       ▲  └──forks──▶ workers, gateways, when the controller asks over a socket pair
       └── SIGTERM, SIGINT: passed on to the controller, which ends everything

When the nursery dies everything else goes on; the controller then starts interpreters instead of forks,
and a new nursery on the same folder takes over.
"""

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from edgewise.errors import EdgewiseError, RunError
from edgewise.runtime import clock, disk
from edgewise.runtime.backends.system import SUPERSEDED, backend_of, left_running, maker
from edgewise.runtime.controller import controller
from edgewise.runtime.controller.plan import DATABASE
from edgewise.runtime.process import entry
from edgewise.runtime.process.lifecycle import pause_s
from edgewise.runtime.process.machine import ThisMachine, alive_handle, handle_of
from edgewise.runtime.process.places import holders, log_file
from edgewise.runtime.process.serving import TOLD
from edgewise.runtime.store import Process, Store, from_fields
from edgewise.runtime.store.copies import check_whole
from edgewise.runtime.watch.logs import fault, last_words

LOCK = "nursery.lock"
PATIENCE_S = 5.0  # of a controller, which does nothing else meanwhile


class Nursery:
    """Runs the system of a folder until told to end.

    Args:
        folder: prepared by `plan.prepare`.
        look: called again and again while it runs.
        loading: entered while everything is loaded and compiled.
    """

    def __init__(
        self,
        folder: Path,
        look: Callable[[], None] = lambda: None,
        loading: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self.folder, self._look, self._loading = folder.absolute(), look, loading
        self._told = False
        self._controller: int | None = None
        self._pair: socket.socket | None = None
        self._next_s, self._failures = 0.0, 0

    def run(self) -> None:
        """Load everything, then keep a controller and fork what it asks for.

        Raises:
            EdgewiseError: another one runs the system of this folder, or this one cannot go on.
        """
        try:
            self._run()
        except EdgewiseError:
            raise
        except Exception as error:  # what runs goes on
            raise RunError(fault(self.folder, "nursery", error)) from error

    def _run(self) -> None:
        self._lock = _lock(self.folder)  # let go of somewhat before this process has ended
        if self._lock is None:
            raise RunError(f"state {self.folder}: runs already; use another --state, or edgewise down")
        self._lock.truncate(0)
        self._lock.write(handle_of(os.getpid()))
        self._lock.flush()
        store = Store(self.folder / DATABASE)
        traced = any(r.process.settings.get("otlp") for r in store.processes())
        _end_former(store)
        _replace_exposed(store)
        self._make = maker(store)
        store.close()  # SQLite must not be carried over a fork
        with self._loading():
            entry.warm(self.folder)
            if traced:
                import edgewise.runtime.watch.otel  # noqa: F401  # an extra, which no fork is to load
        for number in TOLD:
            signal.signal(number, self._tell)
        while self._controller is not None or not self._told:
            if self._controller is None and clock.monotonic_s() >= self._next_s:
                self._start_controller()
            self._serve(0.02)
            self._reap()
            self._look()

    def _tell(self, number: int, frame: object) -> None:
        self._told = True
        if self._controller is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._controller, signal.SIGTERM)

    def _start_controller(self) -> None:
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        began_s = clock.monotonic_s()

        def be() -> None:
            mine.close()
            controller.main(self.folder, self._make(self.folder, Asking(its)), handle_of(os.getpid()))

        self._controller, self._pair = _fork(self.folder, "controller", be, self._pair), mine
        its.close()
        self._failures = self._failures + 1 if began_s - self._next_s < 5 else 0
        self._next_s = began_s + pause_s(self._failures)

    def _serve(self, timeout_s: float) -> None:
        """Fork what the controller asks for."""
        pair = self._pair
        if pair is None:
            time.sleep(timeout_s)
            return
        if not select.select([pair], [], [], timeout_s)[0]:
            return
        with contextlib.suppress(OSError):
            text = pair.recv(65536)
            if not text:
                self._pair = None
                pair.close()
                return
            until_s, fields = json.loads(text)
            pair.send(json.dumps(self._forked(until_s, fields, pair)).encode())

    def _forked(self, until_s: float, fields: dict[str, Any], pair: socket.socket) -> int | None:
        """Fork a process; None where that does not work, or who asked for it no longer waits."""
        wanted, number = from_fields(fields), None
        if clock.monotonic_s() < until_s:
            with contextlib.suppress(OSError):
                number = _fork(self.folder, wanted.name, lambda: entry.main(self.folder, wanted), pair)
        if number is not None and clock.monotonic_s() > until_s:  # another one was started in its place
            os.kill(number, signal.SIGKILL)
            return None
        return number

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                number, status = os.waitpid(-1, os.WNOHANG)
                if number == 0:
                    return
                if number == self._controller:
                    self._controller = None
                    if os.waitstatus_to_exitcode(status) == SUPERSEDED:
                        raise RunError(f"state {self.folder}: another controller has taken the system over")
                    self._told |= status == 0  # it ended everything: `edgewise down`


class Asking:
    """The controller's end: asks the nursery for a fork.

    A nursery that has no time is not gone: every question is answered, in order, so what comes too late is
    known by its number, and says that nothing was forked.

    Args:
        patience_s: to wait for an answer; nobody is asked while one is owed.
    """

    def __init__(self, pair: socket.socket, patience_s: float = PATIENCE_S) -> None:
        self._pair, self.patience_s, self._owed = pair, patience_s, 0

    def __call__(self, wanted: Process) -> int:
        """Its number.

        Raises:
            OSError: the nursery is gone, has no time, or cannot fork.
        """
        self._pair.settimeout(0.0)
        while self._owed:
            self._answer()
        self._pair.settimeout(self.patience_s)
        question = [clock.monotonic_s() + self.patience_s, asdict(wanted)]
        self._pair.send(json.dumps(question).encode())
        self._owed += 1
        number = self._answer()
        if number is None:
            raise ChildProcessError("the nursery cannot fork")
        return number

    def _answer(self) -> int | None:
        if not (answer := self._pair.recv(64)):
            raise ConnectionError("the nursery is gone")
        self._owed -= 1
        number: int | None = json.loads(answer)
        return number


def _fork(folder: Path, name: str, be: Callable[[], None], pair: socket.socket | None) -> int:
    """Fork a process in its own session that is `be` and logs to its file."""
    log = disk.open_file(log_file(folder, name), "ab")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, TOLD)  # kept until it listens for them
    number = os.fork()
    if number:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        log.close()
        return number
    status = 1
    try:
        os.setsid()
        if pair is not None:
            pair.close()
        for told in TOLD:
            signal.signal(told, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        with last_words(folder, name):
            be()
        status = 0
    finally:
        sys.stderr.flush()
        os._exit(status)


def is_running(folder: Path) -> bool:
    """Whether a nursery runs the system of a folder."""
    if not (folder / DATABASE).is_file():
        return False
    lock = _lock(folder)
    if lock is not None:
        lock.close()
    return lock is None


def process_of(folder: Path) -> str | None:
    """The handle of the process that has or had a folder's nursery; None once that process has ended.

    It lives on for a while after it has let go of the lock.
    """
    with contextlib.suppress(FileNotFoundError, ValueError):  # no nursery yet, or it is about to write
        if alive_handle(handle := (folder / LOCK).read_text()):
            return handle
    return None


def end_without_controller(folder: Path, force: bool = False) -> None:
    """End a system whose controller does not answer: by its nursery, and without one each process.

    Raises:
        RunError: it is somebody else's.
    """
    machine = ThisMachine()
    try:
        if is_running(folder):
            if (handle := process_of(folder)) is not None:
                machine.stop(handle)
            return
        store = Store.readable(folder / DATABASE)
        _end_former(store)
        backend = backend_of(store)
        for handle in left_running(store):
            backend.stop(handle, force)
        for number in holders(folder).values():  # among them some whose start was not written down
            machine.stop(handle_of(number), force)
        store.close()
    except PermissionError as error:
        raise RunError(f"state {folder}: another user's system runs there: {error}") from error


def _lock(folder: Path) -> IO[str] | None:
    """A nursery's lock, None when another one has it; a fork does not inherit it."""
    lock = disk.open_file(folder / LOCK, "a")
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        return None
    return lock


def end_orphan(folder: Path) -> None:
    """End the controller of a system whose nursery died: nobody brings a change about any more."""
    if (folder / DATABASE).is_file():
        check_whole(folder / DATABASE)
        store = Store(folder / DATABASE)
        _end_former(store)
        store.close()


def _end_former(store: Store) -> None:
    """End the controller of a nursery that died; its workers and gateways go on."""
    former, machine = store.get("controller_handle"), ThisMachine()
    if former is not None and machine.alive(former):
        machine.stop(former, force=True)
        while machine.alive(former):
            time.sleep(0.01)


def _replace_exposed(store: Store) -> None:
    """Replace secrets that others could read, and say so; what still runs would not know the new ones."""
    if not store.get("exposed", False):
        return
    what = f"state {store.file.parent}: other users could read it until now; its tokens are"
    if left_running(store):
        print(f"{what} replaced at the next start: edgewise down, then up", flush=True)
        return
    store.replace_exposed()
    clients = "; give clients a new one, too" if store.get("token") else ""
    print(f"{what} replaced{clients}", flush=True)


if __name__ == "__main__":
    with last_words(Path(sys.argv[1]), "nursery"):
        Nursery(Path(sys.argv[1])).run()
