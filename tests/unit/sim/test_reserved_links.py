"""Flows of pipelines and image pulls have reserved rates on links that messages share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import edgewise as ew
from edgewise.core.keyed import Key
from edgewise.core.orchestrate import AddReplica, ReplicaView
from edgewise.core.place import NetworkView, Placement
from edgewise.errors import ScenarioError
from edgewise.model.orchestration import System
from edgewise.model.parsing import parse_scenario
from edgewise.model.services import system_of
from edgewise.model.work import Stream
from edgewise.sim.images import after_outages
from joint_scenarios import FLOW_BPS, Across, held, laid, mixed, ran, run_of

CABLE_BPS = 100e6
BITS, RATE_QPS = 80e3, 500.0


def poisson(duration_s: float = 60.0) -> list[Stream]:
    """A stream of queries that come at random, for so long."""
    return [Stream(0, 0, "quick", "detection", 0.0, duration_s, RATE_QPS, BITS / 8, 9.0, 0.0, 0, "poisson")]


@pytest.mark.parametrize("sharing", ["fifo", "ps"])
def test_streams_have_just_what_a_pipeline_leaves_them_of_a_cable(sharing: str) -> None:
    """The same bytes as over a cable that is that much narrower."""
    data = laid(sharing, CABLE_BPS, pipeline_at_s=0.0, frames=10**7)
    _, found = run_of(held(data, "streams", "pipelines"), place=Across, trace=poisson(), check=True)
    _, alone = run_of(held(laid(sharing, CABLE_BPS - FLOW_BPS), "streams"), trace=poisson())
    assert found["streams"] == alone["streams"] and found["streams"][0]["failed"] == 0


@pytest.mark.parametrize("sharing", ["fifo", "ps"])
@pytest.mark.parametrize("source", ["near-0", "near-1"])
def test_flows_of_either_direction_take_once_of_a_cable_of_one_capacity(sharing: str, source: str) -> None:
    """Payloads have what is left, whichever way frames go; the ledger of who is bound knows it."""
    data = laid(sharing, CABLE_BPS, source=source, pipeline_at_s=0.0, frames=10**7)
    narrow = held(laid(sharing, CABLE_BPS - FLOW_BPS), "streams")
    data["links"][0]["shared"] = narrow["links"][0]["shared"] = "both"
    run, found = run_of(held(data, "streams", "pipelines"), place=Across, trace=poisson(), check=True)
    assert found["streams"] == run_of(narrow, trace=poisson())[1]["streams"]
    assert run.wires.names[0] == "lan:both"
    view = run.parts["streams"].simulation.core.view()
    assert view.link[0, 0] == CABLE_BPS - FLOW_BPS


def test_a_stream_declares_its_rate_once_of_a_cable_of_one_capacity() -> None:
    """Half of it, and a second one that wants as much finds no room beside a flow."""
    data = held(laid("fifo", CABLE_BPS, pipeline_at_s=0.0, frames=10**7), "streams", "pipelines")
    data["links"][0]["shared"] = "both"
    rate_qps = 0.45 * CABLE_BPS / BITS
    (stream,) = poisson(50.0)
    trace = [replace(stream, id=k, open_s=5.0 + k, rate_qps=rate_qps) for k in range(2)]
    rows = run_of(data, place=Across, trace=trace)[1]["streams"]
    assert [row["reason"] for row in rows] == [None, "every link to a suitable worker is at capacity"]
    trace[1] = replace(trace[1], rate_qps=0.3 * CABLE_BPS / BITS)
    rows = run_of(data, place=Across, trace=trace)[1]["streams"]
    assert [row["reason"] for row in rows] == [None, None]


def test_a_pipeline_that_starts_slows_streams_to_an_m_d_1_queue_with_what_is_left_of_the_cable() -> None:
    """A stream before it comes, one while it runs."""
    data = held(laid("fifo", CABLE_BPS, pipeline_at_s=80.0, frames=10**7), "streams", "pipelines")
    data["duration_s"] = 160
    (stream,) = poisson(80.0)
    trace = [stream, replace(stream, id=1, open_s=80.5, close_s=160.0)]
    for flow_bps in (20e6, 50e6):
        policy = type("Some", (Across,), {"flow_bps": flow_bps})
        _, rows = run_of(data, place=policy, trace=trace)
        for row, left_bps in zip(rows["streams"], (CABLE_BPS, CABLE_BPS - flow_bps), strict=True):
            service_s = BITS / left_bps
            load = RATE_QPS * service_s
            plain_s = 2 * 0.001 + 2 * 0.001 + service_s + 1e-5  # way, access, transmission, processing
            wait_s = row["delay_mean_s"] - plain_s
            assert wait_s == pytest.approx(load * service_s / (2 * (1 - load)), rel=0.08), flow_bps


def test_flows_the_other_way_leave_payloads_alone() -> None:
    data = held(laid("fifo", CABLE_BPS, source="near-1"), "streams", "pipelines")
    run, found = run_of(data, place=Across, trace=poisson(5.0))
    assert found["streams"] == run_of(held(data, "streams"), trace=poisson(5.0))[1]["streams"]


def test_what_a_pipeline_leaves_is_heard_by_who_binds_streams_and_given_back_at_its_end() -> None:
    data = held(laid("fifo", CABLE_BPS, pipeline_at_s=5.0), "streams", "pipelines")
    run, _ = run_of(data, place=Across, steps=lambda run: run.joint.now_s < 8.0)
    simulation, lan = run.parts["streams"].simulation, run.wires.names.index("lan:up")
    reserved = run.wires.net.links.reserved_bps
    assert reserved[lan] == FLOW_BPS and reserved[lan + 1] == 0.0
    simulation.run_until(8.0)
    assert simulation.core.view().link[0, lan] == CABLE_BPS - FLOW_BPS
    run.joint.run()
    assert not run.wires.net.links.reserved_bps.any()


class AddAt:
    """One replica more on the second node at a frame."""

    decision, name, at_s = "orchestrate", "add-at", 10.0

    def reset(self, world: System, key: Key) -> None:
        """Nothing is kept."""

    def decide(self, view: ReplicaView) -> list[AddReplica]:
        """At that time."""
        return [AddReplica(1, 1)] if view.world["clock_s"] == self.at_s else []


IMAGE_BYTES = 50e6


def up_s(data: dict[str, Any], **policies: Any) -> tuple[float, Any, dict[str, Any]]:
    """When the replica that comes at 10 s is ready."""
    ready: list[float] = []

    def look(run: Any) -> bool:
        queues = run.parts["services"].sites.queues
        start = queues.start

        def note(server: Any, there_s: float) -> None:
            start(server, there_s)
            if server.service == 1:
                ready.append(there_s + queues.system.start_delay_s)

        queues.start = note
        return False

    run, found = run_of(data, orchestrate=AddAt, steps=look, **policies)
    run.joint.run()
    replicas = run.parts["services"].sites.queues.replicas.values()
    assert all(each.up for each in replicas if each.service == 1) and len(ready) == 1
    return ready[0], run, found


@pytest.mark.parametrize("flow_bps", [0.0, 40e6])
@pytest.mark.parametrize("kept", [0.0, 0.1])
def test_a_pull_takes_its_size_over_what_flows_leave_and_delays_no_flow(flow_bps: float, kept: float) -> None:
    """The image comes down the cable, as do frames of the pipeline, whose source is behind it."""
    data = laid("fifo", CABLE_BPS, "wan", "near-1", image_bytes=IMAGE_BYTES, pipeline_at_s=2.0, frames=40_000)
    data["reservations"]["kept"] = kept
    policy = type("Some", (Across,), {"flow_bps": flow_bps})
    at_s, run, _ = up_s(held(data, "services", "pipelines"), place=policy)
    cloud_s = float(run.parts["services"].sites.system.delay_s[0, 0])
    took_s = 8.0 * IMAGE_BYTES / ((1.0 - kept) * CABLE_BPS - flow_bps)
    assert at_s == pytest.approx(10.0 + took_s + cloud_s + 0.5, rel=1e-9)
    alone = run_of(held(data, "pipelines"), place=policy)[1]["pipelines"]
    outcome = run.parts["pipelines"].world.outcome().pipelines
    assert [p.finish_s for p in outcome] == [row["finish_s"] for row in alone]


def test_without_sharing_images_come_as_ever() -> None:
    data = held(laid("none", CABLE_BPS, image_bytes=IMAGE_BYTES), "services")
    at_s, run, _ = up_s(data)
    assert run.reserved is None
    cloud_s = float(run.parts["services"].sites.system.delay_s[0, 0])
    assert at_s == pytest.approx(10.0 + 8.0 * IMAGE_BYTES / CABLE_BPS + cloud_s + 0.5)


def test_services_alone_pull_as_beside_other_work() -> None:
    data = held(laid("fifo", CABLE_BPS, image_bytes=IMAGE_BYTES), "services")
    run, found = run_of(data, orchestrate=AddAt)
    alone = ew.simulate(parse_scenario(data, "alone"), {"orchestrate": AddAt}, (0,))
    assert alone.windows.to_pydict()["image_bytes"] == run.parts["services"].sites.tally[:, -1].tolist()
    assert alone.items.drop_columns("policy").to_pylist() == [
        {key: value for key, value in row.items() if key != "policy"} for row in found["services"]
    ]


def test_a_variant_may_have_an_image_and_two_links_of_nodes_no_cable_together() -> None:
    data = held(laid("fifo", CABLE_BPS), "services")
    sized = {"variant": "small-cpu", "deadline_s": 1, "image_bytes": "50MB"}
    data["workers"] = [{"variant": "small-cpu", "cluster": "cloud"}]
    data["services"]["offered"] = [
        {"name": "plain", "memory_bytes": "1MB", "cpu_cores": 1, "image_bytes": 1},
        sized,
    ]
    scenario = parse_scenario(data, "sized")
    assert system_of(scenario.services, scenario.catalog, scenario.topology).layer_bytes[1] == 50e6
    data = laid("fifo", CABLE_BPS)
    data["clusters"][0]["nodes"][0]["count"] = 3
    data["links"].append({"between": ["near-1", "near-2"], "over": ["lan"]})
    with pytest.raises(ScenarioError, match="'lan' carries two links between nodes"):
        ran(data)


def test_a_node_that_dies_gets_its_image_anew() -> None:
    timeline = [{"at_s": 12, "node": "near-1", "up": False}, {"at_s": 20, "node": "near-1", "up": True}]
    data = held(laid("fifo", CABLE_BPS, image_bytes=IMAGE_BYTES), "services") | {"timeline": timeline}
    at_s, run, _ = up_s(data)
    cloud_s = float(run.parts["services"].sites.system.delay_s[0, 0])
    assert at_s == pytest.approx(20.0 + 8.0 * IMAGE_BYTES / CABLE_BPS + cloud_s + 0.5, rel=1e-9)
    assert not run.wires.net.links.reserved_bps.any()


DOWN = [
    {"at_s": at_s, "link": {"site": "site", "cluster": "cloud"}, "up": up}
    for at_s, up in ((8, False), (9, True), (12, False), (20, True), (20.5, False), (21, True))
]


@pytest.mark.parametrize("works", [("services",), ("streams", "services", "pipelines")])
def test_a_pull_waits_while_its_way_is_down_and_goes_on_when_it_is_up(works: tuple[str, ...]) -> None:
    """It has had 2 s of the cable when the way goes down, and what it then had is no longer reserved."""
    data = held(laid("fifo", CABLE_BPS, image_bytes=IMAGE_BYTES, pipeline_at_s=50.0), *works)
    before_s, run, _ = up_s(data)
    at_s, run, _ = up_s(data | {"timeline": DOWN})
    assert at_s == pytest.approx(before_s + 8.0 + 0.5, rel=1e-9)
    run, _ = run_of(data | {"timeline": DOWN}, orchestrate=AddAt, steps=lambda run: run.joint.now_s < 20.0)
    wan = run.wires.names.index("wan:down")
    assert run.wires.net.links.reserved_bps[wan] == pytest.approx(CABLE_BPS)
    run, _ = run_of(data | {"timeline": DOWN}, orchestrate=AddAt, steps=lambda run: run.joint.now_s < 12.0)
    assert not run.wires.net.links.reserved_bps.any()


def test_a_pull_over_links_of_its_own_waits_too_and_holds_up_no_other() -> None:
    data = held(laid("none", CABLE_BPS, image_bytes=IMAGE_BYTES), "services")
    before_s, *_ = up_s(data)
    at_s, *_ = up_s(data | {"timeline": DOWN})
    assert at_s == pytest.approx(before_s + 8.0 + 0.5, rel=1e-9)
    assert after_outages(1.0, 2.0, [(0.0, 1.0), (2.0, 9.0)]) == 2.0
    assert after_outages(1.0, 2.0, [(0.5, 3.0), (3.5, np.inf)]) == np.inf


def test_flows_between_nodes_go_on_while_a_way_over_the_same_cable_is_down() -> None:
    """A way is a route: its cables carry other ways, and links between nodes."""
    data = held(laid("fifo", CABLE_BPS, pipeline_at_s=5.0), "streams", "pipelines")
    down = {"at_s": 6, "link": {"site": "site", "cluster": "near"}, "up": False}
    run, found = run_of(data | {"timeline": [down]}, place=Across, steps=lambda run: run.joint.now_s < 8.0)
    assert run.wires.net.links.reserved_bps[run.wires.names.index("lan:up")] == FLOW_BPS
    found = run_of(data | {"timeline": [down]}, place=Across)[1]
    assert found["pipelines"] == run_of(data, place=Across)[1]["pipelines"]


def test_work_that_is_told_of_nothing_leaves_the_same_bytes() -> None:
    """Frames that cross no cable reserve nothing of it."""
    data = laid("fifo", CABLE_BPS)
    data["links"][4] = {"between": ["near-0", "near-1"], "bandwidth_bps": "10Mbps", "shared": "both"}
    both = ran(held(data, "streams", "pipelines"))
    assert both["streams"] == ran(held(data, "streams"))["streams"]


class AllOfIt(Across):
    """The whole cable for a flow that needs a small part of it."""

    name = "all-of-it"

    def decide(self, view: NetworkView) -> list[Placement]:
        """As far as flows may have it."""
        self.flow_bps = float(view.network.bandwidth_bps[0])
        return super().decide(view)


def test_no_policy_takes_a_cable_from_messages_unless_as_published() -> None:
    """Every message fails beside a policy that does so."""
    data = held(laid("fifo", CABLE_BPS, pipeline_at_s=0.0, frames=10**7), "streams", "pipelines")
    for reservations, least, most in ((data["reservations"], 0.0, 0.0), ({}, 0.99, 1.0)):
        _, rows = run_of(data | {"reservations": reservations}, trace=poisson(), place=AllOfIt)
        (row,) = rows["streams"]
        assert least <= row["ok"] / row["queries"] <= most


def sixty_percent(works: tuple[str, ...]) -> dict[str, Any]:
    """A pipeline whose tasks fit one to a node: 20 frames a second of 300 kbit over a cable of 10 Mbit/s."""
    data = mixed(nodes=2, pipeline_at_s=10.0)
    data["links"] = [
        {"name": "lan", "bandwidth_bps": "10Mbps"},
        {"site": "site", "cluster": "near", "delay_s": "1ms", "over": ["lan"]},
        {"between": ["near-0", "near-1"], "over": ["lan"]},
    ]
    for task, output_bytes in zip(data["pipelines"][0]["tasks"], ("37.5kB", 0), strict=True):
        task |= {"memory_bytes": "2.5GB", "output_bytes": output_bytes}
    data["streams"]["applications"][0]["size_bytes"] = "2kB"
    data["streams"]["arrivals"]["clients_per_min"] = 15
    return held(data, *works) | {"sharing": "fifo"}


@pytest.mark.parametrize("place", ["otfa", "tp"])
def test_messages_go_on_beside_a_flow_that_uses_60_percent_of_their_cable(place: str) -> None:
    """`otfa` and `tp` give it all of the cable, and every message failed while their pipelines ran."""
    data, published = sixty_percent(("streams", "pipelines")), {"capped": False, "kept": 0}
    alone = answered_from(run_of(sixty_percent(("streams",)))[1]["streams"])
    run, found = run_of(data, place=place, check=True)
    assert answered_from(found["streams"]) == alone == 1.0
    _, before = run_of(data | {"reservations": published}, place=place)
    assert answered_from(before["streams"]) == 0.0
    assert found["pipelines"] == before["pipelines"] and found["pipelines"][0]["frames"] == 600.0
    assert max(run.use()["links"]["reserved_bps"]) == pytest.approx(6e6, rel=1e-6)


def answered_from(rows: list[dict[str, Any]], at_s: float = 10.0, to_s: float = 40.0) -> float:
    """Share of queries answered in time, of streams that open and close in a span."""
    mine = [row for row in rows if at_s <= row["open_s"] and row["close_s"] <= to_s]
    assert len(mine) > 3
    return float(sum(row["ok"] for row in mine) / sum(row["queries"] for row in mine))
