"""Frozen scenarios give the arrays that the reader of edgewise 0.1 gave, array by array."""

import hashlib
import json
from dataclasses import asdict, astuple, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgewise.config import load_scenario
from edgewise.core.world import World
from edgewise.model.scenario import Scenario

RECORDED = json.loads((Path(__file__).parent / "frozen_arrays.json").read_text())
FROZEN = Path(__file__).parents[3] / "docs/results/frozen"


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _arrays(scenario: Scenario) -> dict[str, str]:
    topology, streams = scenario.topology, scenario.streams
    world = World.build(scenario.catalog, topology)
    found = {}
    for field in fields(world):
        value = getattr(world, field.name)
        if isinstance(value, np.ndarray):
            found[f"world.{field.name}"] = _sha(value.tobytes() + str(value.dtype).encode())
        else:
            found[f"world.{field.name}"] = _sha(repr(value).encode())
    (capacity, accuracy, fixed, per_byte, largest), (task, cluster, node) = world.real, world.whole
    tables = (task, accuracy, capacity, fixed, per_byte, largest, cluster, node)  # as kernels had them
    tables += (world.access_delay_s, world.uplink_bps)
    found["world.tables"] = _sha(b"".join(part.tobytes() for part in tables))
    plain = {
        "applications": [each.model_dump(exclude={"answer_bytes"}) for each in streams.applications],
        "arrivals": streams.arrivals.steps,
        "timeline": [json.dumps(asdict(change), sort_keys=True, default=str) for change in scenario.timeline],
        "rest": [
            scenario.name, scenario.duration_s, scenario.window_s, scenario.telemetry.period_s,
            scenario.telemetry.lag_s, scenario.retry_refused, scenario.decision_delay_s,
        ],
        "catalog": json.dumps(_as_it_was(asdict(scenario.catalog)), sort_keys=True, default=str),
        "sites": [(site.name, site.access_delay_s, site.uplink_bps) for site in topology.sites],
        "workers": [astuple(worker)[:3] for worker in topology.workers],
        "nodes": [(node.name, node.cluster, node.resources.as_tuple()) for node in topology.nodes],
        "clusters": [(cluster.name, cluster.tier) for cluster in topology.clusters],
    }  # fmt: skip
    return found | {name: _sha(json.dumps(value, sort_keys=True).encode()) for name, value in plain.items()}


def _as_it_was(catalog: dict[str, Any]) -> dict[str, Any]:
    """Without what variants did not have then, which none of these has."""
    for variant in catalog["variants"]:
        assert (variant.pop("image_bytes"), variant.pop("start_s")) == (0.0, 0.0)
        assert variant.pop("providers") == ("CPUExecutionProvider",)
    return catalog


@pytest.mark.parametrize("name", RECORDED)
def test_frozen_scenarios_give_the_arrays_of_the_old_reader(name: str) -> None:
    found = _arrays(load_scenario(FROZEN / f"{name}.yaml"))
    assert {key: found.get(key) for key in RECORDED[name]} == RECORDED[name]
    assert (
        _sha(json.dumps(RECORDED[name], sort_keys=True).encode())
        == json.loads((FROZEN.parent / "frozen.json").read_text())[name]["arrays"]
    )
