"""The wheel's image and the backend of Kubernetes on a real cluster: its contract, and others beside it."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from beds.kubernetes import Cluster
from beds.kubernetes.network import HOST_SIDE

SPACE, TOKEN = "edgewise", "a-token-of-parts"
CORES, MEMORY_BYTES = 0.1, 256e6


@pytest.fixture(scope="module")
def namespace(cluster: Cluster, edgewise_image) -> str:
    """Pod Security `restricted` is enforced there; tokens are a Secret."""
    cluster.load(edgewise_image)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    tokens = {"parts": TOKEN, "operator": "a-token-of-operators"}
    cluster.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE, "labels": labels}},
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "edgewise-tokens", "namespace": SPACE},
            "stringData": tokens,
        },
    )
    cluster.wait(lambda: cluster.find("serviceaccount", "default", SPACE) is not None, 30, "the account")
    return SPACE


@pytest.fixture(scope="module")
def models(namespace: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Where pods get the stand-in network by its SHA-256; and the network."""
    from edgewise.runtime.backends.kubernetes.models import ModelServer
    from edgewise.runtime.controller.models import STAND_IN, write_stand_in

    file = tmp_path_factory.mktemp("models") / STAND_IN
    write_stand_in(file)
    server = ModelServer(HOST_SIDE, 0, TOKEN)
    server.add(file)
    yield f"http://{HOST_SIDE}:{server.port}", file
    server.close()


@pytest.fixture
def made(cluster: Cluster, namespace: str, models, edgewise_image):
    """Makes backends of one system; they watch no longer afterwards."""
    from edgewise.runtime.backends.kubernetes import KubernetesBackend, PodPlace, Pods, client_of

    opened = []

    def make(_: object = None, node: str | None = None, memory_bytes: float = MEMORY_BYTES):
        pods = Pods("tried", edgewise_image.name, models[0], pull="Never")
        client = client_of(cluster.kubeconfig, namespace)
        opened.append(KubernetesBackend(client, pods, lambda process: PodPlace(node, CORES, memory_bytes)))
        return opened[-1]

    yield make
    for backend in opened:
        backend.close()
    cluster.kubectl("delete", "deployment", "--all", "-n", namespace, "--cascade=foreground", "--timeout=60s")


def worker(models, name: str = "camera worker", port: int = 8123):
    from edgewise.runtime.backends.conformance import SETTINGS
    from edgewise.runtime.store import Process

    return Process(name, "worker", port, {**SETTINGS, "file": str(models[1])})


def answers(url: str) -> int:
    """Status of the model's description, as a gateway asks for it."""
    import asyncio

    from edgewise.runtime import http

    async def ask() -> int:
        client = http.Client.of_url(url, TOKEN)
        try:
            return (await client.request("GET", "/v2/models/stand-in", timeout_s=5.0)).status
        finally:
            client.close()

    return asyncio.run(ask())


def ours(cluster: Cluster, kind: str) -> list[dict]:
    return cluster.list(kind, "-n", SPACE, "-l", "edgewise/system=tried")


def test_it_keeps_the_contract(made, tmp_path):
    from edgewise.testing import check_backend

    check_backend(made, tmp_path, limit_s=120.0)


def test_a_pod_is_put_where_it_belongs_and_answers_with_the_token_alone(cluster, made, models):
    backend, process = made(node="n3"), worker(models)
    handle = backend.start(process)
    cluster.wait(lambda: backend.look(process, handle).ready, 120, "the worker to be ready")
    url = backend.look(process, handle).url
    assert answers(url) == 200
    (pod,) = ours(cluster, "pod")
    assert pod["spec"]["nodeName"] == "n3" and url == f"http://{pod['status']['podIP']}:8123"
    requests = pod["spec"]["containers"][0]["resources"]["requests"]
    assert requests == {"cpu": "100m", "memory": "256M"}


def test_whoever_deletes_a_pod_has_it_back_elsewhere_and_whoever_deletes_a_deployment_has_ended_it(
    cluster, made, models
):
    backend, process = made(), worker(models)
    handle = backend.start(process)
    cluster.wait(lambda: backend.look(process, handle).ready, 120, "the worker to be ready")
    before = backend.look(process, handle).url
    (pod,) = ours(cluster, "pod")
    cluster.kubectl("delete", "pod", pod["metadata"]["name"], "-n", SPACE, "--grace-period=0", "--force")
    cluster.wait(
        lambda: backend.look(process, handle).ready and backend.look(process, handle).url != before,
        120,
        "the worker to be ready at another address",
    )
    assert backend.alive(handle)
    cluster.kubectl("delete", "deployment", handle, "-n", SPACE)
    cluster.wait(lambda: not backend.alive(handle), 60, "the start to be over")
    assert backend.look(process, handle).ready is False


def test_a_start_that_nobody_wrote_down_is_ended_when_another_takes_its_place(cluster, made, models):
    process = worker(models)
    lost = made().start(process)  # and its controller is killed before it writes
    cluster.wait(lambda: cluster.find("deployment", lost, SPACE) is not None, 30, "the first start")
    backend = made()
    handle, other = backend.start(process), backend.start(worker(models, "another", 8124))
    cluster.wait(lambda: not backend.alive(lost), 60, "the lost start to be over")
    cluster.wait(lambda: backend.look(process, handle).ready, 120, "its successor to be ready")
    assert backend.alive(other)
    assert {each["metadata"]["name"] for each in ours(cluster, "deployment")} == {handle, other}


def test_while_the_api_server_is_away_all_is_as_it_was_and_what_was_asked_comes_after(cluster, made, models):
    backend, process = made(), worker(models)
    handle = backend.start(process)
    cluster.wait(lambda: backend.look(process, handle).ready, 120, "the worker to be ready")
    with cluster.api_server_away():
        began_s = time.monotonic()
        later = backend.start(worker(models, "later", 8125))
        never = backend.start(worker(models, "never", 8126))
        backend.stop(never)
        assert backend.alive(handle) and backend.look(process, handle).ready and backend.alive(later)
        assert not backend.alive(never)
        assert time.monotonic() - began_s < 1.0, "a method waited for the API server"
        assert answers(backend.look(process, handle).url) == 200
    cluster.wait(lambda: backend.look(worker(models, "later", 8125), later).ready, 120, "what was asked for")
    assert backend.alive(handle) and not backend.alive(never)
    names = {each["metadata"]["name"] for each in ours(cluster, "deployment")}
    assert names == {handle, later}


def test_what_cannot_be_made_ends_at_once_and_says_why(cluster, made, models, caplog):
    backend = made(memory_bytes=-1.0)
    handle = backend.start(worker(models))
    cluster.wait(lambda: not backend.alive(handle), 30, "the start to be refused")
    (said,) = [each for each in caplog.records if each.message == "refused"]
    assert "memory" in said.why and said.who == "camera worker"


def test_another_cluster_that_is_not_there_is_said(made, tmp_path):
    from edgewise.errors import RunError
    from edgewise.runtime.backends.kubernetes import client_of

    with pytest.raises(RunError, match=r"kubeconfig .*none.yaml"):
        client_of(tmp_path / "none.yaml")


def test_whatever_others_delete_there_is_one_worker_for_each_that_is_wanted(cluster, made, models):
    """As the controller, an owner starts anew what has ended; its backend is made anew now and then."""
    chance, wanted = random.Random(7), [worker(models, f"w{k}", 8130 + k) for k in range(3)]
    backend, handles, began = made(), {}, []

    def keep() -> None:
        for process in wanted:
            if process.name not in handles or not backend.alive(handles[process.name]):
                handles[process.name] = backend.start(process)
                began.append(process.name)

    for _ in range(12):
        keep()
        match chance.choice(["pod", "deployment", "deployment", "replicaset", "backend", "cordon"]):
            case "backend":
                backend = made()
            case "cordon":
                node = chance.choice(list(cluster.nodes))
                cluster.kubectl("cordon", node)
                cluster.kubectl("uncordon", node)
            case "pod" | "deployment" | "replicaset" as kind:
                there = [each["metadata"]["name"] for each in ours(cluster, kind)]
                if there:
                    cluster.kubectl("delete", kind, chance.choice(there), "-n", SPACE, "--wait=false")
        time.sleep(chance.uniform(0.0, 1.0))

    def settled() -> bool:
        keep()
        return all(backend.look(process, handles[process.name]).ready for process in wanted)

    cluster.wait(settled, 180, "every worker to be ready")
    assert len(began) > len(wanted), "nothing was ended: this seed tries nothing"
    cluster.wait(lambda: len(ours(cluster, "deployment")) == len(wanted), 60, "no other to be there")
    assert {each["metadata"]["name"] for each in ours(cluster, "deployment")} == set(handles.values())
    assert all(answers(backend.look(process, handles[process.name]).url) == 200 for process in wanted)
    assert json.loads(cluster.kubectl("auth", "whoami", "-o", "json"))  # the cluster itself is well


def test_a_pod_simulates_with_the_kernels_of_its_image(cluster, namespace, edgewise_image):
    inside = {
        "name": "c", "image": edgewise_image.name, "imagePullPolicy": "Never",
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
