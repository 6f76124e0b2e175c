"""Shares of success, failure and rejection: the numbers every table and figure shows.

Three weightings of success, because they answer different questions:
query-weighted (how many queries succeed), stream-weighted (how well the typical stream
fares) and application-balanced (how well the typical application fares, however few
queries it sends).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from edgewise.arrays import Floats
from edgewise.report.schema import WORK

_SPAN = ("seed", "policy", "window", "start_s", "end_s")
_COUNTS = ("queries", "ok", "failed", "rejected")


def _totals(table: pa.Table, keys: Sequence[str]) -> list[dict[str, Any]]:
    """Sums of the counts per group, sorted by the keys; one thread, so sums do not vary."""
    aims = [(name, "sum") for name in _COUNTS] + [("reason", "count"), ("stream", "count")]
    grouped = table.group_by(list(keys), use_threads=False).aggregate(aims)
    rows: list[dict[str, Any]] = grouped.sort_by([(key, "ascending") for key in keys]).to_pylist()
    return rows


def _shares(total: dict[str, Any]) -> dict[str, Any]:
    queries = total["queries_sum"]

    def share(name: str) -> float | None:
        return total[f"{name}_sum"] / queries if queries else None

    return {
        "streams": total["stream_count"],
        "streams_refused": total["reason_count"],
        "queries": queries,
        "success": share("ok"),
        "failed": share("failed"),
        "rejected": share("rejected"),
    }


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _by_stream(streams: pa.Table) -> dict[tuple[str, int], float]:
    sent = streams.filter(pc.greater(streams["queries"], 0))
    share = pc.divide(pc.cast(sent["ok"], pa.float64()), pc.cast(sent["queries"], pa.float64()))
    means = (
        sent.select(["policy", "seed"])
        .append_column("share", share)
        .group_by(["policy", "seed"], use_threads=False)
        .aggregate([("share", "mean")])
    )
    return {(row["policy"], row["seed"]): row["share_mean"] for row in means.to_pylist()}


def summarise(streams: pa.Table) -> list[dict[str, Any]]:
    """Shares per policy and seed, with the applications of each.

    Args:
        streams: records in schema.STREAMS.
    Returns:
        rows sorted by policy and seed:

        ==================================  ====================================================
        policy, seed                        the group
        streams, streams_refused, queries   counts
        success, failed, rejected           shares of the queries, adding up to 1
        success_by_stream                   mean over streams of a stream's share ok / queries
        success_by_application              mean over applications of an application's success
        applications                        rows with `application`, the counts and the shares
        ==================================  ====================================================

        A share is None where no query was sent.
    """
    by_stream = _by_stream(streams)
    applications: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for total in _totals(streams, ("policy", "seed", "application")):
        row = {"application": total["application"], **_shares(total)}
        applications.setdefault((total["policy"], total["seed"]), []).append(row)
    rows = []
    for total in _totals(streams, ("policy", "seed")):
        key = (total["policy"], total["seed"])
        rows.append(
            {
                "policy": key[0],
                "seed": key[1],
                **_shares(total),
                "success_by_stream": by_stream.get(key),
                "success_by_application": _mean(row["success"] for row in applications[key]),
                "applications": applications[key],
            }
        )
    return rows


def summary_of(work: str, items: pa.Table, windows: pa.Table) -> list[dict[str, Any]]:
    """The measures of a run's tables, a row for each policy and seed, sorted by these.

    Streams are summed up by `summarise`; of other work the columns of `windows` are added up.

    Args:
        work: its kind, of `schema.WORK`.
        items, windows: in its schemas.
    """
    if work == "streams":
        return summarise(items)
    figures = [name for name in windows.schema.names if name not in _SPAN]
    grouped = windows.group_by(["policy", "seed"], use_threads=False)
    totals = grouped.aggregate([(name, "sum") for name in figures])
    rows = totals.rename_columns(["policy", "seed", *figures])
    found: list[dict[str, Any]] = rows.sort_by([("policy", "ascending"), ("seed", "ascending")]).to_pylist()
    shares = [measure for measure in WORK[work].measures if measure.of]
    return [
        row | {share.key: row[share.column] / row[share.of] if row[share.of] else None for share in shares}
        for row in found
    ]


def refusals(streams: pa.Table) -> list[dict[str, Any]]:
    """Why streams were refused: rows of policy, reason, streams, queries, most streams first."""
    refused = streams.filter(pc.is_valid(streams["reason"]))
    rows = [
        {
            "policy": total["policy"],
            "reason": total["reason"],
            "streams": total["stream_count"],
            "queries": total["rejected_sum"],
        }
        for total in _totals(refused, ("policy", "reason"))
    ]
    return sorted(rows, key=lambda row: (row["policy"], -row["streams"], row["reason"]))


def by_seed(
    summary: Sequence[dict[str, Any]], metric: str = "success", policies: Sequence[str] | None = None
) -> dict[str, Floats]:
    """One value per seed and policy, paired: index i is the same seed in every array.

    Args:
        summary: rows of `summarise`.
        metric: success, failed, rejected, success_by_stream or success_by_application.
        policies: which, in which order; None takes all, sorted.
    Returns:
        per policy (n,) values over the seeds, ascending, for which every policy has one; policies
        without a single value are left out.
    """
    table: dict[str, dict[int, float]] = {}
    for row in summary:
        if row[metric] is not None:
            table.setdefault(row["policy"], {})[row["seed"]] = row[metric]
    names = [name for name in (sorted(table) if policies is None else policies) if name in table]
    seeds = sorted(set.intersection(*(set(table[name]) for name in names))) if names else []
    return {name: np.array([table[name][seed] for seed in seeds]) for name in names if seeds}


def of_applications(summary: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Per application, rows like those of `summarise`, so `by_seed` applies to each."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in summary:
        for part in row["applications"]:
            found.setdefault(part["application"], []).append(
                {**part, "policy": row["policy"], "seed": row["seed"]}
            )
    return dict(sorted(found.items()))
