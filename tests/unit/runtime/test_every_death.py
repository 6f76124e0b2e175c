"""The controller dies before each change of the disk that it makes, with all five kinds of work running.

What is done is done once for each of its changes, until none is left: a controller begins anew on the same
files and the same processes, and whoever was not answered asks again. Nothing that was accepted is lost, no
job is begun twice, and in the end there runs what is wanted, once, and nothing else.
Processes are played here; `tests/blackbox/test_killed_between_writes.py` kills real ones.
"""

import asyncio
import copy
import json
import shutil
from functools import partial
from pathlib import Path
from typing import get_args

import pytest
import yaml

pytest.importorskip("msgspec", reason="the extra `live` is not installed")

import msgspec
from played_machine import TURN_S, Death, PlayedBackend, PlayedMachine, PlayedPipelines

from edgewise.config import load_scenario
from edgewise.model.pipelines import Pipeline
from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.report.timeline import timelines, tracks_of
from edgewise.run.live import live_run
from edgewise.runtime import clock
from edgewise.runtime.controller import live_plane, pipelines as live_pipelines, upkeep
from edgewise.runtime.controller.controller import Controller
from edgewise.runtime.controller.plan import DATABASE, prepare
from edgewise.runtime.http.messages import HttpRequest, Response
from edgewise.runtime.pipelines.live import LivePipeline
from edgewise.runtime.protocol import shown_bodies
from edgewise.runtime.protocol.openapi import document
from edgewise.runtime.store.database import Database
from edgewise.runtime.store.steady import SteadyStore
from faulty_disk import played

SCENARIO = """
name: all-work
duration_s: 60
telemetry: {period_s: 1, lag_s: 0.1}
catalog: {use: detection}
clusters:
  - name: near
    tier: 0
    nodes: [{name: near, count: 2, resources: {cpu_cores: 8, memory_bytes: 8GB}, speed_ops: 1.0e11}]
  - {name: cloud, tier: 1, nodes: [{name: cloud, resources: {cpu_cores: 16, memory_bytes: 32GB}}]}
sites: [{name: here, cluster: near, access_delay_s: 1ms, uplink_bps: 200Mbps}]
links:
  - {site: "*", cluster: own, delay_s: 0.5ms, over: lan}
  - {site: "*", cluster: cloud, delay_s: 25ms, over: lan}
  - {name: lan, bandwidth_bps: 1Gbps}
  - {between: [near, near], bandwidth_bps: 1Gbps, shared: both}
  - {between: [near-0, near-1], bandwidth_bps: 1Gbps, shared: both}
workers:
  - {variant: mobilenet-ssd-cpu1, cluster: near, count: 1}
  - {variant: tiny-yolov2-cpu1, cluster: cloud, count: 1}
streams:
  applications: [{name: any, task: detection, rate_qps: 1, size_bytes: 30kB, deadline_s: 1, length_s: 10}]
  arrivals: {clients_per_min: 1}
policies: {requests: deadline-queue, orchestrate: autoscaler}
services:
  cloud: cloud
  frame_s: 1
  slot_s: 10ms
  offered: [{variant: tiny-yolov2-cpu1, deadline_s: 400ms, answer_bytes: 10kB, initial: 1}]
  requests: {rate_qps: 30, service_s: 49.5ms, slack: [2, 6], payload_bytes: 50kB}
graphs: [{name: inception, network: inception-v1, rate_qps: 4, cpu_cores: 1, memory_bytes: 200MB}]
pipelines: [{generate: recognition, name: entrance, count: 1, rate_qps: 0.05, length_s: 25}]
jobs: {slot_s: 1, submitted: [{name: index, cores: 1, memory_bytes: 1GB, duration_s: 10, latest_s: 60}]}
"""
GRAPH = TaskGraph("cam", (Task("first", 1e8, 1e6), Task("second", 1e8, 1e6)), (Edge("first", "second", 1e3),))
PIPELINE = msgspec.to_builtins(LivePipeline(Pipeline("cam", GRAPH, "near-0", 1e3, 1e6)))
LONG = 400  # turns


def scenario_of(file, data):
    file.write_text(yaml.safe_dump(data))
    return load_scenario(file)


class Alone(Controller):
    """A controller whose gateways are played: they have all replicas up that run."""

    async def ask_gateways(self, method, path):
        service = "tiny-yolov2-cpu1"
        replicas = {
            r.process.name: {"service": service, "up": True, "wanted": r.process.wanted, "held": 0}
            for r in self.store.processes("replica")
            if r.handle is not None
        }
        answers = {
            "/v1/admin/replicas": {
                "policy": "", "fault": "", "faults": {}, "cloud_delay_s": 0.03,
                "services": {service: {"arrived": 0, "dropped": 0}}, "replicas": replicas,
            },
        }  # fmt: skip
        return [{"gateway": "gateway-0", "answer": answers[path]}] if path in answers else []

    async def answer_of(self, of, method, path, body=b"", timeout_s=1.0):
        return Response(200, b"[]") if of.port in self.backend.machine.holders() else None


class Live:
    """A controller on a folder, and its successors, by the machine's clock."""

    def __init__(self, folder, machine):
        self.file, self.machine = folder / DATABASE, machine
        self.begin()

    def begin(self):
        """As `controller.main` does; one that dies meanwhile is followed by another."""
        while True:
            try:
                self.store = SteadyStore(self.file)
                self.store.put("began_s", self.store.get("began_s", clock.unix_s()))
                self.store.put("controller_handle", None)
                self.store.begin_run()
                self.controller = Alone(self.store, PlayedBackend(self.machine))
                self.passes = [p for p in self.controller.passes().values() if p.name != "copies"]
                return
            except Death:
                self.bury()

    def bury(self):
        Database.close(self.store)  # without a last write; SQLite undoes what is half done
        self.machine.let_go()

    async def again(self):
        mine = asyncio.all_tasks() - {asyncio.current_task()}
        for task in mine:
            task.cancel()
        await asyncio.gather(*mine, return_exceptions=True)
        self.bury()
        self.begin()

    async def turn(self):
        """All that is due is done; what waits for others has ended."""
        self.machine.now_s += TURN_S
        try:
            for each in self.passes:
                if clock.monotonic_s() >= each.due_s:
                    each.due_s = clock.monotonic_s() + each.period_s
                    if (rest := each.step()) is not None:
                        await rest
                    await asyncio.sleep(0)
                    self.machine.acting()
        except Death:
            await self.again()

    async def until(self, is_so):
        for _ in range(LONG):
            if is_so():
                return
            await self.turn()
        raise AssertionError("it does not come about")

    async def ask(self, method, path, body=None):
        """By the rule: whoever is not answered asks again."""
        data = b"" if body is None else json.dumps(body).encode()
        while True:
            try:
                answer = await self.controller.handle(HttpRequest(method, path, {}, data))
                self.machine.acting()
                assert answer.status < 400, answer.body
                return json.loads(answer.body)
            except Death:
                await self.again()

    def whole(self):
        """Whether all that is wanted runs."""
        rows, living = self.store.processes(), self.machine.living()
        return all((r.handle in living) == r.process.wanted for r in rows) and not self.store.retired()


# what is done


def job_of(live, key, **more):
    wish = {"key": key, "command": ["true"], "folder": "/", "duration_s": 2.0, "cores": 1.0,
            "latest_s": live.machine.now_s + 60.0}  # fmt: skip
    return live.ask("POST", "/v1/admin/jobs", wish | more)


async def job(live):
    """It is submitted, and ends."""
    number = (await job_of(live, "one"))["id"]
    await live.until(lambda: live.store.jobs.get(number).ended_s)
    kept = live.store.jobs.get(number)
    assert (kept.state, live.machine.begun[kept.run]) == ("done", 1)
    assert [each.key for each in live.store.jobs.listed()] == ["one"]


async def job_taken_back(live):
    """It is submitted, runs, and is cancelled."""
    number = (await job_of(live, "one", duration_s=1000.0))["id"]
    await live.until(lambda: live.store.jobs.get(number).state == "running")
    await live.ask("DELETE", f"/v1/admin/jobs/{number}")
    await live.until(lambda: live.store.jobs.get(number).ended_s)
    kept = live.store.jobs.get(number)
    assert (kept.state, live.machine.begun[kept.run]) == ("cancelled", 1)


async def job_of_a_node_that_fails(live):
    """It may begin anew, and ends elsewhere: each attempt is begun once."""
    number = (await job_of(live, "one", duration_s=4.0, cores=3.0, when_evicted="restart"))["id"]
    await live.until(lambda: live.store.jobs.get(number).state == "running")
    node = live.store.jobs.get(number).node
    await live.ask("PUT", f"/v1/nodes/{node}", {"up": False})
    await live.until(lambda: live.store.jobs.get(number).ended_s)
    kept = live.store.jobs.get(number)
    assert kept.state == "done" and kept.node != node
    runs = [run for run in live.machine.begun if isinstance(run, str)]
    assert runs and all(live.machine.begun[run] == 1 for run in runs)
    await live.ask("PUT", f"/v1/nodes/{node}", {"up": True})
    await live.until(live.whole)


async def pipeline(live):
    """It is submitted, does frames, and is ended."""
    number = (await live.ask("POST", "/v1/admin/pipelines", {"key": "one", "live": PIPELINE}))["id"]
    await live.until(lambda: live.controller.pipelines.get(number).frames > 2)
    await live.ask("DELETE", f"/v1/admin/pipelines/{number}")
    await live.until(lambda: live.store.pipelines.get(number).ended_s and number not in live.machine.tasks)
    assert len(live.store.pipelines.listed()) == 2  # with the one that runs all the time


async def worker(live):
    """It is drained and ended, and comes back."""
    name = next(r.process.name for r in live.store.processes("worker"))
    for wanted in (False, True):
        await live.ask("PUT", f"/v1/workers/{name.replace('#', '%23')}", {"wanted": wanted})
        await live.until(live.whole)


async def server(live):
    """A server of a split model dies, and comes back."""
    row = next(r for r in live.store.processes("worker") if r.process.settings["split"])
    live.machine.processes[row.handle].alive = False
    await live.until(lambda: live.whole() and live.store.process(row.process.name).handle != row.handle)


async def node(live):
    """It fails with all that runs there, and is back."""
    for up in (False, True):
        await live.ask("PUT", "/v1/nodes/near-1", {"up": up})
        here = [r for r in live.store.processes() if r.process.settings.get("node") == "near-1"]
        assert here
        await live.until(
            lambda up=up: all(
                (r.handle in live.machine.living()) == up
                for r in live.store.processes()
                if r.process.settings.get("node") == "near-1" and r.process.wanted
            )
        )
    await live.until(live.whole)


async def replica(live):
    """It is taken away, and forgotten once it has ended; in the same turn a new one may get its name."""
    name = live.store.processes("replica")[0].process.name
    await live.ask("PUT", f"/v1/workers/{name.replace('#', '%23')}", {"wanted": False})

    def gone():
        row = live.store.process(name)
        return row is None or row.process.wanted

    await live.until(lambda: gone() and live.whole())


DOES = [job, job_taken_back, job_of_a_node_that_fails, pipeline, worker, server, node, replica]


SCENARIOS = {}


def _loaded(text, file):
    """Each successor reads the scenario, which takes most of the time of all else together."""
    if text not in SCENARIOS:
        SCENARIOS[text] = load_scenario(file)
    return SCENARIOS[text]


@pytest.fixture
def by_the_machine(monkeypatch):
    """The clocks and processes that the controller sees are of the machine that is said."""

    def of(machine):
        async def pause(seconds):
            machine.now_s += seconds
            machine.acting()
            await asyncio.sleep(0)

        monkeypatch.setattr(live_plane, "load_scenario", lambda file: _loaded(file.read_text(), file))
        monkeypatch.setattr(clock, "unix_s", lambda: machine.now_s)
        monkeypatch.setattr(clock, "monotonic_s", lambda: machine.now_s)
        monkeypatch.setattr(clock, "sleep", pause)
        monkeypatch.setattr(live_pipelines, "PipelineTasks", partial(PlayedPipelines, machine))
        monkeypatch.setattr(upkeep, "holders", lambda folder: machine.holders())
        monkeypatch.setattr(upkeep, "handle_of", lambda handle: handle)
        monkeypatch.setattr(upkeep, "ThisMachine", lambda: PlayedBackend(machine))

    return of


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder in which the system was never started."""
    folder = tmp_path_factory.mktemp("prepared") / "live"
    prepare(folder, scenario_of(folder.with_suffix(".yaml"), yaml.safe_load(SCENARIO))).close()
    return folder


@pytest.fixture
def running(prepared, by_the_machine, tmp_path):
    """A folder and machine where all runs, with a pipeline and a job that goes on; to be copied."""
    machine = PlayedMachine()
    by_the_machine(machine)
    folder = Path(shutil.copytree(prepared, tmp_path / "running"))

    async def begin():
        live = Live(folder, machine)
        await live.until(live.whole)
        kept = await live.ask("POST", "/v1/admin/pipelines", {"key": "stays", "live": PIPELINE})
        await live.until(lambda: live.store.pipelines.get(kept["id"]).state == "running")
        for path in document("controller")["paths"]:
            if "{" not in path and "get" in document("controller")["paths"][path]:
                await live.controller.handle(HttpRequest("GET", path, {}, b""))
        return live

    live = asyncio.run(begin())
    live.store.close()
    machine.let_go()
    return folder, machine


def once(folder, machine, does, before):
    """Do something with a controller that dies before a change; whether it was done without a death."""
    machine.changes, machine.before = 0, before

    async def act():
        live = Live(folder, machine)
        await does(live)
        alive, machine.before = machine.changes < before, 0
        await settle(live)
        live.store.close()
        return alive

    with played(machine.changing):
        return asyncio.run(act())


async def settle(live):
    """In the end there runs what is wanted, once, and nothing else."""
    machine = live.machine
    await live.controller.upkeep.go_on()
    await live.until(lambda: live.whole() and machine.tasks)
    rows = live.store.processes()
    assert machine.living() == sorted(r.handle for r in rows if r.process.wanted)
    assert all(machine.processes[r.handle].name == r.process.name for r in rows if r.handle)
    assert list(machine.tasks) == [kept.id for kept in live.store.pipelines.open()] == [1]
    assert not any(count for each, count in machine.begun.items() if isinstance(each, tuple))


@pytest.mark.parametrize("does", DOES, ids=lambda does: does.__name__)
def test_the_controller_dies_before_each_change_of_the_disk(running, by_the_machine, tmp_path, does):
    folder, machine = running
    for before in range(1, 1000):
        copied, other = Path(shutil.copytree(folder, tmp_path / "copy")), copy.deepcopy(machine)
        by_the_machine(other)
        if once(copied, other, does, before):
            break
        shutil.rmtree(copied)
    assert 3 < before < 999


# what is answered


def whole_as(convert, value, kind, **more):
    """As `msgspec.convert`, which leaves out what a type does not name: of what is shown nothing is."""
    found = convert(value, kind, **more)
    shown = getattr(next(iter(get_args(kind)), kind), "__module__", None) == shown_bodies.__name__
    assert not shown or msgspec.to_builtins(found) == msgspec.to_builtins(value), kind
    return found


def test_what_a_whole_system_answers_is_as_its_document_says(running, monkeypatch):
    jsonschema = pytest.importorskip("jsonschema_rs")
    folder, _ = running
    monkeypatch.setattr(msgspec, "convert", partial(whole_as, msgspec.convert))
    paths, schemas = document("controller")["paths"], document("controller")["components"]

    async def asked():
        live = Live(folder, running[1])
        await live.until(lambda: live.whole() and live.machine.tasks)
        number = (await job_of(live, "one"))["id"]
        names = {"decision": "defer", "job": number, "pipeline": 1}
        found = {}
        for path, operations in paths.items():
            if "get" in operations and not path.startswith(("/metrics", "/v1/operations/")):
                shape = operations["get"]["responses"]["200"]["content"].get("application/json")
                if shape is not None:
                    found[path] = shape["schema"], await live.ask("GET", path.format(**names))
        live.store.close()
        return found

    found = asyncio.run(asked())
    for path, (schema, answer) in found.items():
        validator = jsonschema.Draft202012Validator(schema | {"components": schemas})
        assert not [str(each) for each in validator.iter_errors(answer)], path
    for path in ("/v1/status", "/v1/workers", "/v1/gateways", "/v1/nodes", "/v1/policies"):
        assert found[path][1], path


# what is written down


def test_the_time_line_of_a_live_folder_shows_flows_on_links(running, tmp_path):
    """The two tasks of a pipeline do not fit on one node, so what goes from one to the other holds a link."""
    folder, machine = running
    wide = TaskGraph("wide", (Task("one", 1e8, 4.2e9), Task("two", 1e8, 4.2e9)), (Edge("one", "two", 1e3),))
    wish = msgspec.to_builtins(LivePipeline(Pipeline("wide", wide, "near-0", 1e3, 1e6)))

    async def act():
        live = Live(folder, machine)
        await live.until(live.whole)
        since_s = dict.fromkeys(live.store.get("policies since"), machine.now_s)
        live.store.put("policies since", since_s)  # the folder was prepared by another clock
        kept = await live.ask("POST", "/v1/admin/pipelines", {"key": "wide", "live": wish})
        await live.until(lambda: live.store.pipelines.get(kept["id"]).state == "running")
        for _ in range(40):
            await live.turn()
        owner = f"pipeline {kept['id']}"
        held = [what for _, what in live.store.records.held() if what.owner == owner]
        live.controller.holds.end(machine.now_s)
        live.store.end()
        live.store.close()
        return owner, held

    owner, held = asyncio.run(act())
    assert {what.place for what in held} >= {"near-0 – near-1"}
    lived = live_run(folder)
    (policy,), (seed,) = {row["policy"] for row in lived.use["holds"].to_pylist()}, lived.seeds
    tracks, edges = tracks_of(lived.use, policy, seed)
    track = next(each for each in tracks["links"] if each.name == "near-0 – near-1")
    (bps,) = [what.bps for what in held if what.bps > 0.0]
    assert track.bands.keys() == {"pipelines"}
    assert max(track.bands["pipelines"]) == pytest.approx(bps / 1e9)
    assert "links" in timelines(lived.use, policy, seed)
