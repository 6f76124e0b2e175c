"""Who used what in the run of a live system: holds, workers, links and delays, as a simulation writes them.

How long workers worked, and what went over the ways, was counted by windows of gateways: of the first and the
last one of a run all is in these tables, also what was before it or after.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from edgewise.core.holders import GONE, TOTAL, hold_records
from edgewise.core.sojourns import FINE_BITS
from edgewise.model.scenario import Scenario
from edgewise.model.ways import Routes, routes_of
from edgewise.run.tables import Columns
from edgewise.runtime.clients.lived import Lived
from edgewise.runtime.store.records import Span, Window


def lived_use(scenario: Scenario, seen: Lived) -> Mapping[str, Columns]:
    """Columns of the tables of `edgewise.report.use`; none of those of which nothing is known."""
    routes = None if scenario.sharing == "none" else routes_of(scenario.topology)
    shared = () if routes is None else routes.names
    flows = [span for span in seen.spans if span[2].place in shared]
    return {
        "holds": _holds(seen, [span for span in seen.spans if span[2].place not in shared]),
        "workers": _workers(scenario, seen),
        "links": {} if routes is None else _links(scenario, routes, seen, flows),
        "delays": _delays(scenario, seen),
    }


def _workers(scenario: Scenario, seen: Lived) -> Columns:
    """How busy workers, replicas and servers were, of those that say so, while they held their node."""
    busy_s, held = _busy(seen), dict[str, tuple[str, str]]()
    there_s: dict[str, float] = {}
    for start_s, end_s, what in seen.spans:
        if what.owner in busy_s and what.work not in (GONE, TOTAL):
            held[what.owner] = what.place, what.work
            spent_s = min(end_s, seen.until_s) - max(start_s, seen.since_s)
            there_s[what.owner] = there_s.get(what.owner, 0.0) + max(spent_s, 0.0)
    rows: dict[tuple[str, str, str], list[float]] = {}
    for process, (node, work) in held.items():
        if there_s[process] > 0.0:
            row = rows.setdefault((work, _called(scenario, process, node, work), node), [0.0, 0.0])
            row[0] += min(busy_s[process], there_s[process])
            row[1] += there_s[process]
    return {
        "work": [work for work, *_ in rows],
        "worker": [name for _, name, _ in rows],
        "node": [node for *_, node in rows],
        "busy_s": [busy for busy, _ in rows.values()],
        "there_s": [there for _, there in rows.values()],
    } if rows else {}  # fmt: skip


def _called(scenario: Scenario, process: str, node: str, work: str) -> str:
    """What a simulation calls it: replicas of a service on a node, and servers of one, are one row."""
    if work == "graphs":
        return f"server on {node}"
    if process in {worker.name for worker in scenario.topology.workers}:
        return process
    return f"{process.partition('@')[0]} on {node}"


def _busy(seen: Lived) -> dict[str, float]:
    """How long each process worked, in all its lives; gateways that saw the same say it once."""
    spent: dict[tuple[str, float, float], tuple[float, float]] = {}
    for window in seen.windows:
        for process, began_s, before_s, after_s in window.worked:
            key = process, began_s, window.start_s
            low_s, high_s = spent.get(key, (before_s, after_s))
            spent[key] = min(low_s, before_s), max(high_s, after_s)
    busy_s: dict[str, float] = {}
    for (process, *_), (before_s, after_s) in spent.items():
        busy_s[process] = busy_s.get(process, 0.0) + after_s - before_s
    return busy_s


def _links(scenario: Scenario, routes: Routes, seen: Lived, flows: Sequence[Span]) -> Columns:
    """What went over the links that messages share, and what flows had of them, window by window."""
    windows, window_s = [each for each in seen.windows if each.sent], seen.window_s
    if not (windows or flows):
        return {}
    first_s = windows[0].start_s if windows else seen.since_s
    first_s -= math.ceil((first_s - seen.since_s) / window_s) * window_s  # at the start of the run, or before
    spans = max(math.ceil((seen.until_s - first_s) / window_s), 1)
    edges_s = first_s + window_s * np.arange(spans)
    sent_bits = np.zeros((spans, len(routes.names)))
    for window in windows:
        k = min(max(round((window.start_s - first_s) / window_s), 0), spans - 1)
        for links, size_bytes in _messages(scenario, routes, window):
            sent_bits[k, links] += 8.0 * size_bytes
    starts_s = np.maximum(edges_s - seen.since_s, 0.0)
    ends_s = np.minimum(edges_s + window_s, seen.until_s) - seen.since_s
    reserved_bps = np.zeros_like(sent_bits)
    for start_s, end_s, what in flows:
        held_s = np.minimum(ends_s, end_s - seen.since_s) - np.maximum(starts_s, start_s - seen.since_s)
        reserved_bps[:, routes.names.index(what.place)] += what.bps * held_s.clip(0.0) / (ends_s - starts_s)
    count = len(routes.names)
    return {
        "link": list(routes.names) * spans,
        "start_s": np.repeat(starts_s, count),
        "end_s": np.repeat(ends_s, count),
        "capacity_bps": np.tile(routes.rate_bps, spans),
        "reserved_bps": reserved_bps.ravel(),
        "sent_bits": sent_bits.ravel(),
        "dropped": np.zeros(spans * count, dtype=np.int64),
    }


def _messages(scenario: Scenario, routes: Routes, window: Window) -> Iterator[tuple[list[int], int]]:
    """Links of each way there and back, and the bytes that went over it."""
    sites = [site.name for site in scenario.topology.sites]
    clusters = [cluster.name for cluster in scenario.topology.clusters]
    ways = len(sites) * len(clusters)
    for site, to in window.sent.items():
        for cluster, (there, back) in to.items():
            if site in sites and cluster in clusters:  # of the scenario as it is now
                way = sites.index(site) * len(clusters) + clusters.index(cluster)
                for route, size_bytes in ((way, there), (ways + way, back)):
                    yield [link for link in routes.link[route].tolist() if link >= 0], size_bytes


def _holds(seen: Lived, spans: Sequence[Span]) -> Columns:
    spans = [
        (max(start_s - seen.since_s, 0.0), min(end_s, seen.until_s) - seen.since_s, what)
        for start_s, end_s, what in spans
        if end_s > seen.since_s and start_s < seen.until_s
    ]
    return hold_records([*((0.0, seen.duration_s, what) for what in seen.totals), *spans])


def _delays(scenario: Scenario, seen: Lived) -> Columns:
    """Answers by application and delay, cell by cell."""
    others, count = {graph.name for graph in scenario.graphs}, dict[tuple[str, int], int]()
    for window in seen.windows:
        for name, cell, answers in _cells(window, others):
            count[name, cell] = count.get((name, cell), 0) + answers
    keys = sorted(count)
    ends_s = (np.array([(cell, cell + 1) for _, cell in keys], dtype=np.int64) << FINE_BITS).view(np.float64)
    low_s, high_s = ends_s.reshape(-1, 2).T
    return {
        "application": [name for name, _ in keys],
        "above_s": low_s.tolist(),
        "up_to_s": high_s.tolist(),
        "answers": [count[key] for key in keys],
    }


def _cells(window: Window, others: set[str]) -> list[tuple[str, int, int]]:
    return [
        (application or "unnamed", int(cell), answers)
        for task, of in window.delays.items()
        if task not in others
        for application, cells in of.items()
        for cell, answers in cells.items()
    ]
