"""What a run was and what came of it, in sentences for people: verdict, scenario, hardware and policies."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc

from edgewise.model.scenario import Scenario
from edgewise.model.topology import Cluster, Resources
from edgewise.report.decided import ByPolicy
from edgewise.report.over_time import lost_work
from edgewise.report.records import RecordedRun
from edgewise.report.schema import Measure
from edgewise.report.sections import seconds
from edgewise.report.statistics import PairedComparison
from edgewise.report.summary import by_seed
from edgewise.report.verdicts import verdict_in_words

DECIDES = {
    "dispatch": "which worker answers a stream",
    "requests": "which replica answers a request",
    "orchestrate": "where replicas run",
    "place": "where a pipeline's tasks run",
    "split": "which servers share a split model",
    "defer": "when and where a job runs",
}
"""By decision, what is decided."""
_SHOWN = 4  # clusters, or policies, that are named


def verdicts(run: RecordedRun, rows: Sequence[PairedComparison] = ()) -> list[str]:
    """What to take home, the work that the run is about first: how well it went, and what was left undone.

    Args:
        rows: of `figures.comparisons_of`.
    """
    sentences = [*_compared(run, rows)] if rows else []
    for part in (run, *run.beside):
        values = by_seed(part.summary, part.measures[0].key, part.policies)
        if values:
            best = _best(part.measures[0], values)
            differ = any((found != values[best]).any() for found in values.values())
            sentences.append(_fared(part, best, differ and part is run))
    return sentences


def _best(measure: Measure, values: dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]) -> str:
    sign = -1.0 if measure.lower_is_better else 1.0
    return max(values, key=lambda policy: sign * float(values[policy].mean()))


def _compared(run: RecordedRun, rows: Sequence[PairedComparison]) -> Iterable[str]:
    """One sentence for the comparisons with a rival, or for those that were decided."""
    for row in sorted(rows, key=lambda row: -abs(row.difference))[:_SHOWN]:
        yield compared(row, run.measures[0])
    if len(rows) > _SHOWN:
        yield f"{len(rows) - _SHOWN} more comparisons are below."


def compared(row: PairedComparison, measure: Measure) -> str:
    """Who is ahead of whom in a measure, by how much, and whether that may be chance."""
    what, seeds = measure.heading.removesuffix(" %"), f"{row.n} seed{'s' if row.n > 1 else ''}"
    if row.difference == 0.0:
        return f"{row.policy} and {row.rival} do equally well in {what} over {seeds}."
    words = verdict_in_words(row, measure.unit)
    return f"{row.policy} against {row.rival}, {what} over {seeds}: {words}."


def _fared(part: RecordedRun, policy: str, chosen: bool) -> str:
    """How one kind of work fared under a policy."""
    mean = {
        measure.key: float(values[policy].mean())
        for measure in part.measures
        if policy in (values := by_seed(part.summary, measure.key, [policy]))
    }
    under = f" under {policy}, the best here" if chosen else f" under {policy}"
    if part.kind == "streams":
        text = f"{100 * mean['success']:.1f} % of queries are answered in time{under}; "
        text += f"{100 * mean['failed']:.1f} % come late, {100 * mean['rejected']:.1f} % are refused"
    elif part.kind == "services":
        text = f"{100 * mean[part.measures[0].key]:.1f} % of requests are answered in time{under}; "
        text += f"{100 * mean['late']:.1f} % come late, {100 * mean['dropped']:.1f} % are dropped"
    elif part.kind == "pipelines":
        text = f"pipelines do {mean['mean_throughput_fps']:.3g} frames/s each{under}; "
        text += f"{mean['unserved']:.3g} of {mean['pipelines']:.3g} do none"
    elif part.kind == "graphs":
        text = f"split queries take {_ms(mean['mean_s'])} in the mean{under}, "
        text += f"99 % of them up to {_ms(mean['p99_s'])}"
    else:
        text = f"{_count(mean['ended'])} of {_count(mean['jobs'])} jobs are done by the end{under}; "
        text += f"{mean['lost']:.3g} never started in time"
    return f"{text[0].upper()}{text[1:]}{_why(part, policy)}."


def _count(mean: float) -> str:
    return f"{mean:,.0f}" if mean >= 100 or mean == round(mean) else f"{mean:.1f}"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"


def _why(part: RecordedRun, policy: str) -> str:
    """The most frequent reason that streams were refused for."""
    if part.kind != "streams":
        return ""
    lost = lost_work(part.kind, part.items.filter(pc.field("policy") == policy))
    count: Counter[str] = Counter()
    for why, weight in zip(lost.why, lost.weight.tolist(), strict=True):
        count[why] += weight
    return f", mostly because {count.most_common(1)[0][0]}" if count else ""


def hardware(scenario: Scenario) -> str:
    """The clusters and nodes of a scenario, and what its sites are."""
    clusters = [cluster for cluster in scenario.topology.clusters if cluster.nodes]
    if not clusters:
        return ""
    said = [_cluster(cluster) for cluster in clusters[:_SHOWN]]
    if len(clusters) > _SHOWN:
        nodes = sum(len(cluster.nodes) for cluster in clusters[_SHOWN:])
        said.append(f"and {len(clusters) - _SHOWN} more clusters with {nodes} nodes")
    sites = len(scenario.topology.sites)
    where = f"{sites} access site{'s' if sites > 1 else ''}; " if sites else ""
    return where + "; ".join(said)


def _cluster(cluster: Cluster) -> str:
    kinds = Counter(_resources(node.resources) for node in cluster.nodes)
    return f"{cluster.name}: " + " and ".join(f"{count} × ({what})" for what, count in kinds.items())


def _resources(resources: Resources) -> str:
    cores = resources.cpu_cores
    parts = [f"{cores:g} core{'' if cores == 1 else 's'}"] if cores else []
    parts += [_bytes(resources.memory_bytes)] if resources.memory_bytes else []
    if resources.accelerator_memory_bytes:
        parts.append(f"{_bytes(resources.accelerator_memory_bytes)} on accelerators")
    return ", ".join(parts) or "one node"


def _bytes(count: float) -> str:
    return f"{count / 1e9:.3g} GB" if count >= 1e9 else f"{count / 1e6:.3g} MB"


def scenario(loaded: Scenario) -> dict[str, str]:
    """What is there, and on what."""
    lasts = f"It lasts {seconds(loaded.duration_s)}."
    return {"Scenario": f"{loaded.description} {lasts}".strip(), "Hardware": hardware(loaded)}


def lived(live: Mapping[str, Any]) -> str:
    """From when to when a live run was, and what it begins with."""
    since, until = (
        time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(live[at])) for at in ("since_s", "until_s")
    )
    return f"from {since} to {until}, since {live['why']}; nothing is simulated"


def policies(decided: ByPolicy, labels: Sequence[str]) -> list[str]:
    """Who decided what: of each decision the policy, or the policies that are compared.

    Args:
        decided: by label of a policy and by decision; empty of older runs.
        labels: of policies, where it does not say them.
    """
    found: dict[str, list[str]] = {}
    for of in decided.values():
        for decision, one in of.items():
            if one.policy not in found.setdefault(decision, []):
                found[decision].append(one.policy)
    if not found:
        return [", ".join(labels)]
    return [
        f"{names[0] if len(names) == 1 else ' or '.join(names)} decides {DECIDES.get(decision, decision)}"
        for decision, names in sorted(found.items(), key=lambda each: -len(each[1]))
    ]
