"""Services of a live system as a table."""

from __future__ import annotations

from typing import Any

from rich.table import Table

OUTCOMES = ("arrived", "in time", "late", "dropped", "failed")


def services_table(found: dict[str, Any]) -> Table:
    """Replicas of each service by node, and what became of its requests.

    Args:
        found: "orchestration" of the controller's status.
    """
    nodes = list(found["services"][0]["nodes"])
    table = Table("service", *nodes, *OUTCOMES, box=None, title="Replicas by node, and requests")
    for row in found["services"]:
        cells = [_cell(states) for states in row["nodes"].values()]
        counts = [str(row["requests"].get(name.replace(" ", "_"), 0)) for name in OUTCOMES]
        table.add_row(row["service"], *cells, *counts)
    return table


def _cell(states: dict[str, int]) -> str:
    """Replicas that serve, then +n that start, -n that go."""
    serve, go = states["ready"] + states["removing"], states["removing"] + states["leaving"]
    changes = [f"+{states['starting']}"] if states["starting"] else []
    changes += [f"-{go}"] if go else []
    return " ".join([str(serve), *changes])
