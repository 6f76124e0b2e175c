"""Shares of success, failure and rejection: the numbers every table and figure shows.

Three weightings of success, because they answer different questions:
query-weighted (how many queries succeed), stream-weighted (how well the typical stream
fares) and application-balanced (how well the typical application fares, however few
queries it sends).

And what a run's streams would put on its links, which the simulator gives to every stream as a whole.
A link carries the declared rate times the size of every stream that is bound over it. Beyond 100 % of its
bandwidth the simulated delays there are too short. A stream counts with its last worker from opening to
closing, and a link with the bandwidth that it has at the beginning.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from edgewise.arrays import Floats, Ints
from edgewise.core.world import link_arrays
from edgewise.model.scenario import Scenario
from edgewise.model.topology import WayTable
from edgewise.model.ways import plain
from edgewise.report.schema import WORK
from edgewise.workloads.generate import most_load_bps
from edgewise.workloads.sources import sources_load_bps

_SPAN = ("seed", "policy", "window", "start_s", "end_s")
_COUNTS = ("queries", "ok", "failed", "rejected")


def _totals(table: pa.Table, keys: Sequence[str]) -> list[dict[str, Any]]:
    """Sums of the counts per group, sorted by the keys; one thread, so sums do not vary."""
    aims = [(name, "sum") for name in _COUNTS] + [("reason", "count"), ("stream", "count")]
    grouped = table.group_by(list(keys), use_threads=False).aggregate(aims)
    rows: list[dict[str, Any]] = grouped.sort_by([(key, "ascending") for key in keys]).to_pylist()
    return rows


def _shares(total: dict[str, Any]) -> dict[str, Any]:
    queries, parts = total["queries_sum"], {"success": "ok", "failed": "failed", "rejected": "rejected"}
    return {
        "streams": total["stream_count"],
        "streams_refused": total["reason_count"],
        "queries": queries,
        **{share: total[f"{of}_sum"] / queries if queries else None for share, of in parts.items()},
    }


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


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
    sent = streams.filter(pc.greater(streams["queries"], 0))
    share = pc.divide(pc.cast(sent["ok"], pa.float64()), pc.cast(sent["queries"], pa.float64()))
    means = (
        sent.select(["policy", "seed"])
        .append_column("share", share)
        .group_by(["policy", "seed"], use_threads=False)
        .aggregate([("share", "mean")])
    )
    by_stream = {(row["policy"], row["seed"]): row["share_mean"] for row in means.to_pylist()}
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


FOR_A_WHILE = "no worker took it for some or all of its time"
"""Why queries were refused of a stream whose record names a worker: one that did not take it, or left."""


def refusals(streams: pa.Table) -> list[dict[str, Any]]:
    """Why streams were refused: rows of policy, reason, streams, queries, most streams first."""
    refused = streams.filter(pc.field("reason").is_valid() | (pc.field("rejected") > 0))
    reasons = pc.fill_null(refused["reason"], FOR_A_WHILE)
    refused = refused.set_column(refused.schema.get_field_index("reason"), "reason", reasons)
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


LINKS_OVER = "links_over_100"
SHOWN = 5  # lines of a warning


class LinkLoad(NamedTuple):
    """Load of a link over 100 %, as shares of its bandwidth.

    Attributes:
        link: "site → cluster".
        policy, seed: of the run.
        mean: over the whole run.
        peak: most at any time.
    """

    link: str
    policy: str
    seed: int
    bandwidth_bps: float
    mean: float
    peak: float


def crowded(scenario: Scenario, streams: pa.Table) -> list[LinkLoad]:
    """Links that the streams of a run fill over 100 % at some time, the fullest first.

    Args:
        streams: records in schema.STREAMS.
    """
    bound = streams.filter(pc.is_valid(streams["cluster"]))
    if bound.num_rows == 0:
        return []
    names = ("policy", "seed", "site", "cluster")
    codes, values = zip(*(_coded(bound[name]) for name in names), strict=True)
    key: Ints = np.asarray(np.ravel_multi_index(codes, [len(value) for value in values]))
    load_bps = 8.0 * bound["rate_qps"].to_numpy() * bound["size_bytes"].to_numpy()
    open_s, close_s = bound["open_s"].to_numpy(), bound["close_s"].to_numpy()
    first, peak_bps = peaks_of(key, load_bps, open_s, close_s)
    sums = np.bincount(key, load_bps * (close_s - open_s), minlength=int(key.max()) + 1)
    found, bandwidth_bps, sites, clusters = [], *_bandwidths(scenario)
    for at, most in zip(first.tolist(), peak_bps.tolist(), strict=True):
        where = np.unravel_index(at, [len(value) for value in values])
        policy, seed, site, cluster = (value[i] for value, i in zip(values, where, strict=True))
        bps = float(bandwidth_bps[sites[site], clusters[cluster]])
        if most > bps:
            mean = float(sums[at]) / scenario.duration_s / bps
            found.append(LinkLoad(f"{site} → {cluster}", policy, seed, bps, mean, most / bps))
    return sorted(found, key=lambda load: (-load.peak, load[:3]))


def _bandwidths(scenario: Scenario) -> tuple[Floats, dict[str, int], dict[str, int]]:
    """(S, C) bandwidths, and the rows and columns of sites and clusters."""
    sites, clusters = ([place.name for place in places] for places in
                       (scenario.topology.sites, scenario.topology.clusters))  # fmt: skip
    _, _, bandwidth_bps = link_arrays(scenario.topology, tuple(clusters))
    rows, columns = ({name: i for i, name in enumerate(names)} for names in (sites, clusters))
    return bandwidth_bps, rows, columns


def _coded(column: pa.ChunkedArray) -> tuple[Ints, list[Any]]:
    coded = column.combine_chunks().dictionary_encode()
    return coded.indices.to_numpy().astype(np.int64), coded.dictionary.to_pylist()


def peaks_of(
    key: Ints, load_bps: NDArray[Any], open_s: NDArray[Any], close_s: NDArray[Any]
) -> tuple[Ints, NDArray[Any]]:
    """Each key, ascending, and the largest sum of the loads that are open at once."""
    keys, times = np.concatenate([key, key]), np.concatenate([close_s, open_s])
    changes = np.concatenate([-load_bps, load_bps])
    order = np.lexsort((changes > 0, times, keys))  # at equal times, streams close first
    level = np.cumsum(changes[order])
    start = np.flatnonzero(np.diff(keys[order], prepend=-1))
    before = np.where(start > 0, level[start - 1], 0.0)  # next to nothing: rounding
    return keys[order][start], np.maximum.reduceat(level, start) - before


def with_links(rows: Sequence[dict[str, Any]], loads: Iterable[LinkLoad]) -> list[dict[str, Any]]:
    """Summary rows that list the links over 100 % of their policy and seed."""
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for load in loads:
        entry = {name: getattr(load, name) for name in ("link", "bandwidth_bps", "mean", "peak")}
        found.setdefault((load.policy, load.seed), []).append(entry)
    return [row | {LINKS_OVER: found.get((row["policy"], row["seed"]), [])} for row in rows]


def warning(summary: Iterable[Mapping[str, Any]]) -> list[str]:
    """Sentences that name the links over 100 %, the fullest first; empty when every stream fits."""
    worst: dict[str, tuple[dict[str, Any], str]] = {}
    for row in summary:
        for entry in row.get(LINKS_OVER, ()):
            if entry["link"] not in worst or entry["peak"] > worst[entry["link"]][0]["peak"]:
                worst[entry["link"]] = (entry, row["policy"])
    if not worst:
        return []
    fullest = sorted(worst.values(), key=lambda found: -found[0]["peak"])
    lines = [
        f"{len(worst)} links would carry over 100 %; here every stream has each link to itself, "
        "so delays over these are too short:"
    ]
    lines += [
        f"{entry['link']}, {entry['bandwidth_bps'] / 1e6:.6g} Mbit/s: under {policy} "
        f"{100 * entry['mean']:.0f} % in the mean, {100 * entry['peak']:.0f} % at most"
        for entry, policy in fullest[:SHOWN]
    ]
    return lines + ([f"and {len(worst) - SHOWN} more, see summary.json"] if len(worst) > SHOWN else [])


def rate(bps: float) -> str:
    """A rate as people say it."""
    return f"{bps / 1e9:.4g} Gbit/s" if bps >= 1e9 else f"{bps / 1e6:.4g} Mbit/s"


def beforehand(scenario: Scenario) -> list[str]:
    """What no policy can change: sites that send more, on average, than all their links carry."""
    came, clients_bps = scenario.streams, 0.0
    if came.applications:
        clients_bps = most_load_bps(came.applications, came.arrivals, scenario.duration_s)
    who = " and ".join(["clients"] * bool(came.applications) + ["sources"] * bool(came.sources))
    sent_bps = [clients_bps + sources_load_bps(came, s) for s in range(len(scenario.topology.sites))]
    carried = zip(sent_bps, carried_bps(scenario).items(), strict=True)
    over = [(site, demand_bps, bps) for demand_bps, (site, bps) in carried if demand_bps > bps]
    lines = [
        f"site {site}: its {who} send {rate(demand_bps)} in the mean when most are there, "
        f"all its links together carry {rate(bps)}"
        for site, demand_bps, bps in over[:SHOWN]
    ]
    return lines + ([f"and {len(over) - SHOWN} more sites"] if len(over) > SHOWN else [])


def carried_bps(scenario: Scenario) -> dict[str, float]:
    """What leaves each site at most: ways that begin with one cable have its bandwidth together."""
    topology = scenario.topology
    if isinstance(topology.ways, WayTable):
        bandwidth_bps, sites, _ = _bandwidths(scenario)
        return dict(zip(sites, bandwidth_bps.sum(axis=1).tolist(), strict=True))
    cables = {cable.name: cable.bandwidth_bps for cable in topology.cables}
    found: dict[str, dict[str, float]] = {site.name: {} for site in topology.sites}
    for way in topology.ways:
        first = plain(way.over)[0] if way.over else f"{way.site} → {way.cluster}"
        found[way.site][first] = cables[first] if way.over else way.bandwidth_bps
    return {site: sum(rates.values()) for site, rates in found.items()}
