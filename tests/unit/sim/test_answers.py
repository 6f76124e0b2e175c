"""Answers of requests weigh what their service says: over links that all work shares, or of their own."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import edgewise as ew
from edgewise.core.dispatch.events import RequestReturned
from edgewise.errors import ScenarioError
from edgewise.model.parsing import parse_scenario
from edgewise.run import assigning
from edgewise.sim.requests.sites import RequestSites
from joint_scenarios import held, over_cables, ran, run_of

FAST, ANSWER_BYTES = "1e18", 40e3


def answering(lan: str, wan: str, answer_bytes: float = ANSWER_BYTES, **more: Any) -> dict[str, Any]:
    """Streams and requests, whose answers are that large, over cables; and split queries."""
    data = over_cables(lan, wan, **more)
    data["services"]["offered"][0]["answer_bytes"] = answer_bytes
    return data


@pytest.mark.parametrize(("replicas", "bps"), [(0, 20e6), (3, 90e6)])
def test_an_answer_over_links_of_its_own_takes_its_size_over_the_rate(replicas: int, bps: float) -> None:
    """Requests that are alone, to the cloud and to nodes: nothing else changes."""
    data = held(answering("90Mbps", "20Mbps", 0.0), "services") | {"sharing": "none", "duration_s": 600}
    data["services"] |= {"drops": False}
    data["services"]["requests"]["rate_qps"] = 0.1
    offered = data["services"]["offered"][0]
    offered["initial"] = replicas
    plain = ran(data)["services"]
    offered["answer_bytes"] = ANSWER_BYTES
    sized = ran(data)["services"]
    assert [row["station"] for row in plain] == [row["station"] for row in sized]
    assert {row["station"] == "cloud" for row in sized} == {replicas == 0} and len(sized) > 40
    more_s = [one["end_s"] - other["end_s"] for one, other in zip(sized, plain, strict=True)]
    assert more_s == pytest.approx([8.0 * ANSWER_BYTES / bps] * len(sized), abs=1e-9)


@pytest.mark.parametrize("sharing", ["fifo", "ps"])
def test_where_nothing_waits_answers_take_what_they_take_on_links_of_their_own(sharing: str) -> None:
    apart, shared = (
        ran(answering(FAST, FAST) | {"sharing": how}, split="equal") for how in ("none", sharing)
    )
    assert apart == shared
    slow = held(answering("2Mbps", "2Mbps"), "services")
    slow["services"]["requests"]["rate_qps"] = 0.05  # by itself each time
    slow["services"]["drops"] = False
    apart, shared = (ran(slow | {"sharing": how}) for how in ("none", sharing))
    assert apart == shared and any(row["outcome"] == "in_time" for row in shared["services"])


def test_answers_on_a_busy_link_come_as_a_list_of_events_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """First come first served on the cable back, from the moment at which a replica is done."""
    data = held(answering("3Mbps", "1Mbps"), "services") | {"sharing": "fifo"}
    data["services"] |= {"drops": False}
    data["services"]["requests"] |= {"rate_qps": 6, "slack": [40, 60]}
    monkeypatch.setattr("edgewise.run.services.RequestSites", partial(RequestSites, notes=1000))
    run, _ = run_of(data)
    sites = run.parts["services"].sites
    returned = [event for _, event, _ in sites.log if isinstance(event, RequestReturned)]
    left = sorted((sites.rows.ready_s[event.request] + event.took_s, event.request) for event in returned)
    rows, free_s, waited = sites.rows, {}, 0
    for at_s, i in left:
        station = int(rows.station[i])
        bps = 1e6 if station == 0 else 3e6
        begin_s = max(at_s, free_s.get(bps, 0.0))
        free_s[bps] = begin_s + 8.0 * ANSWER_BYTES / bps
        waited += begin_s > at_s
        there_s = free_s[bps] + sites.queues.run.desks.back_s[rows.site[i], station]
        if there_s < len(sites.tally) * sites.frame_s:
            assert rows.end_s[i] == pytest.approx(there_s, rel=0, abs=1e-9)
            assert rows.state[i] == (4 if there_s <= rows.deadline_s[i] else 5)
    assert len(left) > 300 and waited > 100


@pytest.mark.parametrize("sharing", ["fifo", "ps"])
def test_answers_hold_up_those_of_streams_and_every_request_ends_once(sharing: str) -> None:
    """Streams with answers on the same cable are slower for them; a full buffer drops answers, too."""
    data = held(answering("4Mbps", "4Mbps"), "streams", "services") | {"sharing": sharing}
    data["services"]["requests"]["rate_qps"] = 12
    for application in data["streams"]["applications"]:
        application["answer_bytes"] = "5kB"
    light = data | {"services": answering("4Mbps", "4Mbps", 0.0)["services"]}
    light["services"]["requests"]["rate_qps"] = 12
    heavy, none = ran(data), ran(light)
    delay_s = [
        np.nanmean([row["delay_mean_s"] or np.nan for row in each["streams"]]) for each in (heavy, none)
    ]
    assert delay_s[0] > 1.05 * delay_s[1]
    for link in data["links"]:
        if "name" in link:
            link["buffer_bytes"] = "60kB"
    result = ew.simulate(parse_scenario(data, "answers"), seeds=(0,))
    links = result.use["links"].to_pylist()
    assert sum(row["dropped"] for row in links if row["link"].endswith(":down")) > 0
    (window,) = [result.beside["services"].windows.to_pandas().sum(numeric_only=True)]
    assert window["arrived"] == window["in_time"] + window["late"] + window["dropped"] + window["waiting"]
    rows = result.beside["services"].items.to_pylist()
    assert window["dropped"] == sum(row["outcome"] == "dropped" for row in rows) > 0
    assert window["waiting"] == sum(row["outcome"] == "waiting" for row in rows)


@pytest.mark.parametrize("sharing", ["fifo", "ps"])
def test_payloads_and_answers_of_requests_share_a_cable_of_one_capacity(sharing: str) -> None:
    """On it all bits of both pass, and each waits for the other, which it does not on two."""
    found = []
    for shared in ("each", "both"):
        data = held(answering("3Mbps", "3Mbps", shared=shared), "services") | {"sharing": sharing}
        data["services"] |= {"drops": False}
        data["services"]["requests"] |= {"rate_qps": 5, "slack": [40, 60], "payload_bytes": "20kB"}
        result = ew.simulate(parse_scenario(data, "both"), seeds=(0,))
        rows = [row for row in result.items.to_pylist() if row["outcome"] in ("in_time", "late")]
        sent_bits = sum(row["sent_bits"] for row in result.use["links"].to_pylist())
        assert sent_bits == pytest.approx(8.0 * (20e3 + ANSWER_BYTES) * len(rows), rel=0.05)
        assert {row["link"].partition(":")[2] for row in result.use["links"].to_pylist()} == (
            {"both"} if shared == "both" else {"up", "down"}
        )
        found.append(np.mean([row["end_s"] - row["arrival_s"] for row in rows]))
    assert found[1] > 1.1 * found[0]


def test_answers_of_a_size_where_none_are_sent_are_refused_or_said_to_be_left_out() -> None:
    data = held(answering("4Mbps", "4Mbps"), "services")
    data["services"]["answers"] = False
    with pytest.raises(ScenarioError, match=r"services\.answers: is false, so answers have no answer_bytes"):
        parse_scenario(data, "answers")
    data["services"] |= {"answers": True, "gateways": "one"}
    (note,) = assigning.notes(parse_scenario(data, "answers"), "services", "simulate")
    assert "here answers take no time to send" in note
    data["services"]["gateways"] = "per_site"
    assert not assigning.notes(parse_scenario(data, "answers"), "services", "simulate")
