"""What limited services, jobs, pipelines and split models: their records, and who used what of which node."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from edgewise.arrays import Bools, Floats
from edgewise.core.holders import GONE
from edgewise.limits import described
from edgewise.limits.described import FULL, Load
from edgewise.limits.load import STEPS, edges_of, in_steps, when_over
from edgewise.limits.rooms import NodeRoom
from edgewise.limits.words import NEAR, Cure, Limit, percent, since
from edgewise.model.scenario import Scenario
from edgewise.report.use import HELD, by_place

BUSY = 0.8  # share of their time from which on replicas make requests wait
DYNAMIC = ("services", "jobs", "pipelines")  # who comes and goes on nodes


def other_limits(
    scenario: Scenario,
    rooms: Mapping[str, NodeRoom],
    items: Mapping[str, pa.Table],
    use: Mapping[str, pa.Table],
    links: Mapping[str, Floats],
    runs: int,
) -> list[Limit]:
    """Of all work but streams; links beside them, where there are no streams.

    Args:
        links: (STEPS,) share of each link that was used.
    """
    lost, first_s = _lost(items)
    held = _held(use.get("holds"), scenario.duration_s, runs)
    own = [name for name in rooms if name in held and _not_cloud(scenario, name)]
    found = []
    for work in lost:
        if work == "services":
            found += _services(scenario, items[work], use, held, own, links)
        elif lost[work] > 0.0:
            found.append(_no_room(work, lost[work], first_s[work], held, own))
    found += _next(scenario, use, held, own, links, "streams" in items)
    return found


def _lost(items: Mapping[str, pa.Table]) -> tuple[dict[str, float], dict[str, float]]:
    """Share of each kind of work that was lost, and when the first was."""
    lost: dict[str, float] = {}
    first: dict[str, float] = {}
    gone: dict[str, Any] = {
        "services": lambda t: np.isin(_text(t, "outcome"), ("late", "dropped")),
        "jobs": lambda t: t["started_s"].is_null().to_numpy(),
        "pipelines": lambda t: t["frames"].to_numpy() < 1.0,
    }
    begins = {"services": "arrival_s", "jobs": "latest_s", "pipelines": "arrival_s"}
    for work, table in items.items():
        if work in gone and table.num_rows:
            bad = gone[work](table)
            lost[work] = float(bad.mean())
            first[work] = float(table[begins[work]].to_numpy()[bad].min(initial=np.inf))
    return lost, first


def _text(table: pa.Table, name: str) -> Any:
    return table[name].to_numpy(zero_copy_only=False)


def _held(holds: pa.Table | None, duration_s: float, runs: int) -> dict[str, tuple[str, Floats, bool]]:
    """Of each node what is held most of, (STEPS,) share of it, and whether by work that comes and goes."""
    if holds is None:
        return {}
    edges, found = edges_of(duration_s), dict[str, tuple[str, Floats, bool]]()
    for place, (total, mine) in by_place(holds.to_pylist()).items():
        for what, (key, _) in HELD.items():
            if total[key] > 0.0 and what != "reserved":
                some = [row for row in mine if row["work"] != GONE and row[key] > 0.0]
                start, end, amount = (
                    np.array([row[name] for row in some], dtype=np.float64)
                    for name in ("start_s", "end_s", key)
                )
                share = in_steps(start, end, amount / total[key] / runs, edges)
                dynamic = any(row["work"] in DYNAMIC for row in some)
                if place not in found or share.max() > found[place][1].max():
                    found[place] = (what, share, dynamic)
    return found


def _not_cloud(scenario: Scenario, node: str) -> bool:
    spec = scenario.services
    cloud = {each.name for each in scenario.topology.nodes if spec and each.cluster == spec.cloud}
    return node not in cloud


def _services(
    scenario: Scenario,
    items: pa.Table,
    use: Mapping[str, pa.Table],
    held: Mapping[str, tuple[str, Floats, bool]],
    own: list[str],
    links: Mapping[str, Floats],
) -> list[Limit]:
    """Requests that were late or dropped: a link that was full then, or replicas, or the policy."""
    bad = np.isin(_text(items, "outcome"), ("late", "dropped"))
    if not bad.any():
        return []
    arrival_s, edges = items["arrival_s"].to_numpy(), edges_of(scenario.duration_s)
    step = np.clip(np.searchsorted(edges, arrival_s, side="right") - 1, 0, STEPS - 1)
    left: Bools = bad.copy()
    found = []
    for name, share in sorted(links.items(), key=lambda each: -each[1].max()):
        mine = left & (share[step] >= FULL)
        if mine.any():
            load = Load(float(share.max()), float(mine.sum() / bad.size), when_over(share, FULL, edges))
            found.append(described.link(scenario, name, _rate(use["links"], name), load))
            left &= ~mine
    busy = _busy(use, "services")
    services = _text(items, "service")
    for service in dict.fromkeys(services[left].tolist()):
        mine = left & (services == service)
        lost, when_s = float(mine.sum() / bad.size), float(arrival_s[mine].min())
        at = {place: one for (name, place), one in busy.items() if name == service}
        most = max(at.values(), default=0.0)
        full = [name for name in own if held[name][1].max() >= FULL]
        found.append(_replicas(service, lost, when_s, most, own, full, held))
    return found


def _replicas(
    service: str,
    lost: float,
    when_s: float,
    busy: float,
    own: list[str],
    full: list[str],
    held: Mapping[str, tuple[str, Floats, bool]],
) -> Limit:
    loses = f"{percent(lost)} of requests are lost{since(when_s)}"
    if busy < BUSY:
        text = (
            f"requests of {service} come late though its replicas are at most {percent(busy)} busy: {loses}"
        )
        cure = Cure("another policy: edgewise compare --policies requests=all")
        return Limit("policy", service, None, lost, when_s, text, (cure,))
    if own and len(full) == len(own):
        what = held[full[0]][0]
        text = f"replicas of {service} are {percent(busy)} busy and all nodes are full ({what}): {loses}"
        return Limit("node", "all nodes", 1.0, lost, when_s, text, (Cure("one more node"),))
    text = f"replicas of {service} are {percent(busy)} busy, though nodes have room for more: {loses}"
    cure = Cure("another policy: edgewise compare --policies orchestrate=all")
    return Limit("worker", service, busy, lost, when_s, text, (cure,))


def _no_room(
    work: str, lost: float, when_s: float, held: Mapping[str, tuple[str, Floats, bool]], own: list[str]
) -> Limit:
    """Jobs that never started, or pipelines that no frame came through."""
    share = max((float(held[name][1].max()) for name in own), default=1.0)
    what = {"jobs": "jobs never start", "pipelines": "pipelines have no whole frame"}[work]
    text = f"nodes have no room: {percent(lost)} of {what}; at the busiest {percent(share)} of a node is held"
    return Limit("node", "all nodes", share, lost, when_s, text, (Cure("one more node, or more memory"),))


def _next(
    scenario: Scenario,
    use: Mapping[str, pa.Table],
    held: Mapping[str, tuple[str, Floats, bool]],
    own: list[str],
    links: Mapping[str, Floats],
    streams: bool,
) -> list[Limit]:
    """What nothing is lost to yet."""
    found, edges = [], edges_of(scenario.duration_s)
    for name, share in links.items() if not streams else ():
        if share.max() >= NEAR:
            load = Load(float(share.max()), 0.0, when_over(share, FULL, edges))
            found.append(described.link(scenario, name, _rate(use["links"], name), load))
    for name in own:
        what, share, dynamic = held[name]
        if dynamic and share.max() >= NEAR:
            text = f"{percent(float(share.max()))} of the {what} of {name} are held at the busiest"
            found.append(Limit("node", name, float(share.max()), 0.0, None, text))
    for work in ("services", "graphs"):
        for (name, place), busy in _busy(use, work).items():
            if busy >= NEAR:
                where = f" on {place}" if place else ""
                text = f"{name}{where} is {percent(busy)} busy with {work}"
                found.append(Limit("worker", f"{name}{where}", busy, 0.0, None, text))
    return found


def _busy(use: Mapping[str, pa.Table], work: str) -> dict[tuple[str, str], float]:
    """Share of the time in which replicas or servers worked, by their name and node."""
    if "workers" not in use:
        return {}
    sums: dict[tuple[str, str], list[float]] = {}
    for row in use["workers"].to_pylist():
        if row["work"] == work:
            name, _, place = row["worker"].partition(" on ")
            both = sums.setdefault((name, place), [0.0, 0.0])
            both[0] += row["busy_s"]
            both[1] += row["there_s"]
    return {key: busy_s / there_s for key, (busy_s, there_s) in sums.items() if there_s > 0.0}


def _rate(links: pa.Table, name: str) -> float:
    """The greatest rate that a link has."""
    return float(links["capacity_bps"].to_numpy()[_text(links, "link") == name].max())
