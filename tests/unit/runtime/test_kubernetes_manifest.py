"""What a worker becomes on Kubernetes, as far as no cluster is needed to see it."""

import json
from dataclasses import replace

import pytest

pytest.importorskip("lightkube", reason="needs the extra kubernetes")

import httpx2
from lightkube.resources.core_v1 import Node, Pod

from edgewise.errors import RunError
from edgewise.runtime.backends.kubernetes import PodPlace, Pods
from edgewise.runtime.backends.kubernetes.calls import Calls, CountedTransport
from edgewise.runtime.backends.kubernetes.manifest import (
    budget,
    by_digest,
    deployment,
    sha256_of,
    start_name,
)
from edgewise.runtime.backends.kubernetes.models import ModelServer
from edgewise.runtime.backends.kubernetes.nodes import node_has, pod_asks, quantity
from edgewise.runtime.process import pod
from edgewise.runtime.store import Process, from_fields

SETTINGS = {
    "model": "m", "max_batch": 2, "batch_timeout_s": 0.0, "capacity_qps": 5.0, "profile": None, "seed": 0,
    "entity": 0, "split": None, "file": "/here/only.onnx",
}  # fmt: skip
PROCESS = Process("Cam/1 größte", "worker", 8123, SETTINGS, cores=(0, 1))
PODS = Pods("site", "image:1", "http://models:9000", priority="inference")


def test_names_are_those_that_kubernetes_takes_and_no_two_starts_share_one():
    assert start_name(PROCESS, "0a1b") == "cam-1-gr-te-0a1b"
    assert start_name(replace(PROCESS, name="/" * 9), "0a1b") == "process-0a1b"
    assert len(start_name(replace(PROCESS, name="x" * 300), "0" * 10)) <= 63


def test_a_pod_is_told_what_to_be_but_nothing_of_this_machine():
    told = replace(PROCESS, settings=by_digest(SETTINGS, lambda _: "ab" * 32))
    made = deployment(told, "0a1b", PODS, PodPlace("n1", 0.25, 3e8))
    spec = made["spec"]["template"]["spec"]
    (inside,) = spec["containers"]
    given = {each["name"]: each["value"] for each in inside["env"]}
    assert from_fields(json.loads(given[pod.PROCESS])) == replace(
        PROCESS, cores=(), settings=SETTINGS | {"file": "ab" * 32}
    )
    assert "/here/" not in json.dumps(made) and given[pod.MODELS_URL] == PODS.models
    assert inside["resources"]["requests"] == {"cpu": "250m", "memory": "300000000"}
    assert spec["priorityClassName"] == "inference" and not spec["automountServiceAccountToken"]
    assert made["spec"]["selector"]["matchLabels"].items() <= made["metadata"]["labels"].items()


def test_without_a_node_or_a_class_none_is_asked_for():
    spec = deployment(PROCESS, "0", replace(PODS, priority=None), PodPlace(None, 1.0, 1e9))["spec"]
    assert not {"affinity", "priorityClassName"} & spec["template"]["spec"].keys()


def test_a_gateway_is_on_a_node_of_its_site_where_that_has_room():
    near = PodPlace(None, 1.0, 1e9, near=("hall-0", "hall-1"))
    spec = deployment(PROCESS, "0", PODS, near)["spec"]["template"]["spec"]
    (rather,) = spec["affinity"]["nodeAffinity"].values()  # nothing is required
    fields = [each["preference"]["matchFields"] for each in rather]
    assert [field["values"] for (field,) in fields] == [["hall-0"], ["hall-1"]]


@pytest.fixture
def models():
    server = ModelServer("127.0.0.1", 0, "t")
    yield server, f"http://127.0.0.1:{server.port}"
    server.close()


def test_a_model_comes_by_its_digest_whole(tmp_path, models, monkeypatch):
    monkeypatch.setattr(pod, "CHUNK_BYTES", 7)
    (server, url), file = models, tmp_path / "only.onnx"
    file.write_bytes(b"a model of some length")
    sha256 = server.add(file)
    assert sha256 == sha256_of(file)
    got = pod.fetched(url, sha256, tmp_path / "got.onnx", "t", 0.0)
    assert got.read_bytes() == file.read_bytes()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["got.onnx", "only.onnx"]


def test_a_network_that_is_cut_comes_in_its_pieces_into_one_folder(tmp_path, models):
    (server, url), cut, there = models, tmp_path / "net.split", tmp_path / "there"
    for folder in (cut, there):
        folder.mkdir()
    for name in ("whole.onnx", "piece0.onnx", "split.json"):
        (cut / name).write_bytes(name.encode())
    told = by_digest(SETTINGS | {"file": str(cut / "whole.onnx"), "split": str(cut)}, server.add)
    assert str(tmp_path) not in json.dumps(told)
    found = pod.brought(told, url, there, "t")
    assert found["file"] == f"{found['split']}/whole.onnx"
    got = {each.name: each.read_bytes().decode() for each in (there / "split").iterdir()}
    assert got == {name: name for name in ("whole.onnx", "piece0.onnx", "split.json")}


def test_a_model_is_asked_for_until_it_is_there(tmp_path, models, monkeypatch):
    (server, url), file = models, tmp_path / "only.onnx"
    file.write_bytes(b"later")
    asked = []
    monkeypatch.setattr(pod, "PAUSE_S", 0.0)
    monkeypatch.setattr(pod.log, "warning", lambda *_, **__: asked.append(server.add(file)))
    assert pod.fetched(url, sha256_of(file), tmp_path / "got.onnx", "t", 60.0).read_bytes() == b"later"
    assert len(asked) == 1


def test_another_token_or_digest_is_refused_and_another_model_is_not_kept(tmp_path, models):
    (server, url), file = models, tmp_path / "only.onnx"
    file.write_bytes(b"a model")
    sha256, got = server.add(file), tmp_path / "got.onnx"
    with pytest.raises(RunError, match="401"):
        pod.fetched(url, sha256, got, "other", 0.0)
    with pytest.raises(RunError, match="404"):
        pod.fetched(url, "0" * 64, got, "t", 0.0)
    file.write_bytes(b"changed")
    with pytest.raises(RunError, match="gives another one"):
        pod.fetched(url, sha256, got, "t", 0.0)
    assert not got.exists()


@pytest.mark.parametrize(
    ("text", "value"),
    [("2", 2.0), ("250m", 0.25), ("16Gi", 16 * 2**30), ("500M", 5e8), ("24635224Ki", 24635224 * 1024)],
)
def test_numbers_of_kubernetes_are_read(text, value):
    assert quantity(text) == pytest.approx(value)


def of_pod(*containers, first=(), **more):
    def container(cpu, memory="0", stays=False):
        restart = {"restartPolicy": "Always"} if stays else {}
        return {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}, **restart}

    spec = {
        "nodeName": "n1", "containers": [container(*each) for each in containers],
        "initContainers": [container(*each) for each in first],
    }  # fmt: skip
    return Pod.from_dict({"metadata": {"name": "p", "labels": {}}, "spec": spec | more, "status": {}})


@pytest.mark.parametrize(
    ("pod", "asks"),
    [
        (of_pod(("500m", "1Gi"), ("1", "0")), (1.5, 2**30)),
        (of_pod(("500m",), first=(("2", "1M"), ("1", "3M"))), (2.0, 3e6)),
        (of_pod(("500m",), first=(("1", "0", True), ("2",))), (3.0, 0.0)),
        (of_pod(("500m",), first=(("1", "0", True),)), (1.5, 0.0)),
        (of_pod(("1",), overhead={"cpu": "250m", "memory": "1M"}), (1.25, 1e6)),
    ],
)
def test_a_pod_asks_for_what_the_scheduler_counts(pod, asks):
    found = pod_asks(pod)
    assert found.asks == pytest.approx(asks) and found.node == "n1" and found.system is None


def test_a_pod_that_has_ended_asks_for_nothing_and_a_node_says_what_it_has():
    ended = of_pod(("1",))
    ended.status.phase = "Succeeded"
    assert pod_asks(ended).node is None
    status = {
        "allocatable": {"cpu": "4", "memory": "8Gi"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    there = node_has(Node.from_dict({"metadata": {"name": "n"}, "status": status}))
    assert there.ready and there.takes and there.has == (4.0, 8 * 2**30)


@pytest.mark.parametrize(
    ("spec", "takes"),
    [
        ({"unschedulable": True}, False),
        ({"taints": [{"key": "gone", "effect": "NoExecute"}]}, False),
        ({"taints": [{"key": "mine", "effect": "NoSchedule"}]}, False),
        ({"taints": [{"key": "rather-not", "effect": "PreferNoSchedule"}]}, True),
    ],
)
def test_a_node_that_is_cordoned_or_tainted_takes_nothing_new(spec, takes):
    assert node_has(Node.from_dict({"metadata": {"name": "n"}, "spec": spec})).takes is takes


def test_whoever_drains_a_node_takes_one_worker_at_a_time():
    made = budget("edgewise-ab", "space", "ab")["spec"]
    asked = {each["key"]: each for each in made["selector"]["matchExpressions"]}
    labels = deployment(PROCESS, "0a1b", replace(PODS, system="ab"), PodPlace("n1", 1.0, 1e9))
    labels = labels["spec"]["template"]["metadata"]["labels"]
    assert made["maxUnavailable"] == 1 and asked.keys() <= labels.keys()
    assert labels["edgewise/system"] in asked["edgewise/system"]["values"]


def test_calls_of_the_api_server_are_counted_and_watches_apart():
    calls, said = Calls(), []

    def answers(request):
        said.append(request.method)
        return httpx2.Response(200, content=iter([b"123", b"45"]))

    with httpx2.Client(transport=CountedTransport(httpx2.MockTransport(answers), calls)) as client:
        client.get("http://api/pods", params={"watch": "true"})
        client.get("http://api/pods")
        client.delete("http://api/pods/one")
    many, answered = calls.counted()
    assert many.counts == {"watch": 1, "GET": 1, "DELETE": 1} and said == ["GET", "GET", "DELETE"]
    assert answered.counts == {"watch": 5, "GET": 5, "DELETE": 5}


def test_what_the_environment_lacks_is_said():
    with pytest.raises(RunError, match=f"{pod.PROCESS} and {pod.MODELS_URL} not set"):
        pod.main({})
