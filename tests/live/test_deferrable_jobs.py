"""Deferrable jobs as real processes: started once whatever dies, suspended for inference, ended, kept."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("httptools", reason="the extra `live` is not installed")

from running_system import small_scenario  # noqa: E402

from edgewise.errors import PolicyError, ProtocolError  # noqa: E402
from edgewise.runtime import http, job_requests, job_runner  # noqa: E402
from edgewise.runtime.job_book import JobBook, Wish  # noqa: E402
from edgewise.runtime.job_processes import JobProcesses, Seen, Stage  # noqa: E402
from edgewise.runtime.jobs import Jobs  # noqa: E402
from edgewise.runtime.plan import DATABASE, prepare  # noqa: E402
from edgewise.runtime.store import Store  # noqa: E402

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc"),
]
SLOT_S = 0.05
HANG_S = 60.0


@pytest.fixture
def folder(tmp_path):
    """A prepared system: nodes of 9 cores; two workers of 1 core on near-node, one on far-node."""
    prepare(tmp_path / "live", small_scenario()).close()
    return tmp_path / "live"


@pytest.fixture
def jobs(folder):
    made = Jobs(Store(folder / DATABASE), SLOT_S)
    yield made
    for job in made.book.open():
        made.processes.kill(job.id)


def wish(command, key="", **changes):
    now_s = time.time()
    stated = {
        "cores": 1.0, "memory_bytes": 0.0, "duration_s": 600.0, "earliest_s": now_s,
        "latest_s": now_s + 600.0, "priority": 0,
    } | changes  # fmt: skip
    return Wish(key or f"{now_s}-{command}", tuple(command), "/", **stated)


def shell(text, **changes):
    return wish(["/bin/sh", "-c", text], **changes)


def until(jobs, reached):
    """Steps until `reached()`; fails when that takes for ever."""
    began_s = time.monotonic()
    while not reached():
        assert time.monotonic() - began_s < HANG_S, [job.row() for job in jobs.book.listed()]
        jobs.step(time.time())
        time.sleep(0.01)


def state(jobs, job):
    return jobs.book.get(job.id).state


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
    assert processes.forbid(9) and processes.look(9) == Seen(Stage.FORBIDDEN)
    subprocess.run([*command, tmp_path / "jobs" / "9", json.dumps(settings)], check=True)
    assert count.read_text() == "x\n" * 5


class Dying:
    """Passes calls on and kills this process at the n-th one, before or after it."""

    def __init__(self, inner, deaths):
        self._inner, self._deaths = inner, deaths

    def __getattr__(self, name):
        method = getattr(self._inner, name)

        def call(*args):
            self._deaths.pass_one()
            result = method(*args)
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


def controller(folder, after):
    """A process that keeps the jobs of a folder, and dies at the given call; whether it finished them."""
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[1])\n"
        "import test_deferrable_jobs as t\n"
        "t.keep(t.Path(sys.argv[2]), int(sys.argv[3]))"
    )
    number = os.fork()
    if number == 0:
        try:
            keep(folder, after)
            os._exit(0)
        except BaseException as error:
            os.write(2, repr(error).encode() + code[:0].encode())
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


def keep(folder, after):
    jobs = Jobs(Store(folder / DATABASE), SLOT_S)
    deaths = Deaths(after)
    jobs.book, jobs.processes = Dying(jobs.book, deaths), Dying(jobs.processes, deaths)
    until(jobs, lambda: not jobs.book.open())


def test_a_controller_that_dies_at_any_call_starts_every_job_once(folder, tmp_path):
    """kill -9 between any two steps on the store and on processes, one after the other, then to the end."""
    began_s, points = time.monotonic(), 0
    for after in [*range(1, 40), *random.Random(3).sample(range(40, 120), 8)]:
        if time.monotonic() - began_s > HANG_S / 2 and points >= 25:
            break  # a slow machine
        book, count = JobBook(folder / DATABASE), tmp_path / f"count-{after}"
        for k in range(2):
            book.submit(shell(f"echo {k} >> {count}", key=f"{after}-{k}"))
        book.close()
        died = controller(folder, after)
        assert died in (0, -signal.SIGKILL)
        assert controller(folder, 10**9) == 0
        assert sorted(count.read_text().split()) == ["0", "1"], after
        points += died != 0
    assert points >= 25
    book = JobBook(folder / DATABASE)
    assert {job.state for job in book.listed()} == {"done"}


def test_a_runner_that_is_killed_costs_its_job_but_starts_no_other(jobs, tmp_path):
    count = tmp_path / "count"
    job = jobs.book.submit(shell(f"echo x >> {count}; sleep 300"))
    until(jobs, lambda: count.exists() and state(jobs, job) == "running")
    runner = jobs.processes._runners[job.id]
    runner.kill()
    runner.wait()
    for _ in range(20):
        jobs.step(time.time())
    assert state(jobs, job) == "running"  # the command goes on
    jobs.processes.kill(job.id)
    until(jobs, lambda: state(jobs, job) == "failed")
    assert "killed" in jobs.book.get(job.id).why and count.read_text() == "x\n"


def test_a_worker_that_comes_back_suspends_jobs_until_it_goes(folder, tmp_path):
    store = Store(folder / DATABASE)
    jobs = Jobs(store, SLOT_S)
    names = [worker.name for worker in jobs.scenario.topology.workers]
    far = next(worker for worker in jobs.scenario.topology.workers if worker.node == "far-node")
    beats = tmp_path / "beats"
    near = jobs.book.submit(wish(["/bin/sleep", "300"], cores=7.0))  # fills near-node
    until(jobs, lambda: state(jobs, near) == "running")
    store.set_wanted(far.name, False)
    text = f"while true; do echo x >> {beats}; sleep 0.02; done"
    job = jobs.book.submit(shell(text, cores=9.0))  # all of far-node
    until(jobs, lambda: state(jobs, job) == "running" and beats.exists())
    assert jobs.book.get(near.id).node == "near-node" and len(names) == 3
    store.set_wanted(far.name, True)
    until(jobs, lambda: state(jobs, job) == "suspended")
    time.sleep(0.2)
    size = beats.stat().st_size
    time.sleep(0.5)
    assert beats.stat().st_size == size and state(jobs, near) == "running"
    store.set_wanted(far.name, False)
    until(jobs, lambda: state(jobs, job) == "running" and beats.stat().st_size > size)
    assert jobs.book.get(job.id).suspended_s > 0.5
    for number in (job.id, near.id):
        jobs.book.cancel(number)
    until(jobs, lambda: not jobs.book.open())
    assert {found.state for found in jobs.book.listed()} == {"cancelled"}
    store.close()


def test_priority_goes_first_and_a_job_without_room_is_lost(jobs, tmp_path):
    order = tmp_path / "order"
    first = jobs.book.submit(wish(["/bin/sleep", "300"], cores=7.0))
    until(jobs, lambda: state(jobs, first) == "running")
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


def ask(jobs, method, path, body=None):
    request = http.Request(method, path, {}, b"" if body is None else json.dumps(body).encode())
    return json.loads(job_requests.answer(jobs, request).body)


def test_requests_are_checked_and_repeats_are_one_job(jobs):
    stated = {"key": "a", "command": ["true"], "folder": "/", "cores": 2, "duration_s": 5}
    first = ask(jobs, "POST", "/v1/admin/jobs", stated)
    assert ask(jobs, "POST", "/v1/admin/jobs", stated)["id"] == first["id"]
    assert [row["id"] for row in ask(jobs, "GET", "/v1/admin/jobs")] == [first["id"]]
    wrong = [
        ({"command": "true"}, "command: a list"), ({"cores": -1}, "cores: '-1' is no number"),
        ({"cores": 20}, "the largest, near-node, has 9"), ({"duration_s": None}, "duration_s"),
        ({"latest_s": 1.0}, "latest_s: is"), ({"priority": 1e9}, "priority"), ({"key": ""}, "key"),
        ({"cores": float("nan")}, "cores"),
    ]  # fmt: skip
    for change, message in wrong:
        with pytest.raises(ProtocolError, match=message):
            ask(jobs, "POST", "/v1/admin/jobs", stated | change)
    with pytest.raises(ProtocolError, match="no job '77'"):
        ask(jobs, "GET", "/v1/admin/jobs/77/output")
    with pytest.raises(ProtocolError, match="did you mean 'sjf'"):
        ask(jobs, "PUT", "/v1/admin/jobs/policy", {"policy": "sjff"})
    assert ask(jobs, "PUT", "/v1/admin/jobs/policy", {"policy": "sjf"})["policy"] == "sjf"
    assert Jobs(jobs.store).policy.name == "sjf"
    with pytest.raises(PolicyError):
        jobs.use("none")
    assert ask(jobs, "DELETE", f"/v1/admin/jobs/{first['id']}")["cancel"]
