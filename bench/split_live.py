"""A split model on real workers, beside its forecast: `python -m bench.split_live [SCENARIO] --queries 200`

Its network is cut, and what each sub-model takes is measured at a worker. Then, under each policy in turn,
workers and a gateway are started as processes, Poisson queries go through the gateway, and their times stand
beside the forecast with these measured costs. Outputs are compared with those of the whole network.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgewise.cli.verbs import parsed
from edgewise.config import load_scenario
from edgewise.errors import EdgewiseError
from edgewise.model.scenario import Scenario
from edgewise.policies import USUAL
from edgewise.policies.split import SplitProgram
from edgewise.report.intervals import Interval, mean_interval, quantile_interval
from edgewise.runtime.clients.split_trial import Trial, TrialSetting, try_split
from edgewise.splitting import splitting

SPLIT = (USUAL["split"], "whole-least-loaded")
BATCHES = 10  # of queries in turn, whose means make the interval of a mean


@dataclass(frozen=True, slots=True)
class Measured:
    """A policy's queries: means and quantiles with 95 % intervals, in seconds."""

    trial: Trial
    mean: Interval
    p99: Interval


def measured(
    scenario: Scenario, policies: Sequence[str], queries: int, folder: Path
) -> tuple[TrialSetting, list[Measured]]:
    """Run a scenario's split model under policies in turn.

    Args:
        folder: of sub-models, state and logs.
    Raises:
        EdgewiseError: it has servers in several clusters, several graphs, or none that is a network.
    """
    found = splitting(scenario)
    program, model = found.program, found.models[0]
    if not isinstance(program, SplitProgram):
        raise EdgewiseError("clusters: split over equal servers in one cluster here; leave the others out")
    if model is None or len(found.models) > 1:
        raise EdgewiseError("graphs: one that is read from a network runs here; leave the others out")
    setting = TrialSetting(program.servers, float(program.rates_qps[0]), program.link_bps, queries)
    shapes = dict(scenario.graphs[0].shapes)
    trials = try_split(model, found.contracted[0], shapes, folder, policies, setting)
    return setting, [_measured(trial) for trial in trials]


def _measured(trial: Trial) -> Measured:
    means = [float(batch.mean()) for batch in np.array_split(trial.time_s, BATCHES)]
    mean = mean_interval(means, possible=(0.0, float("inf")))
    return Measured(trial, mean, quantile_interval(trial.time_s, 0.99))


def table(rows: Sequence[Measured]) -> list[str]:
    """As Markdown."""
    lines = [
        "| policy | mean ms | 99 % ms | predicted ms | workers | kB sent | error |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        trial = row.trial
        predicted = "–" if trial.predicted_s is None else f"{1e3 * trial.predicted_s:.2f}"
        lines.append(
            f"| {trial.policy} | {_ms(row.mean, 2)} | {_ms(row.p99, 1)} | {predicted} | "
            f"{trial.workers.mean():.1f} | {trial.sent_bytes / 1e3:.4g} | {trial.difference:.0e} |"
        )
    return lines


def _ms(interval: Interval, digits: int) -> str:
    """A figure with the ends of its 95 % interval, in ms; ? where the queries are too few."""
    low, high = ("?" if end is None else f"{1e3 * end:.{digits}f}" for end in (interval.low, interval.high))
    return f"{1e3 * interval.mean:.{digits}f} ({low}-{high})"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each policy."""
    parser = argparse.ArgumentParser(prog="python -m bench.split_live", description=__doc__)
    parser.add_argument("scenario", nargs="?", default="split-inception")
    parser.add_argument("--policy", action="append", help="of split; several in turn")
    parser.add_argument("--queries", type=int, default=200, help="under each policy")
    parser.add_argument("--set", action="append", default=[], help="PATH=VALUE, as edgewise simulate has it")
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args(arguments)
    scenario = load_scenario(chosen.scenario, parsed(chosen.set))
    with tempfile.TemporaryDirectory() as folder:
        setting, rows = measured(scenario, chosen.policy or SPLIT, chosen.queries, Path(folder))
    if chosen.json:
        said = [
            {"policy": row.trial.policy, "mean_s": row.mean.mean, "p99_s": row.p99.mean}
            | {"predicted_s": row.trial.predicted_s, "workers": float(row.trial.workers.mean())}
            | {"sent_bytes": float(row.trial.sent_bytes), "error": float(row.trial.difference)}
            for row in rows
        ]
        return print(json.dumps({"servers": setting.servers, "queries": setting.queries, "policies": said}))
    through = f"{setting.queries} queries at {setting.rate_qps:g}/s through the gateway"
    print(f"live: {setting.servers} workers, {through}, 95 % intervals")
    return print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
