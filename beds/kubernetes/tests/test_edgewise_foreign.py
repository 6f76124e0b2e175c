"""Servers of the Open Inference Protocol that already run on a cluster, as workers; KServe's among them."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from beds.go import built, go_module
from beds.kubernetes import Cluster
from beds.kubernetes.cluster import is_ready
from beds.kubernetes.images import NOBODY, PYTHON, Image
from beds.kubernetes.tests.test_edgewise_up import (  # noqa: F401
    PORT,
    SCENARIO,
    SPACE,
    TENSOR,
    asked,
    command,
    given,
    there,
    up,
)
from beds.processes import REPOSITORY, BedError

THEIRS, NAME, SERVED = "models", "detector", 8080
PROGRAM = REPOSITORY / "tests/open_inference_server.py"
WORKER, OWN = "echo-cpu@n3", "echo-cpu@n1"
LABEL, ASKS = {"app": NAME}, {"cpu": "100m", "memory": "64Mi"}
KSERVE, CONTROLLER = ("github.com/kserve/kserve", "v0.15.2"), "kserve-controller-manager"
KSERVE_IMAGE, KSERVE_SPACE = "docker.io/edgewise-bed/kserve:1", "kserve"
NOT_HERE = ("DaemonSet", "Certificate", "Issuer")  # of models that nodes keep; of cert-manager


def scenario(selector: dict[str, str]) -> str:
    """Two sites with a gateway each; the worker of the second is somebody else's."""
    told = yaml.safe_load(SCENARIO)
    told["sites"] = [{"name": name, "cluster": name, "uplink_bps": "1Gbps"} for name in ("west", "east")]
    told["links"] = [
        {"site": site, "cluster": of, "delay_s": "1ms" if site == of else "4ms"}
        for site in ("west", "east")
        for of in ("west", "east")
    ]
    served_by = {"selector": selector, "namespace": THEIRS, "port": SERVED, "model": NAME}
    told["workers"][1]["served_by"] = served_by
    return yaml.safe_dump(told)


def container(image: str, name: str = "server") -> dict:
    """A server of the protocol, as nobody."""
    return {
        "name": name, "image": image, "imagePullPolicy": "Never",
        "command": [PYTHON, "/program/server.py", str(SERVED), NAME, "0.0.0.0"],
        "ports": [{"containerPort": SERVED, "protocol": "TCP"}],
        "readinessProbe": {"httpGet": {"path": "/v2/health/ready", "port": SERVED}, "periodSeconds": 1},
        "resources": {"requests": ASKS, "limits": {"cpu": "1", "memory": "256Mi"}},
        "volumeMounts": [{"name": "program", "mountPath": "/program"}],
    }  # fmt: skip


PLACE = {
    "nodeSelector": {"kubernetes.io/hostname": "n3"},
    "volumes": [{"name": "program", "configMap": {"name": "program"}}],
}


@pytest.fixture(scope="module")
def theirs(cluster: Cluster, given) -> None:  # noqa: F811
    """A namespace of somebody else's, with the program that their pods run."""
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": THEIRS}})
    cluster.wait(lambda: cluster.find("serviceaccount", "default", THEIRS) is not None, 30, "the account")
    cluster.apply({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "program", "namespace": THEIRS},
        "data": {"server.py": PROGRAM.read_text()},
    })  # fmt: skip


def deployment(image: str) -> dict:
    pod = {"containers": [container(image)], "terminationGracePeriodSeconds": 1, **PLACE}
    return {
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": THEIRS, "labels": LABEL},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": LABEL},
            "template": {"metadata": {"labels": LABEL}, "spec": pod},
        },
    }  # fmt: skip


def pods(cluster: Cluster, selector: dict[str, str]) -> list[dict]:
    chosen = ",".join(f"{name}={value}" for name, value in selector.items())
    return cluster.list("pod", "-n", THEIRS, "-l", chosen)


def seen(pod: dict) -> dict[str, int]:
    """What a server says that it has had."""
    url = f"http://{pod['status']['podIP']}:{SERVED}/seen"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.loads(answer.read())


def opened(port: int, rate_qps: float) -> dict:
    """A stream that a gateway was asked for, or its refusal."""
    needs = {"task": "score", "rate_qps": rate_qps, "size_bytes": 1000, "deadline_s": 5}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/streams", json.dumps(needs).encode())
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as refusal:
        return json.loads(refusal.read())


def close(port: int, *streams: dict) -> None:
    for each in streams:
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/streams/{each['stream']}", method="DELETE"
        )
        with contextlib.suppress(urllib.error.HTTPError), urllib.request.urlopen(request, timeout=30):
            pass


def answered(stream: dict) -> str | None:
    """Which worker answers a query of a stream of the first gateway."""
    with contextlib.suppress(OSError, ValueError):
        query = {"edgewise-stream": str(stream["stream"])}
        answer = asked("/v2/models/score/infer", {"inputs": [TENSOR]}, **query)
        assert answer["outputs"][0]["data"] == [1, 2, 3]
        return answer["parameters"]["edgewise_worker"]
    return None


def state(folder: Path) -> str:
    """What the controller says of their server."""
    said = subprocess.check_output(command("status", "--state", "live", "--json"), cwd=folder, text=True)
    return {each["name"]: each["state"] for each in json.loads(said)["processes"]}[WORKER]


def bound(cluster: Cluster, port: int, rate_qps: float) -> dict:
    """A stream that has a worker, once one is up that has room."""
    found: list[dict] = []

    def is_bound() -> bool:
        found.append(opened(port, rate_qps))
        if "worker" not in found[-1]:
            close(port, found[-1])
        return "worker" in found[-1]

    cluster.wait(is_bound, 90, "a worker with room")
    return found[-1]


@contextlib.contextmanager
def running(
    cluster: Cluster, folder: Path, options: dict[str, str], selector: dict[str, str]
) -> Iterator[None]:
    """A system that is up."""
    log = folder / "up.log"
    with up(folder, options, scenario(selector)):
        cluster.wait(lambda: any(each in log.read_text() for each in ("up after", "failed")), 240, "a system")
        assert "up after" in log.read_text(), log.read_text()[-3000:]
        yield


def test_pods_with_its_labels_are_a_worker_whose_rate_two_gateways_share(cluster, given, theirs, tmp_path):  # noqa: F811
    cluster.apply(deployment(given["--image"]))
    cluster.wait(lambda: any(map(is_ready, pods(cluster, LABEL))), 120, "their server")
    before = cluster.get("deployment", NAME, THEIRS)
    with running(cluster, tmp_path, given, LABEL):
        mine = [bound(cluster, PORT, 60), bound(cluster, PORT, 60)]
        cluster.wait(lambda: {answered(each) for each in mine} == {OWN, WORKER}, 60, "answers of both")
        refused = opened(PORT + 1, 60)
        assert "worker" not in refused and "capacity" in refused["reason"], refused
        assert bound(cluster, PORT + 1, 40)["worker"] in (OWN, WORKER)
        (pod,) = pods(cluster, LABEL)
        assert seen(pod)["queries"] >= 1 and seen(pod)["tokens"] == 0
        assert len(there(cluster)) == 1  # our own worker's
    (left,) = pods(cluster, LABEL)
    after = cluster.get("deployment", NAME, THEIRS)
    assert left["metadata"]["uid"] == pod["metadata"]["uid"] and is_ready(left)
    assert left["metadata"]["labels"] == pod["metadata"]["labels"]
    assert (after["metadata"]["generation"], after["spec"]) == (
        before["metadata"]["generation"],
        before["spec"],
    )


def comes_and_goes(cluster: Cluster, selector: dict[str, str]) -> None:
    """Two streams that need a worker each are answered again after their pod was deleted."""
    mine = [bound(cluster, PORT, 100), bound(cluster, PORT, 100)]
    cluster.wait(lambda: {answered(each) for each in mine} == {OWN, WORKER}, 90, "answers of both")
    name = pods(cluster, selector)[0]["metadata"]["name"]
    cluster.kubectl("delete", "pod", name, "-n", THEIRS, "--grace-period=0", "--force")

    def another() -> list[dict]:
        return [
            each for each in pods(cluster, selector) if is_ready(each) and each["metadata"]["name"] != name
        ]

    cluster.wait(lambda: bool(another()), 120, "another pod of theirs")
    cluster.wait(lambda: {answered(each) for each in mine} == {OWN, WORKER}, 90, "answers of both again")
    (pod,) = another()
    assert seen(pod)["queries"] >= 1 and seen(pod)["tokens"] == 0
    close(PORT, *mine)


def test_what_goes_is_a_lost_worker_until_it_is_there_again(cluster, given, theirs, tmp_path):  # noqa: F811
    cluster.apply(deployment(given["--image"]))
    cluster.wait(lambda: any(map(is_ready, pods(cluster, LABEL))), 120, "their server")
    with running(cluster, tmp_path, given, LABEL):
        comes_and_goes(cluster, LABEL)
        scaled = ("scale", "deployment", NAME, "-n", THEIRS)
        cluster.kubectl(*scaled, "--replicas=0")
        cluster.wait(lambda: state(tmp_path) == "away", 60, "it to be lost")
        near = bound(cluster, PORT, 60)
        assert near["worker"] == OWN and "worker" not in opened(PORT, 60)
        cluster.kubectl(*scaled, "--replicas=1")
        cluster.wait(lambda: state(tmp_path) == "running", 120, "it to be there again")
        assert bound(cluster, PORT, 60)["worker"] == WORKER
    cluster.kubectl("delete", "deployment", NAME, "-n", THEIRS, "--wait")


def configuration(cluster: Cluster) -> list[dict]:
    """What KServe's own module has of its controller, with the image that was built here and a certificate.

    Its webhooks show a certificate of the cluster's authority: nobody is there who would make one.
    """
    source = Path(go_module(*KSERVE)["Dir"]) / "config/default"
    found = yaml.safe_load_all(cluster.kubectl("kustomize", source))
    objects = [each for each in found if each["kind"] not in NOT_HERE]
    objects = [
        each for each in objects if each["kind"] != "Deployment" or each["metadata"]["name"] == CONTROLLER
    ]
    authority, host = cluster.control.authority, f"kserve-webhook-server-service.{KSERVE_SPACE}.svc"
    key, certificate = authority.sign("kserve", f"/CN={host}", [host])
    bundle = base64.b64encode(authority.certificate.read_bytes()).decode()
    for each in objects:
        for hook in each.get("webhooks", ()):
            hook["clientConfig"]["caBundle"] = bundle
        if each["kind"] == "Deployment":
            pod = each["spec"]["template"]["spec"]
            (manager,) = (inside for inside in pod["containers"] if inside["name"] == "manager")
            pod["containers"] = [
                manager | {"image": KSERVE_IMAGE, "imagePullPolicy": "Never", "resources": {}}
            ]
    pair = {"tls.crt": certificate.read_text(), "tls.key": key.read_text()}
    named = {"name": "kserve-webhook-server-cert", "namespace": KSERVE_SPACE}
    return [*objects, {"apiVersion": "v1", "kind": "Secret", "metadata": named, "stringData": pair}]


@pytest.fixture(scope="module")
def kserve(cluster: Cluster, theirs, tmp_path_factory) -> None:
    root = tmp_path_factory.mktemp("kserve") / "root"
    (root / "tmp").mkdir(parents=True)
    shutil.copy(built(*KSERVE, "cmd/manager"), root / "manager")
    cluster.load(Image(KSERVE_IMAGE, root, ("/manager",), user=NOBODY))
    text = yaml.safe_dump_all(configuration(cluster))
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=text)

    def begun() -> bool:
        return bool(cluster.get("deployment", CONTROLLER, KSERVE_SPACE)["status"].get("readyReplicas"))

    cluster.wait(begun, 240, "KServe")


def service(image: str) -> dict:
    """An InferenceService in Standard mode, which 0.15 calls RawDeployment: a Deployment, and no Knative."""
    version, annotations = "serving.kserve.io/v1beta1", {
        "serving.kserve.io/deploymentMode": "RawDeployment", "serving.kserve.io/autoscalerClass": "none",
    }  # fmt: skip
    predictor = {"containers": [container(image, "kserve-container")], "minReplicas": 1, **PLACE}
    return {
        "apiVersion": version, "kind": "InferenceService",
        "metadata": {"name": NAME, "namespace": THEIRS, "annotations": annotations},
        "spec": {"predictor": predictor},
    }  # fmt: skip


def taken(cluster: Cluster, *objects: dict) -> bool:
    """Whether objects are taken; a webhook that is yet to begin refuses them."""
    try:
        cluster.apply(*objects)
    except BedError as error:
        print(str(error)[-500:])
        return False
    return True


def test_what_kserve_makes_of_an_inference_service_is_a_worker(cluster, given, kserve, tmp_path):  # noqa: F811
    selector = {"serving.kserve.io/inferenceservice": NAME}
    cluster.wait(lambda: taken(cluster, service(given["--image"])), 120, "its webhooks")
    cluster.wait(lambda: any(map(is_ready, pods(cluster, selector))), 180, "what KServe makes of it")
    with running(cluster, tmp_path, given, selector):
        comes_and_goes(cluster, selector)
        cluster.kubectl("delete", "inferenceservice", NAME, "-n", THEIRS)
        cluster.wait(lambda: state(tmp_path) == "away", 120, "it to be lost")
