"""Small scenarios with several kinds of work on the same nodes, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from itertools import pairwise
from typing import Any

import numpy as np

from edgewise.arrays import Floats
from edgewise.config import load_scenario
from edgewise.core.defer.core import DeferCore
from edgewise.core.keyed import Key, Purpose, exponential, uniform
from edgewise.core.ledger import NodeLedger
from edgewise.core.orchestrate import ReplicaPolicy
from edgewise.core.orchestrate.core import OrchestrateCore, orchestrating
from edgewise.core.place import NetworkView, Placement
from edgewise.core.plane import Plane
from edgewise.model.parsing import parse_scenario
from edgewise.model.pipelines import Network
from edgewise.model.pools import of_services
from edgewise.model.topology import Node, Resources
from edgewise.model.work import DeferrableJob, Stream
from edgewise.report.schema import WORK
from edgewise.run import assigning
from edgewise.run.joint import JointRun
from edgewise.run.tables import table
from edgewise.sim.clock import JointClock
from edgewise.sim.parts.jobs import JobsOutcome, JobsPart, OtherWork
from edgewise.sim.parts.services import RequestsPart
from edgewise.sim.requests.sites import RequestSites

FLOW_BPS = 20e6
# A file: each frame another node has a replica of another service, or has one no more.
TURNS = """
from edgewise.core.orchestrate import AddReplica, RemoveReplica

class Turns:
    name, decision, batched = "turns", "orchestrate", False

    def reset(self, world, key):
        self.frames = 0

    def decide(self, view):
        self.frames += 1
        node, service = self.frames % 4, self.frames % 3
        kind = RemoveReplica if view.ready[node + 1, service] > 0 else AddReplica
        return [kind(node, service)]
"""
NODE = {"cpu_cores": 6, "memory_bytes": "4GB"}


def mixed(
    jobs: Sequence[dict[str, Any]] = (),
    nodes: int = 2,
    timeline: Sequence[tuple[float, bool]] = (),
    lag_s: float = 0.0,
    pipeline_at_s: float = 1.0,
) -> dict[str, Any]:
    """A cluster at one site, whose first node fails by the timeline; a worker, a pipeline, and jobs.

    A node has 6 cores and 4 GB; the worker holds 2 cores and 1 GB, the pipeline's tasks hold 1 GB.
    """
    data: dict[str, Any] = {
        "name": "mixed",
        "duration_s": 60,
        "window_s": 5,
        "telemetry": {"period_s": 1, "lag_s": lag_s},
        "catalog": {
            "models": [{"name": "small", "task": "detection", "accuracy": 30}],
            "variants": [
                {
                    "name": "small-cpu",
                    "model": "small",
                    "resources": {"cpu_cores": 2, "memory_bytes": "1GB"},
                    "profile": {"fixed_s": "10ms", "source": "made up for tests"},
                    "capacity_qps": 50,
                    "largest_bytes": "20kB",
                }
            ],
        },
        "clusters": [
            {
                "name": "near",
                "tier": 0,
                "nodes": [{"name": "near", "count": nodes, "resources": NODE, "speed_ops": 1e9}],
            }
        ],
        "sites": [{"name": "site", "access_delay_s": "1ms", "uplink_bps": "100Mbps"}],
        "links": [{"site": "site", "cluster": "near", "delay_s": "1ms"}],
        "workers": [{"variant": "small-cpu", "node": "near-0"}],
        "streams": {
            "applications": [
                {
                    "name": "quick",
                    "task": "detection",
                    "rate_qps": 10,
                    "size_bytes": "10kB",
                    "deadline_s": "50ms",
                    "length_s": [2, 8],
                    "min_accuracy": 20,
                }
            ],
            "arrivals": {"clients_per_min": 30},
        },
        "pipelines": [
            {
                "name": "frames",
                "source": "near-0",
                "input_bytes": "1kB",
                "frames": 600,
                "arrive_s": pipeline_at_s,
                "tasks": [
                    {
                        "name": "first",
                        "memory_bytes": "500MB",
                        "work_ops": 5e7,
                        "output_bytes": "1kB",
                        "downstream": ["last"],
                    },
                    {"name": "last", "memory_bytes": "500MB", "work_ops": 1e7, "output_bytes": 0},
                ],
            }
        ],
        "timeline": [{"at_s": at_s, "node": "near-0", "up": up} for at_s, up in timeline],
    }
    if nodes > 1:
        names = [f"near-{n}" for n in range(nodes)]
        data["links"] += [
            {"between": [a, b], "bandwidth_bps": "10Mbps", "shared": "both"} for a, b in pairwise(names)
        ]
    if jobs:
        listed = [
            {"name": f"job-{i}", "cores": 1, "duration_s": 10, "latest_s": 30} | job
            for i, job in enumerate(jobs)
        ]
        for job in listed:
            job.setdefault("earliest_s", job.get("submitted_s", 0))
        data["jobs"] = {"slot_s": 5, "submitted": listed}
    return data


def five_kinds(jobs: Sequence[dict[str, Any]], timeline: Sequence[tuple[float, bool]]) -> dict[str, Any]:
    """`mixed` on two nodes for two minutes, with a service, a cloud, and a split model.

    Nodes have a replica and two (1 core each), servers, the first a worker (2) and, at first, tasks (1.2).
    """
    data = mixed(jobs, nodes=2, timeline=timeline)
    data["clusters"][0]["nodes"][0]["resources"] = NODE | {"cpu_cores": 7.2}
    data["duration_s"] = 120
    sized = {"model": "small", "largest_bytes": "20kB"}
    data["catalog"]["variants"].append(
        {
            "name": "served",
            "resources": {"cpu_cores": 1, "memory_bytes": "500MB"},
            "profile": {"fixed_s": "50ms", "source": "made up for tests"},
        }
        | sized
    )
    data["clusters"].append(
        {
            "name": "cloud",
            "tier": 1,
            "nodes": [{"name": "cloud", "resources": {"cpu_cores": 3, "memory_bytes": "32GB"}}],
        }
    )
    data["links"][0] |= {"over": "lan-{site}"}
    data["links"] += [
        {"site": "site", "cluster": "cloud", "delay_s": "20ms", "over": "wan"},
        {"between": ["near", "near"], "bandwidth_bps": "100Mbps", "shared": "both"},
        {"name": "lan-{site}", "bandwidth_bps": "1Gbps"},
        {"name": "wan", "bandwidth_bps": "1Gbps"},
    ]
    data["workers"].append({"variant": "served", "cluster": "cloud"})
    data["policies"] = {"orchestrate": "none"}
    data["services"] = {
        "cloud": "cloud",
        "frame_s": 10,
        "cores_held": "life",
        "gateways": "per_site",
        "offered": [{"variant": "served", "deadline_s": "400ms", "initial": 3}],
        "requests": {"rate_qps": 2, "service_s": "50ms", "slack": [3, 6], "payload_bytes": "10kB"},
    }
    operators = [{"name": name, "work_ops": 5e7} for name in ("one", "two", "three")]
    tensors = [{"source": "one", "target": to, "size_bytes": "10kB"} for to in ("two", "three")]
    data["graphs"] = [
        {"name": "fan", "rate_qps": 10, "operators": operators, "tensors": tensors, "memory_bytes": "100MB"}
    ]
    return data


def apart(data: dict[str, Any]) -> dict[str, Any]:
    """`five_kinds` with the worker of streams on a node of its own, where nobody else goes."""
    has = {"cpu_cores": 2, "memory_bytes": "1GB"}
    data["clusters"].append({"name": "own", "tier": 0, "nodes": [{"name": "own", "resources": has}]})
    data["links"].append({"site": "site", "cluster": "own", "delay_s": "1ms", "over": "lan-{site}"})
    data["workers"][0]["node"] = "own"
    return data


class Across:
    """Every pipeline's first task on one node and its last on the other, with a flow of `FLOW_BPS`."""

    decision, name, flow_bps = "place", "across", FLOW_BPS

    def reset(self, network: Network, key: Key) -> None:
        """Nothing is kept."""

    def decide(self, view: NetworkView) -> list[Placement]:
        """All that wait."""
        start, links = np.array([0, 0, 1]), np.zeros(1, dtype=np.int64)
        return [
            Placement(p, np.array([p.source, 1 - p.source]), start, links, np.array([np.inf, self.flow_bps]))
            for p in view.waiting
        ]


def laid(
    sharing: str,
    cable_bps: float,
    cable: str = "lan",
    source: str = "near-0",
    pipeline_at_s: float = 1.0,
    frames: int = 600,
    image_bytes: float = 1.0,
) -> dict[str, Any]:
    """`mixed` over two cables, one to nodes and one to the cloud, where images come from.

    Args:
        cable: which of them joins the nodes, too.
    """
    data = mixed(nodes=2, pipeline_at_s=pipeline_at_s)
    data["sharing"] = sharing
    data["reservations"] = {"capped": False, "kept": 0}  # policies say what flows have
    data["pipelines"][0] |= {"source": source, "frames": frames}
    data["catalog"]["variants"][0] |= {"capacity_qps": 1e5}
    data["catalog"]["variants"][0]["profile"]["fixed_s"] = 1e-5
    data["sites"][0]["uplink_bps"] = 1e12
    data["clusters"].append(
        {
            "name": "cloud",
            "tier": 1,
            "nodes": [{"name": "cloud", "resources": {"cpu_cores": 3, "memory_bytes": "32GB"}}],
        }
    )
    data["links"] = [
        *({"name": name, "bandwidth_bps": cable_bps} for name in ("lan", "wan")),
        {"site": "site", "cluster": "near", "delay_s": "1ms", "over": ["lan"]},
        {"site": "site", "cluster": "cloud", "delay_s": "20ms", "over": ["wan"]},
        {"between": ["near-0", "near-1"], "over": [cable]},
    ]
    named = {"memory_bytes": "100MB", "cpu_cores": 0.5, "image_bytes": image_bytes, "initial": 0}
    data["policies"] = {"orchestrate": "none"}
    data["services"] = {
        "cloud": "cloud",
        "frame_s": 10,
        "gateways": "per_site",
        "offered": [{"name": "zero"} | named | {"initial": 2}, {"name": "one"} | named],
        "requests": {"rate_qps": 2, "service_s": "50ms", "slack": [3, 6], "payload_bytes": "10kB"},
    }
    return data


def over_cables(lan: str, wan: str, tensors: str = "lan", **more: Any) -> dict[str, Any]:
    """Streams, services and a split model of `five_kinds` over named cables.

    Streams and requests go to the nodes over `lan`, requests to the cloud over `wan`, tensors over `tensors`.
    """
    data = held(five_kinds([], timeline=[]), "streams", "services", "graphs")
    data["sites"][0]["uplink_bps"] = "1e18"
    data["links"] = [
        {"name": "lan", "bandwidth_bps": lan, "delay_s": "0.5ms"} | more,
        {"name": "wan", "bandwidth_bps": wan, "delay_s": "10ms"} | more,
        *([{"name": "lab", "bandwidth_bps": lan}] if tensors == "lab" else []),
        {"site": "site", "cluster": "near", "over": "lan"},
        {"site": "site", "cluster": "cloud", "over": "wan", "delay_s": "5ms"},
        {"between": ["near", "near"], "over": tensors},
    ]
    return data


def held(data: dict[str, Any], *works: str) -> dict[str, Any]:
    """The scenario with these kinds of work only."""
    kinds = ("streams", "services", "pipelines", "graphs", "jobs")
    return {key: value for key, value in deepcopy(data).items() if key not in kinds or key in works}


def campus(rate_qps: float, jobs: list[dict[str, Any]], timeline: list[dict[str, Any]]) -> dict[str, Any]:
    """`kais-live` with a gateway at each site, jobs of 2 cores, and what fails."""
    scenario = load_scenario(
        "kais-live", {"services.gateways": "per_site", "services.cores_held": "life", "duration_s": 60}
    )
    data: dict[str, Any] = scenario.spec.model_dump(mode="json", exclude_none=True)
    data["services"]["requests"]["rate_qps"] = rate_qps
    listed = [{"cores": 2, "duration_s": 20, "latest_s": 30, "earliest_s": 0} | job for job in jobs]
    named = [{"name": f"job-{i}"} | job for i, job in enumerate(listed)]
    return data | {"timeline": timeline} | ({"jobs": {"slot_s": 5, "submitted": named}} if named else {})


def ran(
    data: dict[str, Any], seed: int = 0, check: bool = False, **policies: Any
) -> dict[str, list[dict[str, Any]]]:
    """The items of each kind of work that a scenario holds, as rows."""
    return run_of(data, seed, check, **policies)[1]


def run_of(
    data: dict[str, Any],
    seed: int = 0,
    check: bool = False,
    trace: Sequence[Stream] | None = None,
    steps: Callable[[JointRun], bool] | None = None,
    **policies: Any,
) -> tuple[JointRun, dict[str, list[dict[str, Any]]]]:
    """A run that is over, and its items.

    Args:
        trace: streams in place of drawn ones.
        steps: go on only as long as it says, and leave items out.
    """
    run = joint_run(data, seed, check, trace, **policies)
    if steps is not None:
        while steps(run):
            run.joint.step(run.joint.next_s())
        return run, {}
    return run, run_out(run)


def run_out(run: JointRun) -> dict[str, list[dict[str, Any]]]:
    """Go to the end of a run; its items."""
    return {
        work: table(WORK[work].items, "any", run.seed, each.items).to_pylist()
        for work, each in run.run().items()
    }


def joint_run(
    data: dict[str, Any],
    seed: int = 0,
    check: bool = False,
    trace: Sequence[Stream] | None = None,
    **policies: Any,
) -> JointRun:
    """A run that has not begun; see `run_of`."""
    scenario = parse_scenario(data, "mixed")
    works = scenario.holds
    chosen: dict[str, Any] = {}
    for work in works:
        for decision, name in assigning.defaults(scenario, work).items():
            chosen[decision] = assigning.maker(decision, policies.get(decision, name))[1]
    return JointRun(scenario, works, chosen, seed, trace, check=check)


def queries_of(stream: Stream, seed: int) -> Iterator[tuple[int, float]]:
    """(number, sent_s) of every query of a stream."""
    sent_s, number = stream.open_s, 0
    while True:
        gap_s = 1.0 / stream.rate_qps
        if stream.arrivals == "poisson":
            gap_s *= exponential(seed, Purpose.QUERY, stream.id, number)
        elif number == 0:
            gap_s *= uniform(seed, Purpose.PHASE, stream.id, 0)
        sent_s += gap_s
        if sent_s >= stream.close_s:
            return
        yield number, sent_s
        number += 1


def each_query_ended_once(run: JointRun, rows: list[dict[str, Any]]) -> bool:
    """Whether as many queries of each stream ended as it sent."""
    trace = run.parts["streams"].simulation.trace
    return [row["ok"] + row["failed"] + row["rejected"] for row in rows] == [
        sum(1 for _ in queries_of(stream, run.seed)) for stream in trace
    ]


def simulate_sites(sites: RequestSites, policy: ReplicaPolicy) -> OrchestrateCore:
    """Run sites alone, to the end; the core that orchestrates."""
    services, system = sites.services, sites.system
    has = zip(services.nodes, system.node_has.tolist(), strict=True)
    nodes = [Node(name, "", Resources(cores, memory_bytes)) for name, (memory_bytes, cores) in has]
    ledger = NodeLedger(nodes)
    core = orchestrating(of_services(services), policy, ledger)
    JointClock([RequestsPart(sites, core, {})], Plane(ledger, {"orchestrate": core}), nodes).run()
    return core


def run_jobs(jobs: Sequence[DeferrableJob], left_over: Floats, slot_s: float, core: DeferCore) -> JobsOutcome:
    """Run jobs alone, on the nodes of a core's ledger.

    Args:
        jobs: ids are 0, 1, …, in any order of submission.
        left_over: (T,) cores that other work leaves on all nodes together.
    """
    nodes, part = core.ledger.there, JobsPart(jobs, core, left_over.size, slot_s)
    plane = Plane(core.ledger, {"defer": core})
    JointClock([OtherWork(nodes, left_over, slot_s), part], plane, nodes).run()
    return part.outcome()


SMALL = {"name": "small", "task": "detection", "accuracy": 30}
OF_POOLS = {"resources": {"cpu_cores": 4, "memory_bytes": "4GB"}}
SMALL_CPU = {
    "name": "small-cpu", "model": "small", "resources": {"cpu_cores": 1, "memory_bytes": "1GB"},
    "profile": {"fixed_s": "10ms"}, "capacity_qps": 50, "largest_bytes": "20kB", "start_s": 2,
    "image_bytes": "20MB",
}  # fmt: skip


def pools_with_requests(rate_qps: float, **changes: Any) -> dict[str, Any]:
    """`pools`, whose workers serve requests too, beside one in a cloud that is far."""
    data = pools(**changes)
    data["workers"] = [*data["workers"], {"variant": "small-cpu", "node": "far"}]
    data["services"] = {
        "cloud": "far", "frame_s": 5, "cores_held": "life",
        "offered": [{"variant": "small-cpu", "deadline_s": 30}],
        "requests": {"rate_qps": rate_qps, "service_s": "20ms", "slack": 1500, "payload_bytes": "10kB"},
    }  # fmt: skip
    data["links"] = [
        {"site": "*", "cluster": "*", "delay_s": "5ms", "over": "lan-{site}"},
        {"site": "*", "cluster": "own", "delay_s": "1ms", "over": "lan-{site}"},
        {"site": "*", "cluster": "far", "delay_s": "20ms", "over": "wan"},
        {"name": "lan-{site}", "bandwidth_bps": "100Mbps"},
        {"name": "wan", "bandwidth_bps": "100Mbps"},
    ]
    return data


def pools(**changes: Any) -> dict[str, Any]:
    """Two sites with two nodes each, and workers that come and go on both."""
    return {
        "name": "pools",
        "duration_s": 120,
        "window_s": 5,
        "telemetry": {"period_s": 1, "lag_s": 0.1},
        "catalog": {"models": [SMALL], "variants": [SMALL_CPU]},
        "clusters": [
            {"name": "near", "count": 2, "tier": 0, "nodes": [OF_POOLS | {"name": "node", "count": 2}]},
            {"name": "far", "tier": 1, "nodes": [OF_POOLS | {"name": "far"}]},
        ],
        "sites": [{"name": "site", "count": 2, "cluster": "near"}],
        "links": [
            {"site": "*", "cluster": "*", "delay_s": "5ms", "bandwidth_bps": "100Mbps"},
            {"site": "*", "cluster": "own", "delay_s": "1ms", "bandwidth_bps": "100Mbps"},
        ],
        "workers": [{"variant": "small-cpu", "cluster": "near", "count": 1, "least": 1, "most": 4}],
        "streams": {
            "applications": [
                {"name": "slow", "task": "detection", "rate_qps": 10, "size_bytes": "10kB", "deadline_s": 30,
                 "length_s": [5, 20], "min_accuracy": 20},
            ],
            "arrivals": {"clients_per_min": 20},
        },
    } | changes  # fmt: skip
