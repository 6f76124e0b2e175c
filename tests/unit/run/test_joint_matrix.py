"""Each kind of work beside each other: records change where they share, and no byte of them where not."""

from __future__ import annotations

from itertools import combinations, permutations
from typing import Any

from joint_scenarios import NODE, apart, five_kinds, held, over_cables, ran, run_of

KINDS = ("streams", "services", "pipelines", "graphs", "jobs")
MESSAGES = set(permutations(("streams", "services", "graphs"), 2))


def seen(rows: dict[str, Any]) -> dict[str, Any]:
    """Records, of jobs without their node."""
    jobs = [{name: row[name] for name in row if name != "node"} for row in rows.get("jobs", ())]
    return rows | {"jobs": jobs}


def changed(data: dict[str, Any], **policies: Any) -> set[tuple[str, str]]:
    """(one, other) where the records of the other are not those that it leaves alone.

    Which node a job is on is left out: it goes where most is left.
    """
    alone = {work: seen(ran(held(data, work), **policies))[work] for work in KINDS}
    assert all(alone.values())
    found = set()
    for pair in combinations(KINDS, 2):
        together = seen(ran(held(data, *pair), check=True, **policies))
        found |= {(a, b) for a, b in (pair, pair[::-1]) if together[b] != alone[b]}
    return found


def test_on_links_of_their_own_and_nodes_with_room_no_kind_changes_a_byte_of_another() -> None:
    data = apart(five_kinds([{"cores": 1, "memory_bytes": "2GB", "duration_s": 20}], timeline=[]))
    assert changed(data | {"duration_s": 60}) == set()


def test_on_nodes_without_room_jobs_are_changed_by_who_takes_of_nodes_and_change_nobody() -> None:
    """All want a node's whole memory. First replicas stand where streams' workers leave most of it."""
    jobs = [{"cores": 3, "memory_bytes": NODE["memory_bytes"], "duration_s": 20}] * 2  # the cloud has no room
    data = five_kinds(jobs, timeline=[]) | {"duration_s": 60}
    others = {(work, "jobs") for work in ("streams", "services", "pipelines", "graphs")}
    assert changed(data) == others | {("streams", "services")}


def test_on_one_cable_messages_change_each_other_and_flows_change_messages() -> None:
    """Flows have reserved rates, so nobody changes them; jobs send nothing."""
    data = over_cables("3Mbps", "1Mbps") | {"sharing": "fifo", "duration_s": 60}
    more = five_kinds([{"cores": 1, "duration_s": 20}], timeline=[])
    data |= {"pipelines": more["pipelines"], "jobs": more["jobs"]}
    data["links"].append({"between": ["near-0", "near-1"], "over": ["lan"]})
    first, last = data["pipelines"][0]["tasks"]
    first |= {"memory_bytes": "2.2GB", "output_bytes": "10kB"}  # so they do not fit on one node
    last["memory_bytes"] = "2.2GB"
    flows = {("pipelines", work) for work in ("streams", "services", "graphs")}
    assert changed(data, split="equal") == MESSAGES | flows


def test_a_node_that_holds_all_five_kinds_at_the_very_moment_fails() -> None:
    """Who holds what of it is read off the ledger, just before and from the failure on."""
    jobs = [{"cores": 3, "duration_s": 20}, {"cores": 5, "duration_s": 20}]
    data = five_kinds(jobs, timeline=[(10.0, False), (20.0, True)])
    run, _ = run_of(data, check=True)
    on_node = [span for span in run.holders.spans if span[2].place == "near-0" and span[2].owner]
    assert {what.work for start_s, end_s, what in on_node if start_s < 10.0 <= end_s} == set(KINDS)
    assert [(start_s, end_s) for start_s, end_s, what in run.holders.spans if what.work == "gone"] == [
        (10.0, 20.0)
    ]
    assert {what.work for start_s, end_s, what in on_node if 10.0 <= start_s < 20.0} == set()
