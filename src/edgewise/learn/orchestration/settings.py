"""What KaiS is trained and measured on: shipped systems, with services and requests of the Alibaba trace.

    edge-cloud           5 sites × 8 nodes (1-2 cores, 2-4 GB), cloud 15 × (4 cores, 16 GB), 30 services
    edge-cloud-complex   10 sites, 100 nodes in all
    edge-cloud-small     2 sites × 3 nodes, 12 services: minutes on one core, for trying things
    scarce, scarce-complex, scarce-small   the same systems, in which orchestration is worth more

Sizes, slot and frame are the paper's (section IV). A replica of a service holds the memory, and its requests
use the cores, that the trace plans; images are those of the scenario, from the lightest service to the
heaviest. docs/orchestration-learning.md says by which figures of baselines the terms were chosen.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np

from edgewise.config import load_scenario
from edgewise.core.orchestration import Requests
from edgewise.errors import ScenarioError
from edgewise.model.orchestration import System
from edgewise.model.scenario import Scenario
from edgewise.model.services import first_replicas, spread
from edgewise.model.services_simulated import simulated_services
from edgewise.workloads.batch_task import BatchModel
from edgewise.workloads.requests import RequestPattern, alibaba_2018, generate, pattern, service_needs

SMALL_SERVICES = 12
FRAMES = 10
GENEROUS_BYTES, SCARCE_BYTES = 1e9, 1.92e9  # of one unit of plan_mem
Draw = Callable[[Sequence[int]], Requests]


class SettingTerms(NamedTuple):
    """What sets settings of one size apart.

    Attributes:
        base: the scenario with its sites, cloud and images.
        rate_qps: of all requests.
        wan_bps: to the cloud and back; None as the scenario says.
        payload_bytes: mean of a request.
        share_bytes: one unit of plan_mem. In "scarce" a hundredth of 192 GB: 96 cores, as in the trace, with
            the 2 GB a core that edge nodes have.
        delay_least_s: the least delay that is required.
        one_each: at first one replica of each service, as Kubernetes deploys; else as many as the share of
            memory in the scenario lets in.
    """

    base: str
    rate_qps: float
    wan_bps: float | None = None
    payload_bytes: float = 250e3
    share_bytes: float = GENEROUS_BYTES
    delay_least_s: float = 2.0
    one_each: bool = False


SETTINGS = {
    "edge-cloud": SettingTerms("edge-cloud", 12.0),
    "edge-cloud-complex": SettingTerms("edge-cloud-complex", 28.0),
    "edge-cloud-small": SettingTerms("edge-cloud-small", 2.0),
    "scarce": SettingTerms("edge-cloud", 8.0, 100e6, 3e6, SCARCE_BYTES, 6.0, True),
    "scarce-complex": SettingTerms("edge-cloud-complex", 20.0, 250e6, 3e6, SCARCE_BYTES, 6.0, True),
    "scarce-small": SettingTerms("edge-cloud-small", 1.5, 20e6, 3e6, SCARCE_BYTES, 6.0, True),
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
    if name not in SETTINGS:
        raise ScenarioError(f"scenario {name!r}: learned orchestration knows {', '.join(SETTINGS)}")
    terms = SETTINGS[name]
    model = alibaba_2018()
    if terms.base == "edge-cloud-small":
        model = first_services(model, SMALL_SERVICES)
    what = request_pattern(name, kind, frames * frame_slots * slot_s)

    def draw(seeds: Sequence[int]) -> Requests:
        return generate(what, seeds, model)

    system = _with_services(_scenario(terms.base), what, model, terms)
    return TrainingSetting(
        name, system._replace(slot_s=slot_s, frame_slots=frame_slots), draw, frames * frame_slots
    )


def request_pattern(name: str, kind: str, horizon_s: float) -> RequestPattern:
    """Arrivals of a setting."""
    terms = SETTINGS[name]
    base = RequestPattern(
        horizon_s=horizon_s,
        rate_qps=terms.rate_qps,
        sites=len(_scenario(terms.base).topology.sites),
        payload_bytes=terms.payload_bytes,
        memory_bytes_per_share=terms.share_bytes,
        delay_least_s=terms.delay_least_s,
    )
    return pattern(kind, base)


def description(name: str) -> dict[str, object]:
    """What defines a setting, as "kais" was frozen: arrays by their sums, the trace's model left out."""
    system = setting(name).system
    arrays = {key: np.asarray(part, dtype=np.float64) for key, part in system._asdict().items()}
    return {
        "pattern": json.loads(json.dumps(asdict(request_pattern(name, "P4", 250.0)))),
        "system": {key: [list(part.shape), round(float(part.sum()), 6)] for key, part in arrays.items()},
    }


def whole_description(name: str) -> dict[str, object]:
    """Everything that defines a setting: the hash of every array, and of the trace's model."""
    arrays = {key: np.asarray(part, dtype=np.float64) for key, part in setting(name).system._asdict().items()}
    hashes = {key: hashlib.sha256(part.round(9).tobytes()).hexdigest() for key, part in arrays.items()}
    model = (files("edgewise") / "data/workloads/batch-task-2018.json").read_bytes()
    return description(name) | {"arrays": hashes, "model": hashlib.sha256(model).hexdigest()}


def first_services(model: BatchModel, services: int) -> BatchModel:
    """The model with only its most frequent services."""
    names = ("kind", "cpu_cores", "memory_share", "duration_s")
    share = model.share[:services]
    return replace(model, share=share / share.sum(), **{x: getattr(model, x)[:services] for x in names})


@cache
def _scenario(name: str) -> Scenario:
    if name != "edge-cloud-small":
        return load_scenario(name)
    nodes = {"clusters.site.nodes.small.count": 2, "clusters.site.nodes.large.count": 1}
    return load_scenario("edge-cloud", {"sites.site.count": 2, "clusters.site.count": 2} | nodes)


def _with_services(
    scenario: Scenario, what: RequestPattern, model: BatchModel, terms: SettingTerms
) -> System:
    """The scenario's system with the trace's services in place of its own."""
    simulated = simulated_services(scenario)
    system, share = simulated.system, simulated.spec.initial_share
    cores, memory_bytes = service_needs(what, model)
    images = np.argsort(np.argsort(memory_bytes)) * system.services // memory_bytes.size
    nodes = system.memory_bytes[-system.nodes :]
    if terms.one_each or share is None:
        initial = first_replicas([1] * memory_bytes.size, memory_bytes, nodes)
    else:
        initial = spread(nodes * share, memory_bytes)
    return system._replace(
        service_memory_bytes=memory_bytes,
        service_cpu_cores=cores,
        needs_layer=system.needs_layer[images],
        initial=initial,
        wan_bps=terms.wan_bps or system.wan_bps,
    )
