"""Small worlds of cameras, each with one thing that is too small; figures are worked out by hand."""

from typing import Any

import edgewise as ew
from edgewise.model.parsing import parse_scenario
from edgewise.model.scenario import Scenario

QPS, BYTES = 5.0, 50e3


def world(
    *,
    wan: str = "100Mbps",
    per_min: float = 2400,
    box_cores: float = 2,
    workers: Any = 1,
    deadline: Any = "200ms",
    accuracy: float = 20,
    sharing: str = "fifo",
    duration_s: float = 60,
) -> dict[str, Any]:
    """A site with boxes, whose workers of 2 cores do 40 queries/s each, and a cloud behind a link `wan`.

    Accurate work, above 40, is done in the cloud alone.

    Args:
        per_min: clients per minute, each of whom stays for 3 s.
        box_cores: of the box.
        workers: how many there are on it, or "fill".
        deadline, accuracy: what clients ask for.
    """
    return {
        "name": "planted",
        "duration_s": duration_s,
        "window_s": 10,
        "sharing": sharing,
        "catalog": {
            "models": [
                {"name": "small", "task": "detection", "accuracy": 30},
                {"name": "large", "task": "detection", "accuracy": 50},
            ],
            "variants": [
                variant("small-cpu", "small", 2, "25ms"),
                variant("large-gpu", "large", 1, "10ms"),
            ],
        },
        "clusters": [
            {"name": "box", "tier": 0, "nodes": [node("box", box_cores)]},
            {"name": "cloud", "tier": 1, "nodes": [node("cloud", 64)]},
        ],
        "sites": [{"name": "site", "cluster": "box", "access_delay_s": "1ms", "uplink_bps": "1Gbps"}],
        "links": [
            {"site": "site", "cluster": "box", "delay_s": "1ms"},
            {"site": "site", "cluster": "cloud", "delay_s": "20ms", "over": "wan"},
            {"name": "wan", "bandwidth_bps": wan},
        ],
        "workers": [
            {"variant": "small-cpu", "cluster": "box", "count": workers},
            {"variant": "large-gpu", "cluster": "cloud", "count": 8},
        ],
        "streams": {
            "applications": [
                {
                    "name": "camera",
                    "task": "detection",
                    "rate_qps": QPS,
                    "size_bytes": BYTES,
                    "deadline_s": deadline,
                    "length_s": 3,
                    "min_accuracy": accuracy,
                }
            ],
            "arrivals": {"clients_per_min": per_min},
        },
    }


def variant(name: str, model: str, cores: float, takes: str) -> dict[str, Any]:
    """That does one query at a time."""
    return {
        "name": name,
        "model": model,
        "resources": {"cpu_cores": cores, "memory_bytes": "100MB"},
        "profile": {"fixed_s": takes},
        "largest_bytes": BYTES,
    }


def node(name: str, cores: float) -> dict[str, Any]:
    """With memory for all."""
    return {"name": name, "resources": {"cpu_cores": cores, "memory_bytes": "64GB"}}


def scenario(**given: Any) -> Scenario:
    """The world, built."""
    return parse_scenario(world(**given), "planted")


def written(folder: Any, **given: Any) -> str:
    """The world in a file."""
    from edgewise.config import dump_scenario

    file = folder / "planted.yaml"
    file.write_text(dump_scenario(scenario(**given)))
    assert ew.load_scenario(file).name == "planted"
    return str(file)


FULL_LINK: dict[str, Any] = {"accuracy": 40, "wan": "20Mbps", "per_min": 240}
"""12 streams of 2 Mbit/s each are there at a time: 24 of 20 Mbit/s, from the fourth second on."""
FULL_BOXES: dict[str, Any] = {"deadline": "40ms", "per_min": 240}
"""12 streams of 5 queries/s for one worker of 40 queries/s on a box of 2 cores; the cloud is too far."""
FEW_WORKERS: dict[str, Any] = {"deadline": "40ms", "per_min": 240, "box_cores": 8}
"""The same where the box has room for three more."""
NO_VARIANT: dict[str, Any] = {"accuracy": 60, "per_min": 60}
"""Nothing is so accurate."""
NO_TIME: dict[str, Any] = {"accuracy": 40, "deadline": "40ms", "per_min": 60}
"""What is accurate is 52 ms and the way of the payload away."""
