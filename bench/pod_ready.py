"""How long a worker's pod takes until it is ready, beside a bare one: `python -m bench.pod_ready`

    sudo .venv-beds/bin/python -m bench.pod_ready --rounds 10

On the bed, in turn: a worker as edgewise starts it, which fetches its model by SHA-256, and a pod that is
the same in all but what it runs: Python with ONNX Runtime alone, which has the same model in a volume, infers
once and answers Kubernetes. Both are Deployments of the same image with the same probes, and the time is from
asking the API server for one until a watch says that its pod is ready.
"""

from __future__ import annotations

import argparse
import base64
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from lightkube import codecs

from beds.kubernetes import Cluster, images
from beds.kubernetes.images import PYTHON
from beds.kubernetes.network import HOST_SIDE
from edgewise.runtime.backends.conformance import SETTINGS
from edgewise.runtime.backends.kubernetes import KubernetesBackend, PodPlace, Pods, client_of
from edgewise.runtime.backends.kubernetes.manifest import by_digest, deployment
from edgewise.runtime.backends.kubernetes.models import ModelServer
from edgewise.runtime.controller.models import STAND_IN, write_stand_in
from edgewise.runtime.store import Process

SPACE, TOKEN, PORT, PATIENCE_S = "ready", "a-token", 8123, 120.0
BARE = f"""
import http.server, numpy, onnxruntime
session = onnxruntime.InferenceSession("/model/model.onnx", providers=["CPUExecutionProvider"])
inputs = session.get_inputs()
session.run(None, {{each.name: numpy.zeros([1] * len(each.shape), numpy.float32) for each in inputs}})
class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
http.server.HTTPServer(("", {PORT}), Answers).serve_forever()
"""


def main() -> None:
    """Print both medians and their quotient."""
    parser = argparse.ArgumentParser(prog="python -m bench.pod_ready", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument(
        "--image", type=Path, help="a folder where the image is made, and found the next time"
    )
    chosen = parser.parse_args()
    rounds = chosen.rounds
    with tempfile.TemporaryDirectory() as name, Cluster(nodes=1) as cluster:
        folder = Path(name)
        image = kept_image(chosen.image or folder)
        cluster.load(image)
        model = folder / STAND_IN
        write_stand_in(model)
        give = ModelServer(HOST_SIDE, 0, TOKEN)
        _space(cluster, model)
        pods = Pods("ready", image.name, f"http://{HOST_SIDE}:{give.port}", pull="Never")
        client = client_of(cluster.kubeconfig, SPACE)
        place = PodPlace("n1", 0.1, 256e6)
        backend = KubernetesBackend(client, pods, lambda process: place, give.add)
        process = Process("worker", "worker", PORT, {**SETTINGS, "file": str(model)})

        def bare() -> str:
            told = Process("worker", "worker", PORT, by_digest(process.settings, give.add))
            made = deployment(told, f"bare{time.monotonic_ns()}", pods, place)
            client.create(codecs.from_dict(_bare(made)))
            return str(made["metadata"]["name"])

        took_s: dict[str, list[float]] = {"bare": [], "edgewise": []}
        for _ in range(rounds + 1):
            took_s["bare"].append(_ready_s(cluster, backend, process, bare))
            took_s["edgewise"].append(_ready_s(cluster, backend, process, lambda: backend.start(process)))
        backend.close()
        give.close()
    first = {name: each.pop(0) for name, each in took_s.items()}  # files are read from a disk
    for name, each in took_s.items():
        low, middle, high = np.quantile(each, [0.25, 0.5, 0.75])
        print(
            f"{name}: median {middle:.2f} s, quartiles {low:.2f} to {high:.2f} s; first {first[name]:.2f} s"
        )
    print(f"quotient of medians: {np.median(took_s['edgewise']) / np.median(took_s['bare']):.2f}")


def kept_image(folder: Path) -> images.Image:
    """The image of this repository's wheel, made in a folder; what was made there before is taken."""
    folder.mkdir(parents=True, exist_ok=True)
    said = folder / "image.json"
    if said.exists():
        made = images.Image(**json.loads(said.read_text()))
        return replace(made, folder=Path(made.folder))
    made = images.of_edgewise(folder)
    said.write_text(json.dumps(asdict(made) | {"folder": str(made.folder)}))
    return made


def _space(cluster: Cluster, model: Path) -> None:
    """A namespace that enforces `restricted`, with tokens and the model."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE, "labels": labels}})
    cluster.apply(
        {
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "edgewise-tokens", "namespace": SPACE},
            "stringData": {"parts": TOKEN, "operator": TOKEN},
        },
        {
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "model", "namespace": SPACE},
            "binaryData": {"model.onnx": base64.b64encode(model.read_bytes()).decode()},
        },
    )  # fmt: skip
    cluster.wait(lambda: cluster.find("serviceaccount", "default", SPACE) is not None, 60, "the account")


def _bare(made: dict[str, Any]) -> dict[str, Any]:
    """A worker's Deployment, which runs Python and ONNX Runtime alone."""
    pod = made["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    container |= {"command": [PYTHON, "-c", BARE], "args": [], "env": []}
    container["volumeMounts"].append({"name": "model", "mountPath": "/model", "readOnly": True})
    pod["volumes"].append({"name": "model", "configMap": {"name": "model"}})
    return made


def _ready_s(
    cluster: Cluster, backend: KubernetesBackend, process: Process, start: Callable[[], str]
) -> float:
    """How long a start takes to be ready; it is ended."""
    began_s = time.monotonic()
    handle = start()
    while not backend.look(process, handle).ready:
        if time.monotonic() - began_s > PATIENCE_S:
            raise TimeoutError(cluster.kubectl("describe", "pods", "-n", SPACE)[-3000:])
        time.sleep(0.01)
    took_s = time.monotonic() - began_s
    backend.stop(handle, force=True)
    cluster.wait(lambda: not cluster.list("pod,replicaset,deployment", "-n", SPACE), 60, "its end")
    return took_s


if __name__ == "__main__":
    main()
