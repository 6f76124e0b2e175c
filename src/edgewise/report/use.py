"""Who used what in a run: tables beside those of its work, and what follows of them.

    holds.parquet     who held what of which node and link, from when to when
    workers.parquet   how busy workers, replicas of services and servers of split models were
    links.parquet     what shared links carried from moment to moment
    delays.parquet    answers of streams by application and delay

Each begins with seed and policy; a table of which nothing is known is not written.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from edgewise.arrays import Floats
from edgewise.core.holders import GONE, TOTAL
from edgewise.report.schema import schema
from edgewise.report.summary import rate

HOLDS = """
place             str    node, or link with reserved rates
owner             str    worker, server, replica, pipeline or job; "" for the place itself
work              str    kind of work; other: not simulated; gone: the node is not there; total: in all
start_s           float  since when it is held, seconds from the start of the run
end_s             float  until when, seconds
cores             float  cores
memory_bytes      float  memory, bytes
bps               float  rate reserved on a link, bits per second
accelerator_memory_bytes float  memory of accelerators, bytes
"""

WORKERS = """
worker            str    worker of streams, replicas of a service on a node, or server of split models
work              str    kind of work that it was for
node              str?   where it is; null for the cloud of services as a whole
busy_s            float  seconds in which its servers worked, added up over these
there_s           float  seconds that they were there, added up
"""

LINKS = """
link              str    link and direction
start_s           float  start of the span, seconds from the start of the run
end_s             float  end of the span, seconds
capacity_bps      float  bits per second that it can carry, at the end of the span
reserved_bps      float  of these, reserved then
sent_bits         float  bits of messages that it sent in the span
dropped           int    messages that found its buffer full
"""

DELAYS = """
application       str    application of streams
above_s           float  end-to-end delays above this, seconds
up_to_s           float  and up to this
answers           int    so many answers
"""

USE = {"holds": schema(HOLDS), "workers": schema(WORKERS), "links": schema(LINKS), "delays": schema(DELAYS)}
"""By name of the table."""
SORTED_BY = {
    "holds": ("start_s", "place", "owner", "work"),
    "workers": ("work", "worker"),
    "links": ("link", "start_s"),
    "delays": ("application", "above_s"),
}
"""What tells rows of a seed and policy apart."""
QUANTILES = (0.5, 0.95, 0.99)


HELD: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "cores": ("cores", "{:g} cores".format),
    "memory": ("memory_bytes", lambda has: f"{has / 1e9:.3g} GB"),
    "accelerators": ("accelerator_memory_bytes", lambda has: f"{has / 1e9:.3g} GB on accelerators"),
    "reserved": ("bps", rate),
}
"""What can be held: its column of `holds`, and how people say so much of it."""


class Use(NamedTuple):
    """How far one thing was used, in the mean over the runs of a policy.

    Attributes:
        policy, name: which.
        what: cores, memory, reserved, messages, or the kind of work of a worker.
        has: of it in all, as people say it; "" of workers.
        mean, peak: share that was used, over the run and at most; None: not known.
        note: what else there is to say.
    """

    policy: str
    name: str
    what: str
    has: str
    mean: float
    peak: float | None
    note: str = ""


def delays_of(work: str, items: pa.Table, delays: pa.Table | None = None) -> list[dict[str, Any]]:
    """Quantiles of delays over all seeds: rows of policy, of, count, p50_s, p95_s and p99_s.

    Streams by application (within 3 %, counts are by cells of delays), requests of services by service and
    split queries by graph, from sending to answer; pipelines from submission to start and to end; jobs from
    their earliest start to their start, and from submission to end.

    Args:
        delays: of streams, in the schema of `delays`.
    """
    if work == "streams":
        return [] if delays is None else _of_cells(delays)
    rows = []
    for policy in dict.fromkeys(items["policy"].to_pylist()):
        mine = items.filter(pc.equal(items["policy"], policy))
        for what, values in _times(work, mine):
            known = values[~np.isnan(values)]
            if known.size:
                quantiles = np.quantile(known, QUANTILES).tolist()
                rows.append(_quantiles(policy, what, known.size, quantiles))
    return rows


def _quantiles(policy: str, of: str, count: int, seconds: Sequence[float]) -> dict[str, Any]:
    names = (f"p{100 * q:g}_s" for q in QUANTILES)
    return {"policy": policy, "of": of, "count": count, **dict(zip(names, seconds, strict=True))}


def _of_cells(delays: pa.Table) -> list[dict[str, Any]]:
    keys = ["policy", "application", "above_s", "up_to_s"]
    cells = delays.group_by(keys, use_threads=False).aggregate([("answers", "sum")])
    rows = []
    for policy, application in sorted(set(zip(*(cells[key].to_pylist() for key in keys[:2]), strict=True))):
        mine = cells.filter((pc.field("policy") == policy) & (pc.field("application") == application))
        mine = mine.sort_by("above_s")
        low, high, count = (mine[name].to_numpy() for name in ("above_s", "up_to_s", "answers_sum"))
        upto = np.cumsum(count)
        wanted = np.array(QUANTILES) * upto[-1]
        at = np.searchsorted(upto, wanted)
        part = (wanted - (upto[at] - count[at])) / count[at]
        seconds = low[at] + part * (high[at] - low[at])
        rows.append(_quantiles(policy, application, int(upto[-1]), seconds.tolist()))
    return rows


def _times(work: str, items: pa.Table) -> list[tuple[str, Floats]]:
    """What is timed of a kind of work, and (N,) seconds, NaN where there is none."""

    def column(name: str) -> Floats:
        values: Floats = items[name].to_numpy(zero_copy_only=False).astype(np.float64)
        return values

    if work == "services":
        answered = np.isin(items["outcome"].to_numpy(zero_copy_only=False), ("in_time", "late"))
        took_s = np.where(answered, column("end_s") - column("arrival_s"), np.nan)
        return _by_name(items["service"], took_s)
    if work == "graphs":
        return _by_name(items["graph"], column("time_s"))
    if work == "pipelines":
        arrival_s = column("arrival_s")
        return [("waiting", column("start_s") - arrival_s), ("turnaround", column("finish_s") - arrival_s)]
    start_s = column("started_s")
    turnaround_s = column("ended_s") - column("submitted_s")
    return [("waiting", start_s - column("earliest_s")), ("turnaround", turnaround_s)]


def _by_name(names: pa.ChunkedArray, values: Floats) -> list[tuple[str, Floats]]:
    listed = names.to_numpy(zero_copy_only=False)
    return [(name, values[listed == name]) for name in sorted(set(listed.tolist()))]


def use_of(use: Mapping[str, pa.Table], policy: str) -> list[Use]:
    """Use of nodes, links and workers under a policy, mean over seeds; the peak is that of any seed."""
    found: list[Use] = []
    if "holds" in use:
        found += _of_places(use["holds"], policy)
    if "links" in use:
        found += _of_links(use["links"], policy)
    if "workers" in use:
        found += _of_workers(use["workers"], policy)
    return found


def by_place(rows: Sequence[dict[str, Any]]) -> dict[str, tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Rows of `holds` by node and link: what it has in all, and who holds what of it."""
    found = {row["place"]: (row, list[dict[str, Any]]()) for row in rows if row["work"] == TOTAL}
    for row in rows:
        if row["work"] != TOTAL:
            found[row["place"]][1].append(row)
    return found


def _of_places(holds: pa.Table, policy: str) -> list[Use]:
    rows = holds.filter(pc.equal(holds["policy"], policy)).to_pylist()
    seeds, found = len({row["seed"] for row in rows}), []
    for place, (total, mine) in by_place(rows).items():
        for what, (key, says) in HELD.items():
            if total[key] > 0.0:
                held = [row for row in mine if row["work"] != GONE and row[key] > 0.0]
                sum_s = sum(row[key] * (row["end_s"] - row["start_s"]) for row in held)
                whole_s = total[key] * (total["end_s"] - total["start_s"]) * seeds
                peak = _peak([(row["seed"], row["start_s"], row["end_s"], row[key]) for row in held])
                found.append(Use(policy, place, what, says(total[key]), sum_s / whole_s, peak / total[key]))
    return found


def _peak(spans: Sequence[tuple[int, float, float, float]]) -> float:
    """The largest sum of what is held at once in a seed."""
    changes = [(seed, start_s, 1, amount) for seed, start_s, _, amount in spans]
    changes += [(seed, end_s, 0, -amount) for seed, _, end_s, amount in spans]
    level = most = 0.0
    for *_, amount in sorted(changes):
        level += amount
        most = max(most, level)
    return most


def _of_links(links: pa.Table, policy: str) -> list[Use]:
    mine = links.filter(pc.equal(links["policy"], policy))
    span_s = pc.subtract(mine["end_s"], mine["start_s"]).to_numpy()
    names = mine["link"].to_numpy(zero_copy_only=False)
    capacity, reserved, sent = (mine[n].to_numpy() for n in ("capacity_bps", "reserved_bps", "sent_bits"))
    found = []
    for name in dict.fromkeys(names.tolist()):
        at = names == name
        could = capacity[at] * span_s[at]
        share = np.divide(sent[at], could, out=np.zeros(could.size), where=could > 0.0)
        lost = int(pc.sum(mine.filter(pa.array(at))["dropped"]).as_py())
        has, note = rate(float(capacity[at].max())), f"{lost:,} dropped" if lost else ""
        if reserved[at].any():
            held = np.divide(reserved[at], capacity[at], out=np.zeros(could.size), where=capacity[at] > 0.0)
            found.append(
                Use(policy, name, "reserved", has, float(np.average(held, weights=span_s[at])), held.max())
            )
        mean = float(sent[at].sum() / could.sum()) if could.any() else 0.0
        found.append(Use(policy, name, "messages", has, mean, float(share.max()), note))
    return found


def _of_workers(workers: pa.Table, policy: str) -> list[Use]:
    mine = workers.filter(pc.equal(workers["policy"], policy))
    totals = mine.group_by(["work", "worker"], use_threads=False).aggregate(
        [("busy_s", "sum"), ("there_s", "sum")]
    )
    return [
        Use(policy, row["worker"], row["work"], "", row["busy_s_sum"] / row["there_s_sum"], None)
        for row in totals.to_pylist()
        if row["there_s_sum"] > 0.0
    ]
