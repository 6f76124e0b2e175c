"""A run on disk as plain tables: scenario.yaml, run.json and a Parquet file for each table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from edgewise.errors import RunError

Columns = Mapping[str, Sequence[Any]]


def write_tables(folder: Path, scenario: str, run: Mapping[str, Any], tables: Mapping[str, Columns]) -> Path:
    """Write a run.

    Args:
        folder: is made.
        scenario: YAML, every default written out.
        run: what was run and the summary, JSON.
        tables: name → columns; `items` has one row for each piece of work, `windows` one for each time span.
    Raises:
        RunError: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "scenario.yaml").write_text(scenario, encoding="utf-8")
        (folder / "run.json").write_text(json.dumps(dict(run), indent=1) + "\n", encoding="utf-8")
        for name, columns in tables.items():
            pq.write_table(pa.table(dict(columns)), folder / f"{name}.parquet")
    except OSError as error:
        raise RunError(f"{folder}: cannot be written: {error}; give another --out") from error
    return folder
