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

A run counts as *busy* where a process that could run waited for a processor for longer than `BUSY_S` in the
mean: then it says more about the machine than about the system. A query is handed on `TURNS` times (to the
kernel and the process of a gateway, of a worker, and back to the client), so its waits are as long as the
difference that is asked for of a delay (`LEAST_S`) where each takes `BUSY_S`. The rule is fixed here, before
any result is seen, and the line of a busy run says so first. Such runs are shown and kept, and the summary
says how many of its runs they are. The *share* of time that processes waited is shown beside and is no rule:
who works for 0.1 ms at a time waits for a tenth of its time on an idle machine.

The folder gets `runs.jsonl`, a line for each seed, those that failed included, and `index.md`, the summary of
all lines there (`--page` writes it anew without a run). A seed that has a line is not run again, so what was
broken off goes on by the same command.

Choices of policies that see ties or counts of a moment turn out otherwise for the least difference, and what
follows from them is another run. `--set` takes such choices away; the page links to runs without them in the
folder `few-choices` of `--out`.

What is asked of a difference is fixed here, too (`bound`): 3 points of a share; the larger of 3 % and 2 ms
of a delay, after the mean difference of `--less FOLDER`, of runs with other seeds, was taken off; 3 % of
frames and core-seconds. *Within* or *outside* is said where the 95 % interval of the mean lies wholly there,
else *open*.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np

from bench.left_out import nursing
from bench.taken import Taken
from edgewise import api
from edgewise.cli.deciding import switch
from edgewise.cli.verbs import parse_seeds, parsed
from edgewise.config import edition, load_scenario
from edgewise.errors import EdgewiseError
from edgewise.model.scenario import Scenario
from edgewise.parallel import processors
from edgewise.report.intervals import mean_interval
from edgewise.run.assigning import about_of
from edgewise.run.live import live_run
from edgewise.run.result import Result
from edgewise.runtime.clients.all_work import bring
from edgewise.runtime.controller.plan import Emulation, deciding, prepare
from edgewise.runtime.testbeds.spaces import Spaces

PATIENCE_S = 240.0  # for all processes to answer; the first one compiles
RUNS, FEW_CHOICES = "runs.jsonl", "few-choices"
LATER_S = 45.0  # at most, after the scenario's end, for pipelines and jobs to end
LEAST_S, SHARE, POINTS = 2e-3, 0.03, 3.0  # of differences that are asked for
TURNS = 6  # on processors, one after the other, from a client's query to its answer
BUSY_S = LEAST_S / TURNS
OPEN = (
    "## Why some differences are open",
    "",
    "Idle workers of one place are equal when simulated, and not quite when measured, so a stream gets "
    "another one live, and two streams meet at a worker in one run and not in the other. Kubernetes' "
    "autoscaler counts what replicas hold at one moment, which live is another one; from then on runs have "
    "other numbers of replicas, and pipelines other cores. Whether that is why differences are open, runs "
    f"say that leave little to choose: [few choices]({FEW_CHOICES}/index.md).",
)
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
    parser.add_argument("--less", type=Path, help="a folder of runs with other seeds: delays less their mean")
    parser.add_argument("--page", action="store_true", help="write its summary anew, and run nothing")
    chosen = parser.parse_args()
    if chosen.page:
        return write_page(chosen.out, chosen.less)
    scenario = load_scenario(chosen.scenario, parsed(chosen.set))
    print(
        f"{edition(scenario)}, {scenario.duration_s:g} s; busy: a wait takes more than {1e3 * BUSY_S:.2g} ms"
    )
    rows = read_rows(chosen.out)
    for seed in [seed for seed in parse_seeds(chosen.seeds) if seed not in {row["seed"] for row in rows}]:
        rows.append(row := tried(scenario, seed, chosen.namespaces) | {"set": chosen.set})
        show(row)
        if chosen.out is not None:
            chosen.out.mkdir(parents=True, exist_ok=True)
            with (chosen.out / RUNS).open("a") as file:
                file.write(json.dumps(row) + "\n")
    print("\n".join(concluded(rows, read_rows(chosen.less))))
    if chosen.out is not None:
        write_page(chosen.out, chosen.less)


def read_rows(folder: Path | None) -> list[dict[str, Any]]:
    """The runs of a folder; none where there is none."""
    if folder is None or not (folder / RUNS).is_file():
        return []
    return [json.loads(line) for line in (folder / RUNS).read_text().splitlines()]


def tried(scenario: Scenario, seed: int, apart: bool) -> dict[str, Any]:
    """As `one`; why not, where it failed."""
    try:
        return one(scenario, seed, apart)
    except (EdgewiseError, OSError, TimeoutError) as error:
        return {"scenario": edition(scenario), "seed": seed, "failed": str(error)}


def one(scenario: Scenario, seed: int, apart: bool) -> dict[str, Any]:
    """A seed, live and simulated; `apart`: on namespaces."""
    who = deciding(scenario)
    with tempfile.TemporaryDirectory() as folder, up(Path(folder) / "live", scenario, seed, apart) as state:
        if "orchestrate" in who:  # as simulated, nothing is decided before anything comes
            switch(state, "policies", "orchestrate", who["orchestrate"])
        with Taken(state) as taken:
            brought = bring(state, seed, LATER_S)
        end_s = brought.began_s + scenario.duration_s + LATER_S
        live = live_run(state, between_s=(brought.began_s, end_s))
    simulated, found = simulated_with(scenario, who, seed), figures(live)
    _, waited_s, turns = (sum(column) for column in zip(*taken.cores.values(), strict=True))
    if "streams" in found:
        seen = brought.figures["streams"]
        found["streams"] |= {"in time": seen["ok"] / seen["came"], "queries": seen["came"]}
    return {
        "scenario": edition(scenario), "seed": seed, "policies": who, "waited": brought.waited,
        "on": "namespaces" if apart else "local", "wait_s": waited_s / turns,
        "busy": waited_s / turns > BUSY_S, "machine": brought.busy,
        "cores": taken.cores, "others": taken.others, "processors": processors(),
        "live": found, "simulated": figures(simulated),
    }  # fmt: skip


def simulated_with(scenario: Scenario, who: Mapping[str, str], seed: int) -> Result:
    """The same without the live system; a controller has a policy for jobs, too, which may come to any."""
    return api.simulate(scenario, {d: who[d] for d in who if about_of(scenario, d) in scenario.holds}, [seed])


@contextmanager
def up(folder: Path, scenario: Scenario, seed: int, apart: bool) -> Iterator[Path]:
    """A live system of a scenario, whose processes all answer; nobody scales yet, and it is ended."""
    try:
        given = {"orchestrate": "none"} if "orchestrate" in deciding(scenario) else {}
        made = prepare(folder, scenario, given=given, emulation=Emulation(seed=seed), on_namespaces=apart)
        with nursing(made, PATIENCE_S):
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
    if "failed" in row:
        return print(f"seed {row['seed']}: failed, {row['failed']}", flush=True)
    mark = "busy, " if row["busy"] else ""
    said = f"waited {1e3 * row['wait_s']:.3f} ms at a time, {100 * row['waited']:.1f} %"
    print(f"seed {row['seed']}: {mark}{said}", flush=True)
    print("  cores taken, ms a wait: " + said_cores(row), flush=True)
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


def said_cores(row: Mapping[str, Any]) -> str:
    """What each kind of process took of processors, and how long it waited each time."""
    cores = sorted(row["cores"].items(), key=lambda each: -each[1][0])
    total = [sum(column) for column in zip(*row["cores"].values(), strict=True)]
    return "; ".join(
        f"{name} {ran:.3f}, {1e3 * waited / max(turns, 1e-9):.3f}"
        for name, (ran, waited, turns) in [("all", total), *cores]
    )


def differences_of(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """By kind of work and what is compared, live and simulated of each run that did not fail."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in rows:
        for work, name, live, simulated in pairs(row) if "failed" not in row else ():
            found.setdefault((work, name), []).append((live, simulated))
    return found


def concluded(rows: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]] = ()) -> list[str]:
    """A table of mean differences, live less simulated, with 95 % intervals.

    Args:
        others: runs with other seeds, whose mean difference is taken off delays.
    """
    found, constants = differences_of(rows), differences_of(others)
    lines = [
        "| work | what | runs | live | simulated | constant | difference | asked for | |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (work, name), each in found.items():
        live, simulated = np.array(each).T
        constant, said = 0.0, ""
        if name.endswith("p50_s") or name.endswith("p95_s"):
            known = np.array(constants.get((work, name), np.zeros((0, 2))))
            constant = float(np.mean(known[:, 0] - known[:, 1])) if len(known) else 0.0
            said = f"{1e3 * constant:+.2f} ms" if len(known) else "none"
        unit, differences = differing(name, live - constant, simulated)
        mean, low, high, _ = astuple(mean_interval(differences))
        wide = float("inf") if low is None or high is None else (high - low) / 2.0
        most = bound(work, name, float(simulated.mean()))
        asked, verdict = ("", "") if most is None else (f"{most:.3g} {unit}", judged(mean, wide, most))
        lines.append(
            f"| {work} | {name} | {len(each)} | {live.mean():.4g} | {simulated.mean():.4g} | {said} | "
            f"{mean:+.2f} ± {wide:.2f} {unit} | {asked} | {verdict} |"
        )
    return lines


def bound(work: str, name: str, simulated: float) -> float | None:
    """How far live may be from simulated, in the unit of `differing`; None where nothing is asked."""
    if name in SCALES:
        return POINTS
    if name.endswith("_s"):
        return 1e3 * max(SHARE * simulated, LEAST_S) if work in ("streams", "services", "graphs") else None
    return 100.0 * SHARE if name in ("frames", "core-s") else None


def judged(mean: float, wide: float, most: float) -> str:
    """Where the interval of the mean lies."""
    low, high = mean - wide, mean + wide
    return "within" if -most <= low and high <= most else "outside" if low > most or high < -most else "open"


def write_page(folder: Path, less: Path | None = None) -> None:
    """The summary of all runs of a folder, and of the quiet ones where there are several."""
    tried, others = read_rows(folder), read_rows(less)
    rows = [row for row in tried if "failed" not in row]
    failed = [row for row in tried if "failed" in row]
    quiet = [row for row in rows if not row["busy"]]
    waits = sorted(1e3 * row["wait_s"] for row in rows)
    shares = sorted(100.0 * row["waited"] for row in rows)
    taken = float(np.mean([sum(ran for ran, *_ in row["cores"].values()) for row in rows]))
    lines = [
        "# Live beside simulated",
        "",
        f"`{rows[0]['scenario']}`, live on one machine and simulated, with the same policies and seeds "
        f"{', '.join(str(row['seed']) for row in tried)}: `{_command(rows[0])}`. Each kind of work is read "
        "from records in the same tables. Differences are live less simulated, with the 95 % interval of the "
        "mean.",
        "",
        f"**{len(quiet)} of {len(rows)} runs were quiet.** The rule was fixed before any run: busy is a run "
        f"whose processes waited for a processor for more than {1e3 * BUSY_S:.2g} ms in the mean each time "
        f"that they could run: the {TURNS} of them that a query needs wait for less than {1e3 * LEAST_S:g} "
        f"ms then. They waited for {waits[0]:.3f} to {waits[-1]:.3f} ms, which is {shares[0]:.0f} to "
        f"{shares[-1]:.0f} % of the time in which they could run, and took {taken:.2f} of "
        f"{rows[-1]['processors']} processors.",
        "",
        f"A live run is looked at until {LATER_S:g} s after its end, when all that came has ended. Live, "
        "queries of split models travel to and from a gateway as well, which is no part of their simulation. "
        "A live job ends up to 3 s before the time that it says, for who takes longer is ended.",
        "",
        *([f"The constant is the mean difference of {len(others)} runs with other seeds."] if others else []),
        "",
        *concluded(rows, others),
    ]
    if 1 < len(quiet) < len(rows):
        lines += ["", "## Quiet runs alone", "", *concluded(quiet, others)]
    if (folder / FEW_CHOICES).is_dir():
        lines += ["", *OPEN]
    lines += ["", "## Shares, run by run", "", *_run_by_run(rows)]
    lines += ["", *(f"Seed {row['seed']} failed: {row['failed']}" for row in failed)]
    used = said_cores(rows[-1])
    lines += ["", f"Cores that each kind of process took, and ms that a wait took, in the last run: {used}."]
    (folder / "index.md").write_text("\n".join(lines) + "\n")


def _command(row: Mapping[str, Any]) -> str:
    changes = "".join(f" --set '{each}'" for each in row.get("set", []))
    return f"python -m bench.live_beside{' --namespaces' if row['on'] == 'namespaces' else ''}{changes}"


def _run_by_run(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    shares = [(work, name) for work, name, _, _ in pairs(rows[0]) if name in SCALES]
    names = [f"{work}, {name}" for work, name in shares]
    lines = ["| seed | a wait | " + " | ".join(names) + " |", "|---" * (2 + len(names)) + "|"]
    for row in rows:
        of = {(work, name): f"{live:.4f}, {sim:.4f}" for work, name, live, sim in pairs(row)}
        cells = [str(row["seed"]), f"{1e3 * row['wait_s']:.3f} ms", *(of.get(each, "") for each in shares)]
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
