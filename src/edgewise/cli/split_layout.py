"""`edgewise split` where servers are in several clusters: unequal ones, on several links."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from edgewise.policies.split.layout import LayoutProgram
    from edgewise.policies.split.layout_optimum import LayoutPlan

out = Console()
GAP, SEEDS, QUERIES = 0.05, range(5), 4_000


def print_layout(program: LayoutProgram, simulate: bool) -> None:
    """Plan queries over groups of servers and print forecast, loads and gap; simulate the plan if asked."""
    from edgewise.policies.split.layout_optimum import optimise_layout

    layout, plan = program.layout, optimise_layout(program, GAP)
    table = Table("resource", "busy", "waits ms", box=None)
    for name, load, wait in zip(
        [*layout.links, *(group.name for group in layout.groups)], plan.load, plan.wait_s, strict=True
    ):
        table.add_row(name, f"{load:.1%}", f"{1e3 * wait:.3g}")
    out.print(table)
    out.print(
        f"forecast {1e3 * plan.mean_s:.4g} ms; {plan.program.variables} probabilities; "
        f"certified gap {plan.gap:.1%}"
    )
    if simulate:
        _print_simulation(plan)


def _print_simulation(plan: LayoutPlan) -> None:
    import numpy as np

    from edgewise.policies.split.policy import LayoutSplit
    from edgewise.report.statistics import mean_interval
    from edgewise.sim.stations.split import simulate_split

    policy = LayoutSplit(plan)
    times = [simulate_split(policy, plan.program, QUERIES, seed).settled().time_s for seed in SEEDS]
    table = Table("", "mean ms", "99 % ms", box=None)
    found = [mean_interval([float(f(t)) for t in times]) for f in (np.mean, lambda t: np.quantile(t, 0.99))]
    table.add_row(
        "simulated", *(f"{1e3 * x.mean:.2f} ± {1e3 * ((x.high or x.mean) - x.mean):.2g}" for x in found)
    )
    out.print(table)
    out.print(f"{len(SEEDS)} seeds of {QUERIES} queries, 95 % intervals")
