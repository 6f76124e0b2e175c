"""Policies that add and remove replicas on nodes."""

from edgewise.policies.orchestrate import autoscale as _autoscale, marginal as _marginal, shadow as _shadow
from edgewise.policies.orchestrate.base import Orchestration

__all__ = ["Orchestration"]
_registers = (_autoscale, _marginal, _shadow)  # imported for their policies
