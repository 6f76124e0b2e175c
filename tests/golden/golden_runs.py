"""The golden runs: small simulations whose records must not change, from every decision and kind of policy.

A run is a description and a function that gives its record tables, column by column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import edgewise as ew
from edgewise import config, policies
from edgewise.api import replay
from edgewise.model.graphs import ServerGroup
from edgewise.model.pipelines import network_of
from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.policies.orchestrate.shadow import GreedyShadow
from edgewise.policies.requests.gsp import ShadowDispatch
from edgewise.policies.split import QueryClass, ServerChoice, build_program, split_policy
from edgewise.policies.split.layout import Layout, layout_program
from edgewise.sim.parts.graphs import simulate_split
from edgewise.sim.parts.outcomes import SplitRun
from edgewise.sim.parts.pipelines import simulate_streaming
from edgewise.sim.simulate import Simulation
from edgewise.sim.slots.defer import simulate as simulate_deferral
from edgewise.sim.slots.replicas import ReplicaWorlds, ServiceOutcome, simulate as simulate_replicas
from edgewise.sim.stations.engine import GraphEngine
from edgewise.sim.stations.network import Station, StationNetwork
from edgewise.testing import queue_scenario
from edgewise.workloads.deferrable import PAPER, generate
from edgewise.workloads.pipelines import pipelines_of
from edgewise.workloads.services import simulated_services
from edgewise_studies.training.kais.settings import setting

Tables = dict[str, dict[str, Any]]
RECORDED = Path(__file__).parent / "recorded"


class Golden(NamedTuple):
    """One golden run."""

    what: str
    tables: Callable[[], Tables]


def dispatch(scenario: str, policy: str, seeds: str = "0:1", **settings: Any) -> Golden:
    """`edgewise simulate`: streams and windows. In names of settings `__` stands for a dot."""
    paths = {name.replace("__", "."): value for name, value in settings.items()}
    first, end = map(int, seeds.split(":"))

    def tables() -> Tables:
        result = ew.simulate(config.load_scenario(scenario, paths), policy, range(first, end))
        return {"streams": columns(result.items), "windows": columns(result.windows)}

    flags = "".join(f" --set '{name}={value}'" for name, value in paths.items())
    return Golden(f"edgewise simulate {scenario} --policy {policy} --seeds {seeds}{flags}", tables)


def together(scenario: str, **settings: Any) -> Golden:
    """All kinds of work on the same nodes."""
    paths = {name.replace("__", "."): value for name, value in settings.items()}

    def tables() -> Tables:
        result = ew.simulate(config.load_scenario(scenario, paths), seeds=(0,))
        return {work: columns(each.items) for work, each in {result.work: result, **result.beside}.items()}

    flags = "".join(f" --set '{name}={value}'" for name, value in paths.items())
    return Golden(f"edgewise simulate {scenario} --seeds 0{flags}", tables)


def columns(table: Any) -> dict[str, Any]:
    """The columns of an Arrow table."""
    return {name: table[name].to_pylist() for name in table.column_names}


def queue(**laws: Any) -> Golden:
    """One stream on one worker: a textbook queue."""

    def tables() -> Tables:
        scenario, streams = queue_scenario(8.0, 0.1, 60.0, **laws)
        outcome = Simulation(scenario, policies.load("dispatch", "closest"), 3, streams=streams).run()
        return {"streams": outcome.streams, "windows": outcome.windows}

    return Golden(f"a queue of 8 queries/s of 0.1 s: {laws}", tables)


def replayed(*names: str) -> Golden:
    """Traffic that a live system recorded, in simulation."""

    def tables() -> Tables:
        result = replay(RECORDED, names, seed=2)
        return {"streams": columns(result.items), "windows": columns(result.windows)}

    return Golden(f"edgewise replay tests/golden/recorded --policies {','.join(names)} --seed 2", tables)


def replicas(scenario: str, one: str, two: str, **settings: Any) -> Golden:
    """`edgewise simulate` of services: requests dispatched in slots, replicas scaled in frames."""
    paths = {name.replace("__", "."): value for name, value in settings.items()}

    def tables() -> Tables:
        given = simulated_services(config.load_scenario(scenario, paths))
        drawn = given.draw(range(2))
        chosen = policies.load("requests", one), policies.load("orchestrate", two)
        for policy in chosen:
            if isinstance(policy, GreedyShadow | ShadowDispatch):
                policy.know(drawn, given.system, given.horizon_s)
        return frames_of(
            simulate_replicas(ReplicaWorlds(given.system, drawn, given.slots, range(2)), *chosen)
        )

    flags = "".join(f" --set '{name}={value}'" for name, value in paths.items())
    named = f"--policy requests={one} --policy orchestrate={two}"
    return Golden(f"edgewise simulate {scenario} {named} --seeds 0:2{flags}", tables)


def frames_of(outcome: ServiceOutcome) -> Tables:
    """Tables of a run of requests and replicas."""
    frames = {name: array.reshape(-1) for name, array in outcome._asdict().items() if name != "waiting"}
    return {"frames": frames, "worlds": {"waiting": outcome.waiting}}


def learned() -> Golden:
    """Requests and replicas under the networks that ship."""

    def tables() -> Tables:
        where = setting("scarce", "sequences", frames=2)
        worlds = ReplicaWorlds(where.system, where.draw(range(2)), where.slots, range(2))
        kais = (
            policies.load("requests", "kais-scarce"),
            policies.load("orchestrate", "kais-scarce"),
        )
        return frames_of(simulate_replicas(worlds, *kais))

    return Golden("two frames of the setting `scarce` under the networks kais-scarce, seeds 0:2", tables)


TASKS = (Task("root", 1e9), Task("a", 1e10), Task("b", 2e10), Task("sink", 1e9))
EDGES = tuple(Edge(*pair, 1.25e6) for pair in (("root", "a"), ("root", "b"), ("a", "sink"), ("b", "sink")))
FAN = TaskGraph("fan", TASKS, EDGES)


def split(policy: str, rate_qps: float = 0.6) -> Golden:
    """Queries of one graph split over four servers."""

    def tables() -> Tables:
        program = build_program([QueryClass(FAN, rate_qps)], 4, 1e10, 1e9)
        return queries_of(simulate_split(split_policy(policy, program), program, 400, seed=5))

    return Golden(f"400 split queries, {rate_qps} a second, on 4 servers: {policy}, seed 5", tables)


def queries_of(run: SplitRun) -> Tables:
    """Tables of a run of split queries."""
    loads = {"link_load": [run.link_load], "server_load": [run.server_load]}
    return {"queries": {"job": run.job, "time_s": run.time_s}, "loads": loads}


def layout(rule: ServerChoice) -> Golden:
    """Split queries over three groups of servers."""
    groups = tuple(
        ServerGroup(name, n, power)
        for name, n, power in (("edge", 2, 1e10), ("metro", 2, 2e10), ("cloud", 4, 5e10))
    )
    ways = {("edge", "metro"): ("a",), ("metro", "cloud"): ("b",), ("edge", "cloud"): ("a", "b")}

    def tables() -> Tables:
        program = layout_program(
            [QueryClass(FAN, 1.0)], Layout(groups, {"a": 1e9, "b": 1e9}, ways, rule=rule)
        )
        return queries_of(
            simulate_split(split_policy("nona-layout", program, gap=0.05), program, 400, seed=5)
        )

    return Golden(f"400 split queries over edge, metro and cloud: {rule.name}, seed 5", tables)


def streaming(policy: str) -> Golden:
    """Streaming jobs placed on ENTS's networks."""

    def tables() -> Tables:
        settings = {
            "topology.seed": 4,
            "topology.nodes": 10,
            "pipelines.0.count": 12,
            "pipelines.0.length_s": 60,
        }
        scenario = config.load_scenario("recognition", settings)
        # They had these names when the records were made.
        named = [replace(p, name=f"job{i}") for i, p in enumerate(pipelines_of(scenario, 4))]
        run = simulate_streaming(network_of(scenario), named, policies.load("place", policy))
        names = ("name", "arrival_s", "start_s", "finish_s", "frames", "migrations")
        return {"jobs": {name: [getattr(job, name) for job in run.pipelines] for name in names}}

    return Golden(f"12 streaming jobs on a network of 10 nodes: {policy}, seed 4", tables)


def deferral(policy: str) -> Golden:
    """Deferrable jobs in left-over capacity."""

    def tables() -> Tables:
        pattern = replace(PAPER, slots=48, jobs_per_slot=4.0, load_mean=0.85)
        outcome = simulate_deferral(
            generate(pattern, range(3)), policies.load("defer", policy), seed=6
        )._asdict()
        return {"jobs": {"start": outcome.pop("start").reshape(-1)}, "worlds": outcome}

    return Golden(f"3 worlds of deferrable jobs, 48 slots: {policy}, seed 6", tables)


def graphs(law: str, discipline: str = "fifo") -> Golden:
    """Task graphs through stations of the general engine."""

    def tables() -> Tables:
        network = StationNetwork(
            [Station(name, 1.0, law=law, deviation=0.4, discipline=discipline) for name in "abc"],
            [Station("bus", 2.0, delay_s=0.01, delay_deviation_s=0.01)],
            {("*", "*"): ["bus"]},
        )
        pair = TaskGraph("pair", (Task("x", 1.0), Task("y", 0.5)), (Edge("x", "y", 0.05),))
        g = np.random.default_rng(7)
        sent_s = np.cumsum(g.uniform(0.1, 1.5, 200))
        engine = GraphEngine(network, [pair], sent_s, placement=g.integers(0, 3, (200, 2)), seed=7)
        engine.run()
        return {
            "queries": {name: engine.queries[name] for name in engine.queries.dtype.names},
            "stations": dict(engine.tallies()),
        }

    return Golden(f"200 task graphs on three stations, {discipline}, {law} work, seed 7", tables)


FAILURES = [
    {"at_s": 10, "cluster": "central-office", "up": False},
    {"at_s": 15, "link": {"site": "*", "cluster": "cloud"}, "delay_s": 0.03, "deviation_s": 0.004},
    {"at_s": 20, "link": {"site": "access-1", "cluster": "cloud"}, "up": False},
    {"at_s": 25, "cluster": "central-office", "up": True},
]
ONE: dict[str, Any] = {"streams__gateways": "one"}  # as published
SHORT: dict[str, Any] = {"duration_s": 40, "window_s": 10}
SMALL: dict[str, Any] = {"duration_s": 75, "topology__antennas": 3}
FRAMES: dict[str, Any] = {"duration_s": 50}
TWO_HOURS: dict[str, Any] = {
    "duration_s": "2h",
    "streams__begins_at_s": "14h",
    "streams__arrivals__clients_per_min": 20,
    "services__requests__rate_qps": 2,
    "pipelines__0__rate_qps": 0.01,
    "pipelines__0__count": 10,
    "jobs__drawn__per_slot": 3,
    "timeline": [
        {"at_s": 4000, "node": "hall-1", "up": False},
        {"at_s": 4600, "node": "hall-1", "up": True},
    ],
}

RUNS: Mapping[str, Golden] = {
    "tiny": dispatch("tiny", "closest", "0:3", **ONE),
    "campus-small": together("campus-small"),
    "campus": together("campus", **TWO_HOURS),
    "poisson-queries": dispatch(
        "tiny", "power-of-two", "0:2", **ONE, streams__applications__quick__arrivals="poisson"
    ),
    "three-tier": dispatch("three-tier", "least-impedance", **ONE, **SHORT),
    "failures": dispatch("three-tier", "least-loaded-feasible", **ONE, **SHORT, timeline=FAILURES),
    "refused-are-tried-again": dispatch(
        "three-tier",
        "farthest",
        **ONE,
        **SHORT,
        retry_refused=True,
        decision_delay_s=0.2,
        telemetry__lag_s=0.7,
    ),
    "bandit": dispatch("three-tier", "bandit", **ONE, **SHORT),
    "lookahead": dispatch("three-tier", "lookahead", **ONE, **SHORT),
    "random-by-latency": dispatch("three-tier", "random-by-latency", **ONE, **SHORT),
    "full-edge": dispatch("full-edge", "chooser", **ONE, **SMALL),
    "full-edge-burst": dispatch("full-edge-burst", "slack-aware", **ONE, **SMALL),
    "full-edge-scarce": dispatch("full-edge-scarce", "chooser", **ONE, **SMALL),
    "full-edge-scarce-burst": dispatch("full-edge-scarce-burst", "load-balancing", **ONE, **SMALL),
    "full-edge-steady": dispatch("full-edge-steady", "random-by-load", **ONE, **SMALL),
    "dc-cloud": dispatch("dc-cloud", "cheaper", **ONE, **SMALL),
    "co-dc-cloud": dispatch("co-dc-cloud", "chooser", **ONE, **SMALL),
    "isp": dispatch("isp", "power-of-two", **ONE, duration_s=50),
    "kais-live": dispatch("kais-live", "closest", **ONE),
    "as-live": dispatch("three-tier", "least-impedance", **SHORT),
    "as-live-failures": dispatch("three-tier", "least-loaded-feasible", **SHORT, timeline=FAILURES),
    "as-live-learned": dispatch("full-edge", "chooser", **SMALL),
    "as-live-full-edge": dispatch("full-edge-scarce-burst", "slack-aware", **SMALL),
    "queue-exponential": queue(servers=2),
    "queue-batches": queue(
        distribution="normal", deviation=0.3, max_batch=4, batch_slope=0.2, batch_timeout_s=0.05
    ),
    "recorded": replayed("closest", "least-impedance"),
    "edge-cloud": replicas("edge-cloud", "greedy", "autoscaler", **FRAMES),
    "edge-cloud-varying": replicas(
        "edge-cloud", "two-choices", "none", **FRAMES, services__service_deviation=0.3
    ),
    "edge-cloud-complex": replicas("edge-cloud-complex", "flow", "marginal", **FRAMES),
    "replicas-learned": learned(),
    "kais-demo": replicas("kais-demo", "random", "gsp-ss", services__frame_s=50, duration_s=100),
    "split": split("nona"),
    "split-whole": split("whole-two-choices"),
    "split-online": split("earliest-finish"),
    "split-layout": layout(ServerChoice.LEAST_LOADED),
    "split-layout-by-chance": layout(ServerChoice.UNIFORM),
    "streaming-joint": streaming("joint"),
    "streaming-otfa": streaming("otfa"),
    "streaming-spread": streaming("tp"),
    "deferral-learned": deferral("osdec"),
    "deferral-tetris": deferral("tetris"),
    "deferral-random": deferral("random"),
    "graphs-exponential": graphs("exponential"),
    "graphs-lognormal": graphs("lognormal", "ps"),
    "graphs-normal": graphs("normal", "edf"),
}
