"""Figures over time hold what records say: lateness, what was lost and why, jobs; sweeps name their knees."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_example import MANIFEST, stream_row, table, window_row

from edgewise.report import over_time
from edgewise.report.intervals import Interval
from edgewise.report.records import RecordedRun, read_run, write_run
from edgewise.report.schema import STREAMS, WINDOWS, WORK
from edgewise.report.sections import refused
from edgewise.report.summary import FOR_A_WHILE, refusals
from edgewise.sweeps.figures import Curve, curves


def streams_run(folder: Path, rows: list[dict[str, Any]]) -> RecordedRun:
    manifest = MANIFEST | {"seeds": [1], "policies": ["closest"]}
    windows = table([window_row(end_s=240.0)], WINDOWS)
    write_run(folder, scenario_yaml="", manifest=manifest, items=table(rows, STREAMS), windows=windows)
    return read_run(folder)


def job(**changes: Any) -> dict[str, Any]:
    return dict(
        seed=1, policy="fifo", job=0, cores=1.0, submitted_s=0.0, earliest_s=0.0, latest_s=50.0,
        duration_s=20.0, started_s=10.0, ended_s=30.0, node="n", suspended_s=0.0, redone_s=0.0,
    ) | changes  # fmt: skip


def jobs_run(folder: Path, rows: list[dict[str, Any]]) -> RecordedRun:
    window = dict.fromkeys(WORK["jobs"].windows.names, 0) | {"seed": 1, "policy": "fifo", "end_s": 100.0}
    items, windows = table(rows, WORK["jobs"].items), table([window], WORK["jobs"].windows)
    manifest = MANIFEST | {"work": "jobs", "seeds": [1], "policies": ["fifo"]}
    write_run(folder, scenario_yaml="", manifest=manifest, items=items, windows=windows)
    return read_run(folder)


def test_what_was_lost_is_counted_by_reason_in_its_step(tmp_path: Path) -> None:
    rows = [
        stream_row(stream=0, open_s=5.0, close_s=9.0, reason="full", ok=0, rejected=50),
        stream_row(stream=1, open_s=115.0, close_s=119.0, reason="too far", ok=0, rejected=50),
        stream_row(stream=2, open_s=116.0, close_s=119.0, reason="full", ok=0, rejected=50),
        stream_row(stream=3),
    ]
    run = streams_run(tmp_path / "run", rows)
    lost = over_time.lost_work("streams", run.items)
    assert sorted(zip(lost.at_s, lost.why, lost.weight, strict=True)) == [
        (5.0, "full", 50.0), (115.0, "too far", 50.0), (116.0, "full", 50.0),
    ]  # fmt: skip
    figure = over_time.refused_over_time(run)
    assert figure is not None
    heights = {bars.get_label(): [bar.get_height() for bar in bars] for bars in figure.axes[0].containers}
    assert list(heights) == ["full", "too far"]
    assert heights["full"][0] == 50.0 and heights["full"][11] == 50.0 and sum(heights["full"]) == 100.0
    assert heights["too far"][11] == 50.0 and sum(heights["too far"]) == 50.0
    assert over_time.refused_over_time(streams_run(tmp_path / "none", [stream_row()])) is None


def test_what_a_stream_lost_that_has_a_worker_is_counted_while_it_asked(tmp_path: Path) -> None:
    """A source of 10 queries/s without a worker for 40 s, from 20 s on, which has one then."""
    row = stream_row(stream=0, open_s=20.0, close_s=220.0, rate_qps=10.0, reason=None,
                     queries=2000, ok=1600, rejected=400)  # fmt: skip
    run = streams_run(tmp_path / "run", [row])
    figure = over_time.refused_over_time(run)
    assert figure is not None
    (bars,) = figure.axes[0].containers
    assert [bar.get_height() for bar in bars] == pytest.approx([0.0] * 2 + [100.0] * 4 + [0.0] * 18)
    (said,) = refused(run)
    assert said["reason"] == FOR_A_WHILE and (said["items"], said["queries"]) == (1, 400)
    (told,) = refusals(run.items)
    assert (told["reason"], told["streams"], told["queries"]) == (FOR_A_WHILE, 1, 400)


def test_a_line_is_never_at_the_edge_of_its_picture(tmp_path: Path) -> None:
    row = {"query": 0, "graph": "g", "sent_s": 50.0, "time_s": 0.02, "seed": 1, "policy": "p"}
    window = dict.fromkeys(WORK["graphs"].windows.names, 0) | {"seed": 1, "policy": "p", "end_s": 100.0}
    manifest = MANIFEST | {"work": "graphs", "seeds": [1], "policies": ["p"]}
    write_run(tmp_path, scenario_yaml="", manifest=manifest, items=table([row], WORK["graphs"].items),
              windows=table([window], WORK["graphs"].windows))  # fmt: skip
    figure = over_time.late_over_time(read_run(tmp_path))
    assert figure is not None and figure.axes[0].get_ylim()[1] == pytest.approx(1.08 * 20.0)


def test_lateness_is_the_delay_as_a_share_of_the_deadline(tmp_path: Path) -> None:
    """Two streams are open at once: the mean is weighted by their rates."""
    rows = [
        stream_row(stream=0, open_s=0.0, close_s=240.0, rate_qps=3.0, delay_mean_s=0.05, deadline_s=0.1),
        stream_row(stream=1, open_s=0.0, close_s=120.0, rate_qps=1.0, delay_mean_s=0.15, deadline_s=0.1),
    ]
    figure = over_time.late_over_time(streams_run(tmp_path / "run", rows))
    assert figure is not None
    shares = np.asarray(figure.axes[0].lines[0].get_ydata())
    assert shares[:12] == pytest.approx(np.full(12, 100 * (3 * 0.5 + 1.5) / 4))
    assert shares[12:] == pytest.approx(np.full(12, 50.0))


def test_lateness_of_jobs_is_a_share_of_the_time_they_have(tmp_path: Path) -> None:
    """Until the latest start and their length, 70 s from the submission; those that never ended have none."""
    rows = [job(ended_s=35.0), job(job=1, submitted_s=50.0, latest_s=100.0, started_s=105.0, ended_s=127.0)]
    figure = over_time.late_over_time(jobs_run(tmp_path / "run", [*rows, job(job=2, ended_s=None)]))
    assert figure is not None
    axes, shares = figure.axes[0], np.asarray(figure.axes[0].lines[0].get_ydata())
    assert shares[0] == pytest.approx(50.0) and shares[12] == pytest.approx(110.0)
    assert np.isnan(shares).sum() == over_time.STEPS - 2 and axes.get_ylabel() == "% of the deadline"
    assert over_time.late_over_time(jobs_run(tmp_path / "none", [job(ended_s=None)])) is None


@pytest.mark.parametrize(
    ("kind", "row", "unit", "seen"),
    [
        ("graphs", {"query": 0, "graph": "g", "sent_s": 50.0, "time_s": 0.02}, "ms", 20.0),
        ("pipelines", {"pipeline": "p", "arrival_s": 50.0, "start_s": 53.0, "finish_s": None, "frames": 1.0,
                       "migrations": 0}, "s", 3.0),
    ],
)  # fmt: skip
def test_what_has_no_deadline_shows_its_time(
    kind: str, row: dict[str, Any], unit: str, seen: float, tmp_path: Path
) -> None:
    window = dict.fromkeys(WORK[kind].windows.names, 0) | {"seed": 1, "policy": "p", "end_s": 100.0}
    manifest = MANIFEST | {"work": kind, "seeds": [1], "policies": ["p"]}
    items = table([{"seed": 1, "policy": "p"} | row], WORK[kind].items)
    write_run(tmp_path / "run", scenario_yaml="", manifest=manifest, items=items,
              windows=table([window], WORK[kind].windows))  # fmt: skip
    figure = over_time.late_over_time(read_run(tmp_path / "run"))
    assert figure is not None and figure.axes[0].get_ylabel() == unit
    assert np.asarray(figure.axes[0].lines[0].get_ydata())[12] == pytest.approx(seen)
    assert "the deadline" not in [line.get_label() for line in figure.axes[0].lines]


def test_refused_streams_without_a_query_are_no_loss(tmp_path: Path) -> None:
    rows = [stream_row(stream=0, open_s=5.0, close_s=9.0, reason="full", ok=0, rejected=0, queries=0)]
    assert over_time.refused_over_time(streams_run(tmp_path / "run", rows)) is None


def test_jobs_are_drawn_when_they_ran_those_in_trouble_among_them(tmp_path: Path) -> None:
    many = [job(job=k, submitted_s=float(k)) for k in range(60)]
    lost = job(job=60, submitted_s=90.0, started_s=None, ended_s=None, node=None)
    run = jobs_run(tmp_path / "run", [*many, lost])
    figure = over_time.gantt(run, run.use, "fifo", 1)
    assert figure is not None
    axes = figure.axes[0]
    labels = [text.get_text() for text in axes.get_yticklabels()]
    assert len(labels) == over_time.GANTT and labels[-1] == "job 60" and labels[0] == "job 0"
    bars = [(bar.get_x(), bar.get_width()) for bars in axes.containers for bar in bars]
    assert bars[0] == (10.0, 20.0) and len(bars) == over_time.GANTT - 1
    rows = over_time.lost_work("jobs", run.items)
    assert rows.why == ["never started"] and rows.at_s.tolist() == [90.0]


def test_a_sweep_names_its_knee_and_what_it_chose() -> None:
    found = [Interval(x, x - 0.01, x + 0.01, 3) for x in (0.99, 0.95, 0.8)]
    curve = Curve("closest", ["10", "20", "30"], [10.0, 20.0, 30.0], found, 20.0, 20.0)
    figure = curves([curve], "streams.rate", WORK["streams"].measures[0], 0.9)
    axes = figure.axes[0]
    assert [text.get_text() for text in axes.texts] == ["knee: 20", "chosen: 20"]
    star = next(line for line in axes.lines if line.get_label() == "chosen")
    assert (star.get_xdata()[0], star.get_ydata()[0]) == (20.0, 95.0)
