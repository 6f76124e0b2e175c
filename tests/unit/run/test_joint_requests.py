"""Requests and replicas beside streams and jobs on the same nodes: one ledger, one timeline."""

from __future__ import annotations

import pytest

from edgewise.config import load_scenario
from edgewise.run import assigning
from joint_scenarios import campus, held, ran, run_of

RATE_QPS = 120  # more than the first replicas can do


def test_requests_beside_streams_leave_what_they_leave_alone() -> None:
    data = campus(
        8, [], []
    )  # so few that none waits in the cloud, which has a pool where there are no streams
    together = ran(data, check=True)
    for work in ("streams", "services"):
        assert together[work] == ran(held(data, work))[work], work


def test_replicas_that_come_push_jobs_out_and_jobs_take_what_replicas_leave() -> None:
    """Nodes have 2 cores, each job wants them all, and first replicas stand on three of four nodes."""
    pausing = [{"duration_s": 40, "latest_s": 15, "when_evicted": "pause"}] * 6
    busy, calm = (ran(campus(rate, pausing, []), check=True)["jobs"] for rate in (RATE_QPS, 0.5))
    pushed = [(row["job"], row["node"], row["suspended_s"]) for row in busy if row["suspended_s"] > 0.0]
    # From the third frame on, once no other node has idle cores, until the cloud has room.
    assert pushed == [(3, "cloud", 34.0)]
    assert [row["suspended_s"] for row in calm] == [0.0] * 6
    assert [row["node"] for row in busy[:3]] == [row["node"] for row in calm[:3]] == ["cloud"] * 3
    assert (calm[3]["node"], busy[3]["redone_s"]) == ("east-1", 6.0)


def test_requests_of_a_node_that_fails_are_served_elsewhere() -> None:
    timeline = [{"at_s": 20.0, "node": "west-0", "up": False}, {"at_s": 40.0, "node": "west-0", "up": True}]
    rows = ran(campus(60, [], timeline), check=True)["services"]
    before, down = ([r for r in rows if low < r["arrival_s"] < low + 15] for low in (5.0, 22.0))
    assert any(row["station"] == "west-0" for row in before)
    assert not any(row["station"] == "west-0" and row["outcome"] == "in_time" for row in down)
    served = [sum(row["outcome"] == "in_time" for row in each) / len(each) for each in (before, down)]
    assert served == pytest.approx([1.0, 1.0], abs=0.05)


def test_who_decides_in_a_run_can_be_said_again() -> None:
    """The command line names what is assigned, and the library is asked with those names."""
    scenario = load_scenario("kais-live", {"services.gateways": "per_site"})
    for given in ({"orchestrate": "autoscaler"}, {"dispatch": "closest", "orchestrate": "none"}, {}):
        work, chosen = assigning.assigned(scenario, given)
        assert assigning.assigned(scenario, chosen) == (work, chosen)


def test_a_node_of_the_cloud_that_fails_again_and_again_takes_no_more_room() -> None:
    """Its events had twice as many places after each failure, once per worker there: 4.5 GiB after three."""
    scenario = load_scenario("campus-small", {"duration_s": 30, "timeline": []})
    data = scenario.spec.model_dump(mode="json", exclude_none=True)
    fails = [(at_s, up) for at_s in (5.0, 9.0, 13.0) for at_s, up in ((at_s, False), (at_s + 2.0, True))]
    timeline = [{"at_s": at_s, "node": "cloud-0", "up": up} for at_s, up in fails]
    run, found = run_of(held(data, "streams", "services") | {"timeline": timeline}, check=True)
    assert run.parts["services"].sites.queues.run.events.size <= 1024
    assert sum(row["outcome"] == "in_time" for row in found["services"]) > 0.9 * len(found["services"])
