"""How much is asked for over time: streams as they are drawn before a run, or as a run recorded them."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from edgewise.arrays import Floats, Ints
from edgewise.limits.reach import Reach
from edgewise.workloads.generate import generate_streams

STEPS = 60  # of a run, over each of which loads are means
DRAWN = 5  # runs that are drawn to know the load beforehand
MANY = 20_000  # streams of a run of which one is enough


class AskedStreams(NamedTuple):
    """Streams of one or several runs, (N,) each.

    Attributes:
        runs: how many.
        need: index into `Reach.needs`.
        rate_qps, size_bytes: declared.
    """

    runs: int
    need: Ints
    open_s: Floats
    close_s: Floats
    rate_qps: Floats
    size_bytes: Floats


def drawn(reach: Reach) -> AskedStreams:
    """Streams of some seeds, which are nobody's measurements."""
    names, runs = reach.world.site_names, 0
    rows: list[tuple[float, ...]] = []
    while runs < DRAWN and len(rows) < MANY:
        for each in generate_streams(reach.scenario, runs):
            where = reach.number[names[each.site], each.application]
            rows.append((where, each.open_s, each.close_s, each.rate_qps, each.size_bytes))
        runs += 1
    columns = np.array(rows, dtype=np.float64).reshape(-1, 5).T
    return AskedStreams(runs, columns[0].astype(np.int64), *columns[1:])


def recorded(reach: Reach, items: pa.Table, runs: int) -> AskedStreams:
    """Streams of `runs` runs in the schema of `report.schema.STREAMS`."""
    need = np.array([reach.number[each] for each in _keys(items)], dtype=np.int64)
    names = ("open_s", "close_s", "rate_qps", "size_bytes")
    return AskedStreams(runs, need, *(items[name].to_numpy() for name in names))


def known(reach: Reach, items: pa.Table) -> pa.Table:
    """Streams of applications of the scenario."""
    return items.filter(pa.array([each in reach.number for each in _keys(items)], pa.bool_()))


def _keys(items: pa.Table) -> list[tuple[str, str]]:
    return list(zip(items["site"].to_pylist(), items["application"].to_pylist(), strict=True))


def edges_of(duration_s: float) -> Floats:
    """(STEPS + 1,) ends of the steps of a run."""
    return np.linspace(0.0, duration_s, STEPS + 1)


def in_steps(start_s: Floats, end_s: Floats, amount: Floats, edges: Floats) -> Floats:
    """(STEPS,) mean in each step of the sum of what spans bring."""
    if not len(start_s):
        return np.zeros(len(edges) - 1)
    times, change = np.concatenate([start_s, end_s]), np.concatenate([amount, -amount])
    order = np.argsort(times, kind="stable")
    area = np.cumsum(np.cumsum(change[order])[:-1] * np.diff(times[order]))
    sums = np.interp(edges, times[order], np.concatenate([[0.0], area]))
    mean: Floats = np.diff(sums) / np.diff(edges)
    return mean.clip(0.0)


def by_need(reach: Reach, asked: AskedStreams) -> Floats:
    """(K, STEPS) queries per second, mean over the runs."""
    edges = edges_of(reach.scenario.duration_s)
    found = np.zeros((len(reach.needs), len(edges) - 1))
    for need in np.unique(asked.need).tolist():
        at = asked.need == need
        found[need] = in_steps(asked.open_s[at], asked.close_s[at], asked.rate_qps[at], edges) / asked.runs
    return found


def when_over(series: Floats, most: float, edges: Floats) -> float | None:
    """When a series first is over `most`; None: never."""
    over = np.flatnonzero(series > most)
    return float(edges[over[0]]) if over.size else None
