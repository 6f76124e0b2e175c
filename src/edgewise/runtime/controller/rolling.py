"""A running system takes over what is wanted now, process by process, or goes back to what was wanted before.

What is new is started first. Then each worker whose settings change gets a successor beside it, at another
port: it loads its network and runs it once; when it is ready all gateways move to it, and the former one
drains and ends. A gateway keeps its port: its successor shows at another one that it can begin, and takes
its place when the former one has ended; one that is a pod has its successor beside it, as workers have. What
cannot become ready ends the change, and all of it is undone. Last, what is no longer wanted ends.

What `edgewise up` asks of a running system is in the store, with what was wanted before, so that whoever runs
the controller can undo it:

    under way ─▶ done
        └──────▶ undoing ─▶ failed
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import msgspec

from edgewise.errors import EdgewiseError, RunError
from edgewise.runtime import clock, disk
from edgewise.runtime.backends.system import backend_of
from edgewise.runtime.controller.difference import Deed
from edgewise.runtime.controller.health import LIVE, LOADING_S, READY, Health
from edgewise.runtime.controller.planned_ports import PlannedPorts
from edgewise.runtime.process.lifecycle import Lifecycle
from edgewise.runtime.process.places import place_file
from edgewise.runtime.states import DONE, FAILED
from edgewise.runtime.store import LATEST_CHANGE, POLICIES, SCENARIO, Process, Running, Store, from_fields
from edgewise.runtime.store.database import StoreError
from edgewise.runtime.watch.logs import said_last

UNDER_WAY, UNDOING = "under way", "undoing"
KEPT = (POLICIES, "services")


@dataclass(frozen=True, slots=True)
class ScenarioChange:
    """A change of what is wanted.

    Attributes:
        state: as in the module's drawing.
        why: it failed.
        before: what was wanted, None where nothing ran; see `begin`.
        began_s, ended_s: seconds since 1970; `ended_s` is None before its end.
        difference: what it does, as `difference.Deed` has it.
    """

    state: str
    why: str
    before: dict[str, Any] | None
    began_s: float
    ended_s: float | None = None
    difference: Sequence[Mapping[str, Any]] = ()

    @property
    def open(self) -> bool:
        """Whether there is something left to do."""
        return self.state in (UNDER_WAY, UNDOING)

    def in_state(self, state: str, why: str = "") -> "ScenarioChange":
        """The same change, further on."""
        ended_s = clock.unix_s() if state in (DONE, FAILED) else None
        return replace(self, state=state, why=why or self.why, ended_s=ended_s)


def read_change(store: Store) -> ScenarioChange | None:
    """The latest change, None before the first."""
    found = store.get(LATEST_CHANGE)
    return None if found is None else ScenarioChange(**found)


def write_change(store: Store, change: ScenarioChange) -> None:
    """Keep what has become of a change."""
    store.put(LATEST_CHANGE, asdict(change))


def difference_of(store: Store) -> list[Deed]:
    """What the latest change does, or has done."""
    change = read_change(store)
    return [] if change is None else msgspec.convert(list(change.difference), list[Deed])


def begin_change(store: Store, superseding: bool = False) -> ScenarioChange:
    """A change of what is wanted now, to be written once its wishes are.

    Args:
        superseding: nobody is there to bring an earlier change about that is under way. This one takes its
            place, and where it fails goes back to what was there before both.
    Raises:
        RunError: another one is under way.
    """
    rows, change, backend = store.processes(), read_change(store), backend_of(store)
    down = store.nodes_down()
    ours = [running for running in rows if not running.process.taken]  # others' servers run whatever we do
    if not any(running.handle and backend.alive(running.handle) for running in ours):
        return ScenarioChange(UNDER_WAY, "", None, clock.unix_s())
    former = change if change is not None and change.open else None
    if former is not None and not superseding:
        raise RunError(f"state {store.file.parent}: an earlier change is under way; see edgewise status")
    if down:
        raise RunError(f"state {store.file.parent}: node {down[0]} is down; edgewise repair {down[0]} first")
    if former is not None:
        return ScenarioChange(UNDER_WAY, "", former.before, clock.unix_s())
    before = {
        "scenario": (store.file.parent / SCENARIO).read_text(),
        "settings": {name: store.get(name) for name in KEPT},
        "processes": [asdict(running.process) for running in rows if running.process.wanted],
        "renamed": {},
    }
    return ScenarioChange(UNDER_WAY, "", before, clock.unix_s())


def renamed_twice(first: Mapping[str, str], then: Mapping[str, str]) -> dict[str, str]:
    """New names by former ones, where processes were given new names twice."""
    return {old: then.get(new, new) for old, new in first.items()} | {
        old: new for old, new in then.items() if old not in first.values()
    }


def undo(store: Store, before: Mapping[str, Any]) -> None:
    """Want again what was wanted before a change."""
    write_scenario(store, before["scenario"])
    for name, value in before["settings"].items():
        store.put(name, value)
    former = {new: old for old, new in before["renamed"].items()}
    rows = {former.get(r.process.name, r.process.name): r for r in store.processes()}
    wanted = [from_fields(fields) for fields in before["processes"]]
    with store.at_once():
        ports = PlannedPorts(store)
        store.want([beside(process, rows, ports) for process in wanted], former)


def write_scenario(store: Store, text: str) -> None:
    """Write the scenario for all processes to read; at once, as a running system reads it."""
    disk.write_whole(store.file.parent / SCENARIO, text)


def beside(process: Process, rows: Mapping[str, Running], ports: PlannedPorts) -> Process:
    """A process that takes the place of one that runs starts beside it, at another port, where it can."""
    old = rows.get(process.name)
    if old is None or old.handle is None or (process.kind == "gateway" and not process.is_pod):
        return process
    same = replace(process, port=old.process.port)
    return same if same.digest == old.process.digest else replace(process, port=ports.free())


log = logging.getLogger("edgewise.rolling")
REACH_S = 60.0  # from a worker's being ready to its being up for every gateway
SETTLE_S = 2.0  # what gateways had sent, or were about to send, has come to a former worker
TRIES = 2  # ends of a process, before it ever served, that fail a change
PAUSE_S = 0.05
Ask = Callable[[Process, str], Awaitable[Any]]


class Rolling:
    """Brings changes about.

    Args:
        store: what is wanted, and the change.
        processes: starts and ends them.
        health: knows which of them are ready.
        ask: JSON of a process's answer to GET, None where it gives none.
        ending: the whole system ends.
    """

    def __init__(
        self, store: Store, processes: Lifecycle[Process], health: Health, ask: Ask, ending: asyncio.Event
    ) -> None:
        self.store, self.processes, self.health, self.ending = store, processes, health, ending
        self._ask, self._folder = ask, store.file.parent

    def report(self) -> dict[str, Any]:
        """State of the latest change, why it failed, and what it does."""
        change = read_change(self.store) or ScenarioChange(DONE, "", None, 0.0)
        return {"state": change.state, "why": change.why, "difference": change.difference}

    @property
    def under_way(self) -> bool:
        """Whether there is a change that has not come to its end."""
        change = read_change(self.store)
        return change is not None and change.open

    async def go_on(self) -> None:
        """Bring the change about that is under way, if there is one."""
        change = read_change(self.store)
        if change is not None and change.open and not self.ending.is_set():
            with suppress(StoreError):  # what cannot be written down is not done; the next pass goes on
                await self.bring_about(change)

    def reconcile(self) -> None:
        """One pass: end the processes that gave their place away."""
        if self.ending.is_set():
            with suppress(StoreError):
                self.store.drop_successors()
        for handle, port, since_s in self.store.retired():
            if not self.processes.alive(handle):
                with suppress(StoreError):
                    self.store.forget_retired(handle)
                disk.remove(place_file(self.store.file.parent, port))  # nobody takes it again
            elif self.ending.is_set() or (since_s is not None and clock.unix_s() - since_s > SETTLE_S):
                self.processes.end(handle)

    async def bring_about(self, change: ScenarioChange) -> None:
        """Carry a change out to its end, and write down how it ended."""
        try:
            await self._carry_out()
        except StoreError:
            raise
        except EdgewiseError as error:
            if not self.ending.is_set():
                self._failed(change, str(error))
            return
        state = FAILED if change.state == UNDOING else DONE
        write_change(self.store, change.in_state(state))
        log.info("changed" if state == DONE else "change undone")

    def _failed(self, change: ScenarioChange, why: str) -> None:
        log.error("change failed", extra={"why": why})
        if change.state == UNDER_WAY and change.before is not None:
            undo(self.store, change.before)
            write_change(self.store, change.in_state(UNDOING, why))
            return
        self.store.drop_successors()
        self.store.release_retired()  # of what had been carried out
        write_change(self.store, change.in_state(FAILED, change.why or why))
        if change.before is None:  # nothing ran before: nothing shall go on in circles now
            self.ending.set()

    async def _carry_out(self) -> None:
        rows = self.store.processes()
        # Nobody waits for what others run: it is a worker that is lost until it is there.
        ours = [r for r in rows if not r.process.taken]
        await self._all_ready(r.process.name for r in ours if not r.outdated or r.process.kind == "gateway")
        outdated = [r for r in rows if r.outdated]
        for running in outdated:
            if running.process.kind != "gateway":
                await self._replace(running.process.name)
        self.store.release_retired()  # of a controller that ended in between
        for running in outdated:
            if running.process.kind == "gateway":
                await self._replace_gateway(running.process.name)

    # workers

    async def _replace(self, name: str) -> None:
        """Start a successor beside a worker or replica, and give it the place when it is ready.

        What is not to run now starts with its new settings where it is wanted again.
        """
        found, former = self.store.successor(name), self.store.process(name)
        if found is None or former is None:
            return
        process, handle = found
        if former.handle is None and not former.process.wanted:
            return self.store.succeed(name)
        if handle is None:
            handle = self.processes.start(process)
            self.store.successor_started(name, handle)
            log.info("successor started", extra={"who": name, "port": process.port})
        if not process.taken:
            await self._until_ready(process, handle, READY)
        self.store.succeed(name)
        log.info("successor took over", extra={"who": name})
        if not process.taken:
            await self._reached({name})
        self.store.release_retired()

    async def _until_ready(self, process: Process, handle: str, path: str) -> None:
        until_s = clock.monotonic_s() + LOADING_S
        while not await self.health.ready(process, handle, path):
            self._go_on(process.name, until_s, "its successor is not ready")
            if not self.processes.alive(handle):
                if self.store.successor(process.name) is None:  # what it was to follow has gone
                    return
                raise RunError(
                    f"{process.name}: ended before it was ready: {said_last(self._folder, process.name)}"
                )
            await clock.sleep(PAUSE_S)

    # gateways

    async def _replace_gateway(self, name: str) -> None:
        """Try a successor at another port; then end the gateway, and start it anew at its own."""
        found = self.store.successor(name)
        if found is None:
            return
        process, handle = found
        if process.is_pod:  # what clients ask has an address of its own: both answer for a while
            return await self._replace(name)
        if handle is not None:  # tried by a controller that ended in between
            self.processes.kill(handle)
        trial = replace(
            process, port=PlannedPorts(self.store).free(), settings=process.settings | {"trial": True}
        )
        handle = self.processes.start(trial)
        self.store.successor_started(name, handle)
        await self._until_ready(trial, handle, LIVE)
        self.processes.kill(handle)
        former = self.store.process(name)
        self.store.successor_started(name, None)
        self.store.succeed(name)
        while former is not None and former.handle and self.processes.alive(former.handle):
            self.processes.end(former.handle)
            await clock.sleep(PAUSE_S)
        await self._all_ready([name])

    def _gateways(self) -> list[Running]:
        return [r for r in self.store.processes("gateway") if r.process.wanted and r.handle]

    # all of them

    async def _all_ready(self, names: Iterable[str]) -> None:
        """Wait until processes are ready, and workers up for every gateway."""
        chosen = set(names)
        await asyncio.gather(*(self._ready(name) for name in chosen))
        await self._reached(chosen)

    async def _ready(self, name: str) -> None:
        until_s = clock.monotonic_s() + LOADING_S
        while (running := self.store.process(name)) is not None and running.process.wanted:
            if running.handle and await self.health.ready(running.process, running.handle):
                return
            if running.failures >= TRIES:
                words = said_last(self._folder, name)
                raise RunError(f"{name}: ended {running.failures} times before it was ready: {words}")
            self._go_on(name, until_s, "is not ready")
            await clock.sleep(PAUSE_S)

    async def _reached(self, names: set[str]) -> None:
        """Wait until every gateway that serves has these workers up, where the store says that they are."""
        until_s = clock.monotonic_s() + REACH_S
        while missing := await self._not_up(names):
            self._go_on(missing[0], until_s, "is not up for every gateway")
            await clock.sleep(PAUSE_S)

    async def _not_up(self, names: set[str]) -> list[str]:
        """Workers of these that a gateway that serves has not up, where the store says that they are."""
        places = {r.process.name: r.process.url for r in self.store.processes("worker") if r.process.wanted}
        return [
            view["worker"]
            for running in self._gateways()
            for view in await self._ask(running.process, "/v1/admin/workers") or ()
            if view["worker"] in names & places.keys() - self.store.moved(running.process.name).keys()
            and not (view["up"] and view["url"] == places[view["worker"]])
        ]

    def _go_on(self, name: str, until_s: float, why: str) -> None:
        if self.ending.is_set():
            raise RunError("the system ends")
        if clock.monotonic_s() > until_s:
            raise RunError(f"{name}: {why} in time; see its log")
