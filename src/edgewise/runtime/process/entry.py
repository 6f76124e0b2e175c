"""What runs in each process of a live system: `-m edgewise.runtime.process.entry FOLDER`, JSON as input."""

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import signal
import sys
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import IO

import numpy as np

from edgewise.config import load_scenario
from edgewise.core.dispatch.requests import RequestCore
from edgewise.core.keyed import Purpose, normal_of, normal_pair_of
from edgewise.core.telling import tell_once
from edgewise.core.world import World
from edgewise.errors import PolicyError
from edgewise.model.pools import pool_of
from edgewise.model.scenario import Scenario
from edgewise.model.services import Services, services_of
from edgewise.runtime import clock, disk, http
from edgewise.runtime.apart import load
from edgewise.runtime.clients.reaching import client_to
from edgewise.runtime.controller import jobs
from edgewise.runtime.controller.graphs import with_servers
from edgewise.runtime.gateway import split
from edgewise.runtime.gateway.admin import with_admin
from edgewise.runtime.gateway.forwarding import Ways
from edgewise.runtime.gateway.gateway import Gateway, Patience
from edgewise.runtime.gateway.needs import Book, StreamRules
from edgewise.runtime.gateway.service_requests import ServiceRequests
from edgewise.runtime.gateway.session import Session
from edgewise.runtime.gateway.siblings import Siblings
from edgewise.runtime.gateway.writing import Writing
from edgewise.runtime.process.compiling import try_out_here
from edgewise.runtime.process.places import place_file
from edgewise.runtime.process.serving import Listen, run, run_gateway, run_trial, run_worker
from edgewise.runtime.process.working import worker_of
from edgewise.runtime.store import DATABASE, SCENARIO, SHADOWS, Process, Store, from_fields, tls_files
from edgewise.runtime.store.steady import SteadyStore
from edgewise.runtime.testbeds.spaces import enter
from edgewise.runtime.watch.collector import tracing_to
from edgewise.runtime.watch.logs import SaidOnce, last_words, log_json
from edgewise.runtime.watch.metrics import ServiceMetrics

log = logging.getLogger("edgewise.process")
QUERY_WAIT_S = 0.02  # of a gateway for another program that holds the store: its queries wait, too
PATIENCE = Patience(health_period_s=0.25, health_timeout_s=1.0)


def world_of(folder: Path) -> tuple[Scenario, World]:
    """The scenario of a folder; kept by whoever is forked later, and read again once its file changed."""
    return _world_of(folder, (folder / SCENARIO).read_bytes())


@cache
def _world_of(folder: Path, content: bytes) -> tuple[Scenario, World]:
    scenario = with_servers(load_scenario(folder / SCENARIO))
    return scenario, World.build(scenario.catalog, scenario.topology, scenario.sharing)


def warm(folder: Path) -> None:
    """Load and compile what workers and gateways need, so that forks of this process start at once."""
    scenario, world = world_of(folder)
    services = services_of(scenario)
    for draw in (normal_of, normal_pair_of):
        draw(np.uint64(0), int(Purpose.NETWORK), 0, 0)
    store = Store(folder / DATABASE)
    gateways = ["dispatch"] if world.site_names else []  # where there are no sites nothing comes by any
    for decision in (*gateways, *(["requests"] if services is not None else [])):
        _try_out((decision, store.policy(decision)), world, services)
    jobs.warm(store.policy("defer"))
    wanted = [row.process.settings.get("split") for row in store.processes()]
    splitter = store.policy("split")
    store.close()  # SQLite must not be carried over a fork
    split.warm(list(dict.fromkeys(each for each in wanted if each)), splitter)


def main(folder: Path, process: Process) -> None:
    """Be this process until told to end.

    Raises:
        EdgewiseError: it cannot begin.
    """
    if space := process.settings.get("space"):
        enter(space)
    if process.cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, process.cores)
    log_json()
    place = take_place(folder, process.port)
    if process.kind != "gateway":
        store = Store.readable(folder / DATABASE)  # a worker that died comes back whatever its state
        host = process.settings.get("host", http.LOCALHOST)
        where = Listen(host, process.port, token=store.secret("parts"), operators=(store.secret("operator"),))
        store.close()
        run(run_worker(worker_of(process), where))
        place.close()
        return
    be_gateway(folder, process, SteadyStore)
    place.close()


def be_gateway(folder: Path, process: Process, kind: type[SteadyStore]) -> None:
    """Be a gateway until told to end.

    Args:
        kind: of its store, in the folder.
    """
    tell_once(log.warning)
    run(_gateway(folder, process, kind(folder / DATABASE, QUERY_WAIT_S)))


def take_place(folder: Path, port: int) -> IO[str]:
    """Hold the place of a port; a process that still does was lost by its controller, and is killed.

    Returns:
        the open lock file: whoever has it holds the place.
    """
    place = disk.open_in_place(place_file(folder, port))
    while True:
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            with contextlib.suppress(ValueError, ProcessLookupError):
                os.kill(int(os.pread(place.fileno(), 16, 0)), signal.SIGKILL)
            time.sleep(0.005)
    os.pwrite(place.fileno(), f"{os.getpid():<16}".encode(), 0)  # needs no room where one was there before
    return place


async def _gateway(folder: Path, process: Process, store: SteadyStore) -> None:
    scenario, world = world_of(folder)
    settings, began_s = process.settings, store.get("began_s", clock.unix_s())
    offset_s = clock.unix_s() - began_s - clock.monotonic_s()
    services = services_of(scenario)
    decided = ("dispatch",) if services is None else ("dispatch", "requests")
    for decision in decided:  # what was switched since the nursery began is in the cache on disk
        for name in filter(None, (store.policy(decision), store.policy(decision, SHADOWS))):
            _try_out((decision, name), world, services)
    rules, token = StreamRules.of(scenario), store.secret("parts")
    policy = load("dispatch", store.policy("dispatch"), rules.budgets_s.dispatch)
    session = Session(
        world,
        policy,
        settings["seed"],
        lambda: max(clock.monotonic_s() + offset_s, 0.0),
        rules,
        process.name,
        pool_of(scenario.topology),
    )
    workers = {r.process.name: r.process for r in store.processes("worker")}
    places = {name: (workers[name].url, workers[name].settings["model"]) for name in world.worker_names}
    gateway = Gateway(
        session,
        [
            http.Client.of_url(url, None if workers[name].taken else token)
            for name, (url, _) in places.items()
        ],
        [model for _, model in places.values()],
        patience=replace(PATIENCE, lease_s=scenario.streams.lease_s),
        book=Book(store, process.name, process.share),
        name=process.name,
        ways=Ways(world, settings["seed"], settings["client_s"], "space" in settings)
        if settings["emulate"]
        else None,
        site=settings["site"],
        tracing=tracing_to(settings.get("otlp"), process.name),
        granted_by={
            w: by for w, name in enumerate(places) if (by := workers[name].settings.get("granted_by"))
        },
    )
    folders = [settings["splits"].get(name) for name in places]
    gateway.splits = split.split_upstreams(
        gateway.upstreams, session, folders, gateway.metrics.registry, store.policy("split")
    )
    if services is not None:
        gateway.services = _services(services, process, store, gateway)
    where = _listen(folder, process, store, scenario.live.bodies_bytes)
    if settings.get("trial"):
        gateway.draining = True  # it shows that it can begin, and touches nothing
        return await run_trial(gateway, replace(where, grpc_port=None))
    gateway.restore()
    cores = [session.core] if gateway.services is None else [session.core, gateway.services.core]
    for decision, core in zip(decided, cores, strict=True):
        if shadow := store.policy(decision, SHADOWS):
            watching = load(decision, shadow, session.budget_s(decision))
            session.hand(core, decision, watching, watches=True)
    if shadow := store.policy("split", SHADOWS):
        for group in gateway.splits:
            group.hand(group.begun(shadow), watches=True)
    siblings, front = None, None
    if "share" in settings:
        siblings = Siblings(gateway, with_admin(gateway), process, token)
        siblings.follow(running.process for running in store.processes("gateway"))
        front = replace(_listen(folder, process.front, store, scenario.live.bodies_bytes), shared=True)
    following = Following(gateway, store, places, siblings)
    await run_gateway(gateway, where, settings["telemetry_period_s"], following.keep(), siblings, front)
    following.step(last=True)
    store.close()


def _try_out(wanted: tuple[str, str], world: World, services: Services | None) -> None:
    """Have what a policy needs compiled; where it fails another decides, and its faults are said then."""
    with contextlib.suppress(PolicyError):
        try_out_here(wanted, world, services)


class Following:
    """Keeps a gateway and the store in line.

    Args:
        gateway: restored from the store.
        places: address and model of each worker as the gateway has it, by name.
        siblings: with whom it shares a port.
    """

    def __init__(
        self,
        gateway: Gateway,
        store: SteadyStore,
        places: dict[str, tuple[str, str]],
        siblings: Siblings | None = None,
    ) -> None:
        self.gateway, self.store, self._places, self._siblings = gateway, store, places, siblings
        self._writing, self._adopted = Writing(gateway, store), store.adopted()
        self._going_on = SaidOnce(log, "store")

    async def keep(self, period_s: float = 0.25) -> None:
        """Go on until cancelled."""
        while True:
            self.step()
            await asyncio.sleep(period_s)

    def step(self, last: bool = False) -> None:
        """Follow the workers that moved, and write down what the gateway did; all of it at last."""
        self.store.settle()
        with self._going_on():
            self.look()
            self._writing.step(last)

    def _token(self) -> str:
        return self.store.secret("parts")

    def look(self) -> None:
        """Follow other gateways and the workers that moved, as the store says."""
        if (adopted := self.store.adopted()) != self._adopted:
            self._adopted = adopted
            self.gateway.streams.restore()
        if self._siblings is not None:
            self._siblings.follow(running.process for running in self.store.processes("gateway"))
        if self.gateway.granting is not None and self.gateway.granted_by:
            self.gateway.granting.follow(
                (running.process for running in self.store.processes("gateway")),
                lambda process: client_to(process, self.store, self._token()),
            )
        names, elsewhere = self.gateway.session.world.worker_names, self.gateway.book.moves()
        for running in self.store.processes("worker"):
            process = running.process
            if process.pooled and process.name in self._places:
                self.gateway.want(names.index(process.name), process.wanted, process.settings["start_s"])
            name, place = process.name, (process.url, process.settings.get("model", ""))
            known = self._places.get(name)
            if known is not None and place != known and place[1]:  # without a model nothing is asked
                self._places[name] = place
                if name not in elsewhere:  # an operator gave it an address of its own
                    self.gateway.move(names.index(name), *place, None if process.taken else self._token())
                    log.info("worker followed", extra={"worker": name, "url": place[0]})


def _listen(folder: Path, process: Process, store: Store, bodies_bytes: float) -> Listen:
    """Where a gateway listens and who may ask: clients; in its administration operator and controller."""
    settings = process.settings
    certificate, key = tls_files(folder, settings["tls"]) if settings["tls"] else (None, None)
    return Listen(
        settings["host"],
        process.port,
        settings["grpc_port"],
        token=store.get("token"),
        operators=(store.secret("operator"), store.secret("parts")),
        certificate=certificate,
        key=key,
        names=tuple(settings["names"]),
        open=settings["open"] or "space" in settings,  # only this machine has a way there
        bodies_bytes=bodies_bytes,
    )


def _services(services: Services, process: Process, store: Store, gateway: Gateway) -> ServiceRequests:
    """The part of a gateway that serves requests without a stream."""
    settings, world = process.settings, gateway.session.world
    policy = load("requests", store.policy("requests"), gateway.session.budget_s("requests"))
    site = world.site_names.index(settings["site"])
    guard = gateway.session.guard("requests", policy)
    core = RequestCore(services, site, policy, settings["seed"], guard)
    return ServiceRequests(
        core,
        gateway.upstreams,
        {each.name: world.worker_names.index(each.name) for each in services.workers},
        lambda: store.processes("replica"),
        gateway.patience,
        ServiceMetrics(core, gateway.metrics.registry),
        gateway.session,
        store.secret("parts"),
        emulated=gateway.ways is not None,
    )


if __name__ == "__main__":
    wanted = from_fields(json.loads(sys.stdin.read()))
    with last_words(Path(sys.argv[1]), wanted.name):
        main(Path(sys.argv[1]), wanted)
