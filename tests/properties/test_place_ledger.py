"""Whatever happens to pipelines, links and nodes: nothing is exceeded, and the ledgers hold what runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from edgewise import policies
from edgewise.config import load_scenario
from edgewise.core.ledger import NodeLedger, Reservation
from edgewise.core.link_ledger import TOLERANCE
from edgewise.core.place import (
    BandwidthChanged,
    MemoryChanged,
    PipelineEnded,
    PipelineSubmitted,
    PlacementDue,
    StartPipeline,
    StopPipeline,
    arrays_of,
    throughput,
)
from edgewise.core.place.core import PlaceCore
from edgewise.core.plane import HoldsChanged, NodesChanged, Plane
from edgewise.model.pipelines import network_of
from edgewise.model.topology import Node, Resources
from edgewise.model.work import INFERENCE
from edgewise.workloads.pipelines import pipelines_of

SCENARIO = load_scenario(
    "recognition", {"topology.nodes": 6, "pipelines.0.count": 8, "pipelines.0.generate": "random"}
)
NETWORK, JOBS = network_of(SCENARIO), pipelines_of(SCENARIO, 4)
SHARED = replace(NETWORK, cores=np.full(6, 2.0), task_cores=np.full(6, 0.5))
NODES = tuple(
    Node(name, "", Resources(2.0, memory))
    for name, memory in zip(NETWORK.names, NETWORK.memory_bytes.tolist(), strict=True)
)
JOBS_BYTES = [float(sum(task.memory_bytes for task in job.graph.tasks)) for job in JOBS]
numbers = st.integers(0, 7)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), numbers, st.just(0.0)),
        st.tuples(st.just("end"), numbers, st.just(0.0)),
        st.tuples(st.just("link"), numbers, st.sampled_from([0.0, 0.3, 1.0])),
        st.tuples(st.just("node"), numbers, st.sampled_from([0.0, 0.4, 1.0])),
        st.tuples(st.just("worker"), numbers, st.sampled_from([0.0, 0.5, 0.9])),
        st.tuples(st.just("job"), numbers, st.sampled_from([0.0, 0.5, 0.9])),
        st.tuples(st.just("decide"), st.just(0), st.just(0.0)),
    ),
    min_size=4,
    max_size=24,
)


class Other:
    """A core whose work may be pushed out: notes what is."""

    def __init__(self, ledger):
        self.ledger, self.lost = ledger, []

    def handle(self, event):
        self.lost += getattr(event, "reservations", ())
        return []

    def validate(self):
        assert all(self.ledger.of(each.owner) != each for each in self.lost)


def told(plane, what, which, part):
    """One event of those that the plane or its cores know."""
    node = which % len(NODES)
    match what:
        case "submit":
            return PipelineSubmitted(arrays_of(JOBS[which], which, NETWORK))
        case "end":
            return PipelineEnded(which)
        case "link":
            link = which % len(NETWORK.bandwidth_bps)
            return BandwidthChanged(link, part * float(NETWORK.bandwidth_bps[link]))
        case "node":
            smaller = Resources(2.0, part * NODES[node].resources.memory_bytes)
            sizes = {each.name: each for each in plane.ledger.there} | {
                NODES[node].name: Node(NODES[node].name, "", smaller)
            }
            return NodesChanged(tuple(sizes.values()))
        case "worker":
            needs = Resources(part * 2.0, part * NODES[node].resources.memory_bytes)
            return HoldsChanged((Reservation(f"worker {node}", NODES[node].name, needs, INFERENCE),))
    return PlacementDue(0.0)


def checked(plane, core):
    """Sums of what runs are what the ledgers hold, and fit."""
    plane.validate()
    view = core.view(0.0)
    memory, link = np.zeros(len(NODES)), np.zeros(len(NETWORK.bandwidth_bps))
    for placed in view.running:
        np.add.at(memory, placed.node, placed.pipeline.memory_bytes)
        np.add.at(link, placed.links, np.repeat(placed.bandwidth_bps, np.diff(placed.start)))
    assert (link <= core.network.bandwidth_bps * (1 + TOLERANCE)).all()
    assert core.links.links.reserved_bps[0] == pytest.approx(link, abs=1e-3)
    rounding = TOLERANCE * float(NETWORK.bandwidth_bps.max())
    assert view.free_bps == pytest.approx(core.network.bandwidth_bps - link, abs=rounding)
    total, reserved = plane.ledger.nodes.total[0, :, 1], plane.ledger.nodes.reserved[0, :, 1]
    others, before = np.zeros(len(NODES)), np.zeros(len(NODES))
    for each in plane.ledger.reservations:
        if each.decision != "place":
            others[NETWORK.names.index(each.node)] += each.resources.memory_bytes
            before[NETWORK.names.index(each.node)] += each.resources.cpu_cores * (each.priority >= INFERENCE)
    assert (reserved <= total * (1 + 1e-9) + 1e-3).all()
    assert reserved == pytest.approx(memory + others, abs=1e-3)
    used = np.zeros(len(NODES))
    for each in plane.ledger.reservations:
        if each.decision == "place":
            used[NETWORK.names.index(each.node)] += each.resources.cpu_cores
    if core.network.cores is None:
        assert not used.any()
    else:
        assert core.network.cores == pytest.approx(
            np.maximum(plane.ledger.nodes.total[0, :, 0] - before, 0.0)
        )
        wanted, network = np.zeros(len(NODES)), core.network
        for p, fps in zip(view.running, throughput(network, view.running), strict=True):
            takes = p.pipeline.work_ops * fps / network.speed_ops[p.node] * network.task_cores[p.node]
            np.add.at(wanted, p.node, takes)
        assert used == pytest.approx(wanted, abs=1e-6) and (used <= network.cores + 1e-6).all()


CUT = [("submit", 0, 0.0), ("submit", 1, 0.0), ("submit", 2, 0.0), ("decide", 0, 0.0), ("link", 0, 0.0)]


@settings(max_examples=40, deadline=None)
@given(steps, st.sampled_from(["tp", "otfs", "otfa", "joint"]), st.sampled_from([NETWORK, SHARED]))
@example(CUT, "joint", SHARED)  # the cores of a pipeline whose flow is cut were held on
def test_tasks_share_nodes_with_workers_and_jobs_and_nothing_is_exceeded(steps, name, network):
    ledger = NodeLedger(NODES)
    core = PlaceCore(network, policies.load("place", name), 1, ledger=ledger)
    other = Other(ledger)
    plane = Plane(ledger, {"place": core, "defer": other})
    runs = set()
    for i, (what, which, part) in enumerate(steps):
        if what == "job":
            node = NODES[which % len(NODES)]
            job = Reservation(f"job {i}", node.name, Resources(part, part * 1e9), 0, True, "defer")
            if ledger.fits(node.name, job.resources):
                ledger.reserve(job)
            continue
        commands = plane.handle(told(plane, what, which, part), float(i))
        runs |= {each.placement.pipeline.id for each in commands if isinstance(each, StartPipeline)}
        runs -= {each.pipeline for each in commands if isinstance(each, StopPipeline)}
        runs -= {which} if what == "end" else set()
        checked(plane, core)
        assert runs == set(core.running)


def test_a_task_pushes_out_a_job_and_finds_no_room_beside_a_worker():
    ledger = NodeLedger(NODES)
    core = PlaceCore(NETWORK, policies.load("place", "lr"), 1, ledger=ledger)
    plane = Plane(ledger, {"place": core, "defer": (other := Other(ledger))})
    for node in NODES:
        ledger.reserve(Reservation(f"job {node.name}", node.name, node.resources, 0, True, "defer"))
    plane.handle(PipelineSubmitted(arrays_of(JOBS[0], 0, NETWORK)), 0.0)
    (started,) = plane.handle(PlacementDue(0.0), 0.0)
    name = NETWORK.names[started.placement.node[0]]
    assert [each.owner for each in other.lost] == [f"job {name}"]
    workers = (Reservation(f"worker {each.name}", each.name, each.resources, INFERENCE) for each in NODES)
    plane.handle(HoldsChanged(tuple(workers)), 1.0)
    plane.handle(PipelineSubmitted(arrays_of(JOBS[1], 1, NETWORK)), 1.0)
    assert plane.handle(PlacementDue(1.0), 1.0) == []  # its worker has what the task leaves
    assert core.network.memory_bytes.sum() == pytest.approx(JOBS_BYTES[0])
    plane.handle(NodesChanged(()), 2.0)
    assert core.running == {} and core.view(2.0).free_memory_bytes.tolist() == [0.0] * len(NODES)
    checked(plane, core)


def test_what_a_node_is_said_to_have_is_beside_what_others_hold():
    ledger = NodeLedger(NODES)
    ledger.reserve(Reservation("worker", NODES[0].name, Resources(0.0, 1e8), INFERENCE))
    core = PlaceCore(NETWORK, policies.load("place", "tp"), 1, ledger=ledger)
    assert core.network.memory_bytes[0] == NETWORK.memory_bytes[0] - 1e8
    core.handle(MemoryChanged(0, 5e8))
    assert core.network.memory_bytes[0] == 5e8 and ledger.free(NODES[0].name).memory_bytes == 5e8
