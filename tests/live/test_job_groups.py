"""Control groups of jobs, on the real ones of this machine: frozen, killed, removed, limited."""

import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("httptools", reason="the extra `live` is not installed")

from job_commands import BEATS, shell, stands_still, state, until, wish
from running_system import small_scenario

from edgewise.runtime.controller import job_groups
from edgewise.runtime.controller.jobs import LiveJobs
from edgewise.runtime.controller.live_plane import LivePlane
from edgewise.runtime.controller.plan import DATABASE, prepare
from edgewise.runtime.store import Store

pytestmark = pytest.mark.live


@pytest.fixture
def jobs(tmp_path):
    prepare(tmp_path / "live", small_scenario()).close()
    probe = tmp_path / "0"
    probe.mkdir()
    group = job_groups.make_group(probe, 1.0, 0.0)
    if group is None:
        pytest.skip("no control group (version 2) may be made here: needs root, or a delegated group")
    job_groups.remove_group(group)
    assert not group.exists()
    made = LiveJobs(LivePlane(Store(tmp_path / "live" / DATABASE)), slot_s=0.05)
    yield made
    for job in made.book.open():
        made.processes.stop(job.run, force=True)
        made.processes.clear(job.run)


@pytest.fixture
def limited(jobs):
    if not {"cpu", "memory"} <= job_groups.passed_on(job_groups.parent_group()):
        pytest.skip("no control group here passes the controllers cpu and memory on")
    return jobs


def group_of(jobs, job):
    found = job_groups.group_of(jobs.processes.folder / str(job.id))
    assert found is not None
    return found


def test_a_process_that_leaves_its_session_is_suspended_and_ends_with_its_job(jobs, tmp_path):
    beats = tmp_path / "beats"
    job = jobs.book.submit(shell(f"setsid sh -c '{BEATS.format(beats)}' & sleep 0.3; echo $$; sleep 300"))
    until(jobs, lambda: state(jobs, job) == "running" and beats.exists())
    group = group_of(jobs, job)
    assert len((group / "cgroup.procs").read_text().split()) >= 2
    jobs.processes.suspend(job.run)
    until(jobs, lambda: "frozen 1" in (group / "cgroup.events").read_text())
    assert stands_still(beats)
    size = beats.stat().st_size
    jobs.processes.resume(job.run)
    until(jobs, lambda: beats.stat().st_size > size)
    jobs.book.cancel(job.id)
    until(jobs, lambda: state(jobs, job) == "cancelled")
    assert not group.exists()


def test_what_a_command_leaves_behind_ends_with_it_and_no_group_stays(jobs, tmp_path):
    number = tmp_path / "number"
    job = jobs.book.submit(shell(f"setsid sleep 300 & echo $! > {number}"))
    until(jobs, lambda: state(jobs, job) == "done")
    assert not group_of(jobs, job).exists()
    until(jobs, lambda: not _runs(int(number.read_text())))


def _runs(number):
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_group_that_nobody_noted_is_found_again(jobs, tmp_path):
    """A controller that dies before it notes a group leaves none behind."""
    place = tmp_path / "7"
    place.mkdir()
    first = job_groups.make_group(place, 1.0, 0.0)
    (place / job_groups.NOTE).unlink()
    assert job_groups.make_group(place, 1.0, 0.0) == first == job_groups.group_of(place)
    job_groups.remove_group(first)


def test_a_job_gets_no_more_processor_time_than_its_cores(limited):
    job = limited.book.submit(wish([sys.executable, "-c", "while True: pass"], cores=0.5))
    began_s = time.monotonic()
    until(limited, lambda: state(limited, job) == "running" and _cpu(limited, job)["nr_throttled"] >= 3)
    used_s, took_s = _cpu(limited, job)["usage_usec"] / 1e6, time.monotonic() - began_s
    assert used_s <= 0.5 * (took_s + 0.2)
    limited.book.cancel(job.id)
    until(limited, lambda: state(limited, job) == "cancelled")


def _cpu(jobs, job):
    lines = (group_of(jobs, job) / "cpu.stat").read_text().splitlines()
    return {name: int(value) for name, value in (line.split() for line in lines)}


def test_a_job_that_takes_more_memory_than_it_asked_for_is_killed(limited):
    take = [sys.executable, "-c", "x = bytearray(120_000_000); print(len(x))"]
    modest = limited.book.submit(wish(take, memory_bytes=300e6))
    greedy = limited.book.submit(wish(take, memory_bytes=60e6))
    until(limited, lambda: not limited.book.open())
    assert state(limited, modest) == "done"
    assert limited.book.get(greedy.id).why == "ended by signal 9"
