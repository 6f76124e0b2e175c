"""What a run leaves of each kind of work: columns of its tables.

Forbidden here: printing and files.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from edgewise.core.guard import Decided
from edgewise.model.scenario import Scenario

Make = Callable[[], Any]
Columns = Mapping[str, Any]


class Tables(NamedTuple):
    """Columns of the two tables of one kind of work in a run, but for seed and policy."""

    items: Columns
    windows: Columns


class SeedRun(NamedTuple):
    """One run.

    Attributes:
        items, windows: as `Tables`, of the kind of work that it is about.
        decided: by decision how often its policy was to decide, and did not.
        decision_s: mean time of a decision on this machine, by decision, where it is measured.
        beside: the other kinds of work of a joint run.
        use: columns of the tables of `report.use`, those that are known.
    """

    items: Columns
    windows: Columns
    decided: Mapping[str, Decided] = {}
    decision_s: Mapping[str, float] = {}
    beside: Mapping[str, Tables] = {}
    use: Mapping[str, Columns] = {}


def window(scenario: Scenario, end_s: float | None = None, **figures: Any) -> Columns:
    """Columns of one window over a whole run."""
    span = {"window": 0, "start_s": 0.0, "end_s": scenario.duration_s if end_s is None else end_s}
    return {name: [value] for name, value in (span | figures).items()}


def table(schema: pa.Schema, policy: str, seed: int, columns: Columns) -> pa.Table:
    """Columns of a run in a schema of `report.schema` or `report.use`."""
    rows = len(next(iter(columns.values()), ()))
    whole = {**columns, "seed": np.full(rows, seed), "policy": [policy] * rows}
    return pa.table({name: whole.get(name, []) for name in schema.names}, schema=schema)
