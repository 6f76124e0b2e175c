"""Simulated nodes by kwok: any number of them, whose pods are said to run without running.

Nodes say that they live by their own status. kwok's leases did not do: of some 24 renewals of each of 200
nodes 19 were refused, since the lease had been changed meanwhile, and nodes were taken for lost.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from beds.go import built, go_module
from beds.kubernetes.build import KWOK
from beds.processes import start

ANNOTATION = {"kwok.x-k8s.io/node": "fake"}
# At least and at most between two signs of life: the control plane takes a node for lost after 16 s.
ALIVE_S = (5.0, 7.0)
STAGES = ("node/fast", "node/heartbeat", "pod/fast")
# Of a node that was late for a moment the control plane says that its pods are not ready; a kubelet says that
# they are once it is back, kwok's stages do not.
READY_AGAIN = """
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-ready-again}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
      - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
      - {key: .status.phase, operator: In, values: [Running]}
      - {key: '.status.conditions.[] | select( .type == "Ready" ) | .status', operator: In, values: ["False"]}
  delay: {durationMilliseconds: 2000}
  next:
    statusTemplate: |
      {{ $now := Now }}
      conditions:
        - {type: Ready, status: "True", lastTransitionTime: {{ $now | Quote }}}
        - {type: ContainersReady, status: "True", lastTransitionTime: {{ $now | Quote }}}
"""


def run_kwok(kubeconfig: Path, folder: Path) -> subprocess.Popen[bytes]:
    """Start kwok, with the stages of its own module."""
    program = built(*KWOK, "cmd/kwok")
    source = Path(go_module(*KWOK)["Dir"]) / "kustomize/stage"
    texts = [_sooner(file.read_text()) for stage in STAGES for file in sorted((source / stage).glob("*.yaml"))
             if "kustomization" not in file.name]  # fmt: skip
    stages = folder / "stages.yaml"
    stages.write_text("\n---\n".join([*texts, READY_AGAIN]))
    selector = next(f"{key}={value}" for key, value in ANNOTATION.items())
    command = [program, "--config", stages, "--kubeconfig", kubeconfig, "--manage-all-nodes=false"]
    more = ["--manage-nodes-with-annotation-selector", selector, "--node-lease-duration-seconds", "0"]
    return start([*command, *more], folder / "kwok.log", cwd=folder)


def _sooner(stage: str) -> str:
    """A stage whose delay, if it has one, is `ALIVE_S`; that of signs of life is 20 to 25 s."""
    for name, wait_s in zip(("durationMilliseconds", "jitterDurationMilliseconds"), ALIVE_S, strict=True):
        stage = re.sub(rf"\b{name}: \d+", f"{name}: {1e3 * wait_s:.0f}", stage)
    return stage


def node(name: str, cores: float, memory_bytes: int, pods: int = 110) -> dict[str, object]:
    """A simulated node as an object of the API."""
    resources = {"cpu": f"{cores:g}", "memory": str(memory_bytes), "pods": str(pods)}
    return {
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "annotations": ANNOTATION, "labels": {"type": "kwok"}},
        "spec": {"taints": [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}]},
        "status": {"allocatable": resources, "capacity": resources},
    }  # fmt: skip
