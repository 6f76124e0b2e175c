from pathlib import Path
from typing import Any

import pytest

from edgewise.config import load_scenario, parse_setting
from edgewise.errors import ScenarioError


def test_plain_defaulted_and_used_values() -> None:
    scenario = load_scenario(
        "full-edge",
        {
            "topology.antennas": 3,
            "topology.cloud.servers": 1000,
            "topology.cloud.mix.yolov3-v100-b8": 2,
            "decision_delay_s": "5ms",
            "streams.arrivals.clients_per_min": 80,
            "catalog.variants.yolov3-v100-b8.profile.deviation": 0.2,
            "streams.applications.weights": "uniform",
            "streams.applications.pool.weight": 7,
        },
    )
    assert len(scenario.topology.sites) == 3 and scenario.decision_delay_s == 0.005
    assert scenario.streams.arrivals.steps == ((0.0, 80.0),)
    assert scenario.catalog.variant("yolov3-v100-b8").profile.deviation == 0.2
    assert [application.weight for application in scenario.streams.applications] == [7.0] + [1.0] * 9
    assert scenario.spec.topology is not None and scenario.spec.topology.cloud is not None
    assert scenario.spec.topology.cloud.mix == {"yolov3-v100-b8": 2.0, "mobilenet-ssd-cpu8": 1.0}
    plain = load_scenario("full-edge", {"topology.antennas": 3})
    assert [v.name for v in scenario.catalog.variants] == [v.name for v in plain.catalog.variants]


def test_lists_by_number_and_by_name() -> None:
    settings = {
        "sites.0.uplink_bps": "1Mbps",
        "clusters[0].nodes.near-node.resources.cpu_cores": 4,
        "workers[0].count": 2,
        "streams.applications.quick.deadline_s": "70ms",
        "streams.arrivals.clients_per_min.1.rate": 12,
    }
    scenario = load_scenario("tiny", settings)
    assert scenario.topology.sites[0].uplink_bps == 1e6
    assert len(scenario.topology.workers) == 3
    assert scenario.streams.applications[0].deadline_s == (0.07, 0.07)
    assert scenario.streams.arrivals.steps == ((0.0, 30.0), (10.0, 12.0))
    assert load_scenario("tiny", {}) == load_scenario("tiny")


def test_one_form_of_arrivals_replaces_the_other() -> None:
    assert load_scenario(
        "full-edge-burst", {"streams.arrivals.clients_per_min": 5}
    ).streams.arrivals.steps == ((0.0, 5.0),)
    assert load_scenario("tiny", {"streams.arrivals.pattern": "burst"}).streams.arrivals.steps == (
        (0.0, 20.0),
    )


@pytest.mark.parametrize(
    ("name", "path", "value", "expected"),
    [
        (
            "full-edge", "topology.antenas", 1,
            "setting 'topology.antenas': unknown key 'antenas'; did you mean 'antennas'?",
        ),
        ("full-edge", "topolgy.antennas", 1, "unknown key 'topolgy'; did you mean 'topology'?"),
        ("full-edge", "streams.applications.pol.weight", 1, "unknown key 'pol'; did you mean 'pool'?"),
        (
            "full-edge", "topology.antennas", "many",
            "full-edge: topology.antennas: 'many' is not allowed; use an integer",
        ),
        ("tiny", "workers.7.count", 1, "unknown key '7'"),
        ("tiny", "sites.sit.uplink_bps", 1, "unknown key 'sit'; did you mean 'site'?"),
        ("tiny", "name.first", "x", "unknown key 'first'; there is none"),
        ("tiny", "topology.antennas", 1, "unknown key 'antennas'; there is none"),
    ],
)  # fmt: skip
def test_wrong_paths_name_the_nearest_key(name: str, path: str, value: Any, expected: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(name, {path: value})
    assert expected in str(caught.value)


def test_settings_from_text() -> None:
    assert parse_setting("topology.antennas=100") == ("topology.antennas", 100)
    assert parse_setting("a = [1, 2ms]") == ("a", [1, "2ms"])
    assert parse_setting("a=b=c") == ("a", "b=c")
    for wrong in ("antennas", "=3", "a=[1"):
        with pytest.raises(ScenarioError, match="setting"):
            parse_setting(wrong)


CATALOG = """
models: [{name: m, task: detection, accuracy: 60}]
variants:
  - {name: v, model: m, resources: {cpu_cores: 1}, profile: {fixed_s: 10ms}, largest_bytes: 50kB}
"""
SCENARIO = """
name: own
duration_s: 60
catalog:
  use: catalogs/mine.yaml
  variants:
    - {name: w, model: m, resources: {cpu_cores: 2}, profile: {fixed_s: 5ms}, largest_bytes: 50kB}
    - {name: v, model: m, resources: {cpu_cores: 1}, profile: {fixed_s: 20ms}, largest_bytes: 50kB}
topology: {kind: dc-cloud, antennas: 1, data_centre: {mix: {v: 1}}, cloud: {mix: {w: 1}}}
streams:
  applications:
    use: reference
    applications:
      - {name: pool, task: detection, rate_qps: 1, size_bytes: 1kB, deadline_s: 1, length_s: 1}
      - {name: more, task: detection, rate_qps: 1, size_bytes: 1kB, deadline_s: 1, length_s: 1}
  arrivals: {clients_per_min: 1}
"""


def test_used_files_lie_beside_the_scenario_and_may_be_changed(tmp_path: Path) -> None:
    (tmp_path / "catalogs").mkdir()
    (tmp_path / "catalogs" / "mine.yaml").write_text(CATALOG)
    path = tmp_path / "own.yaml"
    path.write_text(SCENARIO)
    scenario = load_scenario(path)
    assert [(v.name, v.profile.fixed_s) for v in scenario.catalog.variants] == [("v", 0.02), ("w", 0.005)]
    names = [application.name for application in scenario.streams.applications]
    assert names[0] == "pool" and names[-1] == "more" and len(names) == 11
    assert scenario.streams.applications[0].rate_qps == (1.0, 1.0)
    path.write_text(SCENARIO.replace("{name: w,", "{name: v,"))
    with pytest.raises(ScenarioError, match=r"catalog.variants: the name 'v' is given twice"):
        load_scenario(path)
    path.write_text(SCENARIO.replace("catalogs/mine", "catalogs/mein"))
    with pytest.raises(
        ScenarioError, match=r"catalog.use: catalog .*no such file and no such name; .*shipped"
    ):
        load_scenario(path)
    path.write_text(SCENARIO.replace("use: reference", "use: refernce"))
    with pytest.raises(ScenarioError, match=r"did you mean 'reference'\?"):
        load_scenario(path)
