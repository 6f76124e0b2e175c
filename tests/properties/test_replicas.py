"""What holds in every slot of every world, whatever is dispatched and scaled."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from edgewise import policies
from edgewise.core.keyed import Key
from edgewise.core.orchestrate import context_mask, hosts
from edgewise.errors import PolicyError, ScenarioError
from edgewise.kernels.compiled import kernel
from edgewise.policies.requests import KernelDispatch
from edgewise.sim.slots import replica_state as k
from edgewise.sim.slots.replicas import ReplicaWorlds, simulate

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "oracles"))
from replica_scenarios import a_system, some_commands, some_requests, some_stations

SLOTS, WORLDS = 30, 3


def _check(worlds: ReplicaWorlds, scaled: bool = False) -> None:
    system, view, truth = worlds.system, worlds.view, worlds.state.truth
    first = system.first_machine[1]
    for free, total in (
        (view.free_cpu_cores, system.cpu_cores),
        (view.free_memory_bytes, system.memory_bytes),
        (view.free_disk_bytes, system.disk_bytes),
    ):
        assert (free >= -1e-6).all()
        assert (free <= total + 1e-6).all()
    assert (view.busy <= view.ready).all(), "one request per replica"
    assert (view.removing[:, 1:] <= (view.busy + view.starting)[:, 1:]).all(), "idle replicas go at once"
    assert (view.waiting >= 0).all()
    on_disk = view.has_layer[:, 1:] @ system.layer_bytes
    assert np.allclose(on_disk + view.free_disk_bytes[:, 1:], system.disk_bytes[1:])
    for w in range(WORLDS):
        request = truth.request[w]
        for n in range(1, system.stations):
            station, place = truth.station[w, n], truth.place[w, n]
            running = request[place["run"][: station.running]]
            held = (view.ready + view.starting)[w, n] @ system.service_memory_bytes
            held += running["memory_bytes"].sum()
            assert np.isclose(
                held + view.free_memory_bytes[w, first + n - 1], system.memory_bytes[first + n - 1]
            )
            used = running["cpu_cores"].sum() + view.free_cpu_cores[w, first + n - 1]
            assert np.isclose(used, system.cpu_cores[first + n - 1])
            assert np.array_equal(np.bincount(running["service"], minlength=system.services), view.busy[w, n])
            queue = request[place["queue"][: station.queued]]
            assert (np.diff(queue["deadline_s"]) >= 0).all(), "earliest deadline first"
            if not scaled:  # what scaling has made room for begins with the slot
                _work_conserving(worlds, w, n, queue)
    counts = worlds.outcome()
    alive = np.isin(truth.request["state"], (k.AT_SITE, k.SENT, k.WORKED_ON)).sum(axis=1)
    assert np.array_equal(counts.waiting, alive), "arrived = in time + late + dropped + waiting"


def _work_conserving(worlds: ReplicaWorlds, w: int, n: int, queue: np.ndarray) -> None:
    view, m = worlds.view, worlds.system.first_machine[n]
    for request in queue[queue["ready_s"] < view.clock_s[w]]:
        idle = view.ready[w, n, request["service"]] > view.busy[w, n, request["service"]]
        cores = view.free_cpu_cores[w, m] > request["cpu_cores"] + 1e-6
        memory = view.free_memory_bytes[w, m] > request["memory_bytes"] + 1e-6
        assert not (idle and cores and memory), "a request waits although it could begin"


@given(st.integers(0, 10_000))
@settings(max_examples=40)
def test_capacity_is_kept_and_requests_are_conserved(seed: int) -> None:
    rng = np.random.default_rng(seed)
    system = a_system(rng, drops=bool(rng.integers(2)))
    worlds = ReplicaWorlds(system, some_requests(rng, system, WORLDS, SLOTS, 50), SLOTS, range(WORLDS))
    while not worlds.done:
        _check(worlds)
        if worlds.frame_begins:
            worlds.scale(some_commands(rng, system, WORLDS))
            _check(worlds, scaled=True)
        worlds.step(some_stations(rng, hosts(worlds.view), worlds.view.head))
    _check(worlds)


def _outcomes(threads: int, name: str) -> np.ndarray:
    rng = np.random.default_rng(3)
    system = a_system(rng)
    worlds = ReplicaWorlds(system, some_requests(rng, system, 5, SLOTS, 50), SLOTS, range(5), threads=threads)
    simulate(worlds, policies.load("requests", name))
    return worlds.state.truth.request["end_s"]


@pytest.mark.parametrize("name", ["random", "deadline-queue"])
def test_runs_do_not_depend_on_threads_nor_on_the_other_worlds(name: str) -> None:
    many = _outcomes(2, name)
    assert np.array_equal(many, _outcomes(1, name), equal_nan=True)
    rng = np.random.default_rng(3)
    system = a_system(rng)
    drawn = some_requests(rng, system, 5, SLOTS, 50)
    alone = ReplicaWorlds(system, type(drawn)(*(part[3:4] for part in drawn)), SLOTS, [3])
    simulate(alone, policies.load("requests", name))
    assert np.array_equal(alone.state.truth.request["end_s"][0], many[3], equal_nan=True)


@pytest.mark.parametrize("name", policies.names("requests"))
def test_a_kernel_decides_as_it_does_on_a_view(name: str) -> None:
    rng = np.random.default_rng(5)
    system = a_system(rng)
    drawn = some_requests(rng, system, 2, SLOTS, 50)
    worlds = ReplicaWorlds(system, drawn, SLOTS, range(2))
    compiled = simulate(worlds, policies.load("requests", name))
    policy = policies.load("requests", name)
    policy.reset(system, Key(0))
    worlds.reset()
    while not worlds.done:
        stations = policy.decide(worlds.view)
        assert ((stations >= 0) <= (worlds.view.head >= 0)).all()
        worlds.step(stations)
    assert np.array_equal(worlds.outcome().in_time, compiled.in_time)


def test_the_mask_is_within_what_hosts_and_the_cloud_is_always_there() -> None:
    rng = np.random.default_rng(8)
    system = a_system(rng)
    worlds = ReplicaWorlds(system, some_requests(rng, system, WORLDS, SLOTS, 50), SLOTS, range(WORLDS))
    for _ in range(SLOTS):
        mask, could = context_mask(worlds.view), hosts(worlds.view)
        assert (mask <= could).all()
        assert mask[:, :, 0].all()
        worlds.step(some_stations(rng, mask, worlds.view.head))


def test_wrong_decisions_are_refused_and_change_nothing() -> None:
    rng = np.random.default_rng(1)
    system = a_system(rng)
    worlds = ReplicaWorlds(system, some_requests(rng, system, 1, SLOTS, 50), SLOTS, [0])
    while worlds.view.head[0, 0] < 0:
        worlds.step(np.full(worlds.view.head.shape, -1))
    stations = np.full(worlds.view.head.shape, -1)
    stations[0, 0] = system.stations
    slot = worlds.slot
    with pytest.raises(PolicyError, match=f"slot {slot}, site 0: station {system.stations} does not"):
        worlds.step(stations)
    with pytest.raises(PolicyError, match="must be of shape"):
        worlds.step(stations[:, :0])
    with pytest.raises(ScenarioError, match="multiple of frame_slots, 5"):
        ReplicaWorlds(system, some_requests(rng, system, 1, SLOTS, 5), 7, [0])
    bad = some_requests(rng, system, 1, SLOTS, 5)._replace(count=np.array([5]))
    bad.service[0, 2] = 99
    with pytest.raises(ScenarioError, match="world 0, request 2: service must be 0"):
        ReplicaWorlds(system, bad, SLOTS, [0])
    assert worlds.slot == slot


class _LastHost(KernelDispatch):
    name = "last-host"

    @staticmethod
    @kernel
    def rule(system, view, w, b, memory):
        best = 0
        for station in range(1, view.replicas.shape[1]):
            replicas = view.replicas[w, station, view.site[w, b].head_service]
            if replicas.ready > replicas.removing:
                best = station
        return best


def test_a_kernel_of_ones_own_is_built_into_the_engine() -> None:
    rng = np.random.default_rng(6)
    system = a_system(rng)
    worlds = ReplicaWorlds(system, some_requests(rng, system, 2, SLOTS, 50), SLOTS, range(2))
    compiled = simulate(worlds, _LastHost())
    policy, view = _LastHost(), worlds.reset()
    policy.reset(system, Key(0))
    while not worlds.done:
        could = hosts(view)
        last = could.shape[2] - 1 - could[:, :, ::-1].argmax(axis=2)
        stations = policy.decide(view)
        assert np.array_equal(stations, np.where(view.head >= 0, last, -1))
        worlds.step(stations)
    assert np.array_equal(worlds.outcome().in_time, compiled.in_time)
