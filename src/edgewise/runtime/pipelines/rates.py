"""What a pipeline and its flows did over a measurement, beside what was planned."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgewise.runtime.pipelines.running import RunningPipeline
from edgewise.runtime.pipelines.task import PERIOD_S


@dataclass(frozen=True, slots=True)
class FlowRate:
    """One flow between two nodes over a measurement.

    Attributes:
        edge: "tail->head".
        path: links.
        planned_bps: volume of a frame times the planned throughput.
        allowed_bps: bandwidth in the plan.
        measured_bps: payload that arrived.
    """

    edge: str
    path: tuple[int, ...]
    planned_bps: float
    allowed_bps: float
    measured_bps: float


@dataclass(frozen=True, slots=True)
class PipelineRates:
    """One pipeline over a measurement.

    Attributes:
        name: of the pipeline.
        nodes: task → node name.
        planned_fps: what `core.place.throughput` says of its placement.
        measured_fps: frames that its last tasks finished.
        busy_s: task → mean time of a frame in its function.
        flows: between different nodes.
    """

    name: str
    nodes: Mapping[str, str]
    planned_fps: float
    measured_fps: float
    busy_s: Mapping[str, float]
    flows: tuple[FlowRate, ...]


def rates_of(
    pipeline: RunningPipeline,
    names: Sequence[str],
    planned_fps: float,
    before: Mapping[str, Mapping[str, float]],
    after: Mapping[str, Mapping[str, float]],
) -> PipelineRates:
    """What a pipeline did between two reports of its processes.

    Args:
        pipeline: as it runs now.
        names: of the nodes.
        planned_fps: throughput of its placement.
        before, after: by task.
    """
    order, p = pipeline.live.pipeline.graph.order(), pipeline.placed

    def gained(task: str, what: str) -> float:
        return after[task].get(what, 0.0) - before[task].get(what, 0.0)

    def rate(task: str, what: str) -> float:
        return gained(task, what) / max(gained(task, "at_s"), PERIOD_S)

    last = [name for i, name in enumerate(order) if i not in p.pipeline.tail]
    flows = [
        FlowRate(
            pipeline.edge(e),
            tuple(p.path(e).tolist()),
            float(p.pipeline.volume_bits[e]) * planned_fps,
            float(p.bandwidth_bps[e]),
            8.0 * rate(order[p.pipeline.head[e]], str(pipeline.ports[e])),
        )
        for e in range(len(p.pipeline.head))
        if p.tail_node[e] != p.head_node[e]
    ]
    return PipelineRates(
        pipeline.live.pipeline.name,
        {name: names[int(p.node[i])] for i, name in enumerate(order)},
        planned_fps,
        min(rate(name, "frames") for name in last),
        {name: gained(name, "busy_s") / max(gained(name, "frames"), 1.0) for name in order},
        tuple(flows),
    )
