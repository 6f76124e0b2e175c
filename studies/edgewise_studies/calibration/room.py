"""What a chooser gains that knows what comes: how much there is to learn in a world.

At each window it tries every static policy of the paper on the run itself: a copy of the process goes on for
three windows with the true clients, delays and services, and the policy whose copy answered most in time
decides the window. It looks ahead and is greedy, so it is not a bound; where it gains nothing, a learned
chooser, which sees less, has little to find.
"""

import os
import struct
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgewise import policies
from edgewise.core.dispatch.policy import compiled
from edgewise.errors import RunError
from edgewise.policies.dispatch.meta import PAPER, Chosen
from edgewise.seeds import only_validation_seeds
from edgewise.sim.simulate import Simulation
from edgewise.sim.sites import simulation_of
from edgewise.workloads.generate import queries_per_client
from edgewise_studies.calibration import measure
from edgewise_studies.calibration.measure import APPS, Row
from edgewise_studies.calibration.space import DURATION_S, scenario_of

AHEAD = "ahead"  # the chooser, where a row names its policy
WINDOWS_AHEAD = 3
ROOM_SETTINGS = ("edge", "burst", "co")
COLUMNS = (*measure.COLUMNS, "chosen")


def ahead(world: int, setting: str, seed: int) -> Row:
    """The run of the chooser, with the number of the policy that it chose for each window."""
    only_validation_seeds((seed,))
    scenario, made = scenario_of(world, setting), list[Chosen]()

    def make() -> Chosen:
        made.append(Chosen(PAPER))
        return made[-1]

    for name in PAPER:
        compiled(policies.load("dispatch", name))  # once here, and not in each copy
    run, chosen = simulation_of(scenario, make, seed), list[int]()
    for start_s in np.arange(0.0, scenario.duration_s, scenario.window_s).tolist():
        far_s = min(start_s + WINDOWS_AHEAD * scenario.window_s, scenario.duration_s)
        shares = [_in_a_copy(run, made, index, start_s, far_s) for index in range(len(PAPER))]
        chosen.append(int(np.argmax(shares)))
        _tell(made, chosen[-1])
        run.run_until(start_s + scenario.window_s)
    where = dict(zip(measure.COLUMNS, (world, setting, seed, AHEAD), strict=False))
    return where | measure.figures_of(run) | {"chosen": "".join(map(str, chosen))}


def _tell(made: Iterable[Chosen], index: int) -> None:
    for policy in made:
        policy.index = index


def _in_a_copy(run: Simulation, made: list[Chosen], index: int, start_s: float, end_s: float) -> float:
    """Success from one time to another if a policy decides, without a trace in this process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        share = -1.0
        try:
            _tell(made, index)
            run.run_until(end_s)
            share = success_in(run, start_s, end_s)
        finally:
            os.write(writing, struct.pack("d", share))
            os._exit(0)
    os.close(writing)
    try:
        (share,) = struct.unpack("d", os.read(reading, 8))
    finally:
        os.close(reading)
        os.waitpid(child, 0)
    if share < 0.0:
        raise RunError(f"the copy that tried {PAPER[index]} at {start_s:g} s ended early")
    return float(share)


def success_in(run: Simulation, start_s: float, end_s: float) -> float:
    """Share of the queries of whole windows that were answered in time; refused streams send in vain."""
    run.serve_until(end_s)
    first, last = (round(at / run.scenario.window_s + 0.499) for at in (start_s, end_s))
    ok, failed, rejected = run.tally.queries[:, first:last].sum(axis=1).tolist()
    open_s, close_s = (
        np.array([getattr(stream, name) for stream in run.trace]) for name in ("open_s", "close_s")
    )
    refused = (run.bound < 0) & (run.reason > 0) & (open_s < end_s) & (close_s > start_s)
    lasts = np.minimum(close_s[refused], end_s) - np.maximum(open_s[refused], start_s)
    unsent = float(lasts @ run.truth.rate_qps[refused])
    return float(ok / max(ok + failed + rejected + unsent, 1.0))


def explore(folder: Path, worlds: Iterable[int], seeds: Iterable[int], until: float) -> int:
    """Measure the seven policies and the chooser in each world; how many rows there are now.

    A stopped exploration goes on. It begins nothing after `until` of `time.monotonic`.
    """
    path, chosen = folder / "room.csv", tuple(seeds)
    rows = measure.read(path)
    done = {(row["world"], row["setting"], row["seed"], row["policy"]) for row in rows}
    for seed in chosen:
        for setting in ROOM_SETTINGS:
            for world in worlds:
                missing = [name for name in PAPER if (world, setting, seed, name) not in done]
                if time.monotonic() > until:
                    return len(done)
                if missing:
                    fresh = measure.runs_of(world, setting, [(seed, name) for name in missing])
                    measure.append(path, COLUMNS, fresh)
                    done |= {(world, setting, seed, name) for name in missing}
                if (world, setting, seed, AHEAD) not in done:
                    measure.append(path, COLUMNS, [ahead(world, setting, seed)])
                    done.add((world, setting, seed, AHEAD))
    return len(done)


def gains(rows: Iterable[Row], world: int, setting: str) -> Mapping[str, Any]:
    """What choosing gains in a setting of a world, above the one policy that is best over all seeds.

    Returns:
        best: that policy; success: its mean. greedy: gain of the chooser. episodes: of the best policy of
        each seed. windows: of the better of these two on each seed. applications: if each got the
        policy that is best for it, as if it did not matter to it which policies others get: too much.
        seeds: how many were measured whole.
    """
    table: dict[int, dict[str, Row]] = {}
    for row in rows:
        if (row["world"], row["setting"]) == (world, setting):
            table.setdefault(row["seed"], {})[row["policy"]] = row
    whole = [each for each in table.values() if len(each) == len(PAPER) + 1]
    if not whole:
        return {"seeds": 0}
    static = np.array([[each[name]["success"] for name in PAPER] for each in whole])
    knows = np.array([each[AHEAD]["success"] for each in whole])
    which = int(static.mean(axis=0).argmax())
    alone, most = static[:, which], static.max(axis=1)
    return {
        "best": PAPER[which],
        "success": float(alone.mean()),
        "windows": float((np.maximum(knows, most) - alone).mean()),
        "greedy": float((knows - alone).mean()),
        "episodes": float((most - alone).mean()),
        "applications": float(_by_application(whole, world, setting) - alone.mean()),
        "seeds": len(whole),
    }


def _by_application(whole: list[dict[str, Row]], world: int, setting: str) -> float:
    kinds = {each.name: each for each in scenario_of(world, setting).streams.applications}
    sent = {app: kinds[app].weight * queries_per_client(kinds[app], DURATION_S) for app in APPS}
    means = {
        app: max(float(np.mean([each[name].get(app, np.nan) for each in whole])) for name in PAPER)
        for app in APPS
    }
    known = [app for app in APPS if not np.isnan(means[app])]
    return sum(sent[app] * means[app] for app in known) / sum(sent[app] for app in known)
