"""Split models: from the graphs of a scenario, or from what lived, to tables of their queries.

Forbidden here: printing and files.
"""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from edgewise.arrays import Floats, Ints
from edgewise.core.guard import Decided, Guard
from edgewise.core.split.core import SplitCore
from edgewise.errors import ScenarioError
from edgewise.model.scenario import Scenario
from edgewise.policies.split.forecast import predicted_s
from edgewise.policies.split.policy import POLICIES
from edgewise.run.shared import Joined, RunContext
from edgewise.run.tables import Columns, Make, Tables, window
from edgewise.sim.parts.graph_networks import shared_network
from edgewise.sim.parts.graphs import GraphsPart, SplitWorld
from edgewise.sim.parts.outcomes import SplitRun
from edgewise.splitting import GraphsToRun, splitting
from edgewise.workloads.queries import query_count

if TYPE_CHECKING:
    from edgewise.runtime.clients.lived import Lived

PLANNED = tuple(POLICIES.values())  # a run leaves nothing behind in them but their plan


def graphs_to_run(scenario: Scenario) -> GraphsToRun:
    """What is split in a scenario.

    Raises:
        ScenarioError: servers would always be busy.
    """
    found, telemetry = splitting(scenario), scenario.telemetry
    if found.overload:
        raise ScenarioError(f"nothing can be simulated: {found.overload}")
    queries = query_count(scenario.graphs, scenario.duration_s)
    return GraphsToRun(found.program, queries, telemetry if telemetry.servers else None)


def planned_once(make: Make) -> Make:
    """What makes a policy of several runs: one that only plans does so once for all of them."""
    return (lambda: policy) if type(policy := make()) in PLANNED else make


def joined(run: RunContext) -> Joined:
    """Queries of split models, beside other work or alone."""
    scenario, policy, guard = run.scenario, run.chosen["split"](), Guard()
    program, queries, telemetry = run.graphs or graphs_to_run(scenario)
    core = SplitCore(program, policy, run.seed, guard, follows=telemetry is not None)
    network, wires = None, None
    if run.wires is not None:
        network, route = shared_network(program, scenario.topology, run.wires)
        wires = (run.wires, route) if route else None
    world = SplitWorld(program, queries, run.seed, core, telemetry, network)
    nodes = [node.name for node in scenario.topology.nodes if node.speed_ops > 0]
    start_s = max(graph.start_s for graph in scenario.graphs or ())
    part = GraphsPart(world, nodes, scenario.duration_s, (scenario.telemetry.lag_s, start_s), wires)
    return Joined(
        part,
        lambda: query_tables(scenario, world.outcome(), world.sent_s, world.jobs, predicted_s(policy)),
        {"split": lambda: _all_queries(guard.decided(policy), queries)},
        lambda: {"workers": server_use(scenario, part.busy_s)},
    )


def _all_queries(decided: Decided, queries: int) -> Decided:
    """With those that were placed in compiled code."""
    return replace(decided, questions=max(decided.questions, queries))


def query_tables(
    scenario: Scenario, run: SplitRun, sent_s: Floats, graph: Ints, predicted_s: float | None
) -> Tables:
    """Columns of queries of split models; a load that is NaN was not measured."""
    names = np.array([each.name for each in scenario.graphs])
    settled, open_ = run.settled().time_s, np.isnan(run.time_s)
    settled = settled[~np.isnan(settled)]
    figures = {
        "queries": sent_s.size,
        "mean_s": float(settled.mean()),
        "p99_s": float(np.quantile(settled, 0.99)),
        "predicted_s": predicted_s,
        "link_load": None if np.isnan(run.link_load) else run.link_load,
        "server_load": None if np.isnan(run.server_load) else run.server_load,
    }
    items = {"query": np.arange(sent_s.size), "graph": names[graph], "sent_s": sent_s}
    ended, end_s = pa.array(run.time_s, mask=open_), float(np.nanmax(sent_s + run.time_s))
    return Tables(items | {"time_s": ended}, window(scenario, end_s, **figures))


def server_use(scenario: Scenario, busy_s: Floats) -> Columns:
    """How busy the servers of split models were, (S,) seconds of the run."""
    nodes = [node.name for node in scenario.topology.nodes if node.speed_ops > 0]
    return {
        "work": ["graphs"] * len(nodes),
        "worker": [f"server on {name}" for name in nodes],
        "node": nodes,
        "busy_s": busy_s.tolist(),
        "there_s": [scenario.duration_s] * len(nodes),
    }


def lived_graphs(scenario: Scenario, seen: "Lived") -> Tables | None:
    """Of a live system; None: no query of it was answered."""
    names = [graph.name for graph in scenario.graphs]
    asked = sorted((each for each in seen.requests if each.service in names), key=lambda each: each.at_s)
    if not any(each.outcome in ("in_time", "late") for each in asked):
        return None
    took_s = np.array(
        [
            each.end_s - each.at_s if each.end_s and each.outcome in ("in_time", "late") else math.nan
            for each in asked
        ]
    )
    graph = np.array([names.index(each.service) for each in asked])
    sent_s = np.array([each.at_s for each in asked]) - seen.since_s
    return query_tables(scenario, SplitRun(graph, took_s, math.nan, math.nan), sent_s, graph, None)
