"""Up to which load a simulation says what a live system does: `python -m bench.boundary`

The factory of the first example, of some halls: in each a box with four workers and a number of cameras;
three more workers in a cloud for each hall, a link there of 10 Mbit/s for each, and requests of a service.
More and more cameras are switched on, from few to more than all workers could answer. Each load runs live on
this machine and is simulated, as `bench.live_beside` does it: shares in time, quantiles of delays, and the
share of the time in which processes could run and waited for a processor.

Two things end a prediction, so there are two knobs. More cameras fill what the *scenario* has: workers and
links. More halls with as many cameras in each fill the *machine*, which runs a process for each worker and
carries every query; `--cpus` lets all of it have so many processors alone. The boundary of a size is the
least load from which on the share of one kind of work is more than `live_beside.POINTS` off in the mean over
seeds. This rule is fixed here, before any run.

The folder gets `runs.jsonl`, a line for each run, `boundary.csv`, `boundary.png` and `index.md`; `--page`
writes the last three anew without a run. What has a line is not run again. Nothing else should run beside it:
what waited because of others is in `waited`, too.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from bench import live_beside, machine
from edgewise.cli.verbs import parse_seeds
from edgewise.config import load_scenario
from edgewise.model.parsing import parse_scenario
from edgewise.model.scenario import Scenario

OUT = Path(__file__).resolve().parents[1] / "docs" / "results" / "error-boundary"
FACTORY = Path(__file__).resolve().parents[1] / "examples" / "01-first-simulation" / "factory.yaml"
DURATION_S = 30.0
RATE_QPS = 5.0  # of a camera
COLUMNS = (
    "cpus",
    "halls",
    "cameras",
    "seed",
    "offered_qps",
    "waited",
    "cores",
    "work",
    "what",
    "live",
    "simulated",
)
KINDS = {"streams": "in time", "services": "in time"}  # whose shares the boundary is of


class Load(NamedTuple):
    """All runs of one size and load, in the mean.

    Attributes:
        cpus: processors of the machine that everything shared.
        halls: of the size.
        cameras: in each hall.
        seeds: how many runs.
        waited: share of the time in which processes could run and waited to.
        cores: that processes took, of all of them together.
        shares: by kind of work, live and simulated.
        p50_s: of cameras' queries, live and simulated.
        p95_s: the same.
    """

    cpus: int
    halls: int
    cameras: int
    seeds: int
    waited: float
    cores: float
    shares: dict[str, tuple[float, float]]
    p50_s: tuple[float, float]
    p95_s: tuple[float, float]

    @property
    def offered_qps(self) -> float:
        """Queries that all cameras together send."""
        return self.halls * self.cameras * RATE_QPS

    def off(self) -> float:
        """Points by which the share that is furthest off is off, with its sign."""
        return max((100.0 * (live - simulated) for live, simulated in self.shares.values()), key=abs)


def scenario(halls: int, cameras: int) -> Scenario:
    """The factory of so many halls, each like its first one; its cloud and the link there in proportion.

    It lasts shorter than the factory, has no jobs, and no box fails.

    Args:
        cameras: in each hall.
    """
    factory = load_scenario(FACTORY)
    data: dict[str, Any] = factory.spec.model_dump(
        mode="json", exclude_none=True, exclude={"jobs", "timeline"}
    )
    (hall, _, cloud), (site, _), names = data["clusters"], data["sites"], range(halls)
    many = halls / 2  # times as large as it is
    cloud["nodes"][0]["count"] = halls
    clusters = [
        hall | {"name": f"hall-{n}", "nodes": [hall["nodes"][0] | {"name": f"box-{n}"}]} for n in names
    ]
    near, _, far, served = data["workers"]
    (wan,) = (link for link in data["links"] if link.get("name") == "wan")
    wan["bandwidth_bps"] *= many
    data["streams"]["sources"][0]["count"] = cameras
    data["services"]["requests"]["rate_qps"] *= many
    return parse_scenario(
        data
        | {
            "name": f"factory-of-{halls}",
            "description": f"The factory with {halls} halls.",
            "duration_s": DURATION_S,
            "clusters": [*clusters, cloud],
            "sites": [site | {"name": f"at-{n}", "cluster": f"hall-{n}"} for n in names],
            "workers": [
                *(near | {"cluster": f"hall-{n}"} for n in names),
                far | {"count": round(far["count"] * many)},
                served,
            ],
        },
        f"factory-of-{halls}",
    )


def read_loads(folder: Path) -> list[Load]:
    """What the runs of a folder came to, those that failed left out; by size and load."""
    runs: dict[tuple[int, int, int], list[dict[str, Any]]] = {}
    for row in live_beside.read_rows(folder):
        if "failed" not in row:
            runs.setdefault((row["cpus"], row["halls"], row["cameras"]), []).append(row)
    return [_load(at, rows) for at, rows in sorted(runs.items())]


def _load(at: tuple[int, int, int], rows: Sequence[dict[str, Any]]) -> Load:
    def mean(work: str, name: str) -> tuple[float, float]:
        live, simulated = ([row[side][work][name] for row in rows] for side in ("live", "simulated"))
        return fmean(live), fmean(simulated)

    shares = {work: mean(work, name) for work, name in KINDS.items()}
    cores = fmean(sum(ran for ran, _ in row["cores"].values()) for row in rows)
    delays = (mean("streams", "cameras p50_s"), mean("streams", "cameras p95_s"))
    return Load(*at, len(rows), fmean(row["waited"] for row in rows), cores, shares, *delays)


def boundary(loads: Sequence[Load]) -> Load | None:
    """Of one size: the least load of those that are too far off and have none behind them that is not.

    None where the heaviest is near enough.
    """
    found = None
    for load in sorted(loads, key=lambda each: -each.cameras):
        if abs(load.off()) <= live_beside.POINTS:
            break
        found = load
    return found


def write_page(folder: Path) -> None:
    """`boundary.csv`, `boundary.png` and `index.md` of all runs of a folder."""
    rows, loads = live_beside.read_rows(folder), read_loads(folder)
    with (folder / "boundary.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        table.writerows(_points(rows))
    draw(loads, folder / "boundary.png")
    (folder / "index.md").write_text(page(rows, loads), encoding="utf-8")


def _points(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    for row in rows:
        for work, name, live, simulated in live_beside.pairs(row) if "failed" not in row else ():
            offered_qps = row["halls"] * row["cameras"] * RATE_QPS
            waited = round(row["waited"], 4)
            cores = round(sum(ran for ran, _ in row["cores"].values()), 3)
            begin = (row["cpus"], row["halls"], row["cameras"], row["seed"], offered_qps, waited, cores)
            yield *begin, work, name, round(live, 5), round(simulated, 5)


def sizes(loads: Sequence[Load]) -> dict[tuple[int, int], list[Load]]:
    """By processors and halls."""
    found: dict[tuple[int, int], list[Load]] = {}
    for each in loads:
        found.setdefault((each.cpus, each.halls), []).append(each)
    return found


def _named(cpus: int, halls: int) -> str:
    return f"{halls} halls on {cpus} processor{'s' * (cpus > 1)}"


def draw(loads: Sequence[Load], path: Path) -> None:
    """In time live and simulated, how far that is apart, and how long processes waited, over the load."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 8.0), layout="constrained")
    shares, differences, waits = figure.subplots(3, 1, sharex=True)
    for at, of in sizes(loads).items():
        x, name = [each.cameras for each in of], _named(*at)
        live, simulated = zip(*(each.shares["streams"] for each in of), strict=True)
        (line,) = shares.plot(x, [100 * share for share in live], marker="o", label=f"{name}, live")
        style: dict[str, Any] = {"color": line.get_color(), "label": name}
        shares.plot(x, [100 * share for share in simulated], color="black", linestyle="--", linewidth=0.8)
        differences.plot(x, [each.off() for each in of], marker="o", **style)
        waits.plot(x, [100 * each.waited for each in of], marker="o", **style)
    differences.axhspan(-live_beside.POINTS, live_beside.POINTS, color="#E3E3E3")
    shares.set(ylabel="cameras' queries in time (%)\ndashed: simulated", ylim=(0, 103))
    differences.set(ylabel="live less simulated (points)")
    waits.set(ylabel="time waited for a processor (%)", xlabel="cameras in each hall", ylim=(0, 100))
    for axes in (shares, differences, waits):
        axes.legend()
        axes.grid(color="#E3E3E3", linewidth=0.8)
    figure.savefig(path, dpi=120, metadata={"Software": ""})


def page(rows: Sequence[dict[str, Any]], loads: Sequence[Load]) -> str:
    """What it came to, in words and as a table."""
    found, runs = rows[0]["described"], sorted({each.seeds for each in loads})
    said = "\n".join(f"- **{_named(*at)}**: {_said(of)}" for at, of in sizes(loads).items())
    table = "\n".join(_line(each) for each in loads)
    failed = "".join(f"\n{_failed(row)}\n" for row in rows if "failed" in row)
    return f"""# Up to which load a simulation predicts

A simulation says what a live system does as long as two things hold: the scenario says what there is, and the
machine that runs the live system keeps up with it. This page measures where that ends. The factory of the first
example runs live, with emulated workers, and simulated, with more and more cameras in each hall ({RATE_QPS:g}
queries/s each, due within 150 ms) and the requests of a service beside them, {DURATION_S:g} s a run. About 25
cameras in each hall are what its workers and its link to the cloud carry. A factory with more halls is the same
to each camera, but the machine has more processes to run and more queries to carry.

*Off* is the share in time, of cameras' queries or of requests, that is further from the simulated one: points,
live less simulated. The boundary is the load from which on that is more than {live_beside.POINTS:g} points. This
was fixed before the first run.

{said}

Gateways, workers and clients are all on one machine, a virtual one of {found["cpus"]} processors
({found["processor"]}, {found["system"]}), or on one processor of it. Measured on {found["date"][:10]}, {runs[0]} to {runs[-1]} runs of each load.

![Shares in time live and simulated, their difference, and how long processes waited](boundary.png)

| processors | halls | cameras in each | queries/s | cameras in time, live | simulated | requests in time, live | simulated | off | p50 live, simulated (ms) | p95 live, simulated (ms) | cores taken | waited | runs |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
{table}

*Waited* is the share of the time in which processes could have run and had no processor. *Cores taken* are
those of all processes together, clients included.
{failed}
## Repeat it

A run takes a minute or two, and nothing else should run meanwhile. What has a line is not run again.

```sh
{_commands(loads)}
```

Points are in `boundary.csv`, whole runs in `runs.jsonl`.
"""  # noqa: E501


def _failed(row: dict[str, Any]) -> str:
    where = f"{_named(row['cpus'], row['halls'])}, {row['cameras']} cameras in each, seed {row['seed']}"
    return f"{where} failed: {row['failed']}"


def _commands(loads: Sequence[Load]) -> str:
    return "\n".join(
        f"python -m bench.boundary --out runs/boundary --seeds 0:{max(each.seeds for each in of)} "
        f"--cpus {cpus} --halls {halls} --cameras {_listed(each.cameras for each in of)}"
        for (cpus, halls), of in sizes(loads).items()
    )


def _listed(numbers: Iterable[int]) -> str:
    return ",".join(str(each) for each in sorted(set(numbers)))


def _said(of: Sequence[Load]) -> str:
    at, most = boundary(of), of[-1]
    if at is None:
        return (
            f"no boundary up to {most.cameras} cameras in each, {most.offered_qps:g} queries/s; at most "
            f"{max((each.off() for each in of), key=abs):+.1f} points off, and processes waited for at most "
            f"{100 * max(each.waited for each in of):.0f} % of the time."
        )
    return (
        f"the boundary is {at.cameras} cameras in each, {at.offered_qps:g} queries/s, which are "
        f"{at.off():+.1f} points off; processes take {at.cores:.1f} cores there and wait for "
        f"{100 * at.waited:.0f} % of the time."
    )


def _line(load: Load) -> str:
    shares = [f"{100 * share:.1f} %" for work in KINDS for share in load.shares[work]]
    delays = [f"{1e3 * live:.0f}, {1e3 * simulated:.0f}" for live, simulated in (load.p50_s, load.p95_s)]
    cells = [
        load.cpus,
        load.halls,
        load.cameras,
        f"{load.offered_qps:g}",
        *shares,
        f"{load.off():+.1f}",
        *delays,
    ]
    return (
        "| "
        + " | ".join(map(str, [*cells, f"{load.cores:.2f}", f"{100 * load.waited:.0f} %", load.seeds]))
        + " |"
    )


def main() -> None:
    """Run each size and load once for each seed, the first seed of all before the second of any."""
    parser = argparse.ArgumentParser(prog="python -m bench.boundary", description=__doc__)
    parser.add_argument("--halls", default="2,8", help="sizes of the factory")
    parser.add_argument("--cameras", default="8,16,24,32,40", help="loads: in each hall")
    parser.add_argument("--seeds", default="0:2")
    parser.add_argument("--cpus", type=int, help="processors for all of it; all by default")
    parser.add_argument("--out", type=Path, default=OUT, help="a folder; what is there stays")
    parser.add_argument("--page", action="store_true", help="write page, points and figure, and run nothing")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    if not chosen.page:
        halls, cameras = ([int(each) for each in text.split(",")] for text in (chosen.halls, chosen.cameras))
        run(chosen.out, list(product(parse_seeds(chosen.seeds), halls, cameras)), chosen.cpus)
    write_page(chosen.out)


def run(folder: Path, wanted: Iterable[tuple[int, int, int]], cpus: int | None = None) -> None:
    """Those of seed, halls and cameras that have no line yet, one after the other.

    Args:
        cpus: that this process and all that it starts may use; None for all.
    """
    found = machine.describe(None)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cpus])
    cpus = len(os.sched_getaffinity(0))
    names = ("cpus", "halls", "cameras", "seed")
    done = {tuple(row[name] for name in names) for row in live_beside.read_rows(folder)}
    for seed, halls, cameras in wanted:
        if (cpus, halls, cameras, seed) in done:
            continue
        print(f"{_named(cpus, halls)}, {cameras} cameras in each", flush=True)
        row = {"cpus": cpus, "halls": halls, "cameras": cameras, "described": found}
        row |= live_beside.tried(scenario(halls, cameras), seed, apart=False)
        live_beside.show(row)
        with (folder / live_beside.RUNS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
