"""Placement policies: tasks of pipelines to nodes, flows to paths and bandwidth.

A policy is a class with `name`, `reset` and `place`, as `edgewise.core.placement.PlacementPolicy` says; it
is added by one file and one line in `POLICIES`.
"""

from __future__ import annotations

from edgewise.core.placement import PlacementPolicy
from edgewise.errors import PolicyError
from edgewise.model.problems import nearest
from edgewise.policies.place.baselines import Balanced, LeastRequested, TaskPartition
from edgewise.policies.place.joint import Joint
from edgewise.policies.place.otf import Otfa, Otfs

POLICIES: dict[str, type] = {
    policy.name: policy for policy in (LeastRequested, Balanced, TaskPartition, Otfs, Otfa, Joint)
}


def load_placement(name: str) -> PlacementPolicy:
    """A new placement policy with its default options.

    Raises:
        PolicyError: none has that name.
    """
    if name not in POLICIES:
        raise PolicyError(f"no placement policy {name!r}; {nearest(name, POLICIES)}")
    made: PlacementPolicy = POLICIES[name]()
    return made
