from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from edgewise.config import load_scenario
from edgewise.errors import ScenarioError
from edgewise.model.scenario import Application, Arrivals, Scenario
from edgewise.workloads.generate import generate_streams, read_streams_csv

TINY = load_scenario("tiny")

PINNED_NAMES = ("quick", "quick")
PINNED = [1.1194288745209753, 4.220710530043949, 10.0, 19.359218037308175, 20.0]

steps = st.lists(
    st.tuples(st.floats(0.1, 50.0), st.sampled_from([0.0, 5.0, 60.0, 300.0])), min_size=0, max_size=4,
    unique_by=lambda step: step[0],
)  # fmt: skip


def with_arrivals(scenario: Scenario, *pattern: tuple[float, float]) -> Scenario:
    return replace(scenario, streams=replace(scenario.streams, arrivals=Arrivals(tuple(pattern))))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**63), first=st.sampled_from([0.0, 30.0, 400.0]), later=steps)
def test_streams_keep_their_invariants(seed: int, first: float, later: list[tuple[float, float]]) -> None:
    scenario = with_arrivals(TINY, (0.0, first), *sorted(later))
    streams = generate_streams(scenario, seed)
    assert [stream.id for stream in streams] == list(range(len(streams)))
    assert all(a.open_s <= b.open_s for a, b in pairwise(streams))
    applications = {application.name: application for application in scenario.streams.applications}
    for stream in streams:
        application: Application = applications[stream.application]
        assert 0 <= stream.open_s < stream.close_s <= scenario.duration_s
        started = [rate for at_s, rate in scenario.streams.arrivals.steps if at_s <= stream.open_s]
        assert started[-1] > 0
        assert application.rate_qps[0] <= stream.rate_qps <= application.rate_qps[1]
        assert application.deadline_s[0] <= stream.deadline_s <= application.deadline_s[1]
        assert stream.close_s - stream.open_s <= application.length_s[1] + 1e-9
        assert stream.close_s == scenario.duration_s or (
            stream.close_s - stream.open_s >= application.length_s[0] - 1e-9
        )
        assert (stream.task, stream.size_bytes) == (application.task, application.size_bytes)
    assert generate_streams(scenario, seed) == streams


def test_seeds_differ() -> None:
    assert generate_streams(TINY, 0) != generate_streams(TINY, 1)


def test_counts_are_poisson_in_every_step() -> None:
    scenario = replace(with_arrivals(TINY, (0.0, 30.0), (10.0, 0.0), (20.0, 120.0)), duration_s=40.0)
    seeds = 400
    opens = [[stream.open_s for stream in generate_streams(scenario, seed)] for seed in range(seeds)]
    counts = np.array([np.histogram(times, bins=[0, 10, 20, 40])[0] for times in opens])
    expected = np.array([5.0, 0.0, 40.0])
    assert np.abs(counts.mean(axis=0) - expected).max() <= 4.0 * np.sqrt(40.0 / seeds)
    assert (counts[:, 1] == 0).all()
    assert counts[:, 2].var() == pytest.approx(40.0, rel=0.25)  # Poisson: variance = mean
    # Given their number, arrivals are uniform inside a step.
    late = np.concatenate([[t for t in times if t >= 20] for times in opens])
    assert late.mean() == pytest.approx(30.0, abs=4 * 20 / np.sqrt(12 * late.size))


def test_applications_follow_weights_and_sites_are_independent() -> None:
    first, second = TINY.streams.applications
    site = TINY.topology.sites[0]
    busy = with_arrivals(TINY, (0.0, 6000.0))
    kinds = (
        first.model_copy(update={"weight": 3.0}),
        second.model_copy(update={"weight": 1.0}),
        first.model_copy(update={"name": "never", "weight": 0.0}),
    )
    scenario = replace(
        busy,
        streams=replace(busy.streams, applications=kinds),
        topology=replace(TINY.topology, sites=(site, replace(site, name="other"))),
    )
    streams = generate_streams(scenario, 5)
    share = np.mean([stream.application == first.name for stream in streams])
    assert share == pytest.approx(0.75, abs=4 * np.sqrt(0.75 * 0.25 / len(streams)))
    assert all(stream.application != "never" for stream in streams)
    opens = [{s.open_s for s in streams if s.site == k} for k in (0, 1)]
    assert opens[0] and opens[1] and not opens[0] & opens[1]


def test_the_same_clients_come_sooner_at_a_higher_rate() -> None:
    slow = generate_streams(with_arrivals(TINY, (0.0, 60.0)), 3)
    fast = generate_streams(with_arrivals(TINY, (0.0, 120.0)), 3)
    for a, b in zip(slow, fast, strict=False):
        assert b.open_s == pytest.approx(a.open_s / 2)
        assert (a.application, a.rate_qps, a.deadline_s) == (b.application, b.rate_qps, b.deadline_s)


def test_streams_of_a_seed_stay_what_they_are() -> None:
    """Figures pinned: a change here changes every published result."""
    streams = generate_streams(TINY, 3)
    assert len(streams) == 24
    first, last = streams[0], streams[-1]
    assert (first.application, last.application) == PINNED_NAMES
    assert [first.open_s, first.close_s, first.rate_qps, last.open_s, last.close_s] == pytest.approx(
        PINNED, rel=1e-12
    )


def test_csv_of_a_scenario_with_a_pattern(tmp_path: Path) -> None:
    scenario = load_scenario("full-edge-burst", {"topology.antennas": 2, "duration_s": 200})
    path = write(tmp_path, "open_s,site,application\n199,antenna-1,gaming\n0.5,antenna-0,pool\n")
    pool, gaming = read_streams_csv(path, scenario, seed=4)
    assert (pool.site, gaming.site, gaming.close_s) == (0, 1, 200.0)
    assert 0.02 <= gaming.deadline_s <= 0.03
    path = write(tmp_path, "open_s,site,application\n200,antenna-1,gaming\n")
    with pytest.raises(ScenarioError, match="is not in \\[0, duration_s\\)"):
        read_streams_csv(path, scenario)


def test_no_clients() -> None:
    assert generate_streams(with_arrivals(TINY, (0.0, 0.0)), 1) == []


def write(folder: Path, text: str) -> Path:
    path = folder / "arrivals.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_csv_with_overrides(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "open_s,site,application,length_s,rate_qps,min_accuracy,priority\n"
        "3,site,quick,,,,\n"
        "1.5,site,careful,100,7,0,2\n",
    )
    late, early = read_streams_csv(path, TINY)[::-1]
    assert (early.id, early.open_s, early.close_s, early.rate_qps) == (0, 1.5, TINY.duration_s, 7.0)
    assert (early.min_accuracy, early.priority) == (0.0, 2)
    assert (late.id, late.application, late.rate_qps, late.min_accuracy) == (1, "quick", 10.0, 20.0)
    assert 2 <= late.close_s - late.open_s <= 8
    assert read_streams_csv(path, TINY, seed=1) != read_streams_csv(path, TINY, seed=2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("open_s,site\n", "column 'application' is missing"),
        ("", "column 'open_s' is missing"),
        ("open_s,site,application,ratte_qps\n", "unknown column 'ratte_qps'; did you mean 'rate_qps'?"),
        ("open_s,site,application\n1,sit,quick\n", "line 2: site: unknown site 'sit'; did you mean 'site'?"),
        ("open_s,site,application\n1,site,quik\n", "line 2: application: unknown application 'quik'"),
        ("open_s,site,application\n1,site,quick\n99,site,quick\n", "line 3: open_s: '99' is not in ["),
        ("open_s,site,application\n-1,site,quick\n", "line 2: open_s: '-1' is not a number >= 0"),
        ("open_s,site,application\nnan,site,quick\n", "line 2: open_s: 'nan' is not a number >= 0"),
        ("open_s,site,application\n1,site\n", "line 2: has not as many cells"),
        ("open_s,site,application\n1,site,quick,4\n", "line 2: has not as many cells"),
        ("open_s,site,application,rate_qps\n1,site,quick,0\n", "line 2: rate_qps: '0' is not a number > 0"),
    ],
)  # fmt: skip
def test_csv_errors_name_the_line(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        read_streams_csv(write(tmp_path, text), TINY)
    assert expected in str(caught.value)


def test_csv_lists_every_bad_row_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="2 problems"):
        read_streams_csv(write(tmp_path, "open_s,site,application\nx,site,quick\n1,y,quick\n"), TINY)
    with pytest.raises(ScenarioError, match="cannot be read"):
        read_streams_csv(tmp_path / "none.csv", TINY)
