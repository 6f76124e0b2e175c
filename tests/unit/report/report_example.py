"""A small made-up run for the report's tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from edgewise.report.records import RecordedRun, read_run, write_run
from edgewise.report.schema import STREAMS, WINDOWS

QUALITY = {"least-impedance": 0.93, "closest": 0.78, "load-balancing": 0.90, "random": 0.62}
APPLICATIONS = ("pose", "plates", "speech", "<b>drones & co</b>")
SEEDS = (1, 2, 3, 4, 5)
MANIFEST = {
    "work": "streams", "seeds": list(SEEDS), "policies": list(QUALITY), "version": "0.1.0",
    "command": "edgewise run x",
}  # fmt: skip


def stream_row(**changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = dict(
        seed=1, policy="closest", stream=0, site="s0", application="pose", source=None, task="detect",
        open_s=0.0, close_s=10.0, rate_qps=5.0, size_bytes=1e5, deadline_s=0.1, min_accuracy=0.6, worker="w0",
        variant="small", cluster="edge", reason=None, queries=50, ok=50, failed=0, rejected=0,
        delay_mean_s=0.02, delay_max_s=0.05,
    )  # fmt: skip
    if changes.get("reason") is not None:
        row.update(worker=None, variant=None, cluster=None, delay_mean_s=None, delay_max_s=None)
    return row | changes


def window_row(**changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = dict(
        seed=1, policy="closest", window=0, start_s=0.0, end_s=10.0, active="closest", streams_opened=4,
        streams_bound=4, streams_refused=0, queries=100, ok=100, failed=0, rejected=0,
    )  # fmt: skip
    return row | changes


def table(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=schema)


def _streams() -> list[dict[str, Any]]:
    rows = []
    for seed in SEEDS:
        for policy, quality in QUALITY.items():
            rng = np.random.default_rng(seed)
            for stream in range(60):
                base = dict(seed=seed, policy=policy, stream=stream, application=APPLICATIONS[stream % 4])
                hard = 0.06 * (stream % 4)
                if rng.random() < 0.3 * (1 - quality):
                    reason = "no worker is accurate enough" if stream % 3 else "no capacity <left> & none due"
                    rows.append(stream_row(**base, reason=reason, ok=0, rejected=50))
                    continue
                ok = int(np.clip(round(50 * (quality - hard + 0.1 * rng.standard_normal())), 0, 50))
                rows.append(stream_row(**base, ok=ok, failed=50 - ok))
    return rows


def _windows() -> list[dict[str, Any]]:
    rows = []
    for seed in SEEDS:
        for policy, quality in QUALITY.items():
            rng = np.random.default_rng(seed)
            for window in range(30):
                wave = quality - 0.08 * np.sin(window / 4) + 0.02 * rng.standard_normal()
                ok = int(np.clip(round(200 * wave), 0, 200))
                rows.append(
                    window_row(
                        seed=seed,
                        policy=policy,
                        window=window,
                        start_s=10.0 * window,
                        end_s=10.0 * window + 10,
                        active=policy,
                        queries=200,
                        ok=ok,
                        failed=200 - ok,
                    )
                )
    return rows


def example_run(folder: Path) -> RecordedRun:
    write_run(
        folder,
        scenario_yaml="name: three-tier\n",
        manifest=MANIFEST | {"scenario": "three-tier"},
        items=table(_streams(), STREAMS),
        windows=table(_windows(), WINDOWS),
    )
    return read_run(folder)
