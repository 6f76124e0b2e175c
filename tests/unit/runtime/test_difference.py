"""What a change does to a running system is said before it is made, each thing once."""

from dataclasses import replace

from edgewise.runtime.controller.difference import Deed, Field, Wanted, difference, lines
from edgewise.runtime.store import Process

WORKER = Process("small@near", "worker", 7001, {"profile": {"fixed_s": 0.01}, "max_batch": 1})
GATEWAY = Process("gateway-0", "gateway", 8000, {"site": "here", "names": ()})
SCENARIO = {
    "duration_s": 20.0,
    "policies": {"dispatch": "closest"},
    "clusters": [{"name": "near", "nodes": [{"name": "one", "resources": {"cpu_cores": 2.0}}]}],
    "links": [{"site": "here", "cluster": "near", "delay_s": 0.001}],
    "services": {"frame_s": 1.0, "offered": [{"name": "ask", "replicas": 1}]},
}
BEFORE = Wanted(SCENARIO, {"dispatch": "least-harm"}, (WORKER, GATEWAY))


def of(after, renamed=None, before=BEFORE):
    return [each for each in difference(before, after, renamed or {}) if each.deed != "stay"]


def with_part(name, value):
    return replace(BEFORE, scenario={**SCENARIO, name: value})


def test_what_is_alike_stays():
    found = difference(BEFORE, BEFORE, {})
    assert [(each.deed, each.kind, each.name) for each in found] == [
        ("stay", "worker", "small@near"),
        ("stay", "gateway", "gateway-0"),
        ("stay", "policy", "dispatch"),
    ]
    stored = replace(GATEWAY, settings={"site": "here", "names": []})  # as JSON brings it back
    assert not of(replace(BEFORE, processes=(WORKER, stored)))


def test_processes_are_started_ended_and_replaced():
    other = replace(WORKER, name="small@far", port=7002)
    slow = replace(WORKER, settings={"profile": {"fixed_s": 0.02}, "max_batch": 1, "seed": 3})
    assert of(replace(BEFORE, processes=(slow, other))) == [
        Deed("start", "worker", "small@far"),
        Deed("end", "gateway", "gateway-0"),
        Deed(
            "replace",
            "worker",
            "small@near",
            (Field("profile.fixed_s", 0.01, 0.02), Field("seed", None, 3)),
        ),
    ]


def test_a_worker_with_another_name_is_the_same_one():
    numbered = replace(WORKER, name="small@near#0")
    assert not of(replace(BEFORE, processes=(numbered, GATEWAY)), {"small@near": "small@near#0"})
    assert [d.deed for d in of(replace(BEFORE, processes=(numbered, GATEWAY)))] == ["start", "end"]


def test_one_that_may_come_is_not_there():
    away = replace(WORKER, wanted=False)
    assert of(replace(BEFORE, processes=(away, GATEWAY))) == [Deed("end", "worker", "small@near")]


def test_policies_are_those_that_decide_in_the_end():
    changed = replace(BEFORE, policies={"dispatch": "closest", "place": "otfa"})
    assert of(changed) == [
        Deed("start", "policy", "place", (Field("", None, "otfa"),)),
        Deed("change", "policy", "dispatch", (Field("", "least-harm", "closest"),)),
    ]
    assert not of(with_part("policies", {}))  # what the file names besides


def test_entries_of_the_scenario_are_known_by_name_wherever_they_stand():
    two = {"name": "two", "resources": {"cpu_cores": 8.0}}
    one = {"name": "one", "resources": {"cpu_cores": 4.0}}
    assert of(with_part("clusters", [{"name": "near", "nodes": [two, one]}])) == [
        Deed("start", "node", "two"),
        Deed("change", "node", "one", (Field("resources.cpu_cores", 2.0, 4.0),)),
    ]
    assert of(with_part("links", [])) == [Deed("end", "link", "here@near")]


def test_a_setting_inside_a_section_is_no_thing_of_its_kind():
    services = {"frame_s": 2.0, "offered": [{"name": "ask", "replicas": 3}]}
    assert of(with_part("services", services)) == [
        Deed("change", "setting", "services.frame_s", (Field("", 1.0, 2.0),)),
        Deed("change", "service", "ask", (Field("replicas", 1, 3),)),
    ]


def test_entries_that_are_called_alike_are_counted():
    link = SCENARIO["links"][0]
    assert of(with_part("links", [link, link])) == [Deed("start", "link", "here@near (2)")]


def test_where_nothing_runs_all_is_started_and_nothing_changed():
    found = difference(None, BEFORE, {})
    assert {each.deed for each in found} == {"start"} and len(found) == 3


def test_lines_have_old_and_new_values_and_counts():
    slow = replace(WORKER, settings={"profile": {"fixed_s": 0.02}, "max_batch": 1})
    after = replace(
        with_part("duration_s", None), processes=(slow, GATEWAY), policies={"dispatch": "closest"}
    )
    assert lines(difference(BEFORE, after, {})) == [
        "  ± replace  worker small@near: profile.fixed_s 0.01 → 0.02",
        "  ~ change   policy dispatch: least-harm → closest",
        "  ~ change   setting duration_s: 20.0 → none",
        "  = stay     gateway gateway-0",
        "0 to start, 0 to end, 1 to replace, 2 to change; 1 stay",
    ]
