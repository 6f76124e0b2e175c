"""The same scenario live and simulated: `python -m bench.live_beside [SCENARIO] --seeds 0:10 --out FOLDER`

For each seed a live system is started on this machine, the seed's clients bring all its kinds of work for as
long as the scenario lasts, and the same is simulated with the same policies. Both are read by the same
functions from records in the same tables. Of each kind of work:

    streams     share of queries answered in time, live as clients saw it (who is refused sends none, and
                counts what it would have sent), and quantiles of delays
    services    share of requests done in time, and quantiles
    graphs      share of split queries that were answered, and quantiles
    pipelines   frames done
    jobs        share that was done by the end, and core-seconds that were finished in time

A run counts as *busy* where processes waited for a processor for more than `BUSY` of the time that they could
have run: then it says more about the machine than about the system. The rule is fixed here, before any result
is seen, and the line of a busy run says so first. Such runs are shown and kept, and the summary says how many
of its runs they are. The folder gets `runs.jsonl`, a line for each seed, and `index.md`, the summary of all
lines there (`--page` writes it anew without a run).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student

from bench.left_out import nursing
from edgewise import api
from edgewise.cli.verbs import parse_seeds, parsed
from edgewise.config import edition, load_scenario
from edgewise.model.scenario import Scenario
from edgewise.run.live import live_run
from edgewise.run.result import Result
from edgewise.runtime.clients.all_work import bring
from edgewise.runtime.controller.plan import Emulation, deciding, prepare
from edgewise.runtime.testbeds.spaces import Spaces

BUSY = 0.05  # share of the time in which processes could run and waited to
RUNS = "runs.jsonl"
LATER_S = 5.0  # after the scenario's end, for pipelines and jobs to end
SCALES = {"in time": ("points", 100.0), "done": ("points", 100.0), "answered": ("points", 100.0)}
Figures = dict[str, dict[str, float]]


def main() -> None:
    """Print a line for each kind of work and seed, and at the end the mean differences."""
    parser = argparse.ArgumentParser(prog="python -m bench.live_beside", description=__doc__)
    parser.add_argument("scenario", nargs="?", default="campus-small")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--set", action="append", default=[], help="PATH=VALUE, as edgewise simulate has it")
    parser.add_argument("--out", type=Path, help="a folder; what is there stays")
    parser.add_argument("--namespaces", action="store_true", help="links as the scenario says; needs root")
    parser.add_argument("--page", action="store_true", help="write its summary anew, and run nothing")
    chosen = parser.parse_args()
    if chosen.page:
        return write_page(chosen.out)
    scenario, rows = load_scenario(chosen.scenario, parsed(chosen.set)), []
    print(f"{edition(scenario)}, {scenario.duration_s:g} s; busy: waited for more than {100 * BUSY:g} %")
    for seed in parse_seeds(chosen.seeds):
        rows.append(row := one(scenario, seed, chosen.namespaces))
        show(row)
        if chosen.out is not None:
            chosen.out.mkdir(parents=True, exist_ok=True)
            with (chosen.out / RUNS).open("a") as file:
                file.write(json.dumps(row) + "\n")
    print("\n".join(concluded(rows)))
    if chosen.out is not None:
        write_page(chosen.out)


def one(scenario: Scenario, seed: int, apart: bool) -> dict[str, Any]:
    """A seed, live and simulated; `apart`: on namespaces."""
    who = deciding(scenario)
    with tempfile.TemporaryDirectory() as folder, up(Path(folder) / "live", scenario, seed, apart) as state:
        brought = bring(state, seed, LATER_S)
        live = live_run(state, between_s=(brought.began_s, brought.began_s + scenario.duration_s))
    simulated, found = api.simulate(scenario, who, [seed]), figures(live)
    if "streams" in found:
        seen = brought.figures["streams"]
        found["streams"] |= {"in time": seen["ok"] / seen["came"], "queries": seen["came"]}
    return {
        "scenario": edition(scenario), "seed": seed, "policies": who, "waited": brought.waited,
        "on": "namespaces" if apart else "local",
        "busy": brought.waited > BUSY, "machine": brought.busy,
        "live": found, "simulated": figures(simulated),
    }  # fmt: skip


@contextmanager
def up(folder: Path, scenario: Scenario, seed: int, apart: bool) -> Iterator[Path]:
    """A live system of a scenario, whose processes all answer; it is ended."""
    try:
        with nursing(prepare(folder, scenario, emulation=Emulation(seed=seed), on_namespaces=apart)):
            yield folder
    finally:
        if apart:
            Spaces(folder).remove()


def figures(result: Result) -> Figures:
    """By kind of work, what is compared."""
    runs = {result.work: result, **result.beside}
    found = {work: _of(work, run.summary()[0], run) for work, run in runs.items()}
    for work, rows in result.delays().items():
        for row in rows:
            for name in ("p50_s", "p95_s"):
                found[work][f"{row['of']} {name}"] = row[name]
    return found


def _of(work: str, row: Mapping[str, Any], run: Result) -> dict[str, float]:
    items = run.items
    if work == "streams":
        return {"in time": row["success"], "queries": row["queries"]}
    if work == "services":
        return {"in time": row["in_time"] / row["arrived"], "requests": row["arrived"]}
    if work == "graphs":
        return {"answered": 1.0 - items["time_s"].null_count / items.num_rows, "queries": row["queries"]}
    if work == "pipelines":
        return {"frames": float(np.sum(items["frames"].to_numpy()))}
    return {"done": row["ended"] / row["jobs"], "core-s": row["finished_core_s"]}


def show(row: Mapping[str, Any]) -> None:
    """A seed's lines."""
    mark = (
        f"busy, waited {100 * row['waited']:.1f} %" if row["busy"] else f"waited {100 * row['waited']:.1f} %"
    )
    print(f"seed {row['seed']}: {mark}", flush=True)
    for work, name, live, simulated in pairs(row):
        print(f"  {work:10} {name:28} {live:12.4f} {simulated:12.4f} {live - simulated:+10.4f}", flush=True)


def pairs(row: Mapping[str, Any]) -> list[tuple[str, str, float, float]]:
    """Kind of work, what is compared, live and simulated, of what both have."""
    return [
        (work, name, value, row["simulated"][work][name])
        for work, of in row["live"].items()
        for name, value in of.items()
        if name in row["simulated"].get(work, {})
    ]


def concluded(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A table of mean differences, live less simulated, with 95 % intervals."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in rows:
        for work, name, live, simulated in pairs(row):
            found.setdefault((work, name), []).append((live, simulated))
    lines = ["| work | what | runs | live | simulated | difference |", "|---|---|---|---|---|---|"]
    for (work, name), each in found.items():
        live, simulated = np.array(each).T
        unit, differences = differing(name, live, simulated)
        n = len(each)
        wide = student.ppf(0.975, n - 1) * differences.std(ddof=1) / n**0.5 if n > 1 else float("nan")
        said = f"{differences.mean():+.2f} ± {wide:.2f} {unit}"
        lines.append(f"| {work} | {name} | {n} | {live.mean():.4g} | {simulated.mean():.4g} | {said} |")
    return lines


def write_page(folder: Path) -> None:
    """The summary of all runs of a folder, and of the quiet ones where there are several."""
    rows = [json.loads(line) for line in (folder / RUNS).read_text().splitlines()]
    quiet = [row for row in rows if not row["busy"]]
    waited = sorted(100.0 * row["waited"] for row in rows)
    lines = [
        "# Live beside simulated",
        "",
        f"`{rows[0]['scenario']}`, live on one machine and simulated, with the same policies and seeds "
        f"{rows[0]['seed']} to {rows[-1]['seed']}: `python -m bench.live_beside`. Each kind of work is read "
        "from records in the same tables. Differences are live less simulated, with the 95 % interval of the "
        "mean.",
        "",
        f"**{len(quiet)} of {len(rows)} runs were quiet.** The rule was fixed before any run: busy is a run "
        f"whose processes waited for a processor for more than {100 * BUSY:g} % of the time in which they "
        f"could have run. They waited for {waited[0]:.0f} to {waited[-1]:.0f} %.",
        "",
        f"A live run is looked at until {LATER_S:g} s after its end, while a simulation goes on until its "
        "last pipeline has ended: those that come late have fewer frames live. Networks of split queries "
        "really run live, on this machine; simulated nodes have the speed that the scenario says.",
        "",
        *concluded(rows),
    ]
    if 1 < len(quiet) < len(rows):
        lines += ["", "## Quiet runs alone", "", *concluded(quiet)]
    lines += ["", "## Shares, run by run", "", *_run_by_run(rows)]
    (folder / "index.md").write_text("\n".join(lines) + "\n")


def _run_by_run(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    shares = [(work, name) for work, name, _, _ in pairs(rows[0]) if name in SCALES]
    names = [f"{work}, {name}" for work, name in shares]
    lines = ["| seed | waited | " + " | ".join(names) + " |", "|---" * (2 + len(names)) + "|"]
    for row in rows:
        of = {(work, name): f"{live:.4f}, {sim:.4f}" for work, name, live, sim in pairs(row)}
        cells = [str(row["seed"]), f"{100 * row['waited']:.0f} %", *(of.get(each, "") for each in shares)]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def differing(name: str, live: Any, simulated: Any) -> tuple[str, Any]:
    """Unit, and differences of runs in it: points of shares, ms of delays, else percent of the simulated."""
    if name in SCALES:
        unit, scale = SCALES[name]
        return unit, scale * (live - simulated)
    if name.endswith("_s"):
        return "ms", 1e3 * (live - simulated)
    return "%", 100.0 * (live / np.maximum(simulated, 1e-9) - 1.0)


if __name__ == "__main__":
    main()
