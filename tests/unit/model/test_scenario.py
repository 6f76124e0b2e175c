import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from scenario_reference import key_tables

from edgewise.config import (
    Files,
    dump_scenario,
    load_scenario,
    scenario_form,
    scenario_schema,
    shipped_scenarios,
)
from edgewise.core.world import World
from edgewise.errors import ScenarioError
from edgewise.model.parsing import parse_scenario
from edgewise.model.scenario import Scenario
from edgewise.model.topology import LinkChange, NodeChange
from edgewise.model.values import BOUNDS, most_of


@pytest.fixture
def data() -> dict[str, Any]:
    return yaml.safe_load(dump_scenario(load_scenario("tiny")))


def set_at(data: dict[str, Any], path: str, value: Any) -> None:
    parts = [int(part) if part.isdigit() else part for part in re.findall(r"\w+", path)]
    at: Any = data
    for part in parts[:-1]:
        at = at[part]
    at[parts[-1]] = value


def message(data: Any) -> str:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(data, "test.yaml")
    return str(caught.value)


def shipped(name: str) -> Scenario:
    if name == "isp":
        pytest.importorskip("topohub")
    return load_scenario(name)


@pytest.mark.parametrize("name", shipped_scenarios())
def test_shipped_scenarios_load_and_come_back_equal(name: str) -> None:
    scenario = shipped(name)
    again = parse_scenario(yaml.safe_load(dump_scenario(scenario)), name, Files())
    assert scenario == again
    assert scenario_form(name).description == scenario.description
    assert isinstance(again, Scenario)
    assert dump_scenario(again) == dump_scenario(scenario)
    assert World.build(scenario.catalog, scenario.topology).workers == len(scenario.topology.workers)
    assert scenario.name == name and scenario.description
    assert all(variant.profile.source for variant in scenario.catalog.variants)


def test_three_tier_is_what_the_documentation_says() -> None:
    scenario = load_scenario("three-tier")
    assert [cluster.tier for cluster in scenario.topology.clusters] == [0, 0, 1, 2]
    assert [site.name for site in scenario.topology.sites] == ["access-0", "access-1"]
    assert len(scenario.streams.applications) == 10
    assert scenario.duration_s == 120 and scenario.window_s == 25
    best = max(model.accuracy for model in scenario.catalog.models)
    assert all(application.min_accuracy <= best for application in scenario.streams.applications)
    capacity = {v.name: (v.capacity_qps, v) for v in scenario.catalog.variants}
    for stated, v in capacity.values():  # a worker loaded to C_v must not be overloaded
        assert stated <= v.servers * v.max_batch / v.profile.delay_s(v.largest_bytes, v.max_batch)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("duration_s", -1, "duration_s: -1 is too small; use a number > 0"),
        ("duration_s", float("nan"), "duration_s: nan is not finite"),
        ("duration_s", True, "duration_s: True is not a number"),
        ("duration_s", "20 parsecs", "duration_s: '20 parsecs' is not a number; write a number, or a string"),
        ("duration_s", "1e999", "duration_s: '1e999' is not finite"),
        ("duraton_s", 5, "duraton_s: unknown key 'duraton_s'; did you mean 'duration_s'?"),
        ("telemetry.periods", 5, "telemetry.periods: unknown key 'periods'; did you mean 'period_s'?"),
        (
            "catalog.variants[0].profile.fixd_s",
            1,
            "catalog.variants[0].profile.fixd_s: unknown key 'fixd_s'; did you mean 'fixed_s'?",
        ),
        ("catalog.variants[0].model", "smal", "[0].model: unknown model 'smal'; did you mean 'small'?"),
        ("catalog.models[1].name", "small", "catalog.models: the name 'small' is given twice"),
        ("catalog.variants[0].max_batch", 0, "max_batch: 0 is not allowed; use an integer >= 1"),
        ("workers[0].variant", "smallcpu", "unknown variant 'smallcpu'; did you mean 'small-cpu'?"),
        ("workers[0].node", "near", "workers[0].node: unknown node 'near'; did you mean 'near-node'?"),
        ("workers[1].cluster", "fra", "workers[1].cluster: unknown cluster 'fra'; did you mean 'far'?"),
        ("workers[1].node", "far-node", "workers[1]: needs either 'node' or 'cluster'"),
        ("workers[0].count", "all", "workers[0].count: 'all' is not allowed; use an integer >= 1 or 'fill'"),
        ("links[0].cluster", "neer", "links[0].cluster: unknown cluster 'neer'; did you mean 'near'?"),
        ("links[0].cluster", "far", "no link from site 'site' to cluster 'near'; add {site: site"),
        ("links[1].cluster", "near", "links[1]: a second link from 'site' to 'near'"),
        ("streams.applications[0].task", "detecton", "[0].task: no model has task 'detecton'; did you mean"),
        ("streams.applications[0].deadline_s", [3, 1], "deadline_s: [3, 1] is upside down; write [1, 3]"),
        ("streams.applications[0].rate_qps", [1, 2, 3], "applications[0].rate_qps: [1, 2, 3] is not a range"),
        ("streams.applications[0].arrivals", "bursty", "arrivals: 'bursty' is not allowed; use 'periodic'"),
        ("streams.applications[1].name", "quick", "applications: the name 'quick' is given twice"),
        ("streams.applications[0].name", "a b", "applications[0].name: 'a b' is not a name"),
        ("streams.applications[0].name", 7, "applications[0].name: 7 is not a string"),
        ("streams.applications[0]", "quick", "[0]: 'quick' is not a mapping; its keys are name, task"),
        ("streams.applications", [], "applications: [] is not a list with at least one entry"),
        ("streams.arrivals.clients_per_min", [{"at_s": 5, "rate": 1}], "the first step must start at 0"),
        ("streams.arrivals.clients_per_min", 2 * [{"at_s": 0, "rate": 1}], "must increase"),
        ("decision_delay_s", -1, "decision_delay_s: -1 is too small"),
        ("catalog.variants[0].profile.distribution", "gamma", "'gamma' is not allowed; use 'normal' or 'exp"),
        ("catalog.variants[0].batch_timeout_s", "5 days", "batch_timeout_s: '5 days' is not a number"),
        ("catalog.variants[1].capacity_qps", 250, "capacity_qps: 250 is more than the 200 queries/s that"),
        ("catalog.use", "detection", "catalog.use: catalog 'detection': not at hand"),
        ("catalog.uses", "x", "catalog.uses: unknown key 'uses'; use one of: models, variants"),
        (
            "streams.applications", {"use": "reference", "weight": 1},
            "streams.applications.weight: unknown key 'weight'; did you mean 'weights'",
        ),
        (
            "streams.applications", {"use": "r", "applications": [{"name": "x"}]},
            "streams.applications.applications[0].task: is missing",
        ),
        ("streams.applications", {"weights": "uniform"}, "{'weights': 'uniform'} is not a list"),
        (
            "topology", {"kind": "full-edge"},
            "'topology' makes the clusters, sites, links, workers; remove one",
        ),
        ("streams.arrivals.pattern", "burst", "either 'clients_per_min' or 'pattern'; give exactly one"),
        (
            "streams.arrivals", {"pattern": "bursts"},
            "streams.arrivals.pattern: 'bursts' is not allowed; use 'burst' or 'steady'",
        ),
        (
            "timeline", [{"at_s": 1, "node": "near", "up": False}],
            "timeline[0].node: unknown node 'near'; did you mean",
        ),
        (
            "timeline", [{"at_s": 20, "node": "near-node", "up": False}],
            "timeline[0].at_s: 20 is not before the end",
        ),
        (
            "timeline", [{"at_s": 1, "node": "near-node"}],
            "timeline[0]: a node or cluster goes up or down; give",
        ),
        (
            "timeline", [{"at_s": 1, "node": "near-node", "cluster": "far", "up": True}],
            "give exactly one of them",
        ),
        (
            "timeline", [{"at_s": 1, "cluster": "fra", "up": True}],
            "timeline[0].cluster: unknown cluster 'fra'; did",
        ),
        (
            "timeline", [{"at_s": 1, "link": {"site": "s", "cluster": "far"}, "up": True}],
            "link.site: unknown site 's'",
        ),
        (
            "timeline", [{"at_s": 1, "link": {"site": "*", "cluster": "f"}, "up": True}],
            "link.cluster: unknown cluster",
        ),
        (
            "timeline", [{"at_s": 1, "link": {"site": "*", "cluster": "far"}}],
            "timeline[0]: changes nothing; give up,",
        ),
        ("streams.arrivals.clients_per_min", -3, "streams.arrivals.clients_per_min[0].rate: -3 is too small"),
    ],
)  # fmt: skip
def test_errors_name_path_value_and_fix(data: dict[str, Any], path: str, value: Any, expected: str) -> None:
    set_at(data, path, value)
    text = message(data)
    assert text.startswith("test.yaml: ")
    assert expected in text


def test_missing_key_says_what_it_is(data: dict[str, Any]) -> None:
    del data["catalog"]["variants"][0]["largest_bytes"]
    assert "catalog.variants[0].largest_bytes: is missing; add it (Largest payload in bytes" in message(data)


def test_all_problems_are_listed_together(data: dict[str, Any]) -> None:
    data["windows"] = 3
    data["duration_s"] = 0
    text = message(data)
    assert "2 problems" in text and "window_s" in text and "duration_s: 0" in text
    del data["windows"]
    data["duration_s"] = 1
    data["workers"][0]["variant"] = "x"
    data["streams"]["applications"][0]["task"] = "y"
    text = message(data)
    assert "2 problems" in text and "workers[0]" in text and "applications[0]" in text


def test_a_wrong_entry_is_not_also_called_a_missing_one(data: dict[str, Any]) -> None:
    data["sites"][0]["uplink_bps"] = 0
    assert message(data) == "test.yaml: sites[0].uplink_bps: 0 is too small; use a number > 0"


@pytest.mark.parametrize("bad", [None, [], "text", 3])
def test_not_a_mapping(bad: Any) -> None:
    assert "is not a mapping; a scenario has the keys name, description" in message(bad)


def test_zero_weights(data: dict[str, Any]) -> None:
    for application in data["streams"]["applications"]:
        application["weight"] = 0
    assert "every weight is 0" in message(data)


def test_a_variant_that_runs_on_accelerators_alone_reserves_memory_of_one(data: dict[str, Any]) -> None:
    small = data["catalog"]["variants"][0]
    assert parse_scenario(data, "test").catalog.variants[0].providers == ("CPUExecutionProvider",)
    small["providers"] = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    assert parse_scenario(data, "test").catalog.variants[0].providers == tuple(small["providers"])
    small["providers"] = ["CUDAExecutionProvider"]
    text = message(data)
    assert "catalog.variants[0]" in text and "write resources: {accelerator_memory_bytes: …}" in text
    small["providers"] = ["cuda"]
    assert "catalog.variants[0].providers[0]" in message(data)


def test_workers_must_fit(data: dict[str, Any]) -> None:
    data["workers"][0]["count"] = 3
    text = message(data)
    assert "workers[0].count: 1 of 3 workers of 'small-cpu' fit node 'near-node'" in text
    assert "cpu_cores needs 2, 0 left" in text
    data["workers"][0] = {"variant": "large-gpu", "cluster": "near", "count": "fill"}
    assert "accelerator_memory_bytes needs 8e+09, 0 left" in message(data)
    data["workers"][0] = {"variant": "small-cpu", "node": "near-node", "count": "fill"}
    data["catalog"]["variants"][0]["resources"] = {}
    assert "'fill' never ends" in message(data)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            {"workers.0.count": 63, "workers.0.least": 63},
            "graphs[0].cpu_cores: a server of 'inception' does not fit node 'hall-0'",
        ),
        (
            {"graphs.0.cpu_cores": 33},
            "graphs[0].cpu_cores: a server of 'inception' does not fit node 'hall-0'",
        ),
        ({"graphs.0.memory_bytes": "64GB"}, "graphs[0].memory_bytes: a server of 'inception' does not fit"),
    ],
)
def test_servers_of_split_models_must_fit_beside_workers(change: dict[str, Any], expected: str) -> None:
    with pytest.raises(ScenarioError, match=re.escape(expected)):
        load_scenario("campus", change)
    load_scenario("campus", {"graphs.0.cpu_cores": 1})


def test_fill_is_first_fit_over_expanded_nodes(data: dict[str, Any]) -> None:
    data["clusters"][1]["nodes"] = [
        {"name": "far-node", "count": 2, "resources": {"cpu_cores": 0.3, "memory_bytes": "1 GiB"}}
    ]
    data["catalog"]["variants"][1]["resources"] = {"cpu_cores": 0.1}
    data["workers"] = [
        {"variant": "large-gpu", "node": "far-node-1"},
        {"variant": "large-gpu", "cluster": "far", "count": "fill"},
    ]
    workers = parse_scenario(data, "x").topology.workers
    assert [worker.node for worker in workers] == ["far-node-1"] + ["far-node-0"] * 3 + ["far-node-1"] * 2
    assert len({worker.name for worker in workers}) == 6


def test_units_sites_and_link_precedence(data: dict[str, Any]) -> None:
    data["sites"] = [{"name": "s", "count": 2, "access_delay_s": "5ms", "uplink_bps": "10Mbps"}]
    data["links"] = [
        {"site": "*", "cluster": "near", "delay_s": "1e-3"},
        {"site": "*", "cluster": "far", "delay_s": "20 ms"},
        {"site": "s-1", "cluster": "near", "delay_s": 0.5},
    ]
    topology = parse_scenario(data, "x").topology
    assert [site.name for site in topology.sites] == ["s-0", "s-1"]
    assert topology.sites[0].access_delay_s == 0.005 and topology.sites[0].uplink_bps == 1e7
    delay = {(link.site, link.cluster): link.delay_s for link in topology.ways}
    assert delay == {("s-0", "near"): 1e-3, ("s-0", "far"): 0.02, ("s-1", "near"): 0.5, ("s-1", "far"): 0.02}


def test_one_way_of_describing_the_topology(data: dict[str, Any]) -> None:
    del data["links"]
    del data["workers"]
    assert "links, workers: missing; add them, or a 'topology'" in message(data)


def test_exponential_delays_have_their_own_deviation(data: dict[str, Any]) -> None:
    profile = data["catalog"]["variants"][0]["profile"]
    profile |= {"distribution": "exponential", "deviation": 0.1}
    assert "deviation 0.1 contradicts distribution 'exponential'" in message(data)
    profile["deviation"] = 1
    data["catalog"]["variants"][0]["batch_timeout_s"] = "5ms"
    data["decision_delay_s"] = "20ms"
    scenario = parse_scenario(data, "x")
    assert scenario.catalog.variant("small-cpu").profile.distribution == "exponential"
    assert scenario.catalog.variant("small-cpu").batch_timeout_s == 0.005
    assert scenario.decision_delay_s == 0.02


def test_timeline_is_sorted_and_expanded(data: dict[str, Any]) -> None:
    data["clusters"][1]["nodes"][0]["count"] = 2
    data["sites"][0]["count"] = 2
    data["links"] = [{"site": "*", "cluster": name, "delay_s": 0.01} for name in ("near", "far")]
    data["timeline"] = [
        {"at_s": 9, "link": {"site": "*", "cluster": "far"}, "delay_s": "30ms", "bandwidth_bps": "1Mbps"},
        {"at_s": 5, "cluster": "far", "up": True},
        {"at_s": "2s", "node": "far-node-1", "up": False},
        {"at_s": 10, "link": {"site": "site-1", "cluster": "near"}, "up": False},
    ]
    scenario = parse_scenario(data, "x")
    assert scenario.timeline == (
        NodeChange(2.0, "far-node-1", False),
        NodeChange(5.0, "far-node-0", True),
        NodeChange(5.0, "far-node-1", True),
        LinkChange(9.0, "site-0", "far", None, 0.03, None, 1e6),
        LinkChange(9.0, "site-1", "far", None, 0.03, None, 1e6),
        LinkChange(10.0, "site-1", "near", False),
    )
    assert parse_scenario(yaml.safe_load(dump_scenario(scenario)), "x") == scenario


@pytest.mark.parametrize(("pattern", "rates"), [("burst", [20, 60, 100, 20]), ("steady", [60, 40, 20, 60])])
def test_patterns_go_on_to_the_end(data: dict[str, Any], pattern: str, rates: list[float]) -> None:
    data["duration_s"], data["streams"]["arrivals"] = "8min", {"pattern": pattern}
    steps = parse_scenario(data, "x").streams.arrivals.steps
    assert steps == tuple(zip([0.0, 150.0, 300.0, 450.0], map(float, rates), strict=True))
    data["duration_s"] = 150
    assert len(parse_scenario(data, "x").streams.arrivals.steps) == 1


def test_the_reference_page_has_every_key_as_it_is_now() -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "scenario.md"
    part = page.read_text("utf-8").partition("<!-- keys -->\n")[2].partition("<!-- end of keys -->")[0]
    assert part.strip() == key_tables().strip(), (
        "put into docs/reference/scenario.md, between its marks, the output of "
        "python tests/unit/model/scenario_reference.py"
    )


def test_every_number_of_the_grammar_is_bounded_by_what_its_name_ends_with() -> None:
    """Also in ranges and lists; the grammar has no second type of seconds, rates or cores."""
    keys: list[tuple[str, list[Any]]] = []

    def numbers(part: Any) -> Iterator[Any]:
        if isinstance(part, dict) and part.get("type") == "number":
            yield part.get("maximum", part.get("exclusiveMaximum"))
        for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
            yield from numbers(inner)

    def look(part: Any) -> None:
        for key, value in part.get("properties", {}).items() if isinstance(part, dict) else ():
            if most := list(numbers(value)):
                keys.append((key, most))
        for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
            look(inner)

    look(scenario_schema())
    assert len({key for key, _ in keys}) > 60
    endings = {next(ending for ending in BOUNDS if key.endswith(ending)) for key, _ in keys}
    assert endings == set(BOUNDS)  # no bound is for nothing
    for key, most in keys:
        assert None not in most and max(most) <= most_of(key), (key, most)


def test_capacity_left_out_comes_from_the_profile(data: dict[str, Any]) -> None:
    del data["catalog"]["variants"][1]["capacity_qps"]
    variant = parse_scenario(data, "x").catalog.variant("large-gpu")
    assert variant.capacity_qps == pytest.approx(4 / (0.008 * 2.5))


def test_load_errors(tmp_path: Any) -> None:
    with pytest.raises(ScenarioError, match=r"did you mean 'three-tier'\? shipped scenarios: "):
        load_scenario("three-teir")
    with pytest.raises(ScenarioError, match="is a folder"):
        load_scenario(tmp_path)
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: x\nclusters: [1, 2\nsites: 3\n")
    with pytest.raises(ScenarioError, match=r"bad\.yaml:3:\d+: not valid YAML"):
        load_scenario(bad)
    bad.write_text("name: x\nname: y\n")
    with pytest.raises(ScenarioError, match=r"bad\.yaml:2:1: .*'name' is given twice"):
        load_scenario(bad)
    bad.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ScenarioError, match="cannot be read"):
        load_scenario(bad)
    bad.write_text("")
    with pytest.raises(ScenarioError, match=r"\(empty\) is not a mapping"):
        load_scenario(str(bad))
    bad.write_text("!!python/object/apply:os.getcwd []\n")
    with pytest.raises(ScenarioError, match="not valid YAML"):
        load_scenario(bad)


def conforms(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> bool:
    """A small JSON Schema check: the keywords that the scenario schema uses."""
    if "$ref" in schema:
        return conforms(value, root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root)
    if "anyOf" in schema and not any(conforms(value, option, root) for option in schema["anyOf"]):
        return False
    if "oneOf" in schema and sum(conforms(value, option, root) for option in schema["oneOf"]) != 1:
        return False
    number = isinstance(value, int | float) and not isinstance(value, bool)
    types = {
        "object": isinstance(value, dict),
        "array": isinstance(value, list),
        "string": isinstance(value, str),
        "number": number,
        "integer": number and isinstance(value, int),
        "boolean": isinstance(value, bool),
        "null": value is None,
    }
    if "type" in schema and not types[schema["type"]]:
        return False
    if isinstance(value, dict) and schema.get("type") == "object":
        if "properties" not in schema:
            ((pattern, entry),) = schema.get(
                "patternProperties", {"": schema.get("additionalProperties")}
            ).items()
            return all(re.search(pattern, key) and conforms(item, entry, root) for key, item in value.items())
        properties = schema["properties"]
        return set(schema.get("required", ())) <= set(value) <= set(properties) and all(
            conforms(item, properties[key], root) for key, item in value.items()
        )
    if isinstance(value, list) and schema.get("type") == "array":
        items = schema.get("prefixItems") or [schema["items"]] * len(value)
        return len(items) == len(value) and all(map(lambda v, s: conforms(v, s, root), value, items))
    if number:
        return value >= schema.get("minimum", value) and (value > schema.get("exclusiveMinimum", value - 1))
    if isinstance(value, str) and "pattern" in schema:
        return re.search(schema["pattern"], value) is not None
    return value in schema.get("enum", [value]) and value == schema.get("const", value)


@pytest.mark.parametrize("name", shipped_scenarios())
def test_schema_accepts_the_shipped_files(name: str) -> None:
    from importlib.resources import files

    schema = scenario_schema()
    written = yaml.safe_load((files("edgewise") / "data" / "scenarios" / f"{name}.yaml").read_text("utf-8"))
    resolved = yaml.safe_load(dump_scenario(shipped(name)))
    assert conforms(written, schema, schema)
    assert conforms(resolved, schema, schema)
    wrong = copy.deepcopy(written)
    wrong["duration_s"] = -1
    assert not conforms(wrong, schema, schema)


def test_schema_describes_every_field() -> None:
    schema = scenario_schema()
    for part in [schema, *schema["$defs"].values()]:
        for name, field in part["properties"].items():
            assert field.get("description"), f"{part['title']}.{name}"
