"""Nothing works longer than it was there, and nobody holds more than there is."""

import pytest

from edgewise.core.holders import TOTAL
from joint_scenarios import five_kinds, run_of

JOBS = [{"cores": 3, "duration_s": 20}, {"cores": 1, "duration_s": 10, "submitted_s": 5}]
FAILS = ([], [(7.3, False), (19.9, True)], [(59.7, False)])


def rows_of(columns):
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@pytest.mark.parametrize("timeline", FAILS)
@pytest.mark.parametrize("crowd", [1.0, 40.0])
def test_no_use_exceeds_the_time(crowd, timeline):
    """Whatever is under way at the end, or broke off in between: busy at most as long as it was there."""
    data = five_kinds(JOBS, timeline=timeline)
    data["streams"]["arrivals"]["clients_per_min"] *= crowd
    data["services"]["requests"]["rate_qps"] *= crowd
    for graph in data["graphs"]:
        graph["rate_qps"] *= min(crowd, 1.2)  # what servers can never do is refused
    run, _ = run_of(data, check=True)
    use = run.use()
    workers = rows_of(use["workers"])
    assert {row["work"] for row in workers} >= {"streams", "graphs"}
    for row in workers:
        assert -1e-9 <= row["busy_s"] <= row["there_s"] * (1 + 1e-9), row
        if row["work"] != "services":
            assert row["there_s"] % data["duration_s"] == 0.0, row
    holds = rows_of(use["holds"])
    total = {row["place"]: row for row in holds if row["work"] == TOTAL}
    for at_s in sorted({row["start_s"] for row in holds}):
        for place, has in total.items():
            there = [
                row
                for row in holds
                if row["place"] == place and row["work"] != TOTAL and row["start_s"] <= at_s < row["end_s"]
            ]
            for what in ("cores", "memory_bytes", "bps"):
                assert sum(row[what] for row in there) <= has[what] * (1 + 1e-6), (at_s, place, what)
    for row in rows_of(use["links"]):
        assert row["sent_bits"] <= row["capacity_bps"] * (row["end_s"] - row["start_s"]) * (1 + 1e-9), row
