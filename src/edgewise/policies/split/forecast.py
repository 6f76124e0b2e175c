"""What a split policy expects by the formula of its plan."""

from typing import TYPE_CHECKING

from edgewise.policies.split.optimum import SplitPlan
from edgewise.policies.split.policy import CompiledSplit, LayoutSplit

if TYPE_CHECKING:
    from edgewise.policies.split.layout_optimum import LayoutPlan  # its solver is slow to import


def plan_of(policy: object) -> "SplitPlan | LayoutPlan | None":
    """What a policy that ships draws from, once it has begun; None where it draws from none."""
    return policy.plan if isinstance(policy, CompiledSplit | LayoutSplit) else None


def predicted_s(policy: object) -> float | None:
    """Mean time of a query by the formula of a policy's plan; None where it has no plan."""
    plan = plan_of(policy)
    if plan is None:
        return None
    return float(plan.forecast.mean_s if isinstance(plan, SplitPlan) else plan.mean_s)
