"""A port that is planned for one process is given to no other, though nobody listens there yet."""

import itertools
import os
import socket
from contextlib import closing

import numpy as np
import pytest

pytest.importorskip("httptools", reason="the extra `live` is not installed")

from edgewise.config import load_scenario
from edgewise.model.pipelines import Network
from edgewise.runtime.controller.plan import prepare
from edgewise.runtime.controller.planned_ports import PlannedPorts
from edgewise.runtime.controller.rolling import read_change, write_change
from edgewise.runtime.http import ports
from edgewise.runtime.process.machine import handle_of
from edgewise.runtime.process.serving import Listen
from edgewise.runtime.states import DONE
from edgewise.runtime.testbeds import LocalTestbed

FIRST = 40_000


@pytest.fixture
def kernel(monkeypatch):
    """Names each free port four times over; whoever is asked anew begins anew."""

    named = itertools.count(0)

    def begin():
        nonlocal named
        named = itertools.count(0)

    def candidates():
        while True:
            yield FIRST + next(named) // 4

    monkeypatch.setattr(ports, "candidates", candidates)
    return begin


def where_all_listen(store):
    """Every port of a system, as often as it is somebody's; that of processes that share it once."""
    found = [store.get("controller")["port"]]
    fronts = {}
    for running in store.processes():
        process = running.process
        found.append(process.port)
        if process.settings.get("shared"):
            fronts[process.front.name] = process.front.port
        found += [process.front.settings["grpc_port"]] if process.front.settings.get("grpc_port") else []
    return found + list(fronts.values())


@pytest.mark.parametrize("scenario", ["tiny", "campus-small"])
def test_all_that_is_planned_together_has_ports_of_its_own(tmp_path, kernel, scenario):
    with closing(prepare(tmp_path, load_scenario(scenario), where=Listen(grpc_port=0))) as store:
        found = where_all_listen(store)
    assert len(found) == len(set(found)) > 4


def test_a_gateways_private_port_is_not_the_one_that_it_shares(tmp_path, kernel):
    with closing(prepare(tmp_path, load_scenario("tiny"), gateway_processes=2)) as store:
        found = where_all_listen(store)
    assert len(found) == len(set(found)) > 4


def test_ports_that_are_asked_for_by_number_are_no_workers(tmp_path, kernel):
    with closing(
        prepare(tmp_path, load_scenario("tiny"), where=Listen(port=FIRST, grpc_port=FIRST + 1))
    ) as store:
        found = where_all_listen(store)
    assert found.count(FIRST) == found.count(FIRST + 1) == 1


def test_who_comes_later_gets_no_port_of_those_that_do_not_listen_now(tmp_path, kernel):
    with closing(prepare(tmp_path, load_scenario("tiny"))) as store:
        write_change(store, read_change(store).in_state(DONE))
        first = store.process(load_scenario("tiny").topology.workers[1].name).process
        store.started(first.name, handle_of(os.getpid()), 0)
        kernel()
        more = {"clusters.0.nodes.0.resources.cpu_cores": 8, "workers.0.count": 3}
        other = {"catalog.variants.1.profile.fixed_s": "9ms"}
        prepare(tmp_path, load_scenario("tiny", more | other)).close()
        found = where_all_listen(store)
        assert len(found) == len(set(found)) > 5
        successor, _ = store.successor(first.name)
        assert successor.port not in found
        kernel()
        assert PlannedPorts(store).free() not in {*found, successor.port}


def test_flows_get_ports_that_no_process_and_no_other_flow_has(tmp_path, kernel):
    network = Network(("a", "b"), np.ones(2), np.ones(2), np.array([[0, 1]]), np.array([1e6]))
    with closing(prepare(tmp_path, load_scenario("tiny"))) as store:
        kernel()
        bed = LocalTestbed(network, lambda: PlannedPorts(store).all)
        flows = {bed.port() for _ in range(4)}
        assert len(flows) == 4 and flows.isdisjoint(where_all_listen(store))


def test_a_free_port_is_none_that_the_system_gives_who_connects(monkeypatch, tmp_path):
    range_of_system = tmp_path / "range"
    monkeypatch.setattr(ports, "GIVEN", range_of_system)
    range_of_system.write_text("20000\t60999\n")
    found = {ports.free_port() for _ in range(30)}
    assert len(found) > 1 and all(ports.LEAST <= port < 20_000 for port in found)
    with socket.create_server(("127.0.0.1", 0)) as server:
        mine = server.getsockname()[1]
        monkeypatch.setattr(ports, "candidates", lambda: iter((mine, 20_001)))
        assert ports.free_port() == 20_001


@pytest.mark.parametrize("said", ["1024 65535", None])
def test_where_the_system_leaves_none_it_names_one(monkeypatch, tmp_path, said):
    monkeypatch.setattr(ports, "GIVEN", tmp_path / "range")
    if said is not None:
        ports.GIVEN.write_text(said)
    port = ports.free_port()
    assert port > 1024 and ports.taken(port) is None
