"""What the bench says of runs whose processes waited for processors."""

import json

import pytest

pytest.importorskip("onnxruntime")  # of the extra `live`
from bench import live_beside


@pytest.mark.parametrize(("wait_s", "quiet"), [(0.2e-3, 1), (0.4e-3, 0)])
def test_the_page_says_how_long_processes_waited_each_time_and_which_runs_were_quiet(tmp_path, wait_s, quiet):
    row = {
        "scenario": "campus-small", "seed": 1, "set": ["duration_s=60"], "on": "namespaces", "processors": 2,
        "waited": 0.7, "wait_s": wait_s, "busy": wait_s > live_beside.BUSY_S,
        "cores": {"worker": [0.5, 1.0, 2000.0], "gateway": [0.17, 0.5, 1000.0]},
        "live": {"streams": {"in time": 0.99}}, "simulated": {"streams": {"in time": 1.0}},
    }  # fmt: skip
    (tmp_path / live_beside.RUNS).write_text(json.dumps(row) + "\n")
    live_beside.write_page(tmp_path)
    page = (tmp_path / "index.md").read_text()
    assert "`python -m bench.live_beside --namespaces --set 'duration_s=60'`" in page
    assert f"{quiet} of 1 runs were quiet" in page and "took 0.67 of 2 processors" in page
    assert f"waited for {1e3 * wait_s:.3f} to {1e3 * wait_s:.3f} ms, which is 70 to 70 %" in page
    assert "all 0.670, 0.500; worker 0.500, 0.500; gateway 0.170, 0.500" in page
