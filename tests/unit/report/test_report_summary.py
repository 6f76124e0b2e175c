"""The three weightings of success, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from report_example import stream_row, table

from edgewise.report.schema import STREAMS
from edgewise.report.summary import by_seed, of_applications, refusals, summarise

# application "big": 90 of 100 and 60 of 100; "small": 0 of 10, refused; one stream sent nothing
ROWS = [
    stream_row(stream=0, application="big", queries=100, ok=90, failed=10),
    stream_row(stream=1, application="big", queries=100, ok=60, failed=40),
    stream_row(stream=2, application="small", queries=10, ok=0, rejected=10, reason="no capacity"),
    stream_row(stream=3, application="small", queries=0, ok=0, delay_mean_s=None, delay_max_s=None),
]


def test_weightings_by_hand() -> None:
    (row,) = summarise(table(ROWS, STREAMS))
    assert (row["streams"], row["streams_refused"], row["queries"]) == (4, 1, 210)
    assert row["success"] == pytest.approx(150 / 210)
    assert row["failed"] == pytest.approx(50 / 210)
    assert row["rejected"] == pytest.approx(10 / 210)
    assert row["success_by_stream"] == pytest.approx((0.9 + 0.6 + 0.0) / 3)
    assert row["success_by_application"] == pytest.approx((0.75 + 0.0) / 2)
    assert [part["application"] for part in row["applications"]] == ["big", "small"]
    assert row["applications"][1]["rejected"] == 1.0


def test_no_query_no_share() -> None:
    (row,) = summarise(table(ROWS[3:], STREAMS))
    assert row["success"] is None and row["success_by_stream"] is None
    assert by_seed([row]) == {}
    assert summarise(table([], STREAMS)) == []


def test_refusals_are_counted_per_reason() -> None:
    rows = refusals(table([*ROWS, stream_row(stream=4, reason="too slow", ok=0, rejected=50)], STREAMS))
    assert rows == [
        {"policy": "closest", "reason": "no capacity", "streams": 1, "queries": 10},
        {"policy": "closest", "reason": "too slow", "streams": 1, "queries": 50},
    ]


def test_seeds_are_paired() -> None:
    cells = [("a", 3, 30), ("a", 1, 10), ("b", 1, 20), ("b", 3, 40), ("b", 2, 50)]
    streams = table(
        [stream_row(policy=policy, seed=seed, ok=ok, failed=50 - ok) for policy, seed, ok in cells], STREAMS
    )
    values = by_seed(summarise(streams), "success", ["b", "a", "absent"])
    assert list(values) == ["b", "a"]
    np.testing.assert_allclose(values["a"], [0.2, 0.6])
    np.testing.assert_allclose(values["b"], [0.4, 0.8])
    assert list(of_applications(summarise(streams))) == ["pose"]
