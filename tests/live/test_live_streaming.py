"""Pipelines on real sockets: planned rates, planned links, a link that fails, and nothing left behind."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from edgewise.errors import RunError
from edgewise.runtime.testbeds import kernel
from edgewise.runtime.testbeds.flows import HubState
from edgewise.runtime.testbeds.spaces import Spaces, left_behind
from placed import LINKS, Placed, scenario, watch
from waiting import wait_until

pytestmark = pytest.mark.live
WHY_NOT = kernel.unavailable()
needs_namespaces = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
WITHIN, TRIES = 0.1, 5
STRAY_BYTES = 20_000  # neighbour discovery and the like on links that no flow takes


def as_planned(rates):
    flows = [(flow.measured_bps, flow.planned_bps) for flow in rates.flows]
    return all(abs(m / p - 1) <= WITHIN for m, p in [(rates.measured_fps, rates.planned_fps), *flows])


def check_rates(placed, number, seconds=3.0):
    """Throughput and every flow within 10 % of the plan; a machine that is busy for a while may try again."""
    for _ in range(TRIES):
        rates = placed.rates(number, seconds)
        if as_planned(rates):
            return rates
    raise AssertionError(f"not within {WITHIN:.0%} of the plan, {TRIES} times: {rates}")


def test_local_rates_follow_the_plan_and_a_cut_link_stops_its_flows(tmp_path):
    with Placed(tmp_path / "live") as placed:
        number = placed.submit(watch(tmp_path))
        placed.running(number)
        rates = check_rates(placed, number)
        assert {flow.path for flow in rates.flows} >= {(0, 2, 4), (1, 3, 4)}
        placed.set_link("cam", "west", up=False)
        after = check_rates(placed, number)
        assert all(1 not in flow.path for flow in after.flows)
        assert [row["up"] for row in placed.kept.links()] == [True, False, True, True, True]
        assert placed.kept.links()[0]["carried_bps"] > 0.5 * placed.kept.links()[0]["reserved_bps"] > 0
        placed.end(number)
        assert not placed.kept.processes.running


def test_an_error_of_the_user_names_the_task(tmp_path):
    with Placed(tmp_path / "live") as placed:
        number = placed.submit(watch(tmp_path, plates="broken"))
        placed.until(lambda: placed.state(number) == "failed")
        why = placed.kept.book.get(number).why
        assert "task 'plates': TypeError: returned '40000'; a task returns True, output" in why


@needs_namespaces
def test_rates_and_paths_on_namespaces_are_those_of_the_plan_also_around_a_failed_link(tmp_path):
    with Placed(tmp_path / "live", on_namespaces=True) as placed:
        bed = None
        number = placed.submit(watch(tmp_path))
        placed.running(number)
        bed = placed.bed
        check_links(placed, number)
        assert bed.apply(placed.kept.processes.flows()) == 0
        placed.set_link("west", "cam", up=False)
        rates = check_links(placed, number)
        assert all(1 not in flow.path and 3 not in flow.path for flow in rates.flows)
        placed.set_link("cam", "west", up=True)
        rates = check_links(placed, number)
        assert any(1 in flow.path for flow in rates.flows)
        held = bed.read_held()
        assert held.rules == bed.held.rules and held.classes == bed.held.classes
        assert held.filters.keys() == bed.held.filters.keys() and held.rest_bps == bed.held.rest_bps
        placed.end(number)
        left = bed.read_held()
        assert left == HubState(rest_bps=left.rest_bps)  # no class, filter or rule of a flow
        assert min(left.rest_bps.values()) > 5e6  # and messages have all of each link again
    assert tmp_path / "live" not in left_behind()


def check_links(placed, number):
    """Rates as planned; every link carries its flows and nothing else."""
    check_rates(placed, number, 2.0)
    before, at_s = placed.bed.link_bytes(), time.monotonic()
    rates = check_rates(placed, number)
    carried, passed_s = placed.bed.link_bytes() - before, time.monotonic() - at_s
    planned = np.zeros(len(LINKS))
    for flow in rates.flows:
        for link in flow.path:
            planned[link] += flow.planned_bps
    payload_bps = 8 * carried / passed_s / kernel.WIRE
    used = planned > 0
    assert payload_bps[used] == pytest.approx(planned[used], rel=0.15)
    assert (carried[~used] < STRAY_BYTES).all()
    return rates


@needs_namespaces
def test_measured_throughput_of_otfa_is_above_that_of_tp(tmp_path):
    measured = {}
    for name in ("tp", "otfa"):
        with Placed(tmp_path / name, policy=name, on_namespaces=True) as placed:
            number = placed.submit(watch(tmp_path))
            placed.running(number)
            measured[name] = check_rates(placed, number).measured_fps
    assert measured["otfa"] > 1.1 * measured["tp"]


@needs_namespaces
def test_nothing_is_left_after_the_controller_was_killed(tmp_path):
    made = scenario((("a", 1e9, 1e9), ("b", 1e9, 1e9)), (("a", "b", 1e6),))
    folder, script = tmp_path / "live", tmp_path / "manager.py"
    placed = Placed(folder, made, on_namespaces=True)
    placed.kept.store.close()
    script.write_text(
        textwrap.dedent(
            """
            import pathlib, signal, subprocess, sys
            from edgewise.config import load_scenario
            from edgewise.model.pipelines import network_of
            from edgewise.runtime.store import DATABASE, Store
            from edgewise.runtime.testbeds import Flow
            from edgewise.runtime.testbeds.spaces import SPACES, SpaceTestbed, from_settings
            folder = pathlib.Path(sys.argv[1])
            made = load_scenario(folder / "scenario.yaml")
            spaces = from_settings(Store(folder / DATABASE).get(SPACES))
            bed = SpaceTestbed(network_of(made), made.topology, spaces)
            bed.apply([Flow(20001, 0, 1, (0,), 5e5)])
            stays = [sys.executable, "-c", "import signal; print('begun', flush=True); signal.pause()"]
            child = subprocess.Popen(bed.command(0, stays), stdout=subprocess.PIPE)
            assert child.stdout.readline() == b"begun\\n"
            print(child.pid, flush=True)
            signal.pause()
            """
        )
    )
    manager = subprocess.Popen([sys.executable, str(script), str(folder)], stdout=subprocess.PIPE, text=True)
    child = int(manager.stdout.readline())
    manager.send_signal(signal.SIGKILL)
    manager.wait()
    assert folder in left_behind()
    with Placed(folder, on_namespaces=True, fresh=False) as placed:
        placed.until(lambda: placed.core is not None)
        assert placed.bed.read_held().classes == {}  # its successor takes flows away
    assert folder not in left_behind()
    wait_until(lambda: not _runs(child), limit_s=5.0)


def _runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_without_root_the_message_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    said = "namespaces need root, and you are user 1000; use sudo, or --on local"
    with pytest.raises(RunError, match=said):
        Spaces(tmp_path).make(scenario().topology, {})
