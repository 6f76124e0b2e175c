"""What KaiS is trained and measured on: shipped systems, with services and requests of the Alibaba trace.

    edge-cloud           5 sites × 8 nodes (1-2 cores, 2-4 GB), cloud 15 × (4 cores, 16 GB), 30 services
    edge-cloud-complex   10 sites, 100 nodes in all
    edge-cloud-small     2 sites × 3 nodes, 12 services: minutes on one core, for trying things
    scarce, scarce-complex, scarce-small   the same systems, in which orchestration is worth more

Sizes, slot and frame are the paper's (section IV). A replica of a service holds the memory, and its requests
use the cores, that the trace plans; images are those of the scenario, from the lightest service to the
heaviest. docs/orchestration-learning.md says by which figures of baselines the terms were chosen.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from edgewise.arrays import Floats
from edgewise.config import load_scenario
from edgewise.core.orchestrate import ReplicaPolicy, RequestPolicy
from edgewise.errors import ScenarioError
from edgewise.model.grammar.services import TracedRequestsSpec
from edgewise.model.orchestration import System
from edgewise.model.scenario import Scenario
from edgewise.policies.orchestrate.shadow import GreedyShadow
from edgewise.policies.requests.gsp import ShadowDispatch
from edgewise.sim.slots.replicas import ReplicaWorlds, ServiceOutcome, simulate
from edgewise.workloads.requests import pattern_of
from edgewise.workloads.services import Draw, simulated_services

FRAMES = 10


SMALL = {
    "sites.site.count": 2,
    "clusters.site.count": 2,
    "clusters.site.nodes.small.count": 2,
    "clusters.site.nodes.large.count": 1,
    "services.requests.services": 12,
}
# Scenario, and what is set in it.
SETTINGS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "edge-cloud": ("edge-cloud", {"services.requests": {"pattern": "P4", "rate_qps": 12}}),
    "edge-cloud-complex": ("edge-cloud-complex", {"services.requests": {"pattern": "P4", "rate_qps": 28}}),
    "edge-cloud-small": ("edge-cloud", {"services.requests": {"pattern": "P4", "rate_qps": 2}} | SMALL),
    "scarce": ("scarce", {}),
    "scarce-complex": ("scarce-complex", {}),
    "scarce-small": (
        "scarce",
        {"services.requests.rate_qps": 1.5, "links.wan.bandwidth_bps": "20Mbps"} | SMALL,
    ),
}
AUTOSCALER_TARGET = 4.0  # the best of 0.3, 0.6, 1.2, 2 and 4 on training seeds of "scarce", greedy and flow
FIRST = ("edge-cloud", "edge-cloud-complex", "edge-cloud-small")  # frozen as "kais"
SCARCE = ("scarce", "scarce-complex", "scarce-small")  # frozen as "kais-scarce"


class TrainingSetting(NamedTuple):
    """What is trained on.

    Attributes:
        name: of the scenario.
        system: sites, nodes, services.
        draw: worlds of requests from seeds.
        slots: of an episode, whole frames.
    """

    name: str
    system: System
    draw: Draw
    slots: int


def setting(
    name: str, kind: str = "P4", frames: int = FRAMES, slot_s: float = 0.25, frame_slots: int = 100
) -> TrainingSetting:
    """A setting with a pattern of arrivals.

    Args:
        name: see the module.
        kind: of `workloads.requests.pattern`.
        frames: length of a world.
    Raises:
        ScenarioError: no such setting or pattern.
    """
    found = simulated_services(_scenario(name, kind, frames, slot_s, frame_slots))
    return TrainingSetting(name, found.system, found.draw, found.slots)


@cache
def _scenario(name: str, kind: str, frames: int, slot_s: float, frame_slots: int) -> Scenario:
    if name not in SETTINGS:
        raise ScenarioError(f"scenario {name!r}: learned orchestration knows {', '.join(SETTINGS)}")
    base, changes = SETTINGS[name]
    frame_s = slot_s * frame_slots
    lengths = {"duration_s": frames * frame_s, "services.slot_s": slot_s, "services.frame_s": frame_s}
    return load_scenario(base, {**changes, **lengths, "services.requests.pattern": kind})


def description(name: str) -> dict[str, object]:
    """What defines a setting, as "kais" was frozen: arrays by their sums, the trace's model left out."""
    scenario = _scenario(name, "P4", FRAMES, 0.25, 100)
    services = scenario.services
    assert services is not None and isinstance(services.requests, TracedRequestsSpec)
    arrays = _arrays(name)
    what = pattern_of(services.requests, len(scenario.topology.sites), 250.0)
    return {
        "pattern": json.loads(json.dumps(asdict(what))),
        "system": {key: [list(part.shape), round(float(part.sum()), 6)] for key, part in arrays.items()},
    }


def whole_description(name: str) -> dict[str, object]:
    """Everything that defines a setting: the hash of every array, and of the trace's model."""
    hashes = {key: hashlib.sha256(part.round(9).tobytes()).hexdigest() for key, part in _arrays(name).items()}
    model = (files("edgewise") / "data/workloads/batch-task-2018.json").read_bytes()
    return description(name) | {"arrays": hashes, "model": hashlib.sha256(model).hexdigest()}


def _arrays(name: str) -> dict[str, Floats]:
    """A setting's arrays, as they were frozen."""
    return {key: np.asarray(part, dtype=np.float64) for key, part in as_frozen(setting(name).system).items()}


def as_frozen(system: System) -> dict[str, Any]:
    """A system's fields as they were when settings were frozen.

    Requests held all cores then, all nodes had one rate and so had the cloud, whose delay alone varied.
    """
    fields = system._asdict()
    rate_bps, deviation_s = fields.pop("rate_bps"), fields.pop("deviation_s")
    if fields.pop("replica_cpu_cores").any() or deviation_s[:, 1:].any():
        raise ValueError("a frozen setting has replicas that hold cores, or ways to nodes that vary")
    one = {"lan_bps": rate_bps[:, 1:], "wan_bps": rate_bps[:, :1], "wan_deviation_s": deviation_s[:, :1]}
    for name, values in one.items():
        (value,) = set(values.ravel().tolist())
        fields[name] = float(value)
    return fields


def evaluate(
    setting: TrainingSetting, dispatch: RequestPolicy, scale: ReplicaPolicy, seeds: Sequence[int]
) -> ServiceOutcome:
    """Worlds of these seeds under two policies; those that assume it are told the arrival rates (GSP-SS)."""
    drawn = setting.draw(seeds)
    for policy in (dispatch, scale):
        if isinstance(policy, GreedyShadow | ShadowDispatch):
            policy.know(drawn, setting.system, setting.slots * setting.system.slot_s)
    return simulate(ReplicaWorlds(setting.system, drawn, setting.slots, seeds), dispatch, scale)
