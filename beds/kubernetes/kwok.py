"""Simulated nodes by kwok: any number of them, whose pods are said to run without running."""

from __future__ import annotations

import subprocess
from pathlib import Path

from beds.go import built, go_module
from beds.kubernetes.build import KWOK
from beds.processes import start

ANNOTATION = {"kwok.x-k8s.io/node": "fake"}
# Renewed at each quarter of it: three times before the control plane takes a node for lost (after 16 s).
LEASE_S = "20"
STAGES = ("node/fast", "node/heartbeat-with-lease", "pod/fast")


def run_kwok(kubeconfig: Path, folder: Path) -> subprocess.Popen[bytes]:
    """Start kwok, with the stages of its own module."""
    program = built(*KWOK, "cmd/kwok")
    source = Path(go_module(*KWOK)["Dir"]) / "kustomize/stage"
    texts = [file.read_text() for stage in STAGES for file in sorted((source / stage).glob("*.yaml"))
             if "kustomization" not in file.name]  # fmt: skip
    stages = folder / "stages.yaml"
    stages.write_text("\n---\n".join(texts))
    selector = next(f"{key}={value}" for key, value in ANNOTATION.items())
    command = [program, "--config", stages, "--kubeconfig", kubeconfig, "--manage-all-nodes=false"]
    more = ["--manage-nodes-with-annotation-selector", selector, "--node-lease-duration-seconds", LEASE_S]
    return start([*command, *more], folder / "kwok.log", cwd=folder)


def node(name: str, cores: float, memory_bytes: int, pods: int = 110) -> dict[str, object]:
    """A simulated node as an object of the API."""
    resources = {"cpu": f"{cores:g}", "memory": str(memory_bytes), "pods": str(pods)}
    return {
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "annotations": ANNOTATION, "labels": {"type": "kwok"}},
        "spec": {"taints": [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}]},
        "status": {"allocatable": resources, "capacity": resources},
    }  # fmt: skip
