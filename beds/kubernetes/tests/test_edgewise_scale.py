"""200 further nodes and 2,000 pods, which are simulated: what it costs the controller to follow them."""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("edgewise.runtime.store", reason="needs edgewise: pip install -e .")

from beds.kubernetes import Cluster
from beds.kubernetes.tests.test_edgewise_up import (  # noqa: F401
    SCENARIO,
    begins,
    command,
    given,
    metrics,
    up,
)
from edgewise.runtime.store import DATABASE, Store

NODES, PODS, GROUPS, POD_CORES = 200, 2000, 10, 0.5
MOST_BYTES = 300e6  # of the controller
CLOUD = "  - name: far\n    tier: 2\n    nodes:\n"
NODE = "      - {{name: {name}, resources: {{cpu_cores: 8, memory_bytes: 8GB}}}}\n"


def group(number: int) -> dict:
    """A tenth of the pods, of others."""
    labels = {"of": f"group-{number}"}
    asks = {"requests": {"cpu": f"{POD_CORES:g}", "memory": "64Mi"}}
    pod = {
        "nodeSelector": {"type": "kwok"}, "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "c", "image": "nothing", "resources": asks}],
    }  # fmt: skip
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": f"group-{number}"},
        "spec": {
            "replicas": PODS // GROUPS, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }  # fmt: skip


def held_of_others(folder: Path) -> dict[str, float]:
    """Cores that pods of others hold of each simulated node, as the ledger has them."""
    said = subprocess.check_output(command("nodes", "--state", "live", "--json"), cwd=folder, text=True)
    return {
        row["node"]: sum(
            each["cpu_cores"] for each in row["holders"] if each["owner"].startswith("others on")
        )
        for row in json.loads(said)
        if row["node"].startswith("fake-")
    }


def asked_for(cluster: Cluster) -> dict[str, float]:
    """The same, as the cluster has it."""
    held = dict.fromkeys((f"fake-{number}" for number in range(1, NODES + 1)), 0.0)
    for each in cluster.list("pod", "-l", "of"):
        if (node := each["spec"].get("nodeName")) in held:
            held[node] += POD_CORES
    return held


def memory_bytes(folder: Path) -> int:
    """Resident memory of the controller."""
    with closing(Store.readable(folder / "live" / DATABASE)) as store:
        pid = int(str(store.get("controller_handle")).partition(":")[0])
    (line,) = (each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmRSS" in each)
    return 1024 * int(line.split()[1])


def passes(folder: Path) -> dict[str, tuple[float, float]]:
    """How often the controller did what, and how long that took in all."""
    rows: dict[str, dict[str, float]] = {}
    for line in metrics(folder):
        name, _, rest = line.partition('{of="')
        if name.startswith("edgewise_controller_pass"):
            rows.setdefault(rest.partition('"')[0], {})[name] = float(line.rpartition(" ")[2])
    return {
        of: (each["edgewise_controller_passes_total"], each["edgewise_controller_pass_seconds_total"])
        for of, each in rows.items()
    }


def test_the_ledger_follows_two_hundred_nodes(cluster, given, tmp_path):  # noqa: F811
    began_s = time.monotonic()
    names = cluster.simulate(NODES)
    cluster.apply(*map(group, range(GROUPS)))
    ready = lambda: sum(d["status"].get("readyReplicas", 0) for d in cluster.list("deployment"))  # noqa: E731
    cluster.wait(lambda: ready() == PODS, 300, f"{PODS} simulated pods")
    print(f"{NODES} nodes and {PODS} pods are ready after {time.monotonic() - began_s:.0f} s")
    cluster.kubectl(
        "taint", "nodes", *names, "kwok.x-k8s.io/node:NoSchedule-"
    )  # they take more, for the ledger
    far = CLOUD + "".join(NODE.format(name=name) for name in names)
    text = SCENARIO.replace("sites:", f"{far}sites:").replace(
        "workers:", "  - {site: gate, cluster: far, delay_s: 9ms}\nworkers:"
    )
    with up(tmp_path, given, text):
        begins(cluster, tmp_path)
        cluster.wait(lambda: held_of_others(tmp_path) == asked_for(cluster), 60, "all of it to be held")
        first, seen_s = passes(tmp_path), time.monotonic()
        cluster.kubectl("scale", "deployment", "group-0", "--replicas=0")
        left_cores = POD_CORES * (PODS - PODS // GROUPS)
        cluster.wait(lambda: sum(asked_for(cluster).values()) == left_cores, 120, "a tenth to go")
        gone_s = time.monotonic()
        cluster.wait(lambda: held_of_others(tmp_path) == asked_for(cluster), 60, "the ledger to follow")
        print(f"ledger follows {time.monotonic() - gone_s:.1f} s after {PODS // GROUPS} pods have gone")
        last, took_s = passes(tmp_path), {}
        for of, (many, spent_s) in last.items():
            many, spent_s = many - first[of][0], spent_s - first[of][1]
            took_s[of] = spent_s / max(many, 1.0)
            print(f"  pass {of}: {many:.0f}, of {took_s[of]:.4f} s")
        print(f"in {time.monotonic() - seen_s:.0f} s; resident: {memory_bytes(tmp_path) / 1e6:.0f} MB")
        print("\n".join(each for each in metrics(tmp_path) if each.startswith("edgewise_kubernetes")))
        assert memory_bytes(tmp_path) <= MOST_BYTES
    assert cluster.ready() >= set(names) and ready() == PODS - PODS // GROUPS
    cluster.kubectl("delete", "deployment", "--all")
    cluster.kubectl("delete", "node", *names)
