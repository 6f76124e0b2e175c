"""What the bench says of runs that cannot be quiet on as few processors as there are."""

import json

import pytest

pytest.importorskip("onnxruntime")  # of the extra `live`
from bench import live_beside


def test_work_waits_as_the_formula_of_m_m_2_says():
    for cores in (0.2, 0.67, 1.5):  # the wait of M/M/2 in units of the service is ρ² / (1 - ρ²)
        assert live_beside.least_waited(cores, 2) == pytest.approx((cores / 2) ** 2)
    assert live_beside.least_waited(2.0, 2) == 1.0


def test_the_page_says_how_many_processors_a_quiet_run_needs(tmp_path):
    row = {
        "scenario": "campus-small", "seed": 1, "waited": 0.7, "busy": True, "processors": 2,
        "cores": {"worker": [0.5, 1.0], "gateway": [0.17, 0.5]},
        "live": {"streams": {"in time": 0.99}}, "simulated": {"streams": {"in time": 1.0}},
    }  # fmt: skip
    (tmp_path / live_beside.RUNS).write_text(json.dumps(row) + "\n")
    live_beside.write_page(tmp_path)
    page = (tmp_path / "index.md").read_text()
    assert "took 0.67 of 2 processors" in page and "waited for 11 %" in page
    assert "quiet on 3 processors at the least" in page and "0 of 1 runs were quiet" in page
