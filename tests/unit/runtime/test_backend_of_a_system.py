"""Whoever changes or ends a system asks the backend that it runs on, not this machine, for its handles."""

import os
import random
import subprocess

import pytest
from hostile_backend import Cluster, HostileBackend

from edgewise.cli.waiting import left_of
from edgewise.config import load_scenario
from edgewise.errors import RunError
from edgewise.runtime.backends import system
from edgewise.runtime.controller.nursery import end_without_controller
from edgewise.runtime.controller.plan import ChosenBackend, prepare
from edgewise.runtime.controller.rehearsal import rehearse
from edgewise.runtime.controller.rolling import read_change, write_change
from edgewise.runtime.process.machine import ThisMachine, handle_of
from edgewise.runtime.states import DONE

ELSEWHERE = "elsewhere"


@pytest.fixture
def cluster(monkeypatch):
    made = Cluster(random.Random(1))
    made.calm = True
    monkeypatch.setitem(system.BACKENDS, ELSEWHERE, lambda folder, fork: HostileBackend(made))
    return made


def running(folder, cluster):
    """A system that runs `tiny` there."""
    store = prepare(folder, load_scenario("tiny"), backend=ChosenBackend(ELSEWHERE))
    for each in store.processes():
        store.started(each.process.name, cluster.put(each.process.name), 0)
    store.begin_run()
    write_change(store, read_change(store).in_state(DONE))
    return store


def test_a_change_sees_what_runs_there(tmp_path, cluster):
    store = running(tmp_path, cluster)
    text = (tmp_path / "scenario.yaml").read_text()
    other = load_scenario("tiny", {"telemetry.period_s": 2})
    deeds, _ = rehearse(tmp_path, other, backend=ChosenBackend(ELSEWHERE))
    assert {"replace", "stay"} <= {each.deed for each in deeds} and "start" not in {d.deed for d in deeds}
    prepare(tmp_path, other, backend=ChosenBackend(ELSEWHERE)).close()
    assert read_change(store).before["scenario"] == text
    cluster.processes.clear()
    prepare(tmp_path, other, backend=ChosenBackend(ELSEWHERE)).close()
    assert read_change(store).before is None


def test_what_runs_there_is_named_and_ended_without_a_controller(tmp_path, cluster):
    store = running(tmp_path, cluster)
    names = sorted(each.process.name for each in store.processes())
    assert left_of(tmp_path) == names
    end_without_controller(tmp_path)
    for _ in range(100):
        cluster.turn()
    assert left_of(tmp_path) == [] and cluster.running() == []


def test_a_system_that_runs_stays_where_it_is(tmp_path, cluster):
    store = running(tmp_path, cluster)
    with pytest.raises(RunError, match="--on: cannot change while the system runs"):
        prepare(tmp_path, load_scenario("tiny"))
    store.end()
    prepare(tmp_path, load_scenario("tiny")).close()
    assert store.get(system.BACKEND) == system.THIS_MACHINE


def test_a_backend_that_this_version_does_not_know_is_said(tmp_path, cluster):
    store = running(tmp_path, cluster)
    store.put(system.BACKEND, "far away")
    with pytest.raises(RunError, match="runs on 'far away', which is unknown here"):
        left_of(tmp_path)


def test_who_looks_at_processes_of_this_machine_leaves_no_file_open():
    with subprocess.Popen(["sleep", "600"]) as child:
        handle, before = handle_of(child.pid), set(os.listdir("/proc/self/fd"))
        assert ThisMachine().alive(handle)
        assert set(os.listdir("/proc/self/fd")) == before
        child.kill()
