"""The split models of a scenario as programs: equal servers on one link, or groups of servers on several."""

from __future__ import annotations

from collections.abc import Sequence

from edgewise.core.split import QueryClass
from edgewise.errors import ScenarioError
from edgewise.model.graphs import group_links, server_groups
from edgewise.model.topology import Topology
from edgewise.policies.split.layout import LayoutProgram, joined, layout_program
from edgewise.policies.split.program import SplitProgram, build_program


def program_of(
    topology: Topology, classes: Sequence[QueryClass], queues: bool = False
) -> SplitProgram | LayoutProgram:
    """What is to be planned: a `SplitProgram` where all servers are in one cluster, else a `LayoutProgram`.

    Args:
        classes: contract their graphs first.
        queues: of a `SplitProgram`: add bursts and waiting for servers to Nona's formula.
    Raises:
        ScenarioError: servers or links cannot be seen this way.
        PolicyError: there are too many placements.
    """
    groups, links = server_groups(topology), group_links(topology)
    if len(groups) > 1:
        return layout_program(classes, joined(groups, links))
    (group,) = groups
    if (group.name, group.name) not in links:
        raise ScenarioError(
            f"links: none joins the servers of {group.name!r}; "
            f"add {{between: [{group.name}, {group.name}], bandwidth_bps: …, shared: both}}"
        )
    return build_program(
        classes, group.servers, group.power_ops, links[group.name, group.name], queues=queues
    )
