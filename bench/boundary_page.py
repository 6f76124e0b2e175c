"""The page of `bench.boundary`: what its runs came to, in words, as points and as a figure."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import live_beside
from bench.boundary_loads import (
    DURATION_S,
    KINDS,
    RATE_QPS,
    Load,
    Size,
    boundary,
    by_size,
    each_run,
    read_loads,
    size_of,
)
from edgewise.report import style

COLUMNS = (*Size._fields, "cameras", "seed", "offered_qps", "waited", "cores", "others")
ROOM = 0.99  # in time simulated: nothing that the scenario has is full
HEAD = (
    *(
        "processors",
        "halls",
        "buffer (kB)",
        "cameras in each",
        "queries/s",
        "cameras in time, live",
        "simulated",
    ),
    *("requests in time, live", "simulated", "off", "p50 live, simulated (ms)", "p95 live, simulated (ms)"),
    *("cores taken", "by others", "waited", "runs"),
)


def write_page(folder: Path) -> None:
    """`boundary.csv`, `boundary.png` and `index.md` of all runs of a folder."""
    rows, loads, runs = live_beside.read_rows(folder), read_loads(folder), each_run(folder)
    with (folder / "boundary.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow((*COLUMNS, "work", "what", "live", "simulated"))
        table.writerows(_points(rows))
    draw(loads, runs, folder / "boundary.png")
    (folder / "index.md").write_text(page(rows, loads, runs), encoding="utf-8")


def _points(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    for row in rows:
        if "failed" in row:
            continue
        size, cores = size_of(row), sum(ran for ran, *_ in row["cores"].values())
        about = (*size, row["cameras"], row["seed"], size.halls * row["cameras"] * RATE_QPS)
        figures = [round(each, 4) for each in (row["waited"], cores, row["others"])]
        for work, name, *both in live_beside.pairs(row):
            yield *about, *figures, work, name, *(round(each, 5) for each in both)


def draw(loads: Sequence[Load], runs: Sequence[Load], path: Path) -> None:
    """In time live and simulated; how far that is apart, over the load and over how long processes waited."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 9.0), layout="constrained")
    shares, differences, waits = figure.subplots(3, 1)
    for size, of in by_size(loads).items():
        x, name = [each.cameras for each in of], size.named()
        live, simulated = zip(*(each.shares["streams"] for each in of), strict=True)
        (line,) = shares.plot(x, [100 * share for share in live], marker="o", label=name)
        colour: dict[str, Any] = {"color": line.get_color()}
        shares.plot(x, [100 * share for share in simulated], linestyle="--", linewidth=0.8, **colour)
        differences.plot(x, [each.off() for each in of], marker="o", **colour)
        by_run = [(100 * each.waited, each.off()) for each in runs if each.size == size]
        waits.plot(*zip(*by_run, strict=True), marker="o", linestyle="none", **colour)
    shares.set(ylabel="cameras' queries in time (%)\ndashed: simulated", ylim=(0, 103))
    shares.set_xlabel("cameras in each hall")
    differences.set(ylabel="live less simulated (points)", xlabel="cameras in each hall")
    waits.set(ylabel="live less simulated (points)", xlabel="time that processes waited for a processor (%)")
    for axes in (differences, waits):
        axes.axhspan(-live_beside.POINTS, live_beside.POINTS, color="#E3E3E3")
    for axes in (shares, differences, waits):
        axes.grid(color="#E3E3E3", linewidth=0.8)
    shares.legend()
    style.png(figure, path)


def page(rows: Sequence[dict[str, Any]], loads: Sequence[Load], runs: Sequence[Load]) -> str:
    """What it came to, in words and as a table."""
    found, counts = rows[0]["described"], sorted({each.seeds for each in loads})
    said = "\n".join(f"- **{size.named()}**: {_said(of)}" for size, of in by_size(loads).items())
    lines = [HEAD, ["---"] * len(HEAD), *(_cells(each) for each in loads)]
    table = "\n".join("| " + " | ".join(map(str, cells)) + " |" for cells in lines)
    failed = "".join(f"\n{_failed(row)}\n" for row in rows if "failed" in row)
    others = [each.others for each in runs]
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

Two things part live from simulated there. The *machine*: each query takes some milliseconds of a processor
between its client, gateway and worker, and a process that waits for one answers late. {_waiting(runs)}
The *scenario*: a live query that waits for a full link is given up at its deadline, and a simulated one is sent
and served all the same, so quantiles are of other queries. With a bound on what may wait, `buffer_bytes`, a
simulated query that finds it full is lost at once; live, TCP sends again what the link has dropped. {_full(loads)}

Gateways, workers and clients are all on one machine, a virtual one of {found["cpus"]} processors
({found["processor"]}, {found["system"]}), or on one processor of it, in network namespaces with links as the
scenario has them. Measured on {found["date"][:10]}, {counts[0]} to {counts[-1]} runs of each load. Other software
took {min(others):.1f} to {max(others):.1f} processors meanwhile.

![Shares in time live and simulated; their difference over the load, and over the time waited](boundary.png)

{table}

*Waited* is the share of the time in which processes could have run and had no processor. *Cores taken* are
those of all processes together, clients included; *by others*, those that other software took meanwhile.
{failed}
## Repeat it

A run takes a minute or two, and nothing else should run meanwhile; the first live system of a machine compiles
its kernels, so run `edgewise demo` once before. What has a line is not run again. Where `machine` says that the
host took many of the processors, the run is of a smaller machine: remove its line, and run it again.

```sh
{_commands(loads)}
```

Points are in `boundary.csv`, whole runs in `runs.jsonl`.
"""  # noqa: E501


def _waiting(runs: Sequence[Load]) -> str:
    """How long processes wait where a prediction holds, and where not; of runs in which nothing is full."""
    found: dict[bool, list[float]] = {True: [], False: []}
    for each in runs:
        if not _is_full(each):
            found[abs(each.off()) <= live_beside.POINTS].append(100 * each.waited)
    words = {True: f"in those that came within {live_beside.POINTS:g} points", False: "in the others"}
    said = [f"for {min(of):.0f} to {max(of):.0f} % {words[near]}" for near, of in found.items() if of]
    what = f"Of runs that are at least {100 * ROOM:g} % in time simulated"
    return f"{what}, processes waited {', and '.join(said)}."


def _full(loads: Sequence[Load]) -> str:
    """How far shares part where something is full, on machines that keep up while nothing is."""
    keeps_up = {
        (size.cpus, size.halls)
        for size, of in by_size(loads).items()
        if not size.buffer_bytes
        and all(abs(each.off()) <= live_beside.POINTS for each in of if not _is_full(each))
    }
    full = [each for each in loads if _is_full(each) and (each.size.cpus, each.size.halls) in keeps_up]
    said = [
        f"{min(offs):+.1f} to {max(offs):+.1f} points {words}"
        for bounded, words in ((False, "off without a bound"), (True, "off with one"))
        if (offs := [each.off() for each in full if bool(each.size.buffer_bytes) == bounded])
    ]
    if not said:
        return ""
    return (
        f"Loads that are less than {100 * ROOM:g} % in time simulated, on a machine that keeps up with all "
        f"others, are {', and '.join(said)}."
    )


def _is_full(load: Load) -> bool:
    return min(simulated for _, simulated in load.shares.values()) < ROOM


def _failed(row: dict[str, Any]) -> str:
    where = f"{size_of(row).named()}, {row['cameras']} cameras in each, seed {row['seed']}"
    return f"{where} failed: {row['failed']}"


def _commands(loads: Sequence[Load]) -> str:
    return "\n".join(
        f"python -m bench.boundary --out runs/boundary --cpus {size.cpus} --halls {size.halls} "
        f"--cameras {_listed(each.cameras for each in of)} --seeds 0:{max(each.seeds for each in of)}"
        + f" --buffer {size.buffer_bytes}"
        * bool(size.buffer_bytes)
        for size, of in by_size(loads).items()
    )


def _listed(numbers: Iterable[int]) -> str:
    return ",".join(str(each) for each in sorted(set(numbers)))


def _said(of: Sequence[Load]) -> str:
    at, most = boundary(of), of[-1]
    if at is None:
        return (
            f"no boundary up to {most.cameras} cameras in each, {most.offered_qps:g} queries/s; at most "
            f"{max(abs(each.off()) for each in of):.1f} points off, and processes waited for at most "
            f"{100 * max(each.waited for each in of):.0f} % of the time."
        )
    return (
        f"the boundary is {at.cameras} cameras in each, {at.offered_qps:g} queries/s, which are "
        f"{at.off():+.1f} points off; processes take {at.cores:.1f} cores there and wait for "
        f"{100 * at.waited:.0f} % of the time."
    )


def _cells(load: Load) -> list[Any]:
    size, buffer_kb = load.size, f"{load.size.buffer_bytes / 1e3:g}" if load.size.buffer_bytes else "no bound"
    shares = [f"{100 * share:.1f} %" for work in KINDS for share in load.shares[work]]
    delays = [f"{1e3 * live:.0f}, {1e3 * simulated:.0f}" for live, simulated in (load.p50_s, load.p95_s)]
    about = [size.cpus, size.halls, buffer_kb, load.cameras, f"{load.offered_qps:g}"]
    used = [f"{load.cores:.2f}", f"{load.others:.2f}", f"{100 * load.waited:.0f} %"]
    return [*about, *shares, f"{load.off():+.1f}", *delays, *used, load.seeds]
