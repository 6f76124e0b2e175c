"""The wheel's image runs on a node of the cluster, unprivileged and read-only, and compiles nothing there."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def image(cluster, edgewise_image):
    cluster.load(edgewise_image)
    return edgewise_image


def test_a_pod_simulates_with_the_kernels_of_its_image(cluster, image):
    inside = {
        "name": "c", "image": image.name, "imagePullPolicy": "Never",
        "args": ["simulate", "tiny", "--policy", "lookahead", "--out", "/tmp/out"],
        "securityContext": {"runAsNonRoot": True, "readOnlyRootFilesystem": True},
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }  # fmt: skip
    spec = {"restartPolicy": "Never", "containers": [inside], "volumes": [{"name": "tmp", "emptyDir": {}}]}
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "simulates"}, "spec": spec})

    def phase() -> str:
        return cluster.get("pod", "simulates")["status"]["phase"]

    cluster.wait(lambda: phase() in ("Succeeded", "Failed"), 120, "the simulation to end")
    said = cluster.kubectl("logs", "simulates")
    assert phase() == "Succeeded", said
    assert "lookahead" in said and "compiling" not in said
