"""Replicas and jobs of one controller share its nodes: who scales up pushes real jobs out, in one plane."""

import asyncio
import time
from pathlib import Path

import numpy as np
import pytest

from waiting import IN_FILES, becomes

pytest.importorskip("httptools", reason="the extra `live` is not installed")

from job_commands import BEATS, shell, stands_still, state, until, wish

from edgewise import policies
from edgewise.config import load_scenario
from edgewise.core.defer import EvictJob, ResumeJob, StartJob, SuspendJob
from edgewise.core.defer.core import DeferCore
from edgewise.core.keyed import Key
from edgewise.core.ledger import NodeLedger
from edgewise.core.orchestrate.core import OrchestrateCore
from edgewise.core.orchestrate.events import EndReplica, FrameBegan, StartReplica
from edgewise.core.plane import Plane
from edgewise.model.services import services_of
from edgewise.runtime.controller.jobs import LiveJobs
from edgewise.runtime.controller.live_plane import LivePlane
from edgewise.runtime.controller.plan import prepare
from edgewise.runtime.controller.replicas import FRAME, Replicas
from edgewise.runtime.store.jobs import RESTART

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc"),
]
SLOT_S = 0.05
EAST_1, CAMERA = 3, 0
SCRIPT = f"""
{IN_FILES}
from pathlib import Path

from edgewise.core.orchestrate import AddReplica, RemoveReplica, commands_of

class Script:
    name, decision, batched = "script", "orchestrate", True

    def reset(self, world, key):
        self.frames = 0

    def decide(self, view):
        self.frames += 1
        wait_until(lambda: not (Path(__file__).parent / "wait").exists())
        kind = AddReplica if self.frames % 2 else RemoveReplica
        return commands_of([[kind(3, 0)]])
"""


class Controller:
    """What a controller has in one plane, without its processes: replicas by the store alone, real jobs."""

    def __init__(self, folder, policy):
        self.scenario = load_scenario("kais-live", {"policies.orchestrate": policy})
        self.store, self.services = prepare(folder, self.scenario), services_of(self.scenario)
        self.plane = LivePlane(self.store)
        self.jobs = LiveJobs(self.plane, SLOT_S)
        self.replicas = Replicas(self.plane, self.ask, lambda handle: False)
        self.jobs.use("fifo")
        self.frames, self.log = 0, []
        handle = self.plane.handle

        def noted(event, now_s):
            commands = handle(event, now_s)
            self.plane.validate()
            self.log.append((event, now_s, commands))
            return commands

        self.plane.handle = noted
        self.store.put(FRAME, 0)
        asyncio.run(self.replicas.step(0.0))  # a controller that starts again waits for the next frame

    async def ask(self, method, path):
        names = [running.process.name for running in self.store.processes("replica")]
        names += [each.name for each in self.services.workers]
        replicas = {name: {"up": True, "wanted": True, "held": 0} for name in names}
        counted = {name: {"arrived": 0, "dropped": 0} for name in self.services.names}
        answer = {"cloud_delay_s": 0.1, "services": counted, "replicas": replicas}
        return [{"gateway": "gateway-0", "answer": answer}]

    def frame(self):
        """A frame of replicas, and what it did."""
        self.frames += 1
        at = len(self.log)
        asyncio.run(self.replicas.step(self.frames * self.services.spec.frame_s + time.time()))
        for number, running in enumerate(self.store.processes("replica")):
            if running.process.wanted and running.handle is None:
                self.store.started(running.process.name, f"{self.frames}:{number}", 0)
            elif not running.process.wanted:
                self.store.started(running.process.name, None, 0)  # it has ended
        return [command for *_, commands in self.log[at:] for command in commands]


@pytest.fixture
def policy(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    return f"{tmp_path / 'script.py'}:Script"


@pytest.fixture
def controller(tmp_path, policy):
    made = Controller(tmp_path, policy)
    yield made
    for job in made.jobs.book.open():
        made.jobs.processes.stop(job.run, force=True)
        made.jobs.processes.clear(job.run)


def fill_cloud(jobs):
    """A job that has all that is left of the cloud, where most is: others go to nodes near clients."""
    filler = jobs.book.submit(wish(["/bin/sleep", "300"], cores=6.0, key="filler"))
    until(jobs, lambda: state(jobs, filler) == "running")
    assert jobs.book.get(filler.id).node == "cloud"
    return filler


def test_a_scale_up_pushes_jobs_out_and_a_fresh_plane_says_the_same(controller, policy, tmp_path):
    jobs, plane, beats = controller.jobs, controller.plane, tmp_path / "beats"
    filler = fill_cloud(jobs)
    paused = jobs.book.submit(shell(BEATS.format(beats), cores=2.0))
    until(jobs, lambda: state(jobs, paused) == "running" and beats.exists())
    assert jobs.book.get(paused.id).node == "east-1"
    assert controller.frame() == [StartReplica(EAST_1, CAMERA), SuspendJob(paused.id)]
    assert state(jobs, paused) == "suspended"  # at once, not in the next pass
    for _ in range(3):
        jobs.look(time.time())
    assert state(jobs, paused) == "suspended" and stands_still(beats)
    size = beats.stat().st_size
    controller.frame()  # the replica goes, and its process ends
    until(jobs, lambda: state(jobs, paused) == "running" and beats.stat().st_size > size)
    jobs.book.cancel(paused.id)
    again = jobs.book.submit(wish(["/bin/sleep", "300"], cores=2.0, key="again", when_evicted=RESTART))
    until(jobs, lambda: state(jobs, again) == "running" and jobs.book.get(again.id).node == "east-1")
    jobs.book.cancel(filler.id)
    until(jobs, lambda: state(jobs, filler) == "cancelled")
    assert controller.frame() == [StartReplica(EAST_1, CAMERA), EvictJob(again.id)]
    until(jobs, lambda: state(jobs, again) == "running" and jobs.book.get(again.id).attempt == 1)
    assert jobs.book.get(again.id).node == "cloud"
    kinds = {type(command) for *_, commands in controller.log for command in commands}
    assert kinds == {StartReplica, EndReplica, StartJob, SuspendJob, ResumeJob, EvictJob}

    services, ledger = controller.services, NodeLedger(())
    script = policies.load("orchestrate", policy)
    script.reset(services.system, Key(0))
    most = services.spec.nodes_per_frame
    replicas = OrchestrateCore(services.system, services.holds, script, ledger, services.nodes, None, most)
    fifo = DeferCore(jobs.core.world, ledger, policies.load("defer", "fifo"))
    fresh = Plane(ledger, {"orchestrate": replicas, "defer": fifo})
    for event, now_s, commands in controller.log:
        event = event._replace(changes=None) if isinstance(event, FrameBegan) else event  # asked anew
        assert fresh.handle(event, now_s) == commands
        fresh.validate()
    assert ledger.reservations == plane.ledger.reservations
    assert np.array_equal(ledger.left_over(), plane.ledger.left_over())


def test_jobs_go_on_while_the_policy_of_replicas_thinks(controller, tmp_path):
    jobs, thinks = controller.jobs, tmp_path / "wait"
    fill_cloud(jobs)
    thinks.touch()

    async def run():
        frame = asyncio.create_task(controller.replicas.step(time.time()))
        job = jobs.book.submit(wish(["/bin/sleep", "300"], cores=2.0))
        await becomes(lambda: jobs.look(time.time()) or state(jobs, job) == "running")
        assert not frame.done()
        thinks.unlink()
        await frame
        return job

    job = asyncio.run(run())
    assert controller.replicas.fault == ""
    assert controller.log[-1][2] == [StartReplica(EAST_1, CAMERA), SuspendJob(job.id)]
    assert state(jobs, job) == "suspended"
