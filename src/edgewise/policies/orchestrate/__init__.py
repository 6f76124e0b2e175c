"""Policies that add and remove replicas on nodes."""

from edgewise.policies.orchestrate import (
    autoscale as autoscale,
    forecast as forecast,
    marginal as marginal,
    shadow as shadow,
)
from edgewise.policies.orchestrate.base import Orchestration as Orchestration
