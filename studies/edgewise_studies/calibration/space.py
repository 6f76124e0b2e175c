"""What ASET's paper leaves open, in ranges; a point in them is a world, and has six settings.

Points are a Latin hypercube: every range is cut into as many parts as there are worlds, and each part is used
once. The same number always means the same world.
"""

import math
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from edgewise.arrays import Floats
from edgewise.core.keyed import Key
from edgewise.errors import EdgewiseError
from edgewise.model.parsing import parse_scenario
from edgewise.model.scenario import Application, Scenario
from edgewise.model.topology import Variant
from edgewise.workloads.generate import queries_per_client
from edgewise_studies.twins import as_published

SHIPPED = -1  # number of the world that ships, of as many antennas
WORLDS = 512  # of the hypercube; how many are measured is said beside every figure
KEY = Key(500_000)  # of the hypercube and of the mixes
ANTENNAS = 5  # those of one central office
LOAD_QPS = 985.0  # of an antenna at 60 clients/min: "almost 1000"; at 100 it is 1,642: "more than 1600"
DURATION_S = 480.0

# Values of what has no order, the shipped one first.
OFFICES: tuple[Mapping[str, float], ...] = (
    {
        "yolov3-v100-b8": 1, "yolov3-t4-b1": 1, "yolov3-t4-b4": 1,
        "mobilenet-ssd-cpu8": 2, "tiny-yolov2-cpu8": 1,
    },
    {"yolov3-v100-b8": 1, "yolov3-cpu32": 1, "mobilenet-ssd-cpu2": 1},
    {
        "yolov3-t4-b1": 1, "yolov3-t4-b4": 1, "mobilenet-ssd-t4-b8": 1,
        "mobilenet-ssd-cpu4": 1, "tiny-yolov2-cpu4": 1,
    },
)  # fmt: skip
CENTRES: tuple[Mapping[str, float], ...] = (
    {"yolov3-v100-b8": 2, "mobilenet-ssd-cpu8": 1},
    {"yolov3-v100-b8": 1, "yolov3-cpu32": 1, "mobilenet-ssd-cpu4": 1, "tiny-yolov2-cpu4": 1},
)
CLOUDS: tuple[Mapping[str, float], ...] = (
    {"yolov3-v100-b8": 1, "mobilenet-ssd-cpu8": 1},
    {"yolov3-cpu32": 2, "mobilenet-ssd-cpu1": 1, "tiny-yolov2-cpu1": 1, "yolov3-v100-b8": 1},
)
ACCESSES: tuple[Mapping[str, float], ...] = (
    {"mobilenet-ssd-tpu": 1, "mobilenet-ssd-cpu4": 1, "tiny-yolov2-cpu2": 1},
    {"mobilenet-ssd-tpu": 1, "mobilenet-ssd-cpu1": 2, "tiny-yolov2-cpu1": 1, "yolov3-cpu8": 1},
)
FEEDBACK = (("one", 1.0), ("per_site", 1.0), ("per_site", 5.0))  # gateways, period of news in s
SSD_ACCURACY = (34.3, 37.3)  # AP50 of MobileNet-SSD: the catalog's, and that of full-edge-scarce


class Range(NamedTuple):
    """What one open parameter may be, and what the paper says of it.

    log: whether its logarithm is drawn evenly; of choices, `high` is their number.
    """

    low: float
    high: float
    log: bool
    paper: str


RANGES: Mapping[str, Range] = {
    "mix_spread": Range(0.0, 1.2, False, "how often clients pick which application: only the load, V-A"),
    "longest_s": Range(60.0, 1800.0, True, "sessions of up to 30 min in episodes of 8, table I"),
    "fill": Range(0.5, 1.0, True, "how full a worker may be booked, so how far its queue may grow: nothing"),
    "office_servers": Range(1.0, 12.0, True, "tens of servers for the antennas of an office, V-A"),
    "centre_servers": Range(100.0, 900.0, True, "hundreds of servers, V-A"),
    "cloud_servers": Range(250.0, 1000.0, True, "unlimited, V-A"),
    "delays": Range(0.7, 1.5, True, "few ms, order of ten, few tens, V-A"),
    "deviations": Range(1.0, 8.0, True, "there are deviations, III-B"),
    "office": Range(0, len(OFFICES), False, "CPU and GPU variants, few GPUs, V-A"),
    "centre": Range(0, len(CENTRES), False, "the same"),
    "cloud": Range(0, len(CLOUDS), False, "the same"),
    "access": Range(0, len(ACCESSES), False, "8-16 cores and a small TPU, V-A"),
    "ssd": Range(0, len(SSD_ACCURACY), False, "which mAP, of which training of MobileNet-SSD: nothing"),
    "feedback": Range(0, len(FEEDBACK), False, "a monitoring agent tells each scheduler, V-A"),
    "retry": Range(0, 2, False, "whether refused streams ask again: nothing"),
}
CHOICES = ("office", "centre", "cloud", "access", "ssd", "feedback", "retry")
SETTINGS: Mapping[str, tuple[str, float | None]] = {
    "dc": ("dc-cloud", 60.0),
    "co": ("co-dc-cloud", 60.0),
    "edge": ("full-edge", 60.0),
    "edge-20": ("full-edge", 20.0),
    "edge-100": ("full-edge", 100.0),
    "burst": ("full-edge-burst", None),
}  # by name: topology, clients per minute and antenna

Point = dict[str, float]


def point(world: int) -> Point:
    """What is open, in the world of this number.

    Raises:
        EdgewiseError: there is no such world.
    """
    if not 0 <= world < WORLDS:
        raise EdgewiseError(f"world {world}: there are {WORLDS}; use 0 … {WORLDS - 1}")
    found = {}
    for column, (name, span) in enumerate(RANGES.items()):
        part = int(np.argsort(KEY.uniform(np.arange(WORLDS), 2 * column))[world])
        share = (part + float(KEY.uniform(world, 2 * column + 1))) / WORLDS
        if name in CHOICES:
            found[name] = float(int(share * span.high))
        elif span.log:
            found[name] = span.low * (span.high / span.low) ** share
        else:
            found[name] = span.low + share * (span.high - span.low)
    return found


@cache
def _base(name: str) -> Scenario:
    return as_published(name, {"topology.antennas": ANTENNAS})


def scenario_of(world: int, setting: str) -> Scenario:
    """One of the six settings of a world."""
    name, rate = SETTINGS[setting]
    if world == SHIPPED:
        given = {} if rate is None else {"streams.arrivals.clients_per_min": rate}
        return as_published(name, {"topology.antennas": ANTENNAS, **given})
    at, base = point(world), _base(name)
    data: dict[str, Any] = base.spec.model_dump(mode="json", exclude_none=True)
    gateways, period_s = FEEDBACK[int(at["feedback"])]
    data["name"], data["retry_refused"] = f"aset-{world}-{setting}", bool(at["retry"])
    data["streams"]["gateways"], data["telemetry"]["period_s"] = gateways, period_s
    if rate is not None:
        data["streams"]["arrivals"] = {"clients_per_min": rate}
    for model in data["catalog"]["models"]:
        if model["name"] == "mobilenet-ssd":
            model["accuracy"] = SSD_ACCURACY[int(at["ssd"])]
    for written, variant in zip(data["catalog"]["variants"], base.catalog.variants, strict=True):
        written["capacity_qps"] = at["fill"] * most_qps(variant)
    kept = [_shorter(each, at["longest_s"]) for each in base.streams.applications]
    weights = drawn_weights(kept, world, at["mix_spread"])
    for written, each, weight in zip(data["streams"]["applications"], kept, weights, strict=True):
        written["length_s"], written["weight"] = list(each.length_s), float(weight)
    for tier, changes in _tiers(at).items():
        if tier in data["topology"]:
            data["topology"][tier] |= changes
    return parse_scenario(data, data["name"])


def most_qps(variant: Variant) -> float:
    """Queries/s at the largest payload with every server busy, in the batches that are quickest per query."""
    batches = (1, variant.max_batch)
    return variant.servers * max(b / variant.profile.delay_s(variant.largest_bytes, b) for b in batches)


def _shorter(application: Application, longest_s: float) -> Application:
    low, high = application.length_s
    return application.model_copy(update={"length_s": (min(low, longest_s), min(high, longest_s))})


def _tiers(at: Point) -> dict[str, dict[str, Any]]:
    """Servers, workers and delays of each tier, of which a topology may have fewer."""
    tiers = {
        "access": (1.0, ACCESSES[int(at["access"])], 0.0003, 5e-05),
        "central_office": (at["office_servers"], OFFICES[int(at["office"])], 0.002, 0.0003),
        "data_centre": (at["centre_servers"], CENTRES[int(at["centre"])], 0.005, 0.0004),
        "cloud": (at["cloud_servers"], CLOUDS[int(at["cloud"])], 0.015, 0.002),
    }
    return {
        name: {
            "servers": round(servers),
            "mix": dict(mix),
            "delay_s": delay_s * at["delays"],
            "deviation_s": deviation_s * at["deviations"],
        }
        for name, (servers, mix, delay_s, deviation_s) in tiers.items()
    }


def drawn_weights(applications: list[Application], world: int, spread: float) -> Floats:
    """(A,) weights that bring the paper's load, nearest to those of a world.

    p_a ∝ exp(s z_a - μ m_a)

    with a normal z_a of the world, the spread s and the queries per client m_a: of all shares that bring the
    load, the ones of least relative entropy to exp(s z_a). With s = 0 they are the shipped ones.
    """
    from scipy.optimize import brentq
    from scipy.special import ndtri

    queries = np.array([queries_per_client(each, DURATION_S) for each in applications])
    normal = ndtri(KEY.uniform(np.arange(len(applications)), 1000 + world))

    def shares(slope: float) -> Floats:
        exponent = spread * normal - slope * queries / queries.max()
        # Neither numpy's exponentials nor its product of vectors: they round as the processor does,
        # and what is made here is frozen by its hash.
        tilted = np.array([math.exp(each) for each in exponent - exponent.max()])
        made: Floats = tilted / tilted.sum()
        return made

    def load_qps(slope: float) -> float:
        return float(np.cumsum(shares(slope) * queries)[-1])

    found = brentq(lambda slope: load_qps(slope) - LOAD_QPS, -200.0, 200.0, xtol=1e-10)
    return shares(found)
