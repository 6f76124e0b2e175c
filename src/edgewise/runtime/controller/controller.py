"""The controller: brings about what its store wants, restarts what died, and answers the administrator.

    GET  /                                a page that shows the status, in a browser
    GET  /v1/status                       policy, shadow, processes, streams at a glance
    GET  /v1/workers, /v1/gateways        each process: where, since when, restarts, what it reports
    PUT  /v1/workers/{name}               {"wanted": bool}: false drains and ends it, true starts it
    .../v1/nodes, /v1/links, /v1/admin/…  nodes and links that fail, jobs and pipelines, see `requests`
    GET  /v1/streams                      every stream, with its gateway
    GET  /v1/policies                           who decides what, and who watches
    GET  /v1/policies/{decision}  PUT {"policy"}   everywhere, now and after restarts
    GET  /v1/shadows/{decision}   PUT {"policy"}   a second policy that only watches; "" ends it
    GET  /v1/operations[/{id}]            how far the switches of policies are; PUT answers 202 and says where
    POST /v1/down                         end everything
    GET  /metrics                         how often policies that decide here failed
    GET  /openapi.json, /v2/health/live

It keeps nothing to itself: everything is in the store, and its processes outlive it. All but health and
/openapi.json needs the operator's token.
"""

import asyncio
import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from edgewise.errors import EdgewiseError, ProtocolError
from edgewise.runtime import clock, http
from edgewise.runtime.backends.contract import ServingBackend
from edgewise.runtime.clients.reaching import client_to
from edgewise.runtime.controller.health import Health
from edgewise.runtime.controller.holds import LiveHolds
from edgewise.runtime.controller.home import home
from edgewise.runtime.controller.jobs import LiveJobs
from edgewise.runtime.controller.live_plane import LivePlane
from edgewise.runtime.controller.overview import Overview
from edgewise.runtime.controller.pipelines import LivePipelines
from edgewise.runtime.controller.plan import DATABASE
from edgewise.runtime.controller.planned_ports import PlannedPorts
from edgewise.runtime.controller.reconcile import Pass, counted, reconcile
from edgewise.runtime.controller.replicas import Replicas
from edgewise.runtime.controller.requests import about_links, about_nodes, about_work
from edgewise.runtime.controller.rolling import Rolling
from edgewise.runtime.controller.switching import Switching
from edgewise.runtime.controller.upkeep import Upkeep
from edgewise.runtime.http.ports import taken
from edgewise.runtime.process.lifecycle import Lifecycle, pause_s
from edgewise.runtime.process.serving import Listen, listen, run, when_told
from edgewise.runtime.protocol.bodies import read
from edgewise.runtime.protocol.controller_bodies import Ending, WorkerNow, WorkerWanted
from edgewise.runtime.protocol.openapi import document, unanswered
from edgewise.runtime.protocol.shown_bodies import (
    PolicyShown,
    ProcessShown,
    ShadowAtGateway,
    StatusShown,
    StreamRow,
)
from edgewise.runtime.store import Process, Running
from edgewise.runtime.store.copies import keep_copy
from edgewise.runtime.store.database import StoreError
from edgewise.runtime.store.steady import SteadyStore
from edgewise.runtime.watch.logs import log_json, said_last
from edgewise.runtime.watch.metrics import faults_in, page

log = logging.getLogger("edgewise.controller")
GRACE_S = 8.0  # to drain
COPY_S = 30.0  # between two copies of the store
CHECK_S = 1.0


class Controller:
    """Reconciles and answers.

    Args:
        store: what is wanted.
        backend: runs it.
    """

    def __init__(self, store: SteadyStore, backend: ServingBackend) -> None:
        self.backend = backend
        self.store, self._folder = store, store.file.parent
        self.processes = Lifecycle(backend, GRACE_S)
        self.plane = plane = LivePlane(store)
        plane.seen = backend.nodes
        self.faults = plane.faults
        self.jobs = LiveJobs(plane, processes=backend.jobs(store.jobs))
        self.replicas = Replicas(plane, self.ask_gateways, self.processes.told)
        self.pipelines = LivePipelines(plane, backend.tasks())
        self.holds = LiveHolds(plane, self.pipelines)
        self.upkeep = Upkeep(store, self.jobs)
        self.here = {each.decision: each for each in (self.replicas, self.pipelines, self.jobs)}
        self.switching = Switching(store, self.replicas, self.here, self.answer_of)
        self.ending, self.leaving = asyncio.Event(), asyncio.Event()
        self.under_way: list[Pass] = []  # what is done again and again
        self._down: list[str] = []  # nodes
        self.health = Health(
            self.processes.kill,
            backend.look,
            lambda of, path, timeout_s: self.answer_of(of, "GET", path, timeout_s=timeout_s),
        )
        self.rolling = Rolling(
            store, self.processes, self.health, lambda of, path: self._ask(of, "GET", path), self.ending
        )
        self.clients: dict[tuple[str, str | None], http.Client] = {}
        self.shown = Overview(
            store, plane, self.processes, self.health, self.jobs, self.replicas, self.pipelines, self.rolling,
            self.switching, self.here, self.ask_gateways,
        )  # fmt: skip

    # processes

    def reconcile(self) -> None:
        """One pass: note what ended, start what is wanted, end what is not."""
        self.store.settle()
        self.rolling.reconcile()
        self._down = self.store.nodes_down()
        for running in self.store.processes():
            try:
                self._reconcile(running)
            except EdgewiseError as error:
                log.error("not started", extra={"who": running.process.name, "why": str(error)})
                self.store.started(running.process.name, None, running.failures + 1)

    def _reconcile(self, running: Running) -> None:
        process, handle, failures = running.process, running.handle, running.failures
        if handle is not None and not self.processes.alive(handle):
            failures = 0 if handle in self.health.served else failures + 1
            self.store.started(process.name, None, failures)
            told = not failures or self.processes.told(handle)
            why = {} if told else {"why": said_last(self._folder, process.name)}
            log.warning("ended", extra={"who": process.name, "failures": failures} | why)
            handle = None
        elif handle is not None and (url := self.backend.look(process, handle).url) != process.url:
            self.store.answers_at(handle, url)
            log.info("answers at", extra={"who": process.name, "url": url})
        failed = process.settings.get("node") in self._down
        wanted = process.wanted and not failed and not self.ending.is_set()
        if handle is None:
            if wanted and clock.unix_s() >= running.started_s + pause_s(failures):
                process = self._at_free_port(process) if failures else process
                self._start(process, failures)
        elif failed:
            self.processes.end(handle, at_once=True)
        elif not wanted and (self.ending.is_set() or not self._needed(process)):
            self.processes.end(handle)

    def _start(self, process: Process, failures: int) -> None:
        """Start a process, unless it is wanted otherwise by now: a change does not wait for us."""
        handle = self.processes.start(process)
        self.store.started(process.name, handle, failures)
        log.info("started", extra={"who": process.name, "port": process.port})
        now = self.store.process(process.name)
        if now is None or now.process.digest != process.digest:
            self.processes.kill(handle)
            self.store.started(process.name, None, failures)
            log.info("started anew, as it is wanted now", extra={"who": process.name})

    def _at_free_port(self, process: Process) -> Process:
        """A process whose port another program has got; gateways follow it, but clients of theirs cannot."""
        fixed = process.is_pod or (process.kind == "gateway" and process.share[1] == 1)
        if fixed or (why := taken(process.port)) is None:
            return process
        with self.store.at_once():
            moved = replace(process, port=PlannedPorts(self.store).free())
            self.store.add(moved)
        log.warning("port", extra={"who": process.name, "port": process.port, "why": why, "now": moved.port})
        return moved

    def _needed(self, process: Process) -> bool:
        """Whether a gateway still uses a worker that goes, because it is yet to be told or started anew."""
        if process.kind == "replica" or process.pooled:
            return self.replicas.in_use(process.name)
        return process.kind == "worker" and self.rolling.under_way

    def passes(self) -> dict[str, Pass]:
        """All that is done again and again, in its order."""
        made = (
            Pass("processes", 0.02, "other programs write what is wanted; a fork is no child", self.look),
            Pass("jobs", 0.05, "runners leave their words in files, and may be killed", self.jobs.look_now),
            Pass("holds", 0.25, "what did not last is not written down", self.holds.go_on),
            Pass("change", 0.1, "`edgewise up` writes what it asks for in the store", self.rolling.go_on),
            Pass("replicas", 0.25, "gateways are asked what they hold and count", self.replicas.go_on),
            Pass("pipelines", 0.25, "tasks report frames; a decision is due at a time", self.pipelines.go_on),
            Pass("health", CHECK_S, "who hangs says nothing", self.check),
            Pass(
                "keeping", 0.5, "other programs write what is wanted", lambda: self.backend.keep(self.store)
            ),
            Pass("upkeep", 5.0, "what grows says nothing", self.upkeep.go_on),
            Pass("copies", COPY_S, "a copy is as old as its period", self.copy, share=0.01),
        )
        return {each.name: each for each in made}

    async def keep(self) -> None:
        """Go on until everything that is to end has ended, or another controller is to go on."""
        self.under_way = list(self.passes().values())
        await reconcile(self.under_way, self._over)

    def _over(self) -> bool:
        return self.leaving.is_set() or (self.ending.is_set() and self._alone())

    def look(self) -> None:
        """Reconcile, and write down what policies failed at."""
        self.reconcile()
        self.store.faults.note(self.faults.drain())

    def _alone(self) -> bool:
        """Whether nothing runs any more that was started."""
        return not self.store.retired() and all(r.handle is None for r in self.store.processes())

    async def copy(self) -> None:
        """Copy the store."""
        # Else the former copy stays; what is wrong is said by whoever meets it first.
        with suppress(StoreError):
            await asyncio.to_thread(keep_copy, self.store.file)

    async def check(self) -> None:
        """Kill what runs and does not answer, so that it is started anew."""
        rows = self.store.processes()
        await self.health.check(rows, CHECK_S)
        self._forget(rows)

    def _forget(self, rows: Sequence[Running]) -> None:
        """Forget processes that are no more."""
        handles = {r.handle for r in rows} | {handle for handle, *_ in self.store.retired()}
        self.health.forget(handles)
        self.processes.forget(handles)
        for where in self.clients.keys() - {_where(r.process) for r in rows}:
            self.clients.pop(where).close()

    async def _ask(self, process: Process, method: str, path: str) -> Any:
        """JSON of a process's answer, None when it gives none or refuses."""
        return _content(await self.answer_of(process, method, path))

    async def answer_of(
        self, of: Process, method: str, path: str, body: bytes = b"", timeout_s: float = 1.0
    ) -> http.Response | None:
        """A process's answer over the connection that is kept to it; None when it gives none."""
        if (where := _where(of)) not in self.clients:
            self.clients[where] = client_to(of, self.store, self.store.secret("parts"))
        with suppress(ConnectionError, TimeoutError):
            return await self.clients[where].request(method, path, body=body, timeout_s=timeout_s)
        return None

    # administration

    async def handle(self, request: http.HttpRequest) -> http.Response:
        """Answer one HTTP request."""
        try:
            return await self._handle(request)
        except StoreError as error:
            self.store.note(error)  # books of jobs and pipelines are files of their own to SQLite
            return http.failure(503, str(error))

    async def _handle(self, request: http.HttpRequest) -> http.Response:
        match request.method, request.parts:
            case _, ["v1", "admin", *_]:
                return await about_work(self.jobs, self.pipelines, request)
            case "GET", ["v2", "health", "live"]:
                return http.as_json({"live": True})
            case "GET", [""]:
                return home()
            case "GET", ["openapi.json"]:
                return http.as_json(document("controller"))
            case "GET", ["metrics"]:
                return page(faults_in(self.faults, (*counted(self.under_way), *self.backend.counted())))
            case "GET", ["v1", "status"]:
                return http.as_json(msgspec.convert(await self.shown.status(), StatusShown))
            case "GET", ["v1", "streams"]:
                return http.as_json(msgspec.convert(await self.shown.streams(), list[StreamRow]))
            case "GET", ["v1", "workers" | "gateways" as kind]:
                rows = await self.shown.listed(kind[:-1])
                return http.as_json(msgspec.convert(rows, list[ProcessShown]))
            case "PUT", ["v1", "workers", name]:
                return self._want(name, request.body)
            case _, ["v1", "nodes", *_]:
                return about_nodes(self.plane, request, self.reconcile)
            case _, ["v1", "links", *_]:
                return about_links(self.pipelines, request)
            case "GET", ["v1", "policies"]:
                return http.as_json(msgspec.convert(self.shown.policies(), list[PolicyShown]))
            case "GET", ["v1", "policies", decision]:
                available = self.switching.available(decision)
                found = self.shown.policies([decision])[0] | {"available": available}
                return http.as_json(msgspec.convert(found, PolicyShown))
            case "GET", ["v1", "shadows", decision]:
                self.switching.available(decision)
                seen = await self.shown.shadows(decision)
                return http.as_json(msgspec.convert(seen, list[ShadowAtGateway]))
            case "PUT", ["v1", "policies" | "shadows" as what, decision]:
                return self.switching.begin(request, what, decision)
            case _, ["v1", "operations", *rest]:
                return self.switching.operations.answer(request, rest)
            case "POST", ["v1", "down"]:
                self.ending.set()
                return http.as_json(Ending(True))
        return unanswered(request, "controller")

    async def ask_gateways(self, method: str, path: str) -> list[dict[str, Any]]:
        """What each gateway answers, None where it refuses; those that do not answer are left out."""
        fronts = [r for r in self.store.processes("gateway") if r.handle]
        answers = await asyncio.gather(*(self.answer_of(r.process, method, path) for r in fronts))
        pairs = zip(fronts, answers, strict=True)
        return [{"gateway": r.process.name, "answer": _content(a)} for r, a in pairs if a is not None]

    def _want(self, name: str, body: bytes) -> http.Response:
        workers = [r.process.name for r in self.store.processes() if r.process.kind != "gateway"]
        if name not in workers:
            raise ProtocolError(f"no worker {name[:80]!r}; there are {', '.join(workers)}", status=404)
        wanted = read(body, WorkerWanted).wanted
        self.store.set_wanted(name, wanted)
        log.info("wanted" if wanted else "drained", extra={"who": name})
        return http.as_json(WorkerNow(wanted, name))


def _content(answer: http.Response | None) -> Any:
    """JSON of an answer, None where there is none, or it says that nothing is to be had."""
    with suppress(ValueError):
        return json.loads(answer.body) if answer is not None and answer.status == 200 else None
    return None


def _where(process: Process) -> tuple[str, str | None]:
    """Address and certificate, of which one client is kept."""
    return process.url, process.settings.get("tls")


async def run_parts(controller: Controller) -> None:
    """Serve and run its passes until it is told to end, or one of them fails."""
    store = controller.store
    token, port = store.secret("operator"), store.get("controller")["port"]
    if (why := taken(port)) is not None:  # whoever asks reads in the store where we are
        log.warning("port", extra={"who": "controller", "port": port, "why": why})
        store.put("controller", {"port": (port := PlannedPorts(store).free())})
    where = Listen(port=port, token=token, operators=(token,))
    listening = await listen(controller.handle, where)
    controller.switching.resume()
    when_told(controller.leaving.set if controller.backend.stays else controller.ending.set)
    await controller.keep()
    if not controller.ending.is_set():
        controller.backend.leave(store)
        return await listening.close(0.0)
    await controller.jobs.end()
    controller.pipelines.close()
    if controller.ending.is_set():
        with suppress(StoreError):
            controller.holds.end(clock.unix_s())
        store.end()
    await listening.close(0.5)


def main(folder: Path, backend: ServingBackend, handle: str | None = None) -> None:
    """Be the controller of a folder until told to end.

    Args:
        handle: of this process, for whoever takes over.
    Raises:
        EdgewiseError: its state or port cannot be used.
    """
    log_json()
    store = SteadyStore(folder / DATABASE)
    store.put("began_s", store.get("began_s", clock.unix_s()))
    store.put("controller_handle", handle)
    store.begin_run()
    run(run_parts(Controller(store, backend)))
    store.close()
