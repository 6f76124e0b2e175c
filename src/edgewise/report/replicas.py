"""A run of requests and replicas on disk: scenario.yaml, run.json, frames.parquet."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from edgewise.errors import RunError


def write_replica_run(
    folder: Path,
    scenario: Mapping[str, Any],
    run: Mapping[str, Any],
    frames: Mapping[str, Sequence[Any]],
) -> Path:
    """Write a run.

    Args:
        folder: is made.
        scenario: as plain data, every default written out.
        run: what was run and the summary, JSON.
        frames: columns with one row for each seed and frame.
    Raises:
        RunError: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump(dict(scenario), sort_keys=False, allow_unicode=True, width=110)
        (folder / "scenario.yaml").write_text(text, encoding="utf-8")
        (folder / "run.json").write_text(json.dumps(dict(run), indent=1) + "\n", encoding="utf-8")
        pq.write_table(pa.table(dict(frames)), folder / "frames.parquet")
    except OSError as error:
        raise RunError(f"{folder}: cannot be written: {error}; give another --out") from error
    return folder
