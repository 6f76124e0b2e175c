"""What `up` and `down` wait for, and say while they wait; it needs the extra `live`."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import typer
from rich.markup import escape

from edgewise.cli.controller import call, failing
from edgewise.cli.output import err, out
from edgewise.errors import RunError
from edgewise.runtime.backends.system import clear, left_running
from edgewise.runtime.clients.reaching import not_started
from edgewise.runtime.controller.nursery import end_without_controller, is_running, process_of
from edgewise.runtime.controller.plan import DATABASE
from edgewise.runtime.controller.rolling import TRIES, ScenarioChange, read_change
from edgewise.runtime.http.ports import taken
from edgewise.runtime.process.places import holders
from edgewise.runtime.states import DONE, FAILED
from edgewise.runtime.store import Running, Store, copies
from edgewise.runtime.store.database import StoreError, copy_of
from edgewise.runtime.testbeds.spaces import SPACES, Spaces
from edgewise.runtime.watch.logs import said_last

LOOK_S, SAY_S, LOADING_S = 0.1, 2.0, 5.0
FORCE_S = 10.0  # to drain, where no controller sees to it
DOWN_S = 60.0  # ending takes what draining and killing take, twice over
UP = "edgewise up"  # as one of those that still run


class Waiting:
    """Looks at the store of a system every now and then, and says what it is waiting for.

    Args:
        folder: state of the system.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._began_s = self._said_s = time.monotonic()
        self._looked_s = 0.0
        self._failing = set[str]()
        self.over = False

    def look(self) -> None:
        """Say that the system is up, what it waits for, and later what fails; nothing between two looks."""
        now_s = time.monotonic()
        if now_s - self._looked_s < (SAY_S if self.over else LOOK_S):
            return
        self._looked_s = now_s
        change, rows = _read(self.folder)
        if self.over:
            self._say_failing(rows)
        elif not change.open:
            self.over = True
            if change.state == DONE:
                self._say_up(rows)
        elif now_s - self._said_s > SAY_S:
            self._said_s = now_s
            left = [r.process.name for r in rows if r.process.wanted and (r.outdated or r.handle is None)]
            what = ", ".join(left) or "what started, to serve"
            doing = "undoing it; waiting for" if change.why else "waiting for"
            self._say(f"{doing} {what} ({now_s - self._began_s:.0f} s)")

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Say now and then that something is loaded and compiled, which leaves no time to `look`."""
        ready = threading.Event()

        def say() -> None:
            while not ready.wait(LOADING_S):
                self._say(f"loading and compiling ({time.monotonic() - self._began_s:.0f} s)")

        saying = threading.Thread(target=say, daemon=True)
        saying.start()
        try:
            yield
        finally:
            ready.set()
            saying.join()  # no thread is left when processes are forked

    def check(self) -> None:
        """End with status 1 where the change failed.

        Raises:
            Exit: it did.
        """
        change, _ = _read(self.folder)
        if change.state == FAILED:
            undone = "what was changed is undone" if change.before is not None else "everything has ended"
            text = escape(f"{change.why}; {undone}")
            err.print(f"[bold red]error:[/bold red] {text}", highlight=False, soft_wrap=True)
            raise typer.Exit(1)

    def _say_up(self, rows: list[Running]) -> None:
        wanted = [r.process for r in rows if r.process.wanted]
        gateways = [each for each in wanted if each.kind == "gateway"]
        fronts = sum(each.share[0] == 0 for each in gateways)
        shared = f" ({len(gateways)} processes)" if len(gateways) > fronts else ""
        workers = len(wanted) - len(gateways)
        after_s = time.monotonic() - self._began_s
        up = f"{_count(fronts, 'gateway')} accepting{shared}, {_count(workers, 'worker')} ready"
        self._say(f"up after {after_s:.1f} s: {up}")

    def _say_failing(self, rows: list[Running]) -> None:
        """Say once of each process that it ends again and again before it serves."""
        bad = {r.process.name: r.failures for r in rows if r.process.wanted and r.failures >= TRIES}
        for name in bad.keys() - self._failing:
            self._say(failing(name, bad[name], said_last(self.folder, name)))
        self._failing = set(bad)

    def _say(self, text: str) -> None:
        out.print(escape(text), highlight=False, soft_wrap=True)


def wait_until_changed(folder: Path) -> None:
    """Wait until a system that runs has taken a change over.

    Raises:
        Exit: the change failed; status 1.
        RunError: the system has ended.
    """
    waiting = Waiting(folder)
    while not waiting.over:
        waiting.look()
        time.sleep(LOOK_S)
        if not waiting.over and not is_running(folder):
            raise RunError(f"state {folder}: the system has ended; see its logs there")
    waiting.check()


def end(folder: Path) -> None:
    """End a system, and wait until nothing of it runs.

    Raises:
        RunError: something still does after a minute.
    """
    if not (folder / DATABASE).is_file():
        raise not_started(folder)
    if not left_of(folder):
        _note_end(folder)
        return out.print(escape(f"nothing runs in {folder}"))
    try:
        call(folder, "POST", "/v1/down")
    except RunError:  # it does not answer, or does not know us: what is in the folder is ours to end
        end_without_controller(folder)
    began_s = said_s = time.monotonic()
    while True:
        left, now_s = left_of(folder), time.monotonic()
        if not left:
            _note_end(folder)
            return out.print(f"down after {now_s - began_s:.1f} s: everything has ended", highlight=False)
        if not is_running(folder):  # nobody else ends them
            end_without_controller(folder, force=now_s - began_s > FORCE_S)
        if now_s - began_s > DOWN_S:
            raise RunError(
                f"state {folder}: {', '.join(left)} did not end within {DOWN_S:g} s; end it by hand"
            )
        if now_s - said_s > SAY_S:
            said_s = now_s
            out.print(escape(f"waiting for {', '.join(left)} ({now_s - began_s:.0f} s)"), highlight=False)
        time.sleep(LOOK_S)


def _note_end(folder: Path) -> None:
    """Nothing runs, and nothing is to go on at the next start; what can be written is."""
    with suppress(StoreError), closing(Store(folder / DATABASE)) as store:
        killed = not store.ended()
        store.end()
        if store.get(SPACES):
            Spaces(folder).remove()
        if killed:  # else whoever kept it has done so
            clear(store)


def restore_state(folder: Path) -> None:
    """Put the last good copy of a damaged state in its place.

    Raises:
        RunError: the state is whole, something still runs, or there is no good copy.
    """
    file = folder / DATABASE
    try:
        copies.check_whole(file)
    except StoreError as error:
        if not error.damaged:
            raise
    else:
        raise RunError(f"state {file}: is whole; leave out --restore")
    if left := left_of(folder):
        raise RunError(f"state {folder}: {', '.join(left)} still runs; edgewise down first")
    aside = copies.restore(file)
    out.print(escape(f"{copy_of(file)} is restored; what was there is {aside}"), soft_wrap=True)


def token_of(folder: Path) -> str | None:
    """The token that clients of a system must show."""
    store = Store(folder / DATABASE)
    token: str | None = store.get("token")
    store.close()
    return token


def left_of(folder: Path) -> list[str]:
    """What still runs of a system."""
    with closing(Store.readable(folder / DATABASE)) as store:
        names = {r.process.port: r.process.name for r in store.processes()}
        found = set(left_running(store).values())
    left = sorted(found | {names.get(port, f"port {port}") for port in holders(folder)})
    return left + ([UP] if process_of(folder) is not None else [])


def _read(folder: Path) -> tuple[ScenarioChange, list[Running]]:
    """The latest change, and the processes."""
    store = Store.readable(folder / DATABASE)  # not kept open: SQLite must not be carried over a fork
    try:
        return read_change(store) or ScenarioChange(DONE, "", None, 0.0), store.processes()
    finally:
        store.close()


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def check_ports(folder: Path, rows: Sequence[Running]) -> None:
    """Say that another program has a gateway's port; a gateway of a system that is taken over has its own.

    Raises:
        RunError: it has.
    """
    ours = holders(folder)  # among them some whose start was not written down: they give way
    gateways = [row.process for row in rows if row.process.kind == "gateway"]
    there = {process.group for process in gateways if process.port in ours}
    for front in (process.front for process in gateways if process.share[0] == 0):
        settings, port = front.settings, front.port
        if "space" in settings or front.name in there:
            continue
        _check(settings["host"], port, front.name, "--port")
        if settings["grpc_port"] is not None:
            _check(settings["host"], settings["grpc_port"], f"gRPC of {front.name}", "--grpc-port")


def _check(host: str, port: int, whose: str, option: str) -> None:
    if (why := taken(port, host)) is not None:
        raise RunError(f"port {port}, for {whose}: {why}; use another {option}")
