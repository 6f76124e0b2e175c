"""KaiS against what Kubernetes does, live on a real Kubernetes and simulated.

    sudo .venv-beds/bin/python -m bench.kais_on_kubernetes --seeds 0:2 --cards FOLDER --out FOLDER

Three systems of edgewise run one after the other in one cluster (the bed's: five nodes), each in a namespace
of its own and with the same room on every node; side by side they would wait for each other on a small
machine. Each gets the requests of the seed (`bench.kais_bed`), and starts and ends replicas as pods:

    KaiS         dispatch by cMMAC, replicas by GPG: networks that were trained on this system, as published
    Kubernetes   round robin over ready pods, replicas by the horizontal autoscaler (`bench.kubernetes_rules`)
    evolved      our form of KaiS's networks, trained there, too

What came in time is read from the records of each live system, and set beside the simulation of the same
requests under the same policies. The folder gets `runs.jsonl`, a line for each seed and method, and
`index.md`. What has its line is not run again, so what was broken off goes on by the same command.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np

from beds.kubernetes import Cluster
from beds.kubernetes.cluster import is_ready
from beds.kubernetes.network import HOST_SIDE
from bench import kais_bed, kubernetes_rules, pod_ready
from bench.left_out import nursing
from bench.live_beside import read_rows
from edgewise import api
from edgewise.cli.deciding import switch
from edgewise.cli.verbs import parse_seeds
from edgewise.parallel import processors
from edgewise.profiling.quiet import Watch
from edgewise.run.live import live_run
from edgewise.run.result import Result
from edgewise.runtime.backends.kubernetes.system import OnCluster, settings_of
from edgewise.runtime.backends.system import KUBERNETES
from edgewise.runtime.clients.all_work import bring
from edgewise.runtime.controller.plan import ChosenBackend, Emulation, prepare

DURATION_S = 900.0
SITES = {"west": 2, "east": 2, "cloud": 1}
PATIENCE_S, LATER_S = 600.0, 5.0
RULES = f"{Path(kubernetes_rules.__file__).resolve()}:"
LOOK_S = 5.0  # between two counts of pods


def methods(cards: Path) -> dict[str, dict[str, str]]:
    """Policies of each method."""
    dispatch, replicas, evolved = (
        str((cards / f"{name}.json").resolve()) for name in (kais_bed.CMMAC, kais_bed.GPG, kais_bed.EVOLVED)
    )
    return {
        "KaiS": {"requests": dispatch, "orchestrate": replicas},
        "Kubernetes": {"requests": f"{RULES}RoundRobin", "orchestrate": f"{RULES}TunedAutoscaler"},
        "evolved": {"requests": evolved, "orchestrate": evolved},
    }


def main() -> None:
    """Run the seeds that have no lines yet, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m bench.kais_on_kubernetes", description=__doc__)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--seconds", type=float, default=DURATION_S, help="of a run")
    parser.add_argument("--cards", type=Path, required=True, help="of `python -m bench.kais_bed`")
    parser.add_argument(
        "--image", type=Path, help="a folder where the image is made, and found the next time"
    )
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    how, done = methods(chosen.cards), {(row["seed"], row["method"]) for row in read_rows(chosen.out)}
    left = [each for each in product(parse_seeds(chosen.seeds), how) if each not in done]
    if left:
        with tempfile.TemporaryDirectory() as folder, Cluster(sites=SITES) as cluster:
            image = pod_ready.kept_image(chosen.image or Path(folder))
            cluster.load(image)
            for seed, method in left:
                row = one(cluster, image.name, (method, how[method]), seed, chosen.seconds)
                print(json.dumps(row), flush=True)
                with (chosen.out / "runs.jsonl").open("a") as file:
                    file.write(json.dumps(row) + "\n")
                write_page(chosen.out)


def one(
    cluster: Cluster, image: str, what: tuple[str, dict[str, str]], seed: int, seconds: float
) -> dict[str, Any]:
    """A seed's requests at a method, live and simulated."""
    method, policies = what
    space = f"kais-{method.lower()}-{seed}"
    with tempfile.TemporaryDirectory() as name, ExitStack() as running:
        folder, state = Path(name), Path(name) / method
        kais_bed.write(comes := folder / "requests.csv", seed, seconds)
        scenario = kais_bed.world(seconds, comes)
        on = running.enter_context(_on(cluster, space, image, state))
        prepared = prepare(
            state, scenario, given=policies | {"orchestrate": "none"}, emulation=Emulation(seed=seed),
            backend=ChosenBackend(KUBERNETES, on),
        )  # fmt: skip
        running.enter_context(nursing(prepared, PATIENCE_S))
        # As simulated, nothing is decided before anything comes.
        switch(state, "policies", "orchestrate", policies["orchestrate"])
        counted = running.enter_context(Pods(cluster, space))
        watch = Watch()
        brought, busy = bring(state, seed, LATER_S), watch.cores()
        live = live_run(state, between_s=(brought.began_s, brought.began_s + seconds + LATER_S))
        running.close()
        return {
            "seed": seed, "seconds": seconds, "method": method,
            "policies": {decision: Path(name).name for decision, name in policies.items()},
            "waited": brought.waited, "busy": busy, "processors": processors(),
            "live": figures(live) | counted.figures(), "clients": brought.figures["services"],
            "simulated": figures(api.simulate(scenario, policies, [seed])),
        }  # fmt: skip


@contextmanager
def _on(cluster: Cluster, space: str, image: str, state: Path) -> Iterator[dict[str, Any]]:
    """Where a system runs: a namespace of its own, which is made, and removed with all that is in it."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space, "labels": labels}})
    cluster.wait(lambda: cluster.find("serviceaccount", "default", space) is not None, 60, "its account")
    try:
        yield settings_of(OnCluster(str(cluster.kubeconfig), space, image, HOST_SIDE, "Never"), state)
    finally:
        cluster.kubectl("delete", "namespace", space, "--wait", f"--timeout={PATIENCE_S:g}s")


class Pods:
    """Counts the pods of replicas of a namespace while it is entered.

    Args:
        space: the namespace.
    """

    def __init__(self, cluster: Cluster, space: str) -> None:
        self._cluster, self._space, self._over = cluster, space, Event()
        self._looking = Thread(target=self._look, daemon=True)
        self._seen, self._counts = set[str](), list[int]()

    def __enter__(self) -> Pods:
        self._looking.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._looking.join()

    def _look(self) -> None:
        while not self._over.wait(LOOK_S):
            rows = self._cluster.list("pod", "-n", self._space, "-l", "app.kubernetes.io/component=replica")
            ready = [each for each in rows if is_ready(each)]
            self._seen |= {each["metadata"]["name"] for each in ready}
            self._counts.append(len(ready))

    def figures(self) -> dict[str, float]:
        """Pods that were ready at some time, and how many were in the mean."""
        return {"pods": len(self._seen), "pods at once": float(np.mean(self._counts or [0]))}


def figures(of: Result) -> dict[str, float]:
    """Of a run's requests, live or simulated."""
    row, delays = of.summary()[0], of.delays()["services"]
    p95_s = max(each["p95_s"] for each in delays)
    return {"in time": row["in_time"] / row["arrived"], "requests": row["arrived"], "p95_s": p95_s}


COLUMNS = (
    "seed", "method", "requests", "in time, live", "simulated", "difference", "pods", "at once", "waited",
    "busy",
)  # fmt: skip
SAID = """
`python -m bench.kais_on_kubernetes`, on the bed's five nodes, one method after the other, each with the same
room and the same requests. Times on replicas and links are emulated; replicas are pods, which start and end
as the method says. *Simulated* is the same scenario, with the same requests and policies, by
`edgewise.simulate`. *Pods*: of replicas, that were ready at some time, and how many in the mean. *Waited*:
share of the time in which gateways and clients could have run in which they had no processor. *Busy*:
processors of the machine that all but the clients took, in the mean. Networks were trained on this system by
`python -m bench.kais_bed FOLDER`; their cards are in this folder, which `--cards` names.
"""


def write_page(folder: Path) -> None:
    """The summary of all runs of a folder."""
    rows = read_rows(folder)
    minutes, seeds = rows[0]["seconds"] / 60.0, {row["seed"] for row in rows}
    lines = ["# KaiS on a real Kubernetes", "", f"Runs of {minutes:g} minutes, {len(seeds)} of each method:"]
    lines += [*SAID.rstrip().splitlines()[1:], "", f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    for row in rows:
        live, simulated = row["live"], row["simulated"]
        apart = 100.0 * (live["in time"] - simulated["in time"])
        cells = (
            str(row["seed"]), row["method"], f"{live['requests']:g}", f"{live['in time']:.3f}",
            f"{simulated['in time']:.3f}", f"{apart:+.1f} points", f"{live['pods']:g}",
            f"{live['pods at once']:.1f}", f"{100 * row['waited']:.0f} %",
            f"{row['busy']:.2f} of {row['processors']}",
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    (folder / "index.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
