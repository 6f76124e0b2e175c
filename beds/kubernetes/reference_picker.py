"""The reference endpoint picker of the Gateway API Inference Extension (lwepp), fed by a cluster."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from beds.go import built, go_module
from beds.kubernetes.build import PICKER
from beds.kubernetes.cluster import Cluster, is_ready
from beds.kubernetes.images import BUSYBOX
from beds.processes import end, free_port, listens, start, wait

GROUP = "inference.networking.k8s.io"
POOL = "models"
PORT = 8000


@dataclass(frozen=True)
class ReferencePicker:
    """A running picker.

    Attributes:
        target, health: `host:port` of its services.
        endpoints: `ip:port` of the pool's ready pods.
    """

    target: str
    health: str
    endpoints: tuple[str, ...]


@contextlib.contextmanager
def reference_picker(cluster: Cluster, pods: int = 3) -> Iterator[ReferencePicker]:
    """Model servers (web servers, for a picker never asks them), a pool of them, and the picker."""
    source = Path(go_module(*PICKER)["Dir"])
    for definition in sorted((source / "config/crd/bases").glob("*.yaml")):
        cluster.kubectl("apply", "--server-side", "-f", definition)
    cluster.kubectl("wait", "--for=condition=Established", f"crd/inferencepools.{GROUP}", "--timeout=30s")
    serve = {
        "name": "c", "image": BUSYBOX, "imagePullPolicy": "Never",
        "command": ["httpd", "-f", "-p", str(PORT)],
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
    }  # fmt: skip
    template = {
        "metadata": {"labels": {"app": POOL}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [serve]},
    }
    match = {"matchLabels": {"app": POOL}}
    cluster.apply(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": POOL},
         "spec": {"replicas": pods, "selector": match, "template": template}},
        {"apiVersion": f"{GROUP}/v1", "kind": "InferencePool", "metadata": {"name": POOL},
         "spec": {"selector": match, "targetPorts": [{"number": PORT}],
                  "endpointPickerRef": {"name": "picker", "port": {"number": 9002}}}},
    )  # fmt: skip

    def ready() -> list[str]:
        found = cluster.list("pod", "-l", f"app={POOL}")
        return [f"{each['status']['podIP']}:{PORT}" for each in found if is_ready(each)]

    cluster.wait(lambda: len(ready()) == pods, 60, "the pool's pods")
    with _running(cluster) as (target, health):
        yield ReferencePicker(target, health, tuple(sorted(ready())))


@contextlib.contextmanager
def _running(cluster: Cluster) -> Iterator[tuple[str, str]]:
    ports = [free_port() for _ in range(3)]
    log = cluster.work / "picker.log"
    flags = ["grpc-port", "grpc-health-port", "metrics-port"]
    command: list[str | Path] = [
        built(*PICKER, "cmd/lwepp"),
        "--pool-name",
        POOL,
        "--pool-namespace",
        "default",
    ]
    command += [f"--{flag}={port}" for flag, port in zip(flags, ports, strict=True)]
    command += ["--secure-serving=false", "--health-checking=true"]
    made: subprocess.Popen[bytes] = start(
        command, log, env=os.environ | {"KUBECONFIG": str(cluster.kubeconfig)}
    )
    try:
        wait("the reference picker", lambda: listens(ports[0]) and listens(ports[1]), 60, log)
        yield f"127.0.0.1:{ports[0]}", f"127.0.0.1:{ports[1]}"
    finally:
        end(made)
