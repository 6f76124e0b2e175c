"""Up to which load a simulation says what a live system does: `python -m bench.boundary`

The factory of the first example, of some halls: in each a box with four workers and a number of cameras;
three more workers in a cloud for each hall, a link there of 10 Mbit/s for each, and requests of a service.
More and more cameras are switched on, from few to more than all workers could answer. Each load runs live on
this machine, on network namespaces, which needs root, and is simulated, as `bench.live_beside` does it:
shares in time, quantiles of delays, and the share of the time in which processes could run and waited for a
processor.

Two things end a prediction, so there are two knobs. More cameras fill what the *scenario* has: workers and
links. More halls with as many cameras in each fill the *machine*, which runs a process for each worker and
carries every query; `--cpus` lets all of it have so many processors alone. `--buffer` says how much may wait
for the link to the cloud, which the factory leaves open. The boundary of a size is the least load from which
on the share of one kind of work is more than `live_beside.POINTS` off in the mean over seeds. This rule is
fixed here, before any run.

The folder gets `runs.jsonl`, a line for each run, `boundary.csv`, `boundary.png` and `index.md`; `--page`
writes the last three anew without a run. What has a line is not run again. Nothing else should run beside it:
what waited because of others is in `waited`, too.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

from bench import live_beside, machine
from bench.boundary_loads import DURATION_S, Size
from bench.boundary_page import write_page
from edgewise.cli.verbs import parse_seeds
from edgewise.config import load_scenario
from edgewise.model.parsing import parse_scenario
from edgewise.model.scenario import Scenario
from edgewise.parallel import processors

OUT = Path(__file__).resolve().parents[1] / "docs" / "results" / "error-boundary"
FACTORY = Path(__file__).resolve().parents[1] / "examples" / "01-first-simulation" / "factory.yaml"


def main() -> None:
    """Run each size and load once for each seed, the first seed of all before the second of any."""
    parser = argparse.ArgumentParser(prog="python -m bench.boundary", description=__doc__)
    parser.add_argument("--halls", default="2,4", help="sizes of the factory")
    parser.add_argument("--cameras", default="8,16,24,32,40", help="loads: in each hall")
    parser.add_argument("--seeds", default="0:2")
    parser.add_argument("--cpus", type=int, help="processors for all of it; all by default")
    parser.add_argument(
        "--buffer", type=int, default=0, help="bytes that may wait for the cloud; 0: no bound"
    )
    parser.add_argument("--out", type=Path, default=OUT, help="a folder; what is there stays")
    parser.add_argument("--page", action="store_true", help="write page, points and figure, and run nothing")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    if not chosen.page:
        halls, cameras = ([int(each) for each in text.split(",")] for text in (chosen.halls, chosen.cameras))
        found = machine.describe(None)
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: chosen.cpus])
        cpus = processors()
        runs = product(parse_seeds(chosen.seeds), halls, cameras)
        wanted = [(Size(cpus, many, chosen.buffer), count, seed) for seed, many, count in runs]
        run(chosen.out, wanted, found)
    write_page(chosen.out)


def run(folder: Path, wanted: Iterable[tuple[Size, int, int]], found: dict[str, Any]) -> None:
    """Those of size, cameras and seed that have no line yet, one after the other.

    Args:
        found: the machine, as `machine.describe` has it.
    """
    names = (*Size._fields, "cameras", "seed")
    done = {tuple(row[name] for name in names) for row in live_beside.read_rows(folder)}
    for size, cameras, seed in wanted:
        if (*size, cameras, seed) in done:
            continue
        print(f"{size.named()}, {cameras} cameras in each", flush=True)
        row = size._asdict() | {"cameras": cameras, "described": found}
        row |= live_beside.tried(scenario(size, cameras), seed, apart=True)
        live_beside.show(row)
        with (folder / live_beside.RUNS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def scenario(size: Size, cameras: int) -> Scenario:
    """The factory of so many halls, each like its first one; its cloud and the link there in proportion.

    It lasts shorter than the factory, has no jobs, and no box fails.

    Args:
        cameras: in each hall.
    """
    factory = load_scenario(FACTORY)
    data: dict[str, Any] = factory.spec.model_dump(
        mode="json", exclude_none=True, exclude={"jobs", "timeline"}
    )
    (hall, _, cloud), (site, _), names = data["clusters"], data["sites"], range(size.halls)
    many = size.halls / 2  # times as large as it is
    cloud["nodes"][0]["count"] = size.halls
    clusters = [
        hall | {"name": f"hall-{n}", "nodes": [hall["nodes"][0] | {"name": f"box-{n}"}]} for n in names
    ]
    near, _, far, served = data["workers"]
    (wan,) = (link for link in data["links"] if link.get("name") == "wan")
    wan["bandwidth_bps"] *= many
    if size.buffer_bytes:
        wan["buffer_bytes"] = size.buffer_bytes
    data["streams"]["sources"][0]["count"] = cameras
    data["services"]["requests"]["rate_qps"] *= many
    return parse_scenario(
        data
        | {
            "name": f"factory-of-{size.halls}",
            "description": f"The factory with {size.halls} halls.",
            "duration_s": DURATION_S,
            "clusters": [*clusters, cloud],
            "sites": [site | {"name": f"at-{n}", "cluster": f"hall-{n}"} for n in names],
            "workers": [
                *(near | {"cluster": f"hall-{n}"} for n in names),
                far | {"count": round(far["count"] * many)},
                served,
            ],
        },
        f"factory-of-{size.halls}",
    )


if __name__ == "__main__":
    main()
