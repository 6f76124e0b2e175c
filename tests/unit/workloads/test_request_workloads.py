"""Reader of batch_task, the model fitted to it, and the patterns drawn from the model."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from edgewise.errors import ScenarioError
from edgewise.workloads.batch_task import QUANTILES, BatchModel, fit, read_batch_tasks, services_of
from edgewise.workloads.requests import RequestPattern, alibaba_2018, generate, pattern, service_needs

ROWS = [
    "M1,1,j_1,1,Terminated,100,110,50,0.2",
    "M2,1,j_1,1,Terminated,100,130,50,0.2,",
    "M3,1,j_2,1,Terminated,104,105,100,0.3",
    "R1,1,j_3,6,Running,110,110,10,0.05",
    "R2,1,j_3,6,Failed,110,0,10,0.05",
    "R3,1,j_3,6,Terminated,x,120,10,0.05",
    "R4,1,j_3,6,Terminated,111,120,0,0.05",
    "R5,1,j_3,6,Terminated,111,120",
    "R6,1,j_3,6,Terminated,111,120,10,0.05,50",
    "",
    "R7,1,j_3,6,Terminated,112,122,10,0.06",
]


@pytest.fixture
def trace_path(tmp_path: Path) -> Path:
    path = tmp_path / "batch_task.csv"
    path.write_bytes("\r\n".join(ROWS).encode())
    return path


def test_reads_the_published_layout_and_counts_what_makes_no_sense(trace_path: Path) -> None:
    trace = read_batch_tasks(trace_path)
    assert trace.start_s.tolist() == [100.0, 100.0, 104.0, 112.0]
    assert trace.duration_s.tolist() == [10.0, 30.0, 1.0, 10.0]
    assert trace.cpu_cores.tolist() == [0.5, 0.5, 1.0, 0.1]
    assert trace.job.tolist() == [0, 0, 1, 2]
    assert trace.bad == {
        "ends before it starts, or at once": 2,
        "not a number": 1,
        "plan_cpu is not positive": 1,
        "fewer than 9 columns": 1,
        "more than 9 columns": 1,
    }


def test_compressed_files_and_several_at_once(trace_path: Path, tmp_path: Path) -> None:
    packed = tmp_path / "more.csv.gz"
    packed.write_bytes(gzip.compress(trace_path.read_bytes()))
    assert read_batch_tasks([trace_path, packed]).job.size == 8


def test_errors_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"none\.csv: cannot be read"):
        read_batch_tasks(tmp_path / "none.csv")
    (tmp_path / "bad.csv").write_text("a,b\n")
    with pytest.raises(ScenarioError, match=r"no usable row; left out: \{'fewer than 9 columns': 1\}"):
        read_batch_tasks(tmp_path / "bad.csv")


def test_rare_demands_join_the_closest_service_of_their_type(trace_path: Path) -> None:
    service, chosen = services_of(read_batch_tasks(trace_path), services=3)
    assert chosen[0].tolist() == [1.0, 0.5, 0.2]
    assert service.tolist()[:2] == [0, 0]
    few, kept = services_of(read_batch_tasks(trace_path), services=1)
    assert kept.shape == (1, 3) and few.tolist() == [0, 0, 0, 0]


def test_a_model_survives_json_and_refuses_other_quantiles(trace_path: Path) -> None:
    model = fit(read_batch_tasks(trace_path))
    again = BatchModel.from_json(model.to_json())
    assert np.allclose(again.duration_s, model.duration_s) and again.sticky == pytest.approx(model.sticky)
    with pytest.raises(ScenarioError, match="quantiles"):
        BatchModel.from_json(model.to_json() | {"quantiles": [0.0, 1.0]})


def test_the_shipped_model_has_thirty_services() -> None:
    model = alibaba_2018()
    assert model.share.size == 30 and model.share.sum() == pytest.approx(1.0, abs=1e-4)
    assert model.duration_s.shape == (30, len(QUANTILES))
    assert (np.diff(model.duration_s, axis=1) >= 0).all()


@pytest.mark.parametrize("kind", ["P1", "P2", "P3", "P4", "P1-P4", "sequences"])
def test_worlds_are_valid_and_repeat(kind: str) -> None:
    what = pattern(kind, RequestPattern(horizon_s=60.0))
    one, other = generate(what, [3, 4]), generate(what, [3, 4])
    for column, same in zip(one, other, strict=True):
        assert np.array_equal(column, same)
    for world, count in enumerate(one.count):
        assert (np.diff(one.arrival_s[world, :count]) >= 0).all()
        assert one.arrival_s[world, count - 1] < what.horizon_s
        assert (one.deadline_s - one.arrival_s - one.service_s())[world, :count].min() > 0
        assert set(one.site[world, :count]) == set(range(what.sites))
    alone = generate(what, [4])
    assert np.array_equal(alone.deadline_s[0, : alone.count[0]], one.deadline_s[1, : one.count[1]])


def test_the_rate_is_what_was_asked_for() -> None:
    counts = generate(RequestPattern(rate_qps=8.0), range(40)).count
    assert counts.mean() / 250.0 == pytest.approx(8.0, rel=0.05)


@pytest.mark.parametrize(("kind", "period_s"), [("P1", 100.0), ("P2", 100.0), ("P3", 50.0)])
def test_load_rises_and_falls_with_the_period(kind: str, period_s: float) -> None:
    """Per arrival, the mean load at the crest over the trough is about (1 + swing)/(1 - swing) = 3."""
    what = pattern(kind)
    drawn = generate(what, range(30))
    load = service_needs(what)[1][drawn.service] if kind == "P2" else drawn.work_core_s
    used = np.arange(drawn.service.shape[1]) < drawn.count[:, None]
    phase = drawn.arrival_s[used] / period_s % 1.0
    crest, trough = (np.abs(phase - middle) < 0.1 for middle in (0.25, 0.75))
    ratio = load[used][crest].mean() / load[used][trough].mean()
    assert 2.2 < ratio < 3.8


def test_wrong_patterns_are_refused() -> None:
    with pytest.raises(ScenarioError, match="kinds"):
        RequestPattern(kinds=("P5",))
    with pytest.raises(ScenarioError, match=r"swing 1\.0"):
        RequestPattern(swing=1.0)
    with pytest.raises(ScenarioError, match="pattern 'P9'"):
        pattern("P9")


def test_generated_quantiles_are_those_of_the_trace() -> None:
    folder = os.environ.get("EDGEWISE_ALIBABA_2018")
    if folder is None:
        pytest.skip("needs extracts of batch_task: set EDGEWISE_ALIBABA_2018 to their folder")
    model = fit(read_batch_tasks(sorted(Path(folder).glob("*.csv.gz"))))
    assert np.allclose(model.share, alibaba_2018().share, atol=1e-6)
    assert np.allclose(model.duration_s, alibaba_2018().duration_s, atol=1e-4)
