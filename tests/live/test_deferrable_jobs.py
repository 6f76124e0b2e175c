"""Deferrable jobs as real processes: started once whatever dies, suspended for inference, ended, kept."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from waiting import IN_FILES, becomes, pace, wait_until

pytest.importorskip("httptools", reason="the extra `live` is not installed")

from job_commands import BEATS, HANG_S, shell, stands_still, state, until, wish
from running_system import infer, open_stream, small_scenario, started

from edgewise import policies
from edgewise.cli import app
from edgewise.config import dump_scenario, load_scenario
from edgewise.core.defer.core import DeferCore
from edgewise.core.ledger import NodeLedger
from edgewise.core.plane import Plane
from edgewise.errors import PolicyError, ProtocolError
from edgewise.model.parsing import parse_scenario
from edgewise.model.topology import Resources
from edgewise.policies import registry
from edgewise.policies.defer import ScoreDeferral
from edgewise.run.too_much import refuse_too_much
from edgewise.runtime import http
from edgewise.runtime.backends.jobs import JobStage, SeenStage
from edgewise.runtime.clients import recording
from edgewise.runtime.clients.reaching import ask, operator
from edgewise.runtime.controller import job_runner, jobs as live_jobs, requests
from edgewise.runtime.controller.job_processes import JobProcesses
from edgewise.runtime.controller.jobs import LiveJobs
from edgewise.runtime.controller.live_plane import LivePlane
from edgewise.runtime.controller.pipelines import LivePipelines
from edgewise.runtime.controller.plan import DATABASE, prepare
from edgewise.runtime.controller.reconcile import Pass, reconcile
from edgewise.runtime.process.machine import alive_handle, handle_of
from edgewise.runtime.store import SHADOWS, Store
from edgewise.runtime.store.jobs import PAUSE, RESTART

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc"),
]
SLOT_S = 0.05


@pytest.fixture
def folder(tmp_path):
    """A prepared system: nodes of 9 cores; two workers of 1 core on near-node, one on far-node."""
    prepare(tmp_path / "live", small_scenario()).close()
    return tmp_path / "live"


@pytest.fixture
def jobs(folder):
    made = LiveJobs(LivePlane(Store(folder / DATABASE)), SLOT_S)
    yield made
    for job in made.book.open():
        made.processes.stop(job.run, force=True)
        made.processes.clear(job.run)


def test_jobs_use_a_node_that_was_added_while_the_system_runs(jobs, folder):
    too_large = Resources(cpu_cores=20)
    assert not any(jobs_fit(jobs, too_large))
    data = yaml.safe_load(dump_scenario(small_scenario()))
    data["clusters"][0]["nodes"].insert(0, {"name": "large", "resources": {"cpu_cores": 32}})
    prepare(folder, parse_scenario(data, "larger")).close()
    assert list(jobs_fit(jobs, too_large)) == ["large"]


def jobs_fit(jobs, needs):
    """Names of nodes with room, as the jobs see them."""
    jobs.plane.listen(time.time())
    ledger = jobs.plane.ledger
    return (node.name for node in ledger.there if ledger.fits(node.name, needs))


def test_jobs_run_and_say_how_they_ended(jobs):
    good = jobs.book.submit(shell("echo out; echo err >&2; echo $EDGEWISE_JOB"))
    bad = jobs.book.submit(shell("exit 3"))
    none = jobs.book.submit(wish(["/no/such/program"]))
    killed = jobs.book.submit(shell("kill -9 $$"))
    until(jobs, lambda: not jobs.book.open())
    found = {job.id: (job.state, job.why) for job in jobs.book.listed()}
    assert found[good.id] == ("done", "exit status 0")
    assert found[bad.id] == ("failed", "exit status 3")
    assert found[none.id] == ("failed", "exit status 127")
    assert found[killed.id] == ("failed", "ended by signal 9")
    assert jobs.processes.output(good.id).read_text().split() == ["out", "err", str(good.id)]
    assert "/no/such/program" in jobs.processes.output(none.id).read_text()


def test_two_runners_start_a_command_once_and_a_forbidden_one_never(tmp_path):
    count = tmp_path / "count"
    settings = {
        "command": ["/bin/sh", "-c", f"echo x >> {count}"], "environment": {}, "processors": [0], "group": "",
    }  # fmt: skip
    command = [sys.executable, "-I", "-S", job_runner.__file__]
    for k in range(5):
        place = tmp_path / str(k)
        place.mkdir()
        runners = [subprocess.Popen([*command, place, json.dumps(settings)]) for _ in range(4)]
        assert [runner.wait() for runner in runners] == [0] * 4
        assert count.read_text() == "x\n" * (k + 1)
    processes = JobProcesses(tmp_path)
    assert processes.forbid("9") and processes.look("9") == SeenStage(JobStage.FORBIDDEN)
    subprocess.run([*command, tmp_path / "jobs" / "9", json.dumps(settings)], check=True)
    assert count.read_text() == "x\n" * 5


class Dying:
    """Passes calls on and kills this process at the n-th one, before or after it."""

    def __init__(self, inner, deaths):
        self._inner, self._deaths = inner, deaths

    def __getattr__(self, name):
        method = getattr(self._inner, name)

        def call(*args, **more):
            self._deaths.pass_one()
            result = method(*args, **more)
            self._deaths.pass_one()
            return result

        return call


class Deaths:
    def __init__(self, after):
        self.left = after

    def pass_one(self):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def controller(folder, after, done=lambda jobs: not jobs.book.open()):
    """A process that keeps the jobs of a folder until done, and dies at the given call; how it ended."""
    number = os.fork()
    if number == 0:
        try:
            keep(folder, after, done)
            os._exit(0)
        except BaseException as error:
            os.write(2, repr(error).encode())
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


def keep(folder, after, done):
    deaths = Deaths(after)
    jobs = LiveJobs(LivePlane(Store(folder / DATABASE)), SLOT_S, Dying(JobProcesses(folder), deaths))
    jobs.book = Dying(jobs.book, deaths)
    until(jobs, lambda: done(jobs))


def test_a_controller_that_dies_at_any_call_starts_every_job_once(folder, tmp_path):
    """kill -9 between any two steps on the store and on processes, one after the other, then to the end."""
    began_s, points = time.monotonic(), 0
    for after in [*range(1, 40), *random.Random(3).sample(range(40, 120), 8)]:
        if time.monotonic() - began_s > HANG_S / 2 and points >= 25:
            break  # a slow machine
        book, count = Store(folder / DATABASE).jobs, tmp_path / f"count-{after}"
        for k in range(2):
            book.submit(shell(f"echo {k} >> {count}", key=f"{after}-{k}"))
        book.db.close()
        died = controller(folder, after)
        assert died in (0, -signal.SIGKILL)
        assert controller(folder, 10**9) == 0
        assert sorted(count.read_text().split()) == ["0", "1"], after
        points += died != 0
    assert points >= 25
    book = Store(folder / DATABASE).jobs
    assert {job.state for job in book.listed()} == {"done"}


def ends(handle):
    wait_until(lambda: not alive_handle(handle), limit_s=HANG_S)


def handle_when_running(jobs, job):
    until(jobs, lambda: jobs.processes.command(job.run) and state(jobs, job) == "running")
    return jobs.processes.command(job.run)


@pytest.mark.parametrize("when_evicted", [PAUSE, RESTART])
def test_what_outlives_its_runner_is_ended_and_starts_anew_only_where_it_may(jobs, tmp_path, when_evicted):
    begun = tmp_path / "begun"
    text = f"echo $$ >> {begun}; test $(wc -l < {begun}) = 2 || sleep 300 & wait"
    job = jobs.book.submit(shell(text, when_evicted=when_evicted))
    until(jobs, lambda: state(jobs, job) == "running" and begun.exists() and begun.read_text())
    command = handle_of(int(begun.read_text()))
    os.kill(int(jobs.processes.runner(job.run).split(":")[0]), signal.SIGKILL)
    until(jobs, lambda: not jobs.book.open())
    found = jobs.book.get(job.id)
    assert not alive_handle(command)
    if when_evicted == RESTART:
        assert (found.state, found.attempt, len(begun.read_text().split())) == ("done", 1, 2)
    else:
        assert (found.state, found.attempt, len(begun.read_text().split())) == ("failed", 0, 1)
        assert "killed" in found.why


def test_a_job_whose_files_cannot_be_made_or_read_holds_up_no_other(jobs, tmp_path, monkeypatch):
    monkeypatch.setattr(live_jobs, "BEGIN_S", 0.2)
    monkeypatch.setattr(live_jobs, "END_S", 0.5)
    going = jobs.book.submit(wish(["/bin/sleep", "300"]))
    handle = handle_when_running(jobs, going)
    started = jobs.processes.folder / going.run / "started"
    started.unlink()
    started.mkdir()  # whoever opens it fails, otherwise than where there is nothing
    (jobs.processes.folder / str(going.id + 1)).touch()
    unmade = jobs.book.submit(shell("echo"))
    until(jobs, lambda: state(jobs, unmade) == "failed")
    assert "File exists" in jobs.book.get(unmade.id).why
    assert jobs.book.get(unmade.id).started_s is None
    good = jobs.book.submit(shell("echo"))
    until(jobs, lambda: state(jobs, good) == "done")
    assert state(jobs, going) == "running"
    asyncio.run(asyncio.wait_for(jobs.end(), HANG_S))
    os.killpg(int(handle.split(":")[0]), signal.SIGKILL)


def test_the_end_ends_jobs_whatever_their_store_is(jobs, folder):
    job = jobs.book.submit(shell("trap '' TERM; while true; do sleep 0.05; done"))
    handle = handle_when_running(jobs, job)
    (folder / DATABASE).write_text("no database")
    asyncio.run(asyncio.wait_for(jobs.end(), HANG_S))
    assert not alive_handle(handle)
    jobs.book.open = list  # for the fixture's end


def test_a_worker_that_comes_back_suspends_jobs_until_it_goes(folder, tmp_path):
    store = Store(folder / DATABASE)
    jobs = LiveJobs(LivePlane(store), SLOT_S)
    names = [worker.name for worker in jobs.plane.scenario.topology.workers]
    far = next(worker for worker in jobs.plane.scenario.topology.workers if worker.node == "far-node")
    beats = tmp_path / "beats"
    near = fill_near(jobs)
    store.set_wanted(far.name, False)
    job = jobs.book.submit(shell(BEATS.format(beats), cores=9.0))  # all of far-node
    until(jobs, lambda: state(jobs, job) == "running" and beats.exists())
    assert jobs.book.get(near.id).node == "near-node" and len(names) == 3
    store.set_wanted(far.name, True)
    until(jobs, lambda: state(jobs, job) == "suspended")
    stood_s, size = time.time(), beats.stat().st_size
    assert stands_still(beats) and state(jobs, near) == "running"
    stood_s = time.time() - stood_s
    store.set_wanted(far.name, False)
    until(jobs, lambda: state(jobs, job) == "running" and beats.stat().st_size > size)
    assert jobs.book.get(job.id).suspended_s >= stood_s
    for number in (job.id, near.id):
        jobs.book.cancel(number)
    until(jobs, lambda: not jobs.book.open())
    assert {found.state for found in jobs.book.listed()} == {"cancelled"}
    store.close()


def test_priority_goes_first_and_a_job_without_room_is_lost(jobs, tmp_path):
    order = tmp_path / "order"
    fill_near(jobs)
    second = jobs.book.submit(wish(["/bin/sleep", "300"], cores=8.0))
    until(jobs, lambda: state(jobs, second) == "running")  # now no core is free
    low = jobs.book.submit(shell(f"echo low >> {order}", cores=8.0))
    high = jobs.book.submit(shell(f"echo high >> {order}; sleep 0.2", cores=8.0, priority=5))
    late = jobs.book.submit(shell(f"echo late >> {order}", cores=8.0, latest_s=time.time() + 0.5))
    until(jobs, lambda: state(jobs, late) == "lost")
    assert {state(jobs, low), state(jobs, high)} == {"waiting"}
    jobs.book.cancel(second.id)
    until(jobs, lambda: state(jobs, low) == "done")
    assert order.read_text().split() == ["high", "low"]


def fill_near(jobs):
    """A job that has all cores of near-node: those of far-node, which are more, are kept for a larger one."""
    filler = jobs.book.submit(wish(["/bin/sleep", "300"], cores=7.0, key="filler"))
    at_s = time.time() + 500.0
    larger = jobs.book.submit(wish(["/bin/true"], cores=8.0, key="larger", earliest_s=at_s))
    until(jobs, lambda: state(jobs, filler) == "running")
    jobs.book.cancel(larger.id)
    until(jobs, lambda: state(jobs, larger) == "cancelled")
    assert jobs.book.get(filler.id).node == "near-node"
    return filler


def far_worker(jobs):
    """The one worker on far-node, of a core."""
    return next(w.name for w in jobs.plane.scenario.topology.workers if w.node == "far-node")


def test_a_relative_state_and_a_job_of_another_folder(folder, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    relative = LiveJobs(LivePlane(Store(Path("live") / DATABASE)), SLOT_S)
    job = relative.book.submit(shell("pwd"))  # runs in /
    until(relative, lambda: not relative.book.open())
    assert relative.book.get(job.id).why == "exit status 0"
    assert relative.processes.output(job.id).read_text() == "/\n"


def test_a_policy_of_a_file_is_found_from_everywhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    store = prepare(Path("live"), small_scenario(), given={"dispatch": "mine.py:Mine"})
    assert store.policy("dispatch") == f"{tmp_path}/mine.py:Mine" and store.file.is_absolute()
    store.close()


def test_a_runner_that_dies_before_its_command_fails_the_job_in_the_end(jobs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    jobs.processes.folder = Path("live/jobs")  # which a runner that begins in / does not find
    job = jobs.book.submit(shell("echo"))
    until(jobs, lambda: not jobs.book.open())
    found = jobs.book.get(job.id)
    assert (found.state, found.deaths, found.started_s) == ("failed", 3, None)
    assert "died 3 times before it could start: FileNotFoundError" in found.why
    text = jobs.processes.output(job.id).read_text()
    assert text.count("Traceback") == 3  # and no more were tried
    ended_s = found.ended_s - found.submitted_s
    assert ended_s > 0.1 + 0.2  # later each time


@pytest.mark.parametrize("dies", [True, False])
def test_a_job_past_its_latest_start_is_lost_whatever_its_runner_does(jobs, tmp_path, monkeypatch, dies):
    monkeypatch.chdir(tmp_path)
    if dies:
        jobs.processes.folder = Path("live/jobs")
    else:  # it stops itself before its interpreter is up
        (script := tmp_path / "stops").write_text(f'#!/bin/sh\nkill -STOP $$\nexec {sys.executable} "$@"\n')
        script.chmod(0o700)
        monkeypatch.setattr(sys, "executable", str(script))
    job = jobs.book.submit(shell(f"touch {tmp_path}/ran", latest_s=time.time() + 100.0))
    until(jobs, lambda: jobs.processes.runner(job.run))
    runner = jobs.processes.runner(job.run)
    if dies:
        ends(runner)
        jobs.look(time.time())
    for late_s in (101.0, 106.5, 107.0):
        jobs.look(time.time() + late_s)
    found = jobs.book.get(job.id)
    assert (found.state, found.node) == ("lost", "far-node")
    assert "before its runner began" in found.why
    assert not alive_handle(runner) and not (tmp_path / "ran").exists()


def test_a_suspended_job_goes_on_before_later_ones_start_on_its_node(jobs):
    """far-node has 9 cores: its worker takes 1, or none."""
    jobs.use("fifo")
    far, store = far_worker(jobs), jobs.store
    fill_near(jobs)
    store.set_wanted(far, False)
    old = jobs.book.submit(wish(["/bin/sleep", "300"], cores=9.0))
    until(jobs, lambda: state(jobs, old) == "running")
    store.set_wanted(far, True)
    until(jobs, lambda: state(jobs, old) == "suspended")
    stood_s = time.time()
    small = jobs.book.submit(wish(["/bin/sleep", "300"], cores=2.0))
    until(jobs, lambda: state(jobs, small) == "running")  # inference keeps the old one from its node anyway
    store.set_wanted(far, False)
    later = [jobs.book.submit(wish(["/bin/true"], key=str(k))) for k in range(3)]
    for k in range(6):  # in so many slots others are started
        urgent = jobs.book.submit(wish(["/bin/true"], key=f"urgent {k}", priority=1))
        until(jobs, lambda job=urgent: state(jobs, job) == "done")
    assert {state(jobs, job) for job in later} == {"waiting"} and state(jobs, old) == "suspended"
    assert jobs.book.get(old.id).ran_s(time.time()) <= stood_s - jobs.book.get(old.id).started_s
    jobs.book.cancel(small.id)
    until(jobs, lambda: state(jobs, old) == "running")
    assert {state(jobs, job) for job in later} == {"waiting"}
    jobs.book.cancel(old.id)
    until(jobs, lambda: {state(jobs, job) for job in later} == {"done"})


def test_a_suspended_job_keeps_its_memory(jobs):
    far, store = far_worker(jobs), jobs.store
    store.set_wanted(far, False)
    big = jobs.book.submit(wish(["/bin/sleep", "300"], cores=9.0, memory_bytes=6e9))  # of 8 GB
    until(jobs, lambda: state(jobs, big) == "running")
    store.set_wanted(far, True)
    until(jobs, lambda: state(jobs, big) == "suspended")
    filler = jobs.book.submit(wish(["/bin/sleep", "300"], cores=7.0))
    until(jobs, lambda: state(jobs, filler) == "running")
    other = jobs.book.submit(wish(["/bin/true"], memory_bytes=4e9))
    fits = jobs.book.submit(wish(["/bin/true"], memory_bytes=1e9))
    until(jobs, lambda: state(jobs, fits) == "done")
    assert state(jobs, other) == "waiting" or jobs.book.get(other.id).node == "near-node"


def test_a_job_that_restarts_starts_anew_elsewhere_also_after_its_latest_start(jobs, tmp_path):
    far, store, begun = far_worker(jobs), jobs.store, tmp_path / "begun"
    filler = fill_near(jobs)
    store.set_wanted(far, False)
    base = jobs.book.submit(wish(["/bin/sleep", "300"], cores=7.0))
    until(jobs, lambda: state(jobs, base) == "running")
    again = jobs.book.submit(shell(f"echo x >> {begun}; exec sleep 300", cores=2.0, when_evicted=RESTART))
    until(jobs, lambda: state(jobs, again) == "running" and begun.exists())
    first = jobs.book.get(again.id)
    assert (first.node, first.redone_s) == ("far-node", 0.0)
    store.set_wanted(far, True)
    until(jobs, lambda: state(jobs, again) == "waiting")
    found = jobs.book.get(again.id)
    assert (found.attempt, found.node, found.started_s) == (1, None, None)
    assert 0.0 < found.redone_s < time.time() - first.started_s
    assert found.row()["redone_s"] == found.redone_s
    assert begun.read_text() == "x\n" and state(jobs, base) == "running"
    later = jobs.book.submit(wish(["/bin/sleep", "300"], cores=7.0, key="later"))
    jobs.book.cancel(filler.id)
    until(jobs, lambda: state(jobs, again) == "running" and begun.read_text() == "x\nx\n")
    assert jobs.book.get(again.id).node == "near-node" and state(jobs, later) == "waiting"
    jobs.book.cancel(again.id)
    until(jobs, lambda: state(jobs, again) == "cancelled" and state(jobs, later) == "running")
    store.set_wanted(far, False)
    last = jobs.book.submit(
        wish(["/bin/sleep", "300"], cores=2.0, when_evicted=RESTART, latest_s=time.time() + 0.5)
    )
    until(jobs, lambda: state(jobs, last) == "running" and time.time() > last.latest_s + SLOT_S)
    store.set_wanted(far, True)
    until(jobs, lambda: state(jobs, last) == "waiting")
    store.set_wanted(far, False)
    until(jobs, lambda: state(jobs, last) == "running")
    assert jobs.book.get(last.id).attempt == 1


def test_a_job_goes_on_from_its_last_checkpoint_and_is_told_where_that_is(jobs, tmp_path):
    """Its node dies while it is suspended there, and takes its memory."""
    far, store, said = far_worker(jobs), jobs.store, tmp_path / "said"
    store.set_wanted(far, False)
    filler = jobs.book.submit(wish(["/bin/sleep", "300"], cores=7.0))
    until(jobs, lambda: state(jobs, filler) == "running")
    base = jobs.book.submit(wish(["/bin/sleep", "300"], cores=7.0))
    until(jobs, lambda: state(jobs, base) == "running")
    command = f"echo $EDGEWISE_SAVED_S >> {said}; exec sleep 300"
    job = jobs.book.submit(shell(command, cores=2.0, checkpoint_s=0.25))
    until(jobs, lambda: (jobs.book.get(job.id).ran_s(time.time()) or 0.0) > 0.6 and said.exists())
    store.set_wanted(far, True)
    until(jobs, lambda: state(jobs, job) == "suspended")
    done_s = jobs.book.get(job.id).ran_s(time.time())
    store.change_node("far-node", False)
    until(jobs, lambda: state(jobs, job) == "waiting")
    found = jobs.book.get(job.id)
    assert found.saved_s == 0.25 * int(done_s / 0.25) >= 0.5
    assert found.redone_s == pytest.approx(done_s - found.saved_s, abs=1e-6)
    for each in (filler, base):
        jobs.book.cancel(each.id)
    until(jobs, lambda: state(jobs, job) == "running" and said.read_text().count("\n") == 2)
    assert jobs.book.get(job.id).node == "near-node"
    assert [float(line) for line in said.read_text().split()] == [0.0, found.saved_s]


def test_jobs_that_an_earlier_version_kept_are_kept(folder):
    file = Store(folder / DATABASE).file
    book = Store(file).jobs
    job = book.submit(wish(["/bin/true"]))
    for column in book.ADDED["job"]:
        book.db.run(f"ALTER TABLE job DROP COLUMN {column}")
    assert Store(file).jobs.get(job.id) == job


def test_a_controller_that_dies_at_any_call_of_an_eviction_starts_the_job_anew_once(folder, tmp_path):
    """kill -9 between any two steps from the eviction to the end of the second attempt."""
    store, points = Store(folder / DATABASE), 0
    jobs = LiveJobs(LivePlane(store), SLOT_S)
    far = far_worker(jobs)
    for after in range(1, 40, 3):
        count = tmp_path / f"count-{after}"
        store.set_wanted(far, False)
        text = f"echo x >> {count}; test $(wc -l < {count}) = 2 || exec sleep 300"
        job = jobs.book.submit(shell(text, cores=9.0, when_evicted=RESTART))
        until(jobs, lambda job=job, count=count: state(jobs, job) == "running" and count.exists())
        store.set_wanted(far, True)
        died = controller(folder, after, lambda found, job=job: state(found, job) == "waiting")
        assert controller(folder, 10**9, lambda found, job=job: state(found, job) == "waiting") == 0
        store.set_wanted(far, False)
        assert controller(folder, 10**9) == 0
        assert count.read_text() == "x\nx\n", after
        assert jobs.book.get(job.id).attempt == 1
        points += died != 0
    assert points >= 3
    store.close()


class Raises(ScoreDeferral):
    """Cannot decide."""

    name = "raises"

    def score(self, view):
        raise RuntimeError("no idea")


class Hangs(ScoreDeferral):
    """Thinks for ever."""

    name = "hangs"

    def score(self, view):
        threading.Event().wait()


class StartsAll(ScoreDeferral):
    """Starts what may not start yet."""

    name = "starts-all"

    def decide(self, view):
        return view.state >= 0


class CannotBegin(ScoreDeferral):
    """Cannot begin."""

    name = "cannot-begin"

    def reset(self, world, key):
        raise ValueError("no file")


@pytest.fixture
def failing(monkeypatch):
    """Policies that fail have names, for one test."""
    for cls in (Raises, Hangs, StartsAll, CannotBegin):
        monkeypatch.setitem(registry.registered["defer"], cls.name, cls)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("raises", "RuntimeError: no idea"),
        ("hangs", "no answer within 0.5 s"),
        ("starts-all", "may not start"),
    ],
)
def test_where_a_policy_fails_fifo_starts_the_jobs_and_it_is_said(failing, jobs, name, fault, caplog):
    jobs.use(name)
    future = jobs.book.submit(shell("echo", earliest_s=time.time() + 500.0))
    job = jobs.book.submit(shell("echo"))
    until(jobs, lambda: state(jobs, job) == "done")
    assert state(jobs, future) == "waiting"
    assert jobs.name == name and fault in jobs.fault
    assert sum(f"policy {name!r} of defer failed" in record.message for record in caplog.records) == 1
    (row,) = (row for row in jobs.plane.faults.drain() if row.waited_s or name != "hangs")
    assert (row.decision, row.policy, row.instead) == ("defer", name, "'fifo' decides") and fault in row.why
    jobs.use("sjf")
    second = jobs.book.submit(shell("echo", key="second"))
    until(jobs, lambda: state(jobs, second) == "done")
    assert not jobs.fault


def test_a_policy_that_cannot_begin_is_refused_and_when_it_is_stored_fifo_decides(failing, jobs):
    with pytest.raises(PolicyError, match="'cannot-begin': ValueError when it begins: no file"):
        jobs.use("cannot-begin")
    assert jobs.name == "tetris"
    jobs.store.set_policy("defer", "cannot-begin")
    live_jobs.warm("cannot-begin")
    again = LiveJobs(LivePlane(jobs.store), SLOT_S)
    assert "no file" in again.fault
    job = again.book.submit(shell("echo"))
    until(again, lambda: state(again, job) == "done")


@pytest.mark.parametrize("name", ["osdec", "osdec-skip", "horizon"])
def test_what_learned_and_what_plans_start_real_jobs(jobs, folder, name):
    """Nine jobs of 2 cores in the 15 cores that are left: some wait for others, all of them run."""
    jobs.use(name)
    assert jobs.name == name
    submitted = [jobs.book.submit(shell("sleep 0.2", cores=2.0, key=str(k))) for k in range(9)]
    until(jobs, lambda: not jobs.book.open())
    assert {state(jobs, job) for job in submitted} == {"done"}
    jobs.store.set_policy("defer", name)
    assert LiveJobs(LivePlane(jobs.store), SLOT_S).name == name  # after a restart as well
    starts = sorted(jobs.book.get(job.id).started_s for job in submitted)
    assert starts[-1] > starts[0]


def test_events_of_a_live_system_give_the_same_commands_in_a_plane_of_its_own(jobs, tmp_path):
    """What was told to the live plane, with jobs that start, give way, go on, restart and are lost."""
    told_of, plane = [], jobs.plane
    handle = plane.handle

    def noted(event, now_s):
        commands = handle(event, now_s)
        plane.validate()
        told_of.append((event, now_s, commands))
        return commands

    plane.handle = noted
    jobs.use("sjf")
    far, store = far_worker(jobs), jobs.store
    store.set_wanted(far, False)
    near, big = (jobs.book.submit(wish(["/bin/sleep", "300"], cores=7.0, key=str(k))) for k in range(2))
    until(jobs, lambda: {state(jobs, near), state(jobs, big)} == {"running"})
    again = jobs.book.submit(wish(["/bin/sleep", "300"], cores=2.0, when_evicted=RESTART))
    until(jobs, lambda: state(jobs, again) == "running")  # far-node is full as well
    late = jobs.book.submit(wish(["/bin/true"], cores=9.0, latest_s=time.time() + 0.2))
    until(jobs, lambda: state(jobs, late) == "lost")
    store.set_wanted(far, True)
    until(jobs, lambda: jobs.book.get(again.id).attempt == 1)
    jobs.book.cancel(again.id)
    store.set_wanted(far, False)
    paused = jobs.book.submit(wish(["/bin/sleep", "300"], cores=2.0, key="paused"))
    until(jobs, lambda: state(jobs, paused) == "running")
    store.set_wanted(far, True)
    until(jobs, lambda: state(jobs, paused) == "suspended")
    store.set_wanted(far, False)
    until(jobs, lambda: state(jobs, paused) == "running")
    kinds = {type(command).__name__ for *_, commands in told_of for command in commands}
    assert kinds == {"StartJob", "LoseJob", "EvictJob", "SuspendJob", "ResumeJob"}
    core = DeferCore(jobs.core.world, NodeLedger(()), policies.load("defer", "sjf"))
    again = Plane(core.ledger, {"defer": core})
    for event, now_s, commands in told_of:
        assert again.handle(event, now_s) == commands


def test_a_job_that_could_not_be_stopped_is_stopped_in_the_next_pass(jobs, tmp_path, monkeypatch):
    far, store, beats = far_worker(jobs), jobs.store, tmp_path / "beats"
    fill_near(jobs)
    store.set_wanted(far, False)
    job = jobs.book.submit(shell(BEATS.format(beats), cores=9.0))
    until(jobs, lambda: state(jobs, job) == "running" and beats.exists())
    suspend = jobs.processes.suspend

    def once(run):
        monkeypatch.setattr(jobs.processes, "suspend", suspend)
        raise OSError("for once")

    monkeypatch.setattr(jobs.processes, "suspend", once)
    store.set_wanted(far, True)
    until(jobs, lambda: state(jobs, job) == "suspended" and jobs.processes.suspend is suspend)
    for _ in range(5):
        jobs.look(time.time())
    assert stands_still(beats)


def test_a_second_policy_watches_and_starts_nothing(jobs):
    jobs.use("sjf")
    jobs.store.set_policy("defer", "fifo", SHADOWS)
    at_once = {"earliest_s": time.time() + 1.0}  # however long it takes to submit them
    long = jobs.book.submit(wish(["/bin/sleep", "300"], cores=7.0, duration_s=600.0, **at_once))
    short = [
        jobs.book.submit(shell("sleep 0.1", cores=8.0, duration_s=60.0, key=str(k), **at_once))
        for k in range(2)
    ]
    until(jobs, lambda: all(state(jobs, job) == "done" for job in short))
    found = jobs.watched()
    assert found["items"]["only_shadow"] > 0 and found["decisions"] > 0
    assert found["policy"] == "fifo" and found["faults"] == {}
    jobs.store.set_policy("defer", "", SHADOWS)
    until(jobs, lambda: jobs.watched() == {"policy": ""})
    jobs.book.cancel(long.id)


EXAMPLE = Path(__file__).parents[2] / "examples" / "03-every-decision" / "jobs.py"


def test_the_policy_of_the_examples_goes_through_simulate_compare_and_a_live_system(jobs, tmp_path):
    mine = f"{EXAMPLE}:SmallFirst"
    for command in (
        f"simulate deferrable --policy defer={mine}",
        f"compare deferrable --policies defer={mine},fifo",
    ):
        words = [*command.split(), "--seeds", "500000:500002", "--out", str(tmp_path / "out")]
        done = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
        assert done.exit_code == 0 and "SmallFirst" in done.output, done.output
    jobs.use(mine)
    jobs.store.set_policy("defer", mine)
    submitted = [jobs.book.submit(shell("sleep 0.1", cores=4.0, key=str(k))) for k in range(5)]
    until(jobs, lambda: not jobs.book.open())
    assert {state(jobs, job) for job in submitted} == {"done"}
    assert not jobs.core.guard.faults
    again = LiveJobs(LivePlane(jobs.store), SLOT_S)
    asyncio.run(again.load_named())  # in a thread of its own, for that may take a minute
    assert again.core.policy.name == "SmallFirst"


def test_while_a_policy_of_ones_own_is_loaded_the_controller_goes_on(folder, tmp_path):
    """Its file waits at its import until all else was seen to go on."""
    code = f"{IN_FILES}from pathlib import Path\nwait_until((Path(__file__).parent / 'go').exists)\n"
    code += "class Mine:\n    name, decision = 'mine', 'defer'\n"
    code += "    def reset(self, slots, key): pass\n    def decide(self, view): return view.startable\n"
    (tmp_path / "slow.py").write_text(code)
    store, mine = Store(folder / DATABASE), f"{tmp_path / 'slow.py'}:Mine"
    store.set_policy("defer", mine)
    store.set_policy("defer", f"{tmp_path / 'slow.py'}:Mine", SHADOWS)
    jobs = LiveJobs(LivePlane(store), SLOT_S)
    job, gone = (jobs.book.submit(shell("echo", key=key)) for key in "ab")

    async def reached(condition):
        await becomes(condition, lambda: (jobs.fault, [each.row() for each in jobs.book.listed()]), HANG_S)

    async def scenario():
        keeping = asyncio.create_task(reconcile([Pass("jobs", 0.05, "", jobs.look_now)]))
        for each in (gone, *(jobs.book.submit(shell("echo", key=key)) for key in "cde")):  # in a slot each
            jobs.book.cancel(each.id)
            await reached(lambda each=each: state(jobs, each) == "cancelled")
        assert state(jobs, job) == "waiting" and not jobs.fault
        (tmp_path / "go").touch()
        await reached(lambda: state(jobs, job) == "done")
        await reached(lambda: jobs.watched()["policy"])
        keeping.cancel()

    asyncio.run(scenario())
    assert jobs.core.policy.loaded_as == mine and not jobs.fault


def test_cancel_before_and_while_and_a_job_that_runs_too_long(jobs, tmp_path):
    never = jobs.book.submit(shell("echo", earliest_s=time.time() + 500))
    stubborn = jobs.book.submit(shell("trap '' TERM; sleep 300 & wait; sleep 300", duration_s=0.5))
    plain = jobs.book.submit(wish(["/bin/sleep", "300"]))
    until(jobs, lambda: state(jobs, plain) == "running")
    jobs.book.cancel(never.id)
    jobs.book.cancel(plain.id)
    until(jobs, lambda: not jobs.book.open())
    found = [jobs.book.get(job.id) for job in (never, stubborn, plain)]
    assert [job.state for job in found] == ["cancelled", "failed", "cancelled"]
    assert found[0].started_s is None and "longer than its 0.5 s" in found[1].why


def told(jobs, method, path, body=None):
    request = http.HttpRequest(method, path, {}, b"" if body is None else json.dumps(body).encode())
    return json.loads(asyncio.run(requests.about_work(jobs, LivePipelines(jobs.plane), request)).body)


def test_requests_are_checked_and_repeats_are_one_job(jobs):
    stated = {"key": "a", "command": ["true"], "folder": "/", "cores": 2, "duration_s": 5}
    first = told(jobs, "POST", "/v1/admin/jobs", stated)
    assert told(jobs, "POST", "/v1/admin/jobs", stated)["id"] == first["id"]
    assert [row["id"] for row in told(jobs, "GET", "/v1/admin/jobs")] == [first["id"]]
    wrong = [
        ({"command": "true"}, 'command: "true"; a list is needed'),
        ({"cores": -1}, "cores: '-1.0' is not a number"),
        ({"cores": 20}, "the largest, near-node, has 9"), ({"duration_s": None}, "duration_s"),
        ({"latest_s": 1.0}, "latest_s: is"), ({"priority": 1e9}, "priority"), ({"key": ""}, "key"),
        ({"cores": float("nan")}, "cores"), ({"folder": "work"}, "folder: 'work' is relative"),
        ({"when_evicted": "stop"}, "neither pause nor restart"),
        ({"earliest_s": 99999999999}, "earliest_s: .* s after now; at most a year, 3.16224e.07 s"),
        ({"latest_s": 99999999999}, "latest_s: .* s after the earliest start; at most a year"),
        ({"earliest_s": float("inf")}, "earliest_s: 'inf' is not a number"),
        ({"duration_s": 1e30}, "duration_s: '1e.30' is not a number from 0.1 to 1e.09"),
    ]  # fmt: skip
    for change, message in wrong:
        with pytest.raises(ProtocolError, match=message):
            told(jobs, "POST", "/v1/admin/jobs", stated | change)
    with pytest.raises(ProtocolError, match="no job '77'"):
        told(jobs, "GET", "/v1/admin/jobs/77/output")
    with pytest.raises(PolicyError, match="did you mean 'sjf'"):
        jobs.use("sjff")
    jobs.store.set_policy("defer", "sjf")
    assert LiveJobs(LivePlane(jobs.store)).name == "sjf"
    assert told(jobs, "DELETE", f"/v1/admin/jobs/{first['id']}")["cancel"]


def test_jobs_of_the_far_future_are_left_out_of_recordings(jobs, folder, tmp_path):
    """A store may hold what the API would refuse today."""
    day_s = 86400.0
    jobs.book.submit(shell("exit 0", duration_s=5.0))
    jobs.book.submit(shell("exit 0", duration_s=1e9, cores=2.0))
    jobs.book.submit(shell("exit 0", earliest_s=99999999999.0))
    jobs.book.submit(shell("exit 0", earliest_s=time.time() + 2 * day_s))
    jobs.book.submit(shell("exit 0", duration_s=1e30))
    made = recording.record(folder, tmp_path / "recorded")
    assert (made.came["jobs"], made.later) == (2, 3)
    assert made.duration_s == pytest.approx(day_s, rel=1e-3)  # the second job would run for 32 years
    scenario = load_scenario(tmp_path / "recorded" / "scenario.yaml")
    assert [job.duration_s for job in scenario.jobs.submitted] == [5.0, 1e9]
    refuse_too_much(scenario)


@pytest.fixture(scope="module")
def system(tmp_path_factory):
    with started(tmp_path_factory.mktemp("live"), small_scenario()) as made:
        yield made


async def submit(system, command, **changes):
    """Through the controller, asked again when it dies: the key makes one job of it."""
    client = operator(system.store)
    body = {
        "key": uuid.uuid4().hex,
        "command": command,
        "folder": "/",
        "cores": 1,
        "duration_s": 600,
    } | changes
    answer = await ask(client, "POST", "/v1/admin/jobs", body=json.dumps(body).encode(), patience_s=HANG_S)
    client.close()
    assert answer.status == 200, answer.body
    return json.loads(answer.body)["id"]


async def ended(system, numbers):
    book = Store(system.store.file).jobs
    await becomes(
        lambda: all(book.get(number).ended_s is not None for number in numbers),
        lambda: [job.row() for job in book.listed()],
    )
    return [book.get(number) for number in numbers]


def test_commands_need_the_administrators_token(system):
    async def run():
        client = http.Client.of_url(f"http://127.0.0.1:{system.store.get('controller')['port']}")
        answer = await ask(client, "GET", "/v1/admin/jobs", patience_s=HANG_S)
        client.close()
        return answer.status

    assert asyncio.run(run()) == 401


def test_a_second_policy_is_named_while_a_system_runs(system):
    async def said(client, method, body=None):
        sent = b"" if body is None else json.dumps(body).encode()
        answer = await ask(client, method, "/v1/shadows/defer", body=sent, patience_s=HANG_S)
        return answer.status, json.loads(answer.body)

    async def run():
        client = operator(system.store)
        assert (await said(client, "PUT", {"policy": "sjff"}))[0] == 400
        assert (await said(client, "PUT", {"policy": "sjf"}))[0] == 202

        async def asked():  # about jobs, while there are any
            await submit(system, ["/bin/true"], duration_s=5)
            _, (row,) = await said(client, "GET")
            return row if row["answer"].get("items", {}).get("same") else None

        row = await becomes(asked, limit_s=HANG_S)
        assert row["answer"]["policy"] == "sjf" and row["answer"]["items"]["only_shadow"] == 0
        assert (await said(client, "PUT", {"policy": ""}))[0] == 202
        client.close()

    asyncio.run(run())
    assert "tetris" in system.store.policy("defer")


def test_kill_9_of_the_controller_at_random_moments(system, tmp_path):
    """Jobs are accepted, started and noticed while controllers die; each of them runs once."""
    draws = random.Random(11)

    async def run():
        numbers = []
        for k in range(12):
            asked = asyncio.create_task(
                submit(system, ["/bin/sh", "-c", f"echo x >> {tmp_path}/{k}; sleep 0.3"])
            )
            await pace(draws.uniform(0.0, 1.2))  # a random moment
            await system.kill("controller")
            numbers.append(await asked)
        return await ended(system, numbers)

    jobs = asyncio.run(run())
    assert [job.state for job in jobs] == ["done"] * 12
    assert len({job.id for job in jobs}) == 12
    assert [(tmp_path / str(k)).read_text() for k in range(12)] == ["x\n"] * 12


def test_inference_keeps_its_deadlines_beside_jobs_that_burn_every_core(system, record_property):
    """The same queries without and with jobs; every one in time, the figures are noted, not asserted."""

    async def query(client, stream, count=60):
        took = []
        for _ in range(count):
            began_s = time.perf_counter()
            answer = await infer(client, stream)
            took.append(time.perf_counter() - began_s)
            assert answer.status == 200
            await pace(0.01)
        return sorted(took)

    async def run():
        client = system.gateway()
        _, opened = await open_stream(client, deadline_s=5.0, rate_qps=60)
        alone = await query(client, opened["stream"])
        book = Store(system.store.file).jobs
        burn = [sys.executable, "-c", "while True: pass"]
        numbers = [await submit(system, burn, cores=2) for _ in range(4)]
        await becomes(lambda: all(book.get(number).state == "running" for number in numbers))
        beside = await query(client, opened["stream"])
        assert [book.get(number).state for number in numbers] == ["running"] * 4
        for number in numbers:
            book.cancel(number)
        await ended(system, numbers)
        return alone, beside

    alone, beside = asyncio.run(run())
    for name, took in (("alone", alone), ("beside jobs", beside)):
        record_property(name, {"median_s": took[len(took) // 2], "p95_s": took[int(0.95 * len(took))]})
        print(f"{name}: median {took[len(took) // 2]:.4f} s, p95 {took[int(0.95 * len(took))]:.4f} s")
    assert max(beside) < 5.0
