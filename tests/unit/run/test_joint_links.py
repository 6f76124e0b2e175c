"""Streams, requests and tensors of one run over the same links."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from edgewise.core.keyed import Key
from edgewise.core.split import SplitView, closed
from joint_scenarios import (
    each_query_ended_once,
    five_kinds,
    held,
    joint_run,
    over_cables,
    ran,
    run_of,
    run_out,
)

FAST = "1e18"
BUSY = "4Mbps"  # of `lan`, on which streams, requests and tensors are about 3.7 Mbit/s
Rows = dict[str, list[dict[str, Any]]]


class Bystander:
    """A rider that sends nothing."""

    def run(self, to_s: float) -> None:
        """Nothing happens."""

    def next_s(self) -> float:
        """Nothing is waited for."""
        return math.inf

    def take(self) -> None:
        """Nothing comes."""

    def look_again(self) -> None:
        """Rates are nothing to it."""


class Apart:
    """Every task of a query on another server."""

    decision, name = "split", "apart"

    def reset(self, program: Any, key: Key) -> None:
        """How many servers and tasks there are."""
        self.servers = len(program.server_ops)
        self.tasks = [len(closed(job.graph).tasks) for job in program.classes]

    def decide(self, view: SplitView) -> Any:
        """In turn."""
        return (view.query + np.arange(self.tasks[view.job])) % self.servers


def joint(data: dict[str, Any], *works: str, **policies: Any) -> Rows:
    """What became of these kinds of work, in a joint run even of one."""
    return run_of(held(data, *works), **{"split": "equal"} | policies)[1]


@pytest.mark.parametrize("sharing", ["fifo", "ps"])
def test_where_nothing_waits_all_kinds_leave_what_they_leave_on_links_of_their_own(sharing: str) -> None:
    apart, shared = (
        ran(over_cables(FAST, FAST) | {"sharing": how}, split="equal") for how in ("none", sharing)
    )
    assert apart == shared
    assert len(shared["graphs"]) > 500 and len(shared["services"]) > 100


@pytest.mark.parametrize("work", ["services", "graphs"])
def test_work_alone_takes_its_turns_as_on_links_of_its_own(work: str) -> None:
    """First come first served: what the engines do that know no other work."""
    data, time_s = over_cables("900kbps", "900kbps"), "end_s" if work == "services" else "time_s"
    for operator, work_ops in zip(data["graphs"][0]["operators"], (5e7, 3.1e7, 4.3e7), strict=True):
        operator["work_ops"] = work_ops  # so that no two things happen at one time
    apart, shared = (joint(data | {"sharing": how}, work)[work] for how in ("none", "fifo"))
    light = joint(over_cables(FAST, FAST) | {"graphs": data["graphs"], "sharing": "none"}, work)[work]
    for a, b in zip(apart, shared, strict=True):
        assert {**a, time_s: 0} == {**b, time_s: 0}
    late = [[row[time_s] or np.nan for row in rows] for rows in (apart, shared, light)]
    np.testing.assert_allclose(late[1], late[0], rtol=0, atol=1e-9)
    assert np.nansum(np.array(late[0]) - late[2] > 0.05) > 20


@pytest.mark.parametrize("sharing", ["fifo", "ps"])
def test_streams_delay_tensors_on_the_same_cable_and_not_a_byte_of_those_on_another(sharing: str) -> None:
    found = {}
    for cable in ("lan", "lab"):
        data = over_cables(BUSY, FAST, tensors=cable) | {"sharing": sharing}
        found[cable] = [joint(data, *works)["graphs"] for works in (("graphs",), ("streams", "graphs"))]
    alone, beside = ([row["time_s"] for row in rows] for rows in found["lan"])
    assert np.mean(beside) > 1.05 * np.mean(alone)
    assert found["lab"][0] == found["lab"][1]


@pytest.mark.parametrize("sharing", ["fifo", "ps"])
def test_streams_and_tensors_delay_requests_to_nodes_and_not_a_byte_of_those_to_the_cloud(
    sharing: str,
) -> None:
    data, took_s = over_cables("2.5Mbps", FAST) | {"sharing": sharing}, []
    for works in (("services",), ("streams", "services"), ("streams", "services", "graphs")):
        rows = joint(data, *works, requests="closest", dispatch="closest")["services"]
        took_s.append(
            np.mean([row["end_s"] - row["arrival_s"] for row in rows if row["outcome"] == "in_time"])
        )
    assert took_s[2] > 1.03 * took_s[1] > 1.03**2 * took_s[0]
    clouds = [joint(data, *works, requests="cloud-only") for works in (("services",), ("services", "graphs"))]
    assert clouds[0]["services"] == clouds[1]["services"]


@pytest.mark.parametrize("sharing", ["fifo", "ps"])
def test_all_work_ends_once_on_full_links_where_a_node_fails_and_twice_with_the_same_bytes(
    sharing: str,
) -> None:
    timeline = [{"at_s": 20.0, "node": "near-0", "up": False}, {"at_s": 30.0, "node": "near-0", "up": True}]
    data = over_cables("3Mbps", "1Mbps", buffer_bytes="60kB") | {"sharing": sharing, "timeline": timeline}
    run, found = run_of(data, split="equal")
    assert json.dumps(found) == json.dumps(run_of(data, split="equal")[1])
    assert [row["query"] for row in found["graphs"]] == list(range(len(found["graphs"])))
    assert [row["request"] for row in found["services"]] == list(range(len(found["services"])))
    assert each_query_ended_once(run, found["streams"])
    assert run.wires is not None
    net = run.wires.net
    late = run.wires.now_s - np.array([m.due_s for m in net.messages[net.messages.number >= 0]])
    assert (late < 30.0).all()  # what is still on its way was sent at the end
    assert net.links.dropped.sum() > 0
    assert (net.links.carried_bits <= net.links.capacity_bps * (net.links.backlog_s + 1.0)).all()
    lost = [row for row in found["graphs"] if row["time_s"] is None]
    assert 0 < len(lost) < net.links.dropped.sum()


def test_two_clusters_send_tensors_over_a_cable_each_way() -> None:
    data = held(five_kinds([], timeline=[]), "graphs")
    data["clusters"][1]["nodes"][0]["speed_ops"] = 5e9
    data["graphs"][0] |= {"tensors": [
        {"source": one, "target": other, "size_bytes": "10kB"}
        for one, other in (("one", "two"), ("one", "three"), ("two", "four"), ("three", "four"))
    ]}  # fmt: skip
    data["graphs"][0]["operators"].append({"name": "four", "work_ops": 5e7})
    data["links"] = [
        {"name": "wan", "bandwidth_bps": "20Mbps"},
        {"site": "site", "cluster": "near", "delay_s": "1ms"},
        {"site": "site", "cluster": "cloud", "delay_s": "20ms", "over": "wan"},
        {"between": ["near", "near"], "bandwidth_bps": "1Gbps", "shared": "both"},
        {"between": ["near", "cloud"], "over": "wan"},
    ]
    run, found = run_of(data | {"sharing": "fifo"}, split=Apart)
    assert run.wires is not None
    carried = dict(zip(run.wires.names, run.wires.net.links.carried_bits.tolist(), strict=True))
    assert carried["wan:up"] > 1e6 and carried["wan:down"] > 1e6
    summary = run.joined["graphs"].tables().windows
    busiest_s = max(carried.values()) / 20e6
    assert summary["link_load"][0] == pytest.approx(busiest_s / summary["end_s"][0])
    assert all(row["time_s"] is not None for row in found["graphs"])


@pytest.mark.parametrize("sharing", ["fifo", "ps"])
def test_a_loop_of_requests_and_streams_is_what_riders_do_step_by_step(sharing: str) -> None:
    """Who asks for nothing has requests and streams go on by turns; the records are the same."""
    timeline = [{"at_s": 20.0, "node": "near-0", "up": False}, {"at_s": 32.0, "node": "near-0", "up": True}]
    data = held(over_cables("3Mbps", "1Mbps"), "streams", "services") | {
        "sharing": sharing,
        "timeline": timeline,
    }
    data["services"]["offered"][0]["answer_bytes"] = 20e3
    found = []
    for beside in ((), (Bystander(),)):
        run = joint_run(data)
        for rider in beside:
            run.wires.add(rider)
        assert (run.wires.streams_beside(run.parts["services"].sites) is None) == bool(beside)
        found.append(run_out(run))
    assert found[0] == found[1] and len(found[0]["services"]) > 50
