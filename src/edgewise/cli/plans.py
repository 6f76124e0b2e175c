"""The plan by which queries of split models are split over servers, printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgewise.cli.output import note, out, show
from edgewise.model.scenario import Scenario

if TYPE_CHECKING:
    from edgewise.policies.split import SplitPlan
    from edgewise.policies.split.layout_optimum import LayoutPlan


def print_plan(scenario: Scenario, policy: str) -> None:
    """Sizes, plan, forecast and certified gap of a scenario's graphs under a policy."""
    from edgewise.policies.split import local, split_policy
    from edgewise.policies.split.layout_optimum import LayoutPlan
    from edgewise.splitting import splitting

    found = splitting(scenario)
    plan = getattr(split_policy(policy, found.program), "plan", None)
    for small in found.contracted:
        out.print(f"{small.before} tasks, {small.after} after contraction")
    if isinstance(plan, LayoutPlan):
        return _print_layout(plan)
    if plan is None:
        return out.print(f"{policy} draws from no plan")
    _print_groups(plan)
    whole = local(plan.program).forecast
    out.print(
        f"forecast {1e3 * plan.forecast.mean_s:.4g} ms, whole on one server {1e3 * whole.mean_s:.4g} ms; "
        f"link {plan.forecast.load:.1%} busy, a message waits {1e6 * plan.forecast.wait_s:.3g} µs; "
        f"certified gap {plan.gap:.1e}"
    )
    if found.overload:
        note([f"the forecast does not hold: {found.overload}"])


def _print_groups(plan: SplitPlan) -> None:
    """How likely each placement of each kind of sub-graph is."""
    groups, start = plan.program.groups, plan.program.arrays.start
    out.print(f"{plan.program.variables} probabilities in {len(groups)} kinds of sub-graphs")
    rows = []
    for number, group in enumerate(groups):
        for k in range(start[number + 1] - start[number]):
            chance, row = plan.theta[start[number] + k], group.lines.part[k]
            if chance > 1e-9:
                parts = " + ".join(f"{int((row[:-1] == p).sum())}" for p in range(int(row.max()) + 1))
                end = "" if row[-1] == 0 else ", ends away"
                rows.append((number, len(group.subgraphs), f"{chance:.3f}", parts + end))
    if rows:
        show(("sub-graph", "times", "probability", "branches by server"), rows)


def _print_layout(plan: LayoutPlan) -> None:
    layout = plan.program.layout
    names = [*layout.links, *(group.name for group in layout.groups)]
    found = zip(names, plan.load, plan.wait_s, strict=True)
    rows = ((name, f"{load:.1%}", f"{1e3 * wait:.3g}") for name, load, wait in found)
    show(("resource", "busy", "waits ms"), rows)
    out.print(
        f"forecast {1e3 * plan.mean_s:.4g} ms; {plan.program.variables} probabilities; "
        f"certified gap {plan.gap:.1%}"
    )
