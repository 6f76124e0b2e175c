"""How many cameras: the shipped shop, in which who decides matters; and sweeps over their number."""

from pathlib import Path

import pytest

import edgewise as ew
from edgewise import sweeps
from edgewise.config import dump_scenario
from edgewise.model.parsing import parse_scenario
from edgewise.run.assigning import notes
from edgewise.sweeps.vary import Vary

PATH = "streams.sources.cameras.count"


def test_the_shop_tells_policies_apart() -> None:
    """Aisles that take the accurate detector leave tills without one: the closest and a random one do."""
    scenario = ew.load_scenario("cameras")
    assert not notes(scenario, "streams", "simulate")
    result = ew.compare(scenario, ["least-impedance", "closest", "random-by-load"], range(3)).result
    success = {name: values.mean() for name, values in result.values().items()}
    assert success["least-impedance"] > 0.99
    assert success["closest"] < success["least-impedance"] - 0.1
    assert success["random-by-load"] < success["least-impedance"] - 0.1
    rows = {(row["source"], row["policy"]): row for row in result.sources()}
    assert {row["sources"] for (name, _), row in rows.items() if name == "aisle"} == {14}
    assert rows["till", "closest"]["refused"] > 0.2 and rows["till", "least-impedance"]["refused"] == 0.0
    assert sum(row["sources"] for (_, policy), row in rows.items() if policy == "closest") == 20


def a_box(folder: Path) -> str:
    """One site with a worker of a hundred queries/s: ten cameras of ten."""
    variant = {"name": "v", "model": "m", "profile": {"fixed_s": "10ms"}, "largest_bytes": 1000}
    data = {
        "name": "box", "duration_s": 10, "window_s": 5, "sharing": "none",
        "catalog": {"models": [{"name": "m", "task": "t", "accuracy": 1}], "variants": [variant]},
        "clusters": [{"name": "box", "tier": 0, "nodes": [{"name": "n", "resources": {"cpu_cores": 1}}]}],
        "sites": [{"name": "site"}], "links": [{"site": "*", "cluster": "*"}],
        "workers": [{"variant": "v", "node": "n"}],
        "streams": {
            "sources": [{"name": "cameras", "task": "t", "rate_qps": 10, "size_bytes": 1000, "deadline_s": 1}]
        },
    }  # fmt: skip
    (folder / "box.yaml").write_text(dump_scenario(parse_scenario(data, "box")), "utf-8")
    return str(folder / "box.yaml")


def points(folder: Path, vary: str, most: int = 10) -> sweeps.Points:
    return sweeps.Points(
        a_box(folder), (sweeps.parse_vary(vary, most),), fixed={"dispatch": "closest"}, seeds=(0, 1)
    )


def test_a_sweep_says_how_many_are_carried(tmp_path: Path) -> None:
    found = sweeps.sweep(points(tmp_path, f"{PATH}=7..13"), [sweeps.parse_target("streams.ok=99%")])
    text = found.sentences[0]
    assert "carries count up to 10 with success ≥ 99.00 %" in text and "surely not at 11" in text


def test_size_finds_the_most_that_is_carried(tmp_path: Path) -> None:
    """Of a load the most is sought, by bisection, and the next one is shown to be too much."""
    target = [sweeps.parse_target("streams.ok=99%")]
    tried = points(tmp_path, f"{PATH}=1..40", sweeps.FINE)
    found = sweeps.size(tried, target)
    assert [choice.point for choice in found.found] == [(10,)]
    assert found.sentences[0].startswith(f"the most that meets success ≥ 99.00 %: {PATH} = 10 (")
    assert found.sentences[1].startswith(f"{PATH} = 11 does not surely")
    assert len({point for point, _, _ in tried.rows}) < 10
    few = sweeps.size(points(tmp_path, f"{PATH}=2..9", sweeps.FINE), target)
    assert few.found[0].point == (9,) and "the most that was allowed" in few.sentences[1]
    many = sweeps.size(points(tmp_path, f"{PATH}=12..20", sweeps.FINE), target)
    assert not many.found and f"with {PATH} = 12, the least, it is" in many.sentences[0]


@pytest.mark.parametrize(
    ("path", "is_load"),
    [
        (PATH, True), ("streams.sources.0.rate_qps", True), ("streams.arrivals.clients_per_min", True),
        ("streams.applications.pool.rate_qps", True), ("services.requests.rate_qps", True),
        ("jobs.drawn.per_slot", True), ("pipelines.entrance.count", True),
        ("clusters.cloud.nodes.count", False), ("workers.0.count", False), ("links.1.bandwidth_bps", False),
        ("streams.sources.cameras.deadline_s", False), ("clusters.box.count", False),
    ],
)  # fmt: skip
def test_what_is_load(path: str, is_load: bool) -> None:
    assert Vary(path, (1, 2)).is_load == is_load
