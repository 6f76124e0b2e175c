"""Up to which load a simulation predicts: the rule, on runs that are written down; nothing is run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgewise.config import load_scenario

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _bench_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


def run(
    cameras: int, live: float, simulated: float = 1.0, seed: int = 0, requests: float = 1.0
) -> dict[str, Any]:
    """A line of a run with two halls, with shares in time of cameras and, live, of requests."""
    quantiles = {"cameras p50_s": 0.03, "cameras p95_s": 0.05}
    return {
        "cpus": 2, "halls": 2, "buffer_bytes": 0, "cameras": cameras, "seed": seed,
        "waited": 0.5, "busy": True,
        "described": {"cpus": 2, "processor": "one", "system": "Linux", "date": "2030-01-31 12:00 UTC"},
        "cores": {"worker": [0.25, 0.5], "gateway": [0.5, 0.1]}, "others": 0.125,
        "live": {"streams": {"in time": live, **quantiles}, "services": {"in time": requests}},
        "simulated": {"streams": {"in time": simulated, **quantiles}, "services": {"in time": 1.0}},
    }  # fmt: skip


def written(folder: Path, *rows: dict[str, Any]) -> Path:
    """A folder with these lines."""
    (folder / "runs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.mark.parametrize(
    ("rows", "at"),
    [
        ([run(8, 1.0), run(16, 0.98)], None),
        ([run(8, 1.0), run(16, 0.96), run(24, 0.5)], 16),
        (
            [run(8, 1.0), run(16, 0.5), run(24, 0.98)],
            None,
        ),  # what is far off once and then near is not past it
        ([run(8, 1.0), run(16, 0.5, simulated=0.45)], 16),  # to be better than simulated is to be off, too
        ([run(8, 1.0), run(16, 1.0, requests=0.96)], 16),
        ([run(8, 1.0), run(16, 0.96), run(16, 0.99, seed=1)], None),  # in the mean over seeds
        (
            [
                run(8, 1.0),
                {"cpus": 2, "halls": 2, "buffer_bytes": 0, "cameras": 16, "seed": 0, "failed": "no answer"},
            ],
            None,
        ),
    ],
)
def test_the_boundary_is_the_least_load_from_which_on_a_share_is_more_than_three_points_off(
    tmp_path, rows, at
):
    from bench import boundary_loads

    found = boundary_loads.boundary(boundary_loads.read_loads(written(tmp_path, *rows)))
    assert (found and found.cameras) == at


def test_the_page_says_how_far_off_full_links_are_where_the_machine_keeps_up(tmp_path):
    from bench import boundary_page

    full = [run(32, 0.61, simulated=0.6), run(40, 0.5, simulated=0.48)]
    bound = run(32, 0.6, simulated=0.8) | {"buffer_bytes": 60_000}
    boundary_page.write_page(written(tmp_path, run(8, 1.0), *full, bound))
    said = "are +1.0 to +2.0 points off without a bound, and -20.0 to -20.0 points off with one."
    assert said in (tmp_path / "index.md").read_text()
    boundary_page.write_page(written(tmp_path, run(8, 0.9), *full, bound))
    assert "off without a bound" not in (tmp_path / "index.md").read_text()


def test_the_page_says_boundary_and_failures_and_points_have_a_row_for_each_figure(tmp_path):
    from bench import boundary_page

    failed = {
        "cpus": 1, "halls": 4, "buffer_bytes": 60_000, "cameras": 16, "seed": 0,
        "failed": "the gateway does not answer",
    }  # fmt: skip
    boundary_page.write_page(written(tmp_path, run(8, 1.0), run(16, 0.9), failed))
    page = (tmp_path / "index.md").read_text()
    assert "**2 halls on 2 processors**: the boundary is 16 cameras in each, 160 queries/s" in page
    where = "4 halls on 1 processor, 60 kB may wait for the link, 16 cameras in each, seed 0"
    assert f"{where} failed: the gateway does not answer" in page
    assert (tmp_path / "boundary.csv").read_text().splitlines()[1:3] == [
        "2,2,0,8,0,80.0,0.5,0.75,0.125,streams,in time,1.0,1.0",
        "2,2,0,8,0,80.0,0.5,0.75,0.125,streams,cameras p50_s,0.03,0.03",
    ]
    assert (tmp_path / "boundary.png").stat().st_size > 10_000


def test_with_two_halls_it_is_the_factory_and_with_more_all_grows_in_proportion():
    from bench import boundary
    from bench.boundary_loads import Size

    factory = load_scenario(boundary.FACTORY).spec
    two, six = (boundary.scenario(Size(2, halls), 16).spec for halls in (2, 6))
    bounded = boundary.scenario(Size(2, 2, 150_000), 16).spec

    def wan_bps(spec: Any) -> float:
        return next(link.bandwidth_bps for link in spec.links if link.name == "wan")

    assert two.streams == factory.streams and two.services == factory.services
    assert [w.count for w in two.workers] == [w.count for w in factory.workers]
    assert sum(w.count for w in six.workers[:-1]) == 3 * sum(w.count for w in two.workers[:-1])
    assert wan_bps(two) == wan_bps(factory) and wan_bps(six) == 3 * wan_bps(two)
    assert six.services.requests.rate_qps == 3 * two.services.requests.rate_qps
    assert len(six.sites) == 6
    assert [link.buffer_bytes for link in bounded.links if link.name == "wan"] == [150_000]


def test_a_scenario_without_jobs_is_simulated_with_the_policies_of_what_it_has():
    from bench import boundary, live_beside
    from bench.boundary_loads import DURATION_S, RATE_QPS, Size

    made = boundary.scenario(Size(2, 2), 2)
    who = live_beside.deciding(made)
    found = live_beside.figures(live_beside.simulated_with(made, who, seed=0))
    assert "defer" in who and set(found) == {"streams", "services"}
    assert found["streams"]["queries"] == 2 * 2 * RATE_QPS * DURATION_S
