"""Placement policies: tasks of pipelines to nodes, flows to paths and bandwidth.

A policy is a class with `reset` and `decide`, as `edgewise.core.place.PlacementPolicy` says; it is added
by one file with `@policy("name")`.
"""

from edgewise.policies.place import baselines as baselines, joint as joint
