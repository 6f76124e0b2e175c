"""Networks and streaming jobs as in ENTS section VI, drawn by keyed randomness.

What the paper leaves open is fixed here, each with its reason:

- Speeds: effective rates of inference per core, 4 / 8 / 16 Gop/s for low / medium / high (Table I gives cores
  and classes only).
- Virtual machines: by turns 2 cores and 2 GB, 3 and 4, 2 and 2, 4 and 8; 62 of them take 248 of the 256 GB of
  both servers, so the largest network (70 nodes) is the whole test bed and small ones are parts of it.
- Bandwidth: normal around the mean with variance 0.3 at a mean of 1 Mbit/s, and the same relative spread at
  any mean; draws below a tenth of the mean are drawn again.
- Images between modules are raw, three bytes per pixel, like the 6 MB frames of the paper.
- Memory: a container with Python, a framework and a network takes 0.5 GB; source and tracker need 50 MB.
- Length: 20 s of running. At 0.5 jobs a second ten jobs then run at a time, the largest load at which jobs
  hardly wait on 30 nodes and more, as in the paper's fig. 11.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core import keyed
from edgewise.core.keyed import Purpose
from edgewise.errors import ScenarioError
from edgewise.model.jobs import Pipeline
from edgewise.model.network import Network
from edgewise.model.work import Edge, Task, TaskGraph

LOW_OPS, MEDIUM_OPS, HIGH_OPS = 4e9, 8e9, 16e9  # per core
GB = 1e9
# (prefix, how many at most, cores, operations per core and second, memory)
PHYSICAL = (
    ("pi", 4, 1, LOW_OPS, 1.0 * GB),
    ("nano", 2, 6, LOW_OPS, 4.0 * GB),
    ("xavier", 2, 6, MEDIUM_OPS, 8.0 * GB),
)
VIRTUAL = ((2, 2.0 * GB), (3, 4.0 * GB), (2, 2.0 * GB), (4, 8.0 * GB))  # cores and memory, by turns
DURATION_S = 20.0
RELATIVE_DEVIATION = 0.3**0.5
LEAST_SHARE = 0.1  # of the mean bandwidth
MEAN_DEGREE = 3.0

NETWORK_MEMORY_BYTES, SMALL_MEMORY_BYTES = 0.5 * GB, 0.05 * GB
FRAME_BYTES = 6e6  # 1920 x 1080 x 3
DETECTOR_INPUT_BYTES = 640 * 360 * 3.0
CROP_BYTES = 224 * 224 * 3.0
RESIZE_OPS = 1920 * 1080 * 50.0  # decode and scale: about 50 operations per pixel
MOBILENET_V2_OPS = 2 * 0.8e9  # SSDLite MobileNet-V2, 0.8 G multiply-adds (Sandler et al., table 6)
RESNET50_OPS = 2 * 4.1e9  # 224 x 224, 4.1 G multiply-adds
KALMAN_OPS = 1e6
ATTRIBUTE_BYTES, EMBEDDING_BYTES = 1e3, 2048 * 4.0  # class scores; 2048 floats for re-identification


def edge_network(seed: int, nodes: int = 30, mean_bps: float = 1e6) -> Network:
    """A random connected network of mean degree 3 with the node classes of ENTS Table I.

    Args:
        seed: keys every draw.
        nodes: 2 to 1,000; more than 70 go on with virtual machines.
        mean_bps: mean link bandwidth.
    Raises:
        ScenarioError: a value is out of range.
    """
    if not 2 <= nodes <= 1000:
        raise ScenarioError(f"nodes: {nodes} is not between 2 and 1000")
    if not mean_bps > 0:
        raise ScenarioError(f"mean_bps: {mean_bps!r} is not positive")
    names, speed, memory = _machines(nodes)
    ends = random_links(seed, nodes, MEAN_DEGREE)
    return Network(names, speed, memory, ends, mean_bps * _relative_bandwidth(seed, len(ends)))


def _machines(nodes: int) -> tuple[tuple[str, ...], Floats, Floats]:
    rows = [
        (f"{prefix}{i}", cores * ops, memory)
        for prefix, many, cores, ops, memory in PHYSICAL
        for i in range(many)
    ]
    for i in range(max(nodes - len(rows), 0)):
        cores, size = VIRTUAL[i % len(VIRTUAL)]
        rows.append((f"vm{i}", cores * HIGH_OPS, size))
    names, speed, memory = zip(*rows[:nodes], strict=True)
    return tuple(names), np.array(speed), np.array(memory)


def random_links(seed: int, nodes: int, mean_degree: float) -> Ints:
    """(L, 2) distinct links of a random connected graph: a random tree, then random further pairs."""
    turn = np.argsort(keyed.uniform(seed, Purpose.NETWORK, np.arange(nodes), 0), kind="stable")
    to = keyed.uniform(seed, Purpose.NETWORK, np.arange(nodes), 1)
    chosen = {_pair(turn[i], turn[int(to[i] * i)]) for i in range(1, nodes)}
    wanted = min(round(mean_degree * nodes / 2), nodes * (nodes - 1) // 2)
    counter = 0
    while len(chosen) < wanted:
        one, other = (keyed.uniform(seed, Purpose.NETWORK, [0, 1], 2 + counter) * nodes).astype(np.int64)
        counter += 1
        if one != other:
            chosen.add(_pair(one, other))
    return np.array(sorted(chosen), dtype=np.int64)


def _pair(one: np.int64, other: np.int64) -> tuple[int, int]:
    return min(int(one), int(other)), max(int(one), int(other))


def _relative_bandwidth(seed: int, links: int) -> Floats:
    normal = NormalDist(1.0, RELATIVE_DEVIATION)
    least = normal.cdf(LEAST_SHARE)  # drawing again below the least = drawing from what lies above it
    draws = keyed.uniform(seed, Purpose.NETWORK, np.arange(links), 1 << 20)
    return np.array([normal.inv_cdf(least + (1 - least) * float(u)) for u in draws])


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
        Task(f"task{i}", between(0.5e9, 10e9, 8 * i + 1), between(0.1 * GB, 0.4 * GB, 8 * i + 2))
        for i in range(count)
    )
    edges = []
    for i in range(1, count):
        feeds = {int(draw(8 * i + 3) * i)} | ({int(draw(8 * i + 5) * i)} if draw(8 * i + 4) < 0.4 else set())
        edges += [Edge(f"task{j}", f"task{i}", between(1e3, 60e3, 8 * i + 6)) for j in sorted(feeds)]
    return TaskGraph(f"random{number}", tasks, tuple(edges))


def streaming_jobs(
    seed: int,
    network: Network,
    count: int = 50,
    rate_per_s: float = 0.5,
    frames: float | None = None,
    duration_s: float | None = None,
    kind: str = "recognition",
) -> tuple[Pipeline, ...]:
    """Jobs that arrive as a Poisson process, each at a random node.

    Args:
        seed, network: every draw is keyed by the seed; sources are nodes of the network.
        count, rate_per_s: how many jobs, and arrivals per second.
        frames, duration_s: length of every job; one of them, 20 s when neither is given.
        kind: "recognition" or "random" graphs.
    Raises:
        ScenarioError: unknown kind, or the length is wrong.
    """
    if kind not in ("recognition", "random"):
        raise ScenarioError(f'kind: {kind!r} is not known; use "recognition" or "random"')
    if frames is None and duration_s is None:
        duration_s = DURATION_S
    number = np.arange(count)
    gaps = -np.log(keyed.uniform(seed, Purpose.ARRIVAL, number, 0)) / rate_per_s
    sources = (keyed.uniform(seed, Purpose.STREAM, number, 0) * len(network.names)).astype(np.int64)
    shared = recognition_graph()
    return tuple(
        Pipeline(
            f"job{i}",
            shared if kind == "recognition" else random_graph(seed, i),
            network.names[int(sources[i])],
            FRAME_BYTES,
            frames,
            duration_s,
            float(arrival),
        )
        for i, arrival in enumerate(np.cumsum(gaps))
    )
