"""The demo's three tiers: what is emulated, what is real, and how far rates are scaled to this machine.

Real: pictures drawn here, two PP-OCR networks on ONNX Runtime, HTTP, gateways, the core, processes.
Emulated: links, and the processing delays of the devices named in `VARIANTS`; a worker runs the
network, then waits until its device would have been done.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewise.config import load_scenario
from edgewise.core.keyed import Purpose, uniform
from edgewise.demo.reading import model_file, picture, scene
from edgewise.model.parsing import parse_scenario
from edgewise.model.scenario import Application, Scenario
from edgewise.model.work import Stream
from edgewise.parallel import processors
from edgewise.runtime.protocol.messages import InferRequest
from edgewise.runtime.worker.onnx_model import OnnxModel

FIND, READ = "find-text", "read-text"
READERS = ("workout", "face", "assembly", "cars")  # applications that wait longer read; the others find
# variant: task, accuracy (COCO AP50 of the detector it emulates), delay of that detector there, queries/s.
# Boxes at the edge take little: whoever fills them with what could go on leaves no room for what cannot.
VARIANTS: dict[str, tuple[str, float, float, float]] = {
    "finder-edge": (FIND, 55.3, 0.0094, 26),
    "finder-office": (FIND, 34.3, 0.0065, 130),
    "finder-cloud": (FIND, 55.3, 0.0070, 140),
    "reader-edge": (READ, 55.3, 0.036, 7),
    "reader-office": (READ, 34.3, 0.020, 40),
    "reader-cloud": (READ, 55.3, 0.016, 60),
}
WORKERS = (
    ("finder-edge", "edge-0"), ("finder-edge", "edge-1"), ("reader-edge", "edge-0"),
    ("reader-edge", "edge-1"), ("finder-office", "office"), ("reader-office", "office"),
    ("finder-cloud", "cloud"), ("reader-cloud", "cloud"),
)  # fmt: skip
STREAMS = 84  # a good policy refuses one of thirteen, the closest worker for each one of five
PART = 0.2  # of the applications' rates: many small streams, so that one more or less moves no share far
SHARE = 0.25  # of this machine's cores that the networks may take; the rest is for gateways and clients
ALL = 0.5  # of them that everything together may take: room for bursts, and for what else runs here
OTHER_S = 0.0025  # CPU time of a query beside its network: client, gateway, worker
WORDS = ("GATE 7", "KA 42", "HOME 3", "press", "1984", "Tor 1", "EXIT", "hello")


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Time of one run of each network here; `busy` is how much longer than its CPU time it takes."""

    find_s: float
    read_s: float
    busy: float


def measure(repeats: int = 40) -> RunTimes:
    """Mean time of the detector on a scene and the recogniser on a line, while all processors run one."""
    find_s, find_cpu_s = _timed("det", scene("warm up", 8, 8), repeats)
    read_s, read_cpu_s = _timed("rec", picture("warm"), repeats)
    return RunTimes(find_s, read_s, (find_s + read_s) / (find_cpu_s + read_cpu_s))


def _timed(kind: str, pixels: np.ndarray[Any, np.dtype[np.float32]], repeats: int) -> tuple[float, float]:
    """Mean time and CPU time of a run, with as many at once as there are processors."""
    file = model_file(kind)
    model = OnnxModel(kind, file, file.parent)
    request = InferRequest({name: pixels for name in model.inputs})

    def run(times: int) -> None:
        for _ in range(times):
            model.run(request)

    run(3)
    cores = processors()
    with ThreadPoolExecutor(cores) as pool:
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        list(pool.map(run, [repeats] * cores))
        took_s, took_cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    return took_s / repeats, took_cpu_s / (repeats * cores)


def applications() -> tuple[Application, ...]:
    """The ten reference applications with their deadlines, rates and mix; each finds or reads text."""
    return tuple(
        a.model_copy(
            update={
                "task": READ if a.name in READERS else FIND,
                "size_bytes": float(payload_bytes(a.name)),
            }
        )
        for a in load_scenario("three-tier").streams.applications
    )


def payload_bytes(application: str) -> int:
    """Size of an application's query as it is sent."""
    pixels = picture("x") if application in READERS else scene("x", 0, 0)
    return int(pixels.nbytes)


def streams(seconds: float, seed: int, count: int = STREAMS) -> list[Stream]:
    """`count` streams that open in the first fifth and stay to the end; rates not yet scaled to the machine.

    Every seed draws about the same load: applications as often as their weights say, their needs spread
    evenly. It draws who has which, at which site and when.
    """
    kinds = applications()
    edges = np.cumsum([kind.weight for kind in kinds])
    draws = uniform(seed, Purpose.APPLICATION, np.arange(count)[:, None], np.arange(4))
    ranks = draws.argsort(axis=0).argsort(axis=0)
    which = np.searchsorted(edges / edges[-1], (ranks[:, 0] + draws[:, 3]) / count)
    needs = (ranks[:, 2] + 0.5) / count
    made: list[Stream] = []
    for i in np.argsort(draws[:, 1]):
        kind = kinds[which[i]]
        rate, deadline = (low + needs[i] * (high - low) for low, high in (kind.rate_qps, kind.deadline_s))
        made.append(
            Stream(
                len(made), int(i) % 2, kind.name, kind.task, float(draws[i, 1] * seconds / 5), seconds,
                PART * rate, kind.size_bytes, deadline, kind.min_accuracy, kind.priority, kind.arrivals,
            )
        )  # fmt: skip
    return made


def scale(unscaled: list[Stream], costs: RunTimes) -> float:
    """Factor on rates and capacities with which this machine carries the streams; at most 1."""
    cores = processors()
    run_s = {FIND: costs.find_s, READ: costs.read_s}
    networks = sum(s.rate_qps * run_s[s.task] for s in unscaled)
    everything = networks + costs.busy * OTHER_S * sum(s.rate_qps for s in unscaled)
    return min(1.0, SHARE * cores / networks, ALL * cores / everything)


def scenario(factor: float, seconds: float) -> Scenario:
    """Two access sites, a central office and a cloud; capacities times `factor`."""
    gear = {"cpu_cores": 8, "memory_bytes": 16e9}
    files = {FIND: str(model_file("det")), READ: str(model_file("rec"))}
    places = {name: (k > 1) + (k > 2) for k, name in enumerate(("edge-0", "edge-1", "office", "cloud"))}
    data: dict[str, Any] = {
        "name": "demo", "duration_s": seconds, "window_s": min(5.0, seconds), "telemetry": {"period_s": 1},
        "catalog": {
            "models": [
                {"name": f"{v}-model", "task": task, "accuracy": accuracy}
                for v, (task, accuracy, _, _) in VARIANTS.items()
            ],
            "variants": [
                {"name": v, "model": f"{v}-model", "resources": {"cpu_cores": 1}, "file": files[task],
                 "profile": {"fixed_s": delay_s, "deviation": 0.05, "source": "emulated device"},
                 "capacity_qps": rate * factor, "largest_bytes": max(map(payload_bytes, ("face", "pool")))}
                for v, (task, _, delay_s, rate) in VARIANTS.items()
            ],
        },
        "clusters": [
            {"name": name, "tier": tier, "nodes": [{"name": f"{name}-node", "resources": gear}]}
            for name, tier in places.items()
        ],
        "sites": [{"name": "site", "count": 2, "access_delay_s": 0.003, "uplink_bps": 1e9}],
        "links": [
            {"site": f"site-{s}", "cluster": f"edge-{c}", "delay_s": 0.0003 if s == c else 0.006,
             "deviation_s": 0.00005 if s == c else 0.0005}
            for s in (0, 1) for c in (0, 1)
        ] + [
            {"site": "*", "cluster": "office", "delay_s": 0.003, "deviation_s": 0.0003},
            {"site": "*", "cluster": "cloud", "delay_s": 0.025, "deviation_s": 0.004},
        ],
        "workers": [{"variant": v, "cluster": cluster} for v, cluster in WORKERS],
        "streams": {
            "gateways": "one",  # as the system that is measured, see `running`
            "applications": [
                {"name": a.name, "task": a.task, "rate_qps": [factor * PART * r for r in a.rate_qps],
                 "size_bytes": a.size_bytes, "deadline_s": list(a.deadline_s), "length_s": seconds,
                 "min_accuracy": a.min_accuracy, "weight": a.weight}
                for a in applications()
            ],
            "arrivals": {"clients_per_min": STREAMS * 60 / seconds / 2},
        },
    }  # fmt: skip
    return parse_scenario(data, "demo")


def query(stream: Stream) -> tuple[str, np.ndarray[Any, np.dtype[np.float32]]]:
    """What a stream sends: a word, and its picture."""
    word = WORDS[stream.id % len(WORDS)]
    if stream.task == READ:
        return word, picture(word)
    return word, scene(word, 4 + 5 * stream.id % 40, 6 + 3 * stream.id % 30)
