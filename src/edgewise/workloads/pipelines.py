"""Pipelines of a scenario as a run has them: those written out, and those drawn by its seed.

What ENTS (section VI) leaves open of the pipelines that it runs is fixed here, each with its reason:

- Images between modules are raw, three bytes per pixel, like the 6 MB frames of the paper.
- Memory: a container with Python, a framework and a network takes 0.5 GB; source and tracker need 50 MB.
- Length (in the shipped scenario `recognition`): 20 s of running. At 0.5 pipelines a second ten then run at a
  time, the largest load at which they hardly wait on 30 nodes and more, as in the paper's fig. 11.
"""

import numpy as np

from edgewise.core import keyed
from edgewise.core.keyed import Purpose
from edgewise.errors import ScenarioError
from edgewise.model.grammar.pipelines import GeneratedPipelinesSpec
from edgewise.model.pipelines import Pipeline, network_of, pipeline_of
from edgewise.model.scenario import Scenario
from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.workloads.hours import at_hours

NETWORK_MEMORY_BYTES, SMALL_MEMORY_BYTES = 0.5e9, 0.05e9
FRAME_BYTES = 6e6  # 1920 x 1080 x 3
DETECTOR_INPUT_BYTES = 640 * 360 * 3.0
CROP_BYTES = 224 * 224 * 3.0
RESIZE_OPS = 1920 * 1080 * 50.0  # decode and scale: about 50 operations per pixel
MOBILENET_V2_OPS = 2 * 0.8e9  # SSDLite MobileNet-V2, 0.8 G multiply-adds (Sandler et al., table 6)
RESNET50_OPS = 2 * 4.1e9  # 224 x 224, 4.1 G multiply-adds
KALMAN_OPS = 1e6
ATTRIBUTE_BYTES, EMBEDDING_BYTES = 1e3, 2048 * 4.0  # class scores; 2048 floats for re-identification


def recognition_graph() -> TaskGraph:
    """Object attribute recognition, ten modules (ENTS fig. 9): source, detector, seven networks, tracker."""
    networks = [f"attribute{i}" for i in range(5)] + ["person-reid", "vehicle-reid"]
    tasks = [
        Task("source", RESIZE_OPS, SMALL_MEMORY_BYTES),
        Task("detector", MOBILENET_V2_OPS, NETWORK_MEMORY_BYTES),
    ]
    tasks += [Task(name, RESNET50_OPS, NETWORK_MEMORY_BYTES) for name in networks]
    tasks += [Task("tracker", KALMAN_OPS, SMALL_MEMORY_BYTES)]
    edges = [Edge("source", "detector", DETECTOR_INPUT_BYTES)]
    edges += [Edge("detector", name, CROP_BYTES) for name in networks]
    edges += [
        Edge(name, "tracker", EMBEDDING_BYTES if name.endswith("reid") else ATTRIBUTE_BYTES)
        for name in networks
    ]
    return TaskGraph("recognition", tuple(tasks), tuple(edges))


def random_graph(seed: int, number: int, least: int = 4, most: int = 12) -> TaskGraph:
    """A random task graph: `least` to `most` tasks, each after the first fed by one or two earlier ones.

    Work is 0.5 to 10 Gop a frame, memory 100 to 400 MB, data between tasks 1 to 60 kB (all log-uniform).
    """

    def draw(counter: int) -> float:
        return float(keyed.uniform(seed, Purpose.APPLICATION, number, counter))

    def between(low: float, high: float, counter: int) -> float:
        return float(low * (high / low) ** draw(counter))

    count = least + int(draw(0) * (most - least + 1))
    tasks = tuple(
        Task(f"task{i}", between(0.5e9, 10e9, 8 * i + 1), between(0.1e9, 0.4e9, 8 * i + 2))
        for i in range(count)
    )
    edges = []
    for i in range(1, count):
        feeds = {int(draw(8 * i + 3) * i)} | ({int(draw(8 * i + 5) * i)} if draw(8 * i + 4) < 0.4 else set())
        edges += [Edge(f"task{j}", f"task{i}", between(1e3, 60e3, 8 * i + 6)) for j in sorted(feeds)]
    return TaskGraph(f"random{number}", tasks, tuple(edges))


def pipelines_of(scenario: Scenario, seed: int) -> tuple[Pipeline, ...]:
    """The pipelines of a run, as they stand in the scenario.

    Args:
        scenario: with `pipelines`.
        seed: keys every draw of generated ones.
    Raises:
        ScenarioError: it holds none, or a task of a written one has to be profiled first.
    """
    nodes = network_of(scenario).names if scenario.pipelines else ()
    found: list[Pipeline] = []
    drawn = 0
    for spec in scenario.pipelines or ():
        if isinstance(spec, GeneratedPipelinesSpec):
            found += [
                made
                for made in _drawn(spec, seed, drawn, nodes, scenario.streams.begins_at_s)
                if made.arrival_s < scenario.duration_s
            ]
            drawn += spec.count  # no two entries draw alike
        else:
            found.append(pipeline_of(spec))
    if not found:
        raise ScenarioError(
            f"scenario {scenario.name!r}: holds no pipelines that come before its end; add a section "
            "`pipelines`, or raise duration_s"
        )
    return tuple(found)


def _drawn(
    spec: GeneratedPipelinesSpec, seed: int, first: int, nodes: tuple[str, ...], begins_at_s: float
) -> list[Pipeline]:
    number = first + np.arange(spec.count)
    gaps = -np.log(keyed.uniform(seed, Purpose.ARRIVAL, number, 0)) / spec.rate_qps
    sources = (keyed.uniform(seed, Purpose.STREAM, number, 0) * len(nodes)).astype(np.int64)
    arrivals_s = at_hours(np.cumsum(gaps), spec.by_hour, begins_at_s)
    shared = recognition_graph()
    return [
        Pipeline(
            f"{spec.name}-{i}",
            shared if spec.generate == "recognition" else random_graph(seed, first + i),
            nodes[source],
            FRAME_BYTES,
            spec.frames,
            spec.length_s,
            arrival_s,
            spec.name,
            spec.image_bytes,
            spec.start_s,
        )
        for i, (source, arrival_s) in enumerate(zip(sources.tolist(), arrivals_s.tolist(), strict=True))
    ]
