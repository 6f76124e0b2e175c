"""Whoever serves ends only once no gateway sends there any more, and what is wanted comes about in the end.

Replicas, workers of a pool and gateways, two processes of which share a port, run on a hostile backend. Which
replicas and workers come and go is drawn, the scenario changes, and gateways follow and answer late.
"""

import asyncio
import random
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import yaml

pytest.importorskip("msgspec", reason="the extra `live` is not installed")

from hostile_backend import LONGEST, Cluster, HostileBackend
from played_gateways import PlayedGateway, comes_and_goes

from edgewise.config import load_scenario
from edgewise.core.orchestrate import AddReplica, RemoveReplica
from edgewise.errors import RunError
from edgewise.runtime import clock
from edgewise.runtime.controller import live_plane, replicas, rolling
from edgewise.runtime.controller.controller import Controller
from edgewise.runtime.controller.health import LIVE
from edgewise.runtime.controller.plan import DATABASE, prepare
from edgewise.runtime.controller.rolling import read_change
from edgewise.runtime.http.messages import as_json, failure
from edgewise.runtime.store.steady import SteadyStore

TURN_S, HISTORY = 1.0, 60
SETTLED = 1000  # turns; a change waits 300 s for one whose node is down, and so does its undoing
RARELY = 0.001  # each question to a backend
SCENARIO = yaml.safe_load("""
name: shared
duration_s: 60
catalog: {use: detection}
clusters:
  - name: near
    tier: 0
    nodes: [{name: near, count: 2, resources: {cpu_cores: 8, memory_bytes: 8GB}}]
  - {name: cloud, tier: 1, nodes: [{name: cloud, resources: {cpu_cores: 16, memory_bytes: 32GB}}]}
sites: [{name: here, cluster: near, access_delay_s: 1ms, uplink_bps: 200Mbps}]
links:
  - {site: "*", cluster: own, delay_s: 0.5ms, over: lan}
  - {site: "*", cluster: cloud, delay_s: 25ms, over: lan}
  - {name: lan, bandwidth_bps: 1Gbps}
workers:
  - {variant: mobilenet-ssd-cpu1, cluster: near, count: 1, least: 0, most: 3}
  - {variant: tiny-yolov2-cpu1, cluster: cloud, count: 1}
streams:
  applications: [{name: any, task: detection, rate_qps: 1, size_bytes: 30kB, deadline_s: 1, length_s: 10}]
  arrivals: {clients_per_min: 1}
services:
  cloud: cloud
  frame_s: 1
  offered: [{variant: tiny-yolov2-cpu1, deadline_s: 400ms, answer_bytes: 10kB, initial: 1}]
  requests: {rate_qps: 30, service_s: 49.5ms, slack: [2, 6], payload_bytes: 50kB}
""")
NO_POOL = SCENARIO | {
    "workers": [{"variant": "mobilenet-ssd-cpu1", "cluster": "near"}, SCENARIO["workers"][1]]
}
SCENARIOS = [
    SCENARIO,
    NO_POOL,
    {name: value for name, value in SCENARIO.items() if name != "services"},
    {name: value for name, value in NO_POOL.items() if name != "services"},
]


class Drawn:
    """Adds and removes replicas and workers as it is drawn, until nothing happens any more."""

    name, decision = "drawn", "orchestrate"

    def __init__(self, cluster):
        self.cluster = cluster

    def reset(self, world, key):
        pass

    def decide(self, view):
        if self.cluster.calm:
            return []
        draws, services = self.cluster.random, view.replicas.shape[1]
        return [
            draws.choice((AddReplica, RemoveReplica))(draws.randrange(2), draws.randrange(services))
            for _ in range(draws.randrange(3))
        ]


class Crowd(Cluster):
    """A cluster of which the gateways are played, and follow the store of a system.

    Attributes:
        gateways: those that run, by handle.
        early: who was told to end while a gateway used it.
    """

    def __init__(self, random):
        super().__init__(random, RARELY)
        self.gateways, self.early = {}, []

    def names(self):
        """Of all that runs."""
        return {self.processes[handle].name for handle in self.running()}

    def go_on(self, rows, what):
        """What gateways do by themselves in a turn."""
        here = [r.handle for r in rows if r.process.kind == "gateway" and r.handle in self.running()]
        ready = [handle for handle in here if self.processes[handle].ready]
        self.gateways = {handle: self.gateways.get(handle) or PlayedGateway(what) for handle in ready}
        for each in self.gateways.values():
            if self.calm or not each.places or self.random.random() < 0.5:
                each.follow(rows)
            each.work(self.random, self.names())


class Watched(HostileBackend):
    """Notes who is told to end while a gateway uses it."""

    def __init__(self, cluster, live):
        super().__init__(cluster)
        self.live = live

    def stop(self, handle, force=False):
        rows = {r.handle: r.process for r in self.live.store.processes()}
        if not force and handle in rows and comes_and_goes(rows[handle]) and not self.live.ending:
            name = rows[handle].name
            self.cluster.early += [name for each in self.cluster.gateways.values() if each.uses(name)]
        super().stop(handle, force)


class Alone(Controller):
    """A controller whose gateways are played; some answers are lost."""

    async def answer_of(self, of, method, path, body=b"", timeout_s=1.0):
        cluster, running = self.backend.cluster, self.store.process(of.name)
        if path == LIVE:
            return as_json({}) if cluster.answers(of.url) else None
        gateway = None if running is None else cluster.gateways.get(running.handle)
        if gateway is None or (not cluster.calm and cluster.random.random() < 0.2):
            return None
        answer = gateway.answer(path, self.store.processes(), cluster.names())
        return failure(404, "") if answer is None else as_json(answer)


class Live:
    """A controller on a crowded cluster, its successors, and the gateways, on a clock of their own."""

    def __init__(self, folder, scenarios, draws):
        self.file, self.scenarios = folder / DATABASE, scenarios
        self.cluster, self.now_s = Crowd(draws), 1000.0
        self.sleeping, self.change = [], None
        self.begin()

    def begin(self):
        self.store = SteadyStore(self.file)
        self.backend = Watched(self.cluster, self)
        self.controller = Alone(self.store, self.backend)

    @property
    def ending(self):
        return self.controller.ending.is_set()

    async def end(self):
        """The controller is killed."""
        if self.change is not None:
            self.change.cancel()
            await asyncio.gather(self.change, return_exceptions=True)
        self.change, self.sleeping = None, []
        self.store.close()

    async def pause(self, seconds):
        wakes = asyncio.get_running_loop().create_future()
        self.sleeping.append((self.now_s + seconds, wakes))
        await wakes

    async def turn(self):
        """A pass of all that looks after processes, and what gateways do meanwhile."""
        self.now_s += TURN_S
        due = [wakes for until_s, wakes in self.sleeping if until_s <= self.now_s]
        self.sleeping = [each for each in self.sleeping if each[1] not in due]
        for wakes in due:
            wakes.set_result(None)
        if self.change is None or self.change.done():
            if self.change is not None:
                self.change.result()
            self.change = asyncio.create_task(self.controller.rolling.go_on())
        self.controller.reconcile()
        await self.controller.check()
        self.cluster.go_on(self.store.processes(), self.controller.plane.orchestrated)
        await self.controller.replicas.step(self.now_s)
        self.controller.reconcile()

    async def do(self, what, which):
        rows = [
            r.process
            for r in self.store.processes()
            if r.process.kind == "gateway" or comes_and_goes(r.process)
        ]
        match what:
            case "want" | "not want" if rows:
                self.store.set_wanted(rows[which % len(rows)].name, what == "want")
            case "fail" | "repair":
                self.store.change_node(("near-0", "near-1")[which % 2], what == "repair")
            case "change":
                with suppress(RunError):  # another one is under way, or a node is down
                    prepare(self.file.parent, self.scenarios[which % 4], given=None).close()
            case "begin anew":
                await self.end()
                self.begin()
        await self.turn()

    def lacking(self):
        """What is not as it is wanted: all that is wanted runs and is ready, and nothing else."""
        rows, down, change = self.store.processes(), self.store.nodes_down(), read_change(self.store)
        here = [r for r in rows if r.process.wanted and r.process.settings.get("node") not in down]
        wanted = {} if self.ending else {str(r.handle): r.process.name for r in here}
        runs = {handle: self.cluster.processes[handle] for handle in self.cluster.running()}
        gone = [r for r in rows if r.process.kind == "replica" and not r.process.wanted]
        return [
            *(f"{wanted[handle]} does not run" for handle in wanted.keys() - runs.keys()),
            *(f"{runs[handle]} is not wanted" for handle in runs.keys() - wanted.keys()),
            *(f"{each} is not ready" for each in runs.values() if not each.ready),
            *(f"{r} is not forgotten" for r in gone),
            *([f"{change} goes on"] if change.open and not self.ending else ()),
        ]


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory):
    """Those that a system may be told to follow."""
    file = tmp_path_factory.mktemp("scenarios") / "shared.yaml"
    found = []
    for each in SCENARIOS:
        file.write_text(yaml.safe_dump(each))
        found.append(load_scenario(file))
    return found


@pytest.fixture(scope="module")
def prepared(tmp_path_factory, scenarios):
    """A folder in which the system was never started; two processes share the port of its gateway."""
    folder = tmp_path_factory.mktemp("prepared") / "live"
    prepare(folder, scenarios[0], gateway_processes=2).close()
    return folder


@contextmanager
def live(folder, scenarios, draws):
    texts = {}

    def read(file):
        text = file.read_text()
        if text not in texts:
            texts[text] = load_scenario(file)
        return texts[text]

    with pytest.MonkeyPatch.context() as patched:
        system = Live(folder, scenarios, draws)
        patched.setattr(clock, "unix_s", lambda: system.now_s)
        patched.setattr(clock, "monotonic_s", lambda: system.now_s)
        patched.setattr(clock, "sleep", system.pause)
        patched.setattr(live_plane, "load_scenario", read)
        patched.setattr(rolling, "backend_of", lambda store: system.backend)
        patched.setattr(replicas, "load", lambda *_: Drawn(system.cluster))
        yield system


DO = ("look",) * 8 + ("want", "not want", "fail", "repair", "repair", "change", "begin anew")


@pytest.mark.parametrize("seed", range(24))
def test_nobody_is_told_to_end_while_a_gateway_uses_it(prepared, scenarios, tmp_path, seed):
    draws = random.Random(seed)
    folder = Path(shutil.copytree(prepared, tmp_path / "live"))

    async def act(system):
        for _ in range(3 * LONGEST):
            await system.turn()
        for _ in range(draws.randrange(HISTORY)):
            await system.do(draws.choice(DO), draws.randrange(12))
        if draws.random() < 0.25:
            system.controller.ending.set()
        system.cluster.calm = True
        for _ in range(SETTLED):
            if not system.lacking():
                break
            await system.turn()
        await system.end()

    with live(folder, scenarios, draws) as system:
        asyncio.run(act(system))
        system.store = store = SteadyStore(system.file)
        assert not system.cluster.early
        assert not system.lacking()
        gateways = [r.process for r in store.processes("gateway")]
        assert len({each.front.port for each in gateways}) == 1
        store.close()
