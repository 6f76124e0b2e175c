"""Pipelines: from a scenario, or from what lived, to their tables.

Forbidden here: printing and files.
"""

from typing import TYPE_CHECKING

from edgewise.core.guard import Guard
from edgewise.core.place.core import PlaceCore, reserving_of
from edgewise.model.pipelines import network_of
from edgewise.model.pools import image_cluster, orchestrated
from edgewise.model.scenario import Scenario
from edgewise.run.shared import Joined, RunContext
from edgewise.run.tables import Tables, window
from edgewise.sim.images import NodeImages
from edgewise.sim.parts.outcomes import PipelineRecord, PipelineRun
from edgewise.sim.parts.pipelines import PipelinesPart, PipelineWorld
from edgewise.workloads.pipelines import pipelines_of

if TYPE_CHECKING:
    from edgewise.runtime.clients.lived import Lived


def joined(run: RunContext) -> Joined:
    """Pipelines, beside other work or alone."""
    scenario, policy, guard = run.scenario, run.chosen["place"](), Guard()
    network, pipelines = network_of(scenario), pipelines_of(scenario, run.seed)
    core = PlaceCore(network, policy, run.seed, guard, run.plane.ledger, reserving_of(scenario))
    run.plane.cores["place"] = core
    tell = None if run.reserved is None else run.reserved.flows_on(network)
    run.holders.place = core
    run.holders.on_net = () if run.wires is None else run.wires.routes.between
    part = PipelinesPart(PipelineWorld(pipelines, core), tell)
    if any(pipeline.image_bytes > 0.0 for pipeline in pipelines):
        _fetch_images(run, part)
    return Joined(
        part,
        lambda: pipeline_tables(scenario, part.world.outcome()),
        {"place": lambda: guard.decided(policy)},
    )


def _fetch_images(run: RunContext, part: PipelinesPart) -> None:
    """Images of pipelines come to nodes, as those of workers do; where images are kept they are there."""
    scenario, kept = run.scenario, image_cluster(run.scenario)
    nodes, system = scenario.topology.nodes, orchestrated(scenario, None).system
    rows = {node.name: n for n, node in enumerate(nodes) if node.cluster != kept}
    images = NodeImages(run.images_to(system), system, part.image_came)
    part.world.fetches(images, [rows.get(name, -1) for name in part.world.core.network.names])


def pipeline_tables(scenario: Scenario, run: PipelineRun) -> Tables:
    """Columns of pipelines."""
    measures = ("mean_throughput_fps", "mean_overall_fps", "mean_waiting_s", "unserved")
    columns = ("arrival_s", "start_s", "finish_s", "frames", "migrations")
    items = {name: [getattr(made, name) for made in run.pipelines] for name in columns}
    figures = {name: getattr(run, name) for name in measures}
    return Tables(
        {"pipeline": [made.name for made in run.pipelines], **items},
        window(scenario, run.end_s, pipelines=len(run.pipelines), **figures),
    )


def lived_pipelines(scenario: Scenario, seen: "Lived") -> Tables | None:
    """Of a live system; None: it had none."""
    if not seen.pipelines or scenario.pipelines is None:
        return None
    names = [kept.live.pipeline.name for kept in seen.pipelines]
    found = tuple(
        PipelineRecord(
            name if names.count(name) == 1 else f"{name}-{kept.id}",
            kept.submitted_s - seen.since_s,
            None if kept.started_s is None else kept.started_s - seen.since_s,
            None if kept.ended_s is None else kept.ended_s - seen.since_s,
            kept.frames,
            kept.moves,
        )
        for name, kept in zip(names, seen.pipelines, strict=True)
    )
    return pipeline_tables(scenario, PipelineRun("", found, seen.duration_s, ()))
