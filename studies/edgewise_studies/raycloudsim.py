"""`python -m edgewise_studies.raycloudsim config.json scenario.yaml`: a network of RayCloudSim as a scenario.

RayCloudSim (github.com/ZhangRui111/RayCloudSim) describes a network in one JSON file: `Nodes`, each with a
`NodeName`, a `NodeId` and a `MaxCpuFreq`, and `Edges`, each from a `SrcNodeID` to a `DstNodeID` with a
`Bandwidth`; an edge is a `SingleLink` one way, or a `Link` both ways. What it says otherwise than a scenario:

- A unit of frequency and one of bandwidth are whatever the author meant; its shipped networks read as MHz and
  Mbit/s, which are the defaults here.
- A node does one task at a time at its whole frequency: it becomes a node of one core.
- Work is in cycles there, in operations here: `ops_per_cycle` of them.
- Nodes have no memory for tasks, only a buffer of those that wait: memory is given, alike for all.
- Each direction has a bandwidth of its own; flows of pipelines take one capacity for both, so a pair of links
  has the lesser of its two. A link without one back is refused.

Delays of links do not matter to the rate of a stream of frames, energy is not modelled: both are left out.
The tasks of a RayCloudSim experiment are single and independent, no streams; the scenario gets ENTS's
pipelines in their place.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from edgewise.config import dump_scenario
from edgewise.errors import EdgewiseError, ScenarioError
from edgewise.model.parsing import parse_scenario
from edgewise.model.scenario import Scenario
from edgewise.report.records import write_whole

Link = tuple[str, str]


def scenario_of(
    network: Mapping[str, Any],
    *,
    name: str = "raycloudsim",
    hz: float = 1e6,
    bps: float = 1e6,
    ops_per_cycle: float = 4.0,
    memory_bytes: float = 8e9,
    pipelines: int = 50,
) -> Scenario:
    """A scenario of a network as RayCloudSim has it, with ENTS's pipelines on it.

    Args:
        network: what its JSON says.
        hz, bps: what a unit of frequency and of bandwidth is.
        ops_per_cycle: operations of a core in a cycle.
        memory_bytes: of each node.
        pipelines: how many come, one every two seconds on average.
    Raises:
        ScenarioError: a key is missing or of another kind, names occur twice, or links have no way back.
    """
    try:
        nodes = {each["NodeId"]: str(each["NodeName"]) for each in network["Nodes"]}
        speeds = [float(each["MaxCpuFreq"]) * hz * ops_per_cycle for each in network["Nodes"]]
        if len(nodes) < len(speeds):
            raise ScenarioError("network: two nodes have one NodeId; give each its own")
        capacity = _both_ways(network["Edges"], nodes)
    except KeyError as error:
        raise ScenarioError(f"network: {error.args[0]!r} is missing or unknown; see the module") from None
    except (TypeError, ValueError) as error:
        raise ScenarioError(f"network: is not as RayCloudSim writes it: {error}") from None
    resources = {"cpu_cores": 1, "memory_bytes": memory_bytes}
    machines = [
        {"name": node, "resources": resources, "speed_ops": speed}
        for node, speed in zip(nodes.values(), speeds, strict=True)
    ]
    data = {
        "name": name,
        "duration_s": 1800,
        "clusters": [{"name": "edge", "tier": 0, "nodes": machines}],
        "links": [
            {"between": list(ends), "bandwidth_bps": rate * bps, "shared": "both"}
            for ends, rate in capacity.items()
        ],
        "pipelines": [{"generate": "recognition", "count": pipelines, "rate_qps": 0.5, "length_s": 20}],
    }
    return parse_scenario(data, name)


def _both_ways(edges: Any, nodes: Mapping[Any, str]) -> dict[Link, float]:
    """The capacity of each pair of nodes that is linked both ways, in the order of the file."""
    one_way: dict[Link, float] = {}
    for edge in edges:
        if (kind := edge["EdgeType"]) not in ("Link", "SingleLink"):
            raise ScenarioError(f"network: EdgeType {kind!r}; it is 'Link' or 'SingleLink'")
        there = nodes[edge["SrcNodeID"]], nodes[edge["DstNodeID"]]
        given = edge["Bandwidth"]
        out, back = given if isinstance(given, list) else (given, given)
        ways = {there: float(out)} | ({there[::-1]: float(back)} if kind == "Link" else {})
        if twice := sorted(set(ways) & set(one_way)):
            raise ScenarioError(
                f"network: two links from {twice[0][0]} to {twice[0][1]}; give their sum as one"
            )
        one_way |= ways
    if alone := [ends for ends in one_way if ends[::-1] not in one_way]:
        raise ScenarioError(
            f"network: a link from {alone[0][0]} to {alone[0][1]} and none back; give a link both ways"
        )
    pairs = dict.fromkeys(min(ends, ends[::-1]) for ends in one_way)
    return {ends: min(one_way[ends], one_way[ends[::-1]]) for ends in pairs}


def read(path: Path, **options: Any) -> Scenario:
    """The scenario of a JSON file of RayCloudSim.

    Args:
        options: of `scenario_of`.
    Raises:
        ScenarioError: it cannot be read, or see `scenario_of`.
    """
    try:
        network = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ScenarioError(f"{path}: cannot be read as JSON: {error}") from None
    if not isinstance(network, dict):
        raise ScenarioError(f'{path}: is no network; it begins with {{"Nodes": …')
    return scenario_of(network, **options)


def convert(
    network: Annotated[Path, typer.Argument(help="JSON of RayCloudSim, with Nodes and Edges.")],
    scenario: Annotated[Path, typer.Argument(help="YAML to write.")],
    hz: Annotated[float, typer.Option(help="A unit of MaxCpuFreq, in Hz.", min=1e-9)] = 1e6,
    bps: Annotated[float, typer.Option(help="A unit of Bandwidth, in bit/s.", min=1e-9)] = 1e6,
    ops_per_cycle: Annotated[float, typer.Option(help="Operations in a cycle.", min=1e-9)] = 4.0,
    memory_bytes: Annotated[float, typer.Option(help="Of each node.", min=1.0)] = 8e9,
    pipelines: Annotated[int, typer.Option(help="How many pipelines come.", min=1)] = 50,
) -> None:
    """Write the network as a scenario with ENTS's pipelines on it."""
    options = {"hz": hz, "bps": bps, "ops_per_cycle": ops_per_cycle, "memory_bytes": memory_bytes}
    try:
        made = read(network, name=scenario.stem, pipelines=pipelines, **options)
        write_whole(scenario, dump_scenario(made), "scenario")
    except EdgewiseError as error:
        sys.exit(str(error))
    print(f"{len(made.topology.nodes)} nodes, {len(made.topology.links)} links: {scenario}")


if __name__ == "__main__":
    typer.run(convert)
