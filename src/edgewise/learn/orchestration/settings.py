"""What KaiS is trained and measured on: shipped systems, with services and requests of the Alibaba trace.

    edge-cloud           5 sites × 8 nodes (1-2 cores, 2-4 GB), cloud 15 × (4 cores, 16 GB), 30 services
    edge-cloud-complex   10 sites, 100 nodes in all
    edge-cloud-small     2 sites × 3 nodes, 12 services: minutes on one core, for trying things

Sizes, slot and frame are the paper's (section IV). Calibrated once, on a baseline only, before the first
training: at these rates greedy dispatch with the initial replicas (every service as often, whatever its
popularity) answers about 65 % of the requests in time, so that both halves have something to decide. A
replica of a service holds the memory, and its requests use the cores, that the trace plans; images are
those of the scenario, from the lightest service to the heaviest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import NamedTuple

import numpy as np

from edgewise.config import load_orchestration
from edgewise.core.orchestration import Requests
from edgewise.errors import ScenarioError
from edgewise.model.orchestration import System
from edgewise.model.orchestration_spec import (
    EdgeNodeSpec,
    EdgeSiteSpec,
    OrchestrationSpec,
    build_system,
    spread,
)
from edgewise.workloads.batch_task import BatchModel
from edgewise.workloads.requests import RequestPattern, alibaba_2018, generate, pattern, service_needs

RATES_QPS = {"edge-cloud": 12.0, "edge-cloud-complex": 28.0, "edge-cloud-small": 2.0}
SMALL_SERVICES = 12
FRAMES = 10
Draw = Callable[[Sequence[int]], Requests]


class Setting(NamedTuple):
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
) -> Setting:
    """A setting with a pattern of arrivals.

    Args:
        name: see the module.
        kind: of `workloads.requests.pattern`.
        frames: length of a world.
    Raises:
        ScenarioError: no such setting or pattern.
    """
    if name not in RATES_QPS:
        raise ScenarioError(f"scenario {name!r}: learned orchestration knows {', '.join(RATES_QPS)}")
    spec = _spec(name).model_copy(update={"slot_s": slot_s, "frame_slots": frame_slots})
    model = alibaba_2018()
    if name == "edge-cloud-small":
        model = first_services(model, SMALL_SERVICES)
    what = request_pattern(name, kind, frames * frame_slots * slot_s)

    def draw(seeds: Sequence[int]) -> Requests:
        return generate(what, seeds, model)

    return Setting(name, _with_services(spec, what, model), draw, frames * frame_slots)


def request_pattern(name: str, kind: str, horizon_s: float) -> RequestPattern:
    """Arrivals of a setting."""
    sites = sum(site.count for site in _spec(name).sites)
    return pattern(kind, RequestPattern(horizon_s=horizon_s, rate_qps=RATES_QPS[name], sites=sites))


def description(name: str) -> dict[str, object]:
    """Everything that defines a setting, for freezing."""
    system = setting(name).system
    arrays = {key: np.asarray(part, dtype=np.float64) for key, part in system._asdict().items()}
    return {
        "pattern": json.loads(json.dumps(asdict(request_pattern(name, "P4", 250.0)))),
        "system": {key: [list(part.shape), round(float(part.sum()), 6)] for key, part in arrays.items()},
    }


def first_services(model: BatchModel, services: int) -> BatchModel:
    """The model with only its most frequent services."""
    names = ("kind", "cpu_cores", "memory_share", "duration_s")
    share = model.share[:services]
    return replace(model, share=share / share.sum(), **{x: getattr(model, x)[:services] for x in names})


def _spec(name: str) -> OrchestrationSpec:
    if name != "edge-cloud-small":
        return load_orchestration(name)
    kinds = (
        EdgeNodeSpec(count=2, cpu_cores=1, memory_bytes=2e9),
        EdgeNodeSpec(cpu_cores=2, memory_bytes=4e9),
    )
    sites = (EdgeSiteSpec(name="site", count=2, nodes=kinds),)
    return load_orchestration("edge-cloud").model_copy(update={"sites": sites})


def _with_services(spec: OrchestrationSpec, what: RequestPattern, model: BatchModel) -> System:
    """The scenario's system with the trace's services in place of its own."""
    system = build_system(spec)
    cores, memory_bytes = service_needs(what, model)
    images = np.argsort(np.argsort(memory_bytes)) * system.services // memory_bytes.size
    nodes = system.memory_bytes[-system.nodes :]
    return system._replace(
        service_memory_bytes=memory_bytes,
        service_cpu_cores=cores,
        needs_layer=system.needs_layer[images],
        initial=spread(nodes * spec.initial_share, memory_bytes),
    )
