"""What a live system wrote down of its run, read from its store: rows of all kinds of work in one period."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgewise import policies
from edgewise.model.scenario import Scenario
from edgewise.runtime.controller.upkeep import MOST_REQUESTS, MOST_SPANS, MOST_STREAMS, MOST_WINDOWS
from edgewise.runtime.store import POLICIES, Store
from edgewise.runtime.store.jobs import MOST_JOBS, Job
from edgewise.runtime.store.pipelines import KeptPipeline
from edgewise.runtime.store.records import Request, Span, Window
from edgewise.runtime.worker.pieces import read_split

BOUNDED = (
    ("request", "at_s", MOST_REQUESTS),
    ("stream", "opened_s", MOST_STREAMS),
    ("stream_window", "start_s", MOST_WINDOWS),
    ("hold", "end_s", MOST_SPANS),
)


@dataclass(frozen=True, slots=True)
class Lived:
    """Rows of a run; times in Unix time.

    Attributes:
        state: folder of the system.
        since_s, until_s: the run.
        why: what it begins with.
        policies: by decision, who decides.
        streams: as `RecordTable.streams`, without those of split models.
        window_s: how long gateways' windows are.
        requests: of services, and queries of split models.
        spans: who held what; what is held now ends at `until_s`.
        totals: what there is to hold.
        node_changes: as `Store.node_changes`.
    """

    state: Path
    since_s: float
    until_s: float
    why: str
    policies: Mapping[str, str]
    streams: Sequence[dict[str, Any]]
    window_s: float
    windows: Sequence[Window]
    requests: Sequence[Request]
    pipelines: Sequence[KeptPipeline]
    jobs: Sequence[Job]
    spans: Sequence[Span]
    totals: Sequence[Any]
    node_changes: Sequence[tuple[float, str, bool]]

    @property
    def duration_s(self) -> float:
        """How long the run is."""
        return self.until_s - self.since_s


def lived(
    store: Store,
    scenario: Scenario,
    now_s: float,
    last_s: float | None = None,
    between_s: tuple[float, float] | None = None,
) -> Lived:
    """The latest run of a live system.

    Args:
        store: of the system.
        scenario: that it runs.
        last_s: only what came in so many last seconds.
        between_s: only what was between two moments, Unix time: the run begins and ends there.
    """
    began_s, ended_s = store.run_times_s()
    until_s = now_s if ended_s is None else ended_s
    since_s, why = max(_beginnings(store, began_s, until_s, last_s))
    if between_s is not None:
        since_s, until_s, why = max(since_s, between_s[0]), min(until_s, between_s[1]), "that was asked for"
    graphs = {graph.name for graph in scenario.graphs}
    streams = [
        row
        for row in store.records.streams(1_000_000)
        if since_s <= row["opened_s"] <= until_s and row["task"] not in graphs
    ]
    requests = [each for each in store.records.requests(since_s) if each.at_s <= until_s]
    jobs = [job for job in store.jobs.listed(MOST_JOBS) if since_s <= job.submitted_s <= until_s]
    pipelines = [each for each in store.pipelines.listed() if since_s <= each.submitted_s <= until_s]
    came_s = [row["opened_s"] for row in streams] + [each.at_s for each in requests]
    came_s += [job.submitted_s for job in jobs] + [each.submitted_s for each in pipelines]
    if between_s is None:
        since_s = max(since_s, min(came_s, default=since_s))
        if scenario.jobs is not None:  # whose slots begin at whole multiples
            slot_s = scenario.jobs.pattern.slot_s
            since_s = math.floor(since_s / slot_s) * slot_s
    jobs = [job if _over(job, until_s) else replace(job, state="running", ended_s=None) for job in jobs]
    pipelines = [each if _over(each, until_s) else replace(each, ended_s=None) for each in pipelines]
    spans = [*store.records.spans(since_s), *((at_s, until_s, what) for at_s, what in store.records.held())]
    return Lived(
        store.file.parent, since_s, max(until_s, since_s + 1e-3), why, _who(store), streams,
        scenario.window_s,
        [each for each in store.records.windows(since_s - scenario.window_s) if each.start_s <= until_s],
        requests, pipelines, jobs, spans, store.records.totals(), store.node_changes(),
    )  # fmt: skip


def _over(work: Job | KeptPipeline, until_s: float) -> bool:
    return work.ended_s is None or work.ended_s <= until_s


def _beginnings(
    store: Store, began_s: float, until_s: float, last_s: float | None
) -> list[tuple[float, str]]:
    """Moments before which nothing belongs to the run, and what each is."""
    found = [(began_s, "the system was started")]
    found += [
        (at_s, f"{each} is decided as now") for each, at_s in store.get(f"{POLICIES} since", {}).items()
    ]
    change = store.get("change") or {}
    if change.get("before") is not None:
        found.append((change["ended_s"] or change["began_s"], "its scenario changed"))
    found += [(store.records.oldest_s(*each), f"the oldest {each[0]} that is kept") for each in BOUNDED]
    if last_s is not None:
        found.append((until_s - last_s, f"{last_s:g} s before its end"))
    return found


def _who(store: Store) -> dict[str, str]:
    """By decision, who decides; of split models that name nobody, who their cut names."""
    found = {decision: store.policy(decision) for decision in policies.DECISIONS}
    if not found["split"]:
        folders = {row.process.settings.get("split") for row in store.processes("worker")}
        cut = sorted({read_split(Path(folder)).policy for folder in folders if folder})
        found["split"] = "+".join(cut)
    return found
