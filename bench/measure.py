"""Timing: contenders take turns on one core, and every figure keeps its repeats.

CPU time decides, since other programs may share the machine; wall time is recorded next to it.
"""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Work = Callable[[], float]  # what is timed; returns the statistic that contenders must agree on
Prepare = Callable[[int], Work]


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to do the work of a case.

    Attributes:
        name: shown in tables.
        prepare: prepare(units) builds the inputs, outside the clock, and returns what is timed.
        units: how many units of work a timed round does; peers that are slow do fewer.
        warm_up: prepare and run this many units first, so that compiling is not timed.
        target_rate: units per CPU second to reach; 0 for none.
        target_ratio: how many times faster than this one edgewise should be; 0 for none.
    """

    name: str
    prepare: Prepare
    units: int
    warm_up: int = 100
    target_rate: float = 0.0
    target_ratio: float = 0.0


@dataclass(frozen=True, slots=True)
class Case:
    """Contenders on the same problem.

    Attributes:
        name, title: of the case.
        unit: what is counted, such as "queries".
        statistic: what `Work` returns, such as "mean wait, s".
        peers: the first contender is edgewise, the others are compared with it.
    """

    name: str
    title: str
    unit: str
    contenders: Sequence[Contender]
    statistic: str
    peers: bool = True


def pin() -> int | None:
    """Run on one CPU from now on, also in threads and processes made later; None where impossible."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    cpu = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpu})
    return cpu


def least_s(
    call: Callable[[], Any], repeats: int = 200, clock: Callable[[], float] = time.process_time
) -> float:
    """Seconds of the quickest of some calls; of this process's own time where nothing else is said."""
    found = []
    for _ in range(repeats):
        began_s = clock()
        call()
        found.append(clock() - began_s)
    return min(found)


def run_case(case: Case, rounds: int, scale: float = 1.0) -> dict[str, Any]:
    """Time every contender `rounds` times, in turn.

    Args:
        scale: factor on the units of all contenders.
    Returns:
        The case as plain data: for each contender rates (units per CPU and per wall second) and ratios.
    """
    timed: dict[str, list[dict[str, float]]] = {c.name: [] for c in case.contenders}
    for c in case.contenders:
        c.prepare(c.warm_up)()
    for _ in range(rounds):
        for c in case.contenders:
            timed[c.name].append(once(c, max(int(c.units * scale), 1)))
    rows = [_row(c, timed[c.name]) for c in case.contenders]
    for row in rows[1:] if case.peers else ():
        # The least and the greatest ratio of one round: load on the machine hits both sides of a round.
        pairs = zip(rows[0]["repeats"], row["repeats"], strict=True)
        each = [(a["units"] / a["cpu_s"]) / (b["units"] / b["cpu_s"]) for a, b in pairs]
        row["ratio"], row["ratio_spread"] = statistics.median(each), [min(each), max(each)]
    return {
        "name": case.name,
        "title": case.title,
        "unit": case.unit,
        "statistic": case.statistic,
        "rows": rows,
    }


def once(contender: Contender, units: int) -> dict[str, float]:
    """One timed round."""
    work = contender.prepare(units)
    gc.collect()
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    statistic = work()
    cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
    return {"units": float(units), "cpu_s": cpu_s, "wall_s": wall_s, "statistic": statistic}


def _row(contender: Contender, repeats: list[dict[str, float]]) -> dict[str, Any]:
    rates = [r["units"] / r["cpu_s"] for r in repeats]
    return {
        "name": contender.name,
        "target_rate": contender.target_rate,
        "target_ratio": contender.target_ratio,
        "cpu_rate": statistics.median(rates),
        "cpu_rate_spread": [min(rates), max(rates)],
        "wall_rate": statistics.median(r["units"] / r["wall_s"] for r in repeats),
        "statistic": statistics.fmean(r["statistic"] for r in repeats),
        "repeats": repeats,
    }
