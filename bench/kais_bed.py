"""KaiS's system at the size of the Kubernetes bed: two sites of two nodes, a cloud, and requests that swing.

    python -m bench.kais_bed FOLDER          train KaiS on it, and our evolved form of it (needs torch)

Nodes are the bed's, `n1` to `n5`; what a replica takes of them is small, since the machine is, and times on
replicas are emulated. Each node has room for four replicas. What comes keeps eight busy in the mean, and
thirteen at its peak; of which services changes all the time.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import yaml

from edgewise import policies
from edgewise.config import parse_scenario
from edgewise.core.orchestrate import Requests
from edgewise.model.scenario import Scenario
from edgewise.workloads.services import COLUMNS, simulated_services

SITES = ("west", "east")
SERVICE_S = {"count": 0.6, "read": 0.8, "track": 1.0, "search": 1.2}  # time on a replica
SLACK = (1.5, 3.0)  # deadline over time on a replica, as published
RATE_QPS, PAYLOAD_BYTES = 8.8, 100e3
SWING, PERIOD_S = 0.9, 240.0  # of each service's share, a quarter of a period after the other's
TIDE, TIDE_S = 0.5, 600.0  # of all of them
FRAME_S, SLOT_S = 15.0, 0.1
EPISODE_S, GENERATIONS = 150.0, 14  # of a training
EPISODES, WORLDS, COPIES = 40, 16, 2  # of that of the networks, as in `edgewise reproduce kais`
GPG_EPISODE_S, GPG_EPISODES, GPG_WORLDS = 300.0, 160, 8  # of that of GPG alone, as there
CMMAC, GPG, EVOLVED = "kais-bed", "kais-bed-gpg", "kais-bed-evolved"  # names of cards
VALIDATION = range(500_000, 500_005)


def main() -> None:
    """Train both; a training that was stopped goes on."""
    parser = argparse.ArgumentParser(prog="python -m bench.kais_bed", description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    train(folder)


def train(folder: Path) -> None:
    """KaiS's networks, and our evolved form, on worlds of this system; cards.

    Orchestration that is trained together with dispatch, for as short, learns little here; what is used is
    GPG trained alone, for longer and with a smaller step, as where the paper's claims on it were tried.
    """
    from edgewise.learn import harness
    from edgewise_studies.training.kais.gpg import ScaleConfig
    from edgewise_studies.training.kais.judged import Fixed
    from edgewise_studies.training.kais.settings import TrainingSetting
    from edgewise_studies.training.kais.train import EvolveConfig, Search, Training, TrainingConfig
    from edgewise_studies.training.methods import teachers

    published = TrainingConfig(worlds=WORLDS, copies=COPIES, episodes=EPISODES)
    alone = TrainingConfig(None, ScaleConfig(rate=3e-4), GPG_WORLDS, GPG_WORLDS, GPG_EPISODES)
    others = Fixed(policies.load("requests", "two-choices"), policies.load("orchestrate", "none"))

    def setting(length_s: float) -> TrainingSetting:
        given = simulated_services(world(length_s))
        return TrainingSetting("kais-bed", given.system, lambda seeds: draw(seeds, length_s), given.slots)

    trainers = {
        EVOLVED: Search(setting(EPISODE_S), EvolveConfig(generations=GENERATIONS, worlds=WORLDS)),
        CMMAC: Training(setting(EPISODE_S), published, teachers()),
        GPG: Training(setting(GPG_EPISODE_S), alone, others),
    }
    for name, trainer in trainers.items():
        command = "python -m bench.kais_bed FOLDER"
        harness.train(trainer, folder, name, command=command, validation=VALIDATION, step=print)


def world(duration_s: float, requests: Path | None = None) -> Scenario:
    """The scenario; `requests` is a file of what comes, as `write` writes it."""
    variants = [
        {
            "name": name, "model": name, "resources": {"cpu_cores": 0.1, "memory_bytes": "200MB"},
            "profile": {"fixed_s": time_s, "source": "made up for this comparison"}, "largest_bytes": 1000,
        }
        for name, time_s in SERVICE_S.items()
    ]  # fmt: skip
    node = {"cpu_cores": 0.5, "memory_bytes": "850MB"}
    nodes = {"west": ("n1", "n2"), "east": ("n3", "n4"), "cloud": ("n5",)}
    comes = {"file": str(requests)} if requests else {"rate_qps": RATE_QPS, "service_s": 0.9}
    text = {
        "name": "kais-bed", "duration_s": duration_s, "sharing": "none",
        "catalog": {
            "models": [{"name": name, "task": f"to-{name}", "accuracy": 50} for name in SERVICE_S],
            "variants": variants,
        },
        "clusters": [
            {
                "name": name, "tier": int(name == "cloud"),
                "nodes": [{"name": each, "resources": node} for each in of],
            }
            for name, of in nodes.items()
        ],
        "sites": [{"name": f"at-{name}", "cluster": name, "uplink_bps": "1Gbps"} for name in SITES],
        "links": [
            {"site": "*", "cluster": "own", "delay_s": "1ms", "over": "lan-{site}"},
            {"site": "*", "cluster": "*", "delay_s": "10ms", "over": "lan-{site}"},
            {"site": "*", "cluster": "cloud", "delay_s": "100ms", "over": "wan"},
            {"name": "lan-{site}", "bandwidth_bps": "1Gbps"},
            {"name": "wan", "bandwidth_bps": "20Mbps"},
        ],
        "workers": [{"variant": name, "cluster": "cloud"} for name in SERVICE_S],
        "policies": {"requests": "greedy", "orchestrate": "autoscaler"},
        "services": {
            "cloud": "cloud", "frame_s": FRAME_S, "slot_s": SLOT_S, "nodes_per_frame": 2,
            "cores_held": "request", "start_delay_s": 5.0,
            "offered": [{"variant": name, "deadline_s": 2.0 * s} for name, s in SERVICE_S.items()],
            "requests": comes,
        },
    }  # fmt: skip
    return parse_scenario(yaml.safe_load(yaml.safe_dump(text)), "kais-bed")


def rates_qps(at_s: np.ndarray) -> np.ndarray:
    """(S, …) arrivals a second of each service, all sites together."""
    number = len(SERVICE_S)
    phases = np.arange(number).reshape(-1, *[1] * at_s.ndim) / number
    shares = 1.0 + SWING * np.sin(2.0 * np.pi * (at_s / PERIOD_S + phases))
    tide = 1.0 + TIDE * np.sin(2.0 * np.pi * at_s / TIDE_S)
    return np.asarray(RATE_QPS / number * shares * tide)


def draw(seeds: Sequence[int], duration_s: float, cores: float = 0.1) -> Requests:
    """Worlds of requests that come Poisson at these rates, at both sites; each seed has its own phase."""
    rows = [_one(np.random.default_rng([seed, 20_261_128]), duration_s) for seed in seeds]
    most = max(len(each) for each in rows)
    padded = np.zeros((len(rows), most, 4))
    for w, each in enumerate(rows):
        padded[w, : len(each)] = each
    service = padded[:, :, 2].astype(np.int64)
    time_s, count = np.array(list(SERVICE_S.values()))[service], np.array([len(each) for each in rows])
    held = np.full(service.shape, cores)
    return Requests(
        count=count, arrival_s=padded[:, :, 0], site=padded[:, :, 1].astype(np.int64), service=service,
        deadline_s=padded[:, :, 0] + padded[:, :, 3] * time_s, work_core_s=time_s * held, cpu_cores=held,
        memory_bytes=np.zeros(service.shape), payload_bytes=np.full(service.shape, PAYLOAD_BYTES),
    )  # fmt: skip


def _one(rng: np.random.Generator, duration_s: float) -> np.ndarray:
    """(R, 4) arrival, site, service and slack of a world's requests, by arrival."""
    most_qps = RATE_QPS * (1.0 + SWING) * (1.0 + TIDE)
    at_s = np.sort(rng.uniform(0.0, duration_s, rng.poisson(most_qps * duration_s)))
    of_each = rates_qps(at_s + rng.uniform(0.0, PERIOD_S * TIDE_S))
    below = rng.uniform(0.0, most_qps, at_s.size)[None, :] >= np.cumsum(of_each, axis=0)
    service = below.sum(axis=0)
    comes = service < len(SERVICE_S)  # the others are thinned away
    site, slack = rng.integers(0, len(SITES), at_s.size), rng.uniform(*SLACK, at_s.size)
    return np.stack([at_s, site, service, slack], axis=1)[comes]


def write(file: Path, seed: int, duration_s: float) -> None:
    """What comes with a seed, as scenarios read it (`services.requests.file`)."""
    drawn, names = draw([seed], duration_s), list(SERVICE_S)
    columns = (
        drawn.arrival_s[0], drawn.site[0], drawn.service[0], (drawn.deadline_s - drawn.arrival_s)[0],
        drawn.service_s()[0], drawn.payload_bytes[0],
    )  # fmt: skip
    with file.open("w", newline="", encoding="utf-8") as to:
        lines = csv.writer(to)
        lines.writerow(COLUMNS)
        for at_s, site, service, *rest in zip(*(column.tolist() for column in columns), strict=True):
            lines.writerow([f"{at_s:.6f}", f"at-{SITES[site]}", names[service], *(f"{x:.6g}" for x in rest)])


if __name__ == "__main__":
    main()
