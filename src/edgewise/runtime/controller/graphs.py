"""Split models of a scenario, live: a server on each node that has a speed, which serves the cut network.

To gateways a server is a worker of a variant that is called as its graph; clients ask for the task of that
name. A user's network is run, and a query takes what it takes on this machine. One that is known by name has
no weights, so there is nothing to run it for: where workers are emulated, stand-ins of its parts take the
time that their operations take on the scenario's nodes.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec

from edgewise.errors import ScenarioError
from edgewise.model.grammar.pipelines import GraphSpec
from edgewise.model.scenario import Scenario
from edgewise.model.topology import Model, Profile, Resources, Variant, Worker
from edgewise.policies.split import SplitProgram
from edgewise.runtime.worker.pieces import SUFFIX, describe, write_split
from edgewise.splitting import splitting

FOLDER = "graphs"  # of the state
OWN_TIME = Profile(1e-6, source="not used: its own time counts")
LARGEST_BYTES = 1e8


def served_graphs(scenario: Scenario) -> Sequence[GraphSpec]:
    """Graphs that can be served: read from networks, on two nodes or more of one cluster."""
    clusters = [c for c in scenario.topology.clusters if any(node.speed_ops > 0 for node in c.nodes)]
    if not scenario.topology.sites or len(clusters) != 1 or len(clusters[0].nodes) < 2:
        return ()  # queries come by the gateways of sites
    return [graph for graph in scenario.graphs if graph.network is not None]


def not_served(scenario: Scenario) -> list[str]:
    """What is left out of them, in words."""
    served = served_graphs(scenario)
    return [
        f"edgewise up leaves out graph {graph.name!r}: it serves networks, not written operators, on two or "
        "more nodes with speed_ops of one cluster; edgewise simulate --policy split=NAME runs it"
        for graph in scenario.graphs
        if graph not in served
    ]


def with_servers(scenario: Scenario) -> Scenario:
    """A scenario whose split models are variants with a worker on each node that has a speed.

    Raises:
        ScenarioError: a graph is called as a model, variant or task is.
    """
    graphs, catalog, topology = served_graphs(scenario), scenario.catalog, scenario.topology
    if not graphs:
        return scenario
    taken = {name for model in catalog.models for name in (model.name, model.task)}
    taken |= {variant.name for variant in catalog.variants}
    if double := taken & {graph.name for graph in graphs}:
        raise ScenarioError(f"graphs: name {min(double)!r} is also of a model, variant or task; change it")
    models = tuple(Model(graph.name, graph.name, 100.0) for graph in graphs)
    needs = [Resources(graph.cpu_cores, graph.memory_bytes) for graph in graphs]
    variants = tuple(
        Variant(graph.name, graph.name, need, OWN_TIME, 1e6, LARGEST_BYTES)
        for graph, need in zip(graphs, needs, strict=True)
    )
    nodes = [node.name for node in topology.nodes if node.speed_ops > 0]
    workers = tuple(Worker(f"{graph.name}@{node}", graph.name, node) for graph in graphs for node in nodes)
    return replace(
        scenario,
        catalog=replace(catalog, models=catalog.models + models, variants=catalog.variants + variants),
        topology=replace(topology, workers=topology.workers + workers),
    )


def cut_graphs(scenario: Scenario, folder: Path, emulated: bool) -> dict[str, dict[str, Any]]:
    """Write the sub-models of each graph beside the state.

    Args:
        scenario: as it was given, without servers.
        emulated: those that have no weights take the scenario's time.
    Returns:
        of each, settings of its workers: a digest, and what the whole of it takes where it is emulated.
    Raises:
        EdgewiseError: a network cannot be read.
    """
    from edgewise.profiling.dags import LIGHT, cut, without_work  # as the rest of it, an extra

    if not (graphs := served_graphs(scenario)):
        return {}
    found, settings = splitting(scenario), dict[str, dict[str, Any]]()
    assert isinstance(found.program, SplitProgram)  # servers of one cluster
    power_ops = next(node.speed_ops for node in scenario.topology.nodes if node.speed_ops > 0)
    for spec, model, small in zip(scenario.graphs, found.models, found.contracted, strict=True):
        if spec in graphs and model is not None:
            pieces = cut(model, small.members, dict(spec.shapes))
            if stands_in := emulated and spec.network in LIGHT:
                model, pieces = without_work(model, pieces, dict(spec.shapes))
            costs = {"power_ops": power_ops, "link_bps": found.program.link_bps, "rate_qps": spec.rate_qps}
            about = describe(model, small.graph, pieces, emulated=stands_in, **costs)
            write_split(folder / FOLDER / f"{spec.name}{SUFFIX}", model, pieces, about)
            settings[spec.name] = {"cut": hashlib.sha256(msgspec.json.encode(about)).hexdigest()[:16]}
            if stands_in:
                settings[spec.name]["profile"] = asdict(Profile(about.whole_s))
    return settings
