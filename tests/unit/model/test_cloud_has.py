"""What requests of services meet in the cloud: it is said, checked, and the same with streams and without."""

from __future__ import annotations

from typing import Any

import pytest

import edgewise as ew
from edgewise.config import load_scenario
from edgewise.errors import ScenarioError
from edgewise.limits.checked import Checked
from edgewise.model.orchestration import System
from edgewise.model.parsing import parse_scenario
from edgewise.model.scenario import Scenario
from edgewise.model.services import services_of
from edgewise.workloads.services import simulated_services

PLAIN = {"name": "plain", "memory_bytes": 1e8, "cpu_cores": 1, "image_bytes": 1e6}
CLOUD = [
    (
        {"cloud_has": "workers", "gateways": "one"},
        "'workers', and with `gateways: one` it has a pool; write 'pool'",
    ),
    (
        {"cloud_has": "workers", "offered": [PLAIN]},
        "'workers', and plain services as 'plain' have none; write 'pool'",
    ),
    ({"cloud_has": "pol"}, "services.cloud_has: 'pol' is not"),
]


@pytest.mark.parametrize(("services", "message"), CLOUD)
def test_what_the_cloud_cannot_have_is_said_with_a_cure(services: dict[str, Any], message: str) -> None:
    data = load_scenario("kais-live").spec.model_dump(mode="json", exclude_none=True)
    data["services"] |= services
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(data, "kais-live")
    assert message in str(caught.value)


def without_streams(**services: Any) -> dict[str, Any]:
    """`kais-live` without streams, and a worker that no request uses."""
    data = load_scenario("kais-live", {"duration_s": 9}).spec.model_dump(mode="json", exclude_none=True)
    del data["streams"]
    data["catalog"]["variants"].append(data["catalog"]["variants"][0] | {"name": "idle"})
    data["workers"].append({"variant": "idle", "cluster": "west"})
    data["services"] |= services
    return data


def test_without_streams_only_workers_that_requests_use_are_there_and_hold() -> None:
    scenario = parse_scenario(without_streams(), "quiet")
    assert [worker.variant for worker in scenario.topology.workers] == ["camera", "plates", "sorting"]
    assert [(worker.variant, worker.node) for worker in scenario.idle] == [("idle", "west-0")]
    services, names = services_of(scenario), ("camera", "plates", "sorting")
    assert services is not None and [each.name for each in services.workers] == [
        f"{name}@cloud" for name in names
    ]
    result = ew.simulate(scenario, seeds=(0,))
    owners = {(row["owner"], row["work"]) for row in result.use["holds"].to_pylist() if "@" in row["owner"]}
    assert owners == {(f"{name}@cloud", "services") for name in ("camera", "plates", "sorting")}
    pooled = parse_scenario(without_streams(cloud_has="pool"), "pooled")
    assert pooled.topology.workers == () and len(pooled.idle) == 4
    with pytest.raises(ScenarioError, match=r"cloud_has: 'pool' is simulated only; .* write 'workers'"):
        services_of(pooled)


def test_a_pool_has_what_workers_of_streams_leave() -> None:
    data = load_scenario("kais-live").spec.model_dump(mode="json", exclude_none=True)
    whole = system_of(load_scenario("kais-live"))
    data["services"]["cloud_has"] = "pool"
    beside = system_of(parse_scenario(data, "beside"))
    assert (whole.cpu_cores[0], whole.memory_bytes[0]) == (8.0, 16e9)
    assert (beside.cpu_cores[0], beside.memory_bytes[0]) == (8.0 - 2.0, 16e9 - 2.5e9)
    assert beside.cpu_cores[1:].tolist() == whole.cpu_cores[1:].tolist()


def system_of(scenario: Scenario) -> System:
    """What the engine of requests knows of a scenario."""
    return simulated_services(scenario).system


def test_requests_meet_the_same_in_the_cloud_with_streams_and_without() -> None:
    """One worker of each serves one request at a time, a pool as many as there are."""
    busy = {"requests": {"rate_qps": 60, "service_s": 0.2, "slack": 5, "payload_bytes": 1e4}}
    rows = {}
    for name, data in (
        ("workers", without_streams(**busy)),
        ("pool", without_streams(cloud_has="pool", **busy)),
    ):
        made = ew.simulate(parse_scenario(data, name), {"requests": "cloud-only"}, seeds=(0,))
        rows[name] = [row["outcome"] for row in made.items.to_pylist()]
    shares = {name: found.count("in_time") / len(found) for name, found in rows.items()}
    assert shares["pool"] > 0.9 and 0.1 < shares["workers"] < 0.35  # of 20/s each, 5/s


def test_check_says_what_requests_meet_in_the_cloud() -> None:
    found = Checked(load_scenario("kais-live")).as_json()
    assert found["in_cloud"] == {n: [f"{n}@cloud"] for n in ("camera", "plates", "sorting")}
    assert Checked(load_scenario("kais-demo")).as_json()["in_cloud"]["service-0"] == "pool"
    assert Checked(parse_scenario(without_streams(), "q")).as_json()["idle_workers"] == ["idle@west-0"]
