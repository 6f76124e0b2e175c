"""The chart on a cluster: installed, asked, upgraded and rolled back under load, killed, and gone again."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from beds.go import built
from beds.kubernetes import Cluster
from beds.kubernetes.build import run
from beds.kubernetes.images import PYTHON, Image, of_edgewise
from beds.processes import REPOSITORY

CHART, RIGHTS = REPOSITORY / "charts/edgewise", REPOSITORY / "deploy/rights.txt"
SPACE, TOKEN = "edgewise", "for-tests-only"
SCENARIO = """
name: cameras
duration_s: 60
catalog:
  models: [{name: echo, task: score, accuracy: 50}]
  variants:
    - name: echo-cpu
      model: echo
      resources: {cpu_cores: 0.1, memory_bytes: 256MB}
      profile: {fixed_s: 3ms, source: "made up for this test"}
      capacity_qps: 100
      largest_bytes: 1000
clusters:
  - name: west
    tier: 0
    nodes:
      - {name: n1, resources: {cpu_cores: 1, memory_bytes: 1GB}}
      - {name: n2, resources: {cpu_cores: 1, memory_bytes: 1GB}}
sites: [{name: gate, uplink_bps: 1Gbps}]
links: [{site: gate, cluster: west, delay_s: 1ms}]
workers:
  - {variant: echo-cpu, node: n1}
  - {variant: echo-cpu, node: n2}
streams:
  applications: [{name: any, task: score, rate_qps: 10, size_bytes: 100, deadline_s: 5, length_s: 60}]
  arrivals: {clients_per_min: 1}
"""
OF_RELEASE = "all,configmap,secret,role,rolebinding,serviceaccount,networkpolicy,poddisruptionbudget,pvc"
OF_CLUSTER = "clusterrole,clusterrolebinding,priorityclass"
# Asks one query after another, each until it is answered; a line for each: when it began, how long it took,
# how often nobody took it, and how often it was sent and got no answer.
ASKING = """
import json, sys, time, urllib.error, urllib.request
tensor = {"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}
body = json.dumps({"inputs": [tensor]}).encode()
said = {"authorization": "Bearer " + sys.argv[2], "edgewise-rate-qps": "10", "edgewise-deadline-s": "5"}
while True:
    began, away, lost, turned = time.time(), 0, 0, 0
    while True:
        try:
            request = urllib.request.Request(sys.argv[1], body, said)
            with urllib.request.urlopen(request, timeout=10) as answer:
                assert json.load(answer)["outputs"][0]["data"] == [1, 2, 3]
            break
        except urllib.error.HTTPError as error:
            turned += 1
        except urllib.error.URLError as error:
            away += 1
        except OSError as error:
            lost += 1
        time.sleep(0.05)
    print(json.dumps([began, time.time() - began, away, turned, lost]), flush=True)
    time.sleep(0.05)
"""
Helm = Callable[..., str]


@pytest.fixture(scope="module")
def image(kubernetes: None, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """Edgewise with what it needs to speak to the API server."""
    pytest.importorskip("numba", reason="the image is made of this environment's wheel: pip install -e .")
    name = "docker.io/edgewise-bed/edgewise-inside:1"
    return of_edgewise(tmp_path_factory.mktemp("inside"), name, "live,place,kubernetes")


@pytest.fixture(scope="module")
def space(cluster: Cluster, image: Image) -> None:
    """A namespace that enforces `restricted`, and the token of clients."""
    cluster.load(image)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE, "labels": labels}})
    cluster.wait(lambda: cluster.find("serviceaccount", "default", SPACE) is not None, 30, "the account")
    cluster.kubectl("create", "secret", "generic", "clients", "-n", SPACE, f"--from-literal=token={TOKEN}")


@pytest.fixture
def helm(cluster: Cluster, space: None, image: Image, tmp_path: Path) -> Iterator[Helm]:
    """Runs helm on the release, which ends with the test; `install` and `upgrade` are told what stays."""
    program = built("helm.sh/helm/v3", "v3.22.0", "cmd/helm")
    folders = {f"HELM_{each}_HOME": str(tmp_path / each) for each in ("CACHE", "CONFIG", "DATA")}
    (tmp_path / "scenario.yaml").write_text(SCENARIO)

    def do(what: str, *options: str) -> str:
        made = [str(CHART), "--set", f"image={image.name},pullPolicy=Never,token.existingSecret=clients",
                "--set-file", f"scenario={tmp_path / 'scenario.yaml'}"]  # fmt: skip
        given = made if what in ("install", "upgrade") else []
        where = ["--kubeconfig", str(cluster.kubeconfig), "-n", SPACE]
        command = [str(program), what, "edgewise", *given, *where, *options]
        return run(command, timeout=400, env=os.environ | folders)

    yield do
    do("uninstall", "--ignore-not-found", "--wait", "--timeout", "120s")


@pytest.fixture
def asking(cluster: Cluster, space: None, image: Image) -> Iterator[Callable[[], list[list[float]]]]:
    """A client inside the cluster; what became of its queries so far."""
    url = f"http://edgewise.{SPACE}.svc:8000/v2/models/score/infer"
    inside = {
        "name": "asks", "image": image.name, "imagePullPolicy": "Never",
        "command": [PYTHON, "-c", ASKING, url, TOKEN],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }  # fmt: skip
    security = {"runAsNonRoot": True, "runAsUser": 65534, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {"containers": [inside], "securityContext": security, "nodeName": "n3"}
    meta = {"name": "client", "namespace": SPACE}
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})

    def seen() -> list[list[float]]:
        return [json.loads(line) for line in cluster.kubectl("logs", "client", "-n", SPACE).splitlines()]

    yield seen
    cluster.kubectl("delete", "pod", "client", "-n", SPACE, "--grace-period=0", "--force")


def names(cluster: Cluster, kinds: str) -> set[str]:
    """Objects of the namespace that are not events, by kind and name."""
    found = json.loads(cluster.kubectl("get", kinds, "-n", SPACE, "-o", "json"))["items"]
    return {f"{each['kind']}/{each['metadata']['name']}" for each in found}


def lines(rights: str) -> list[str]:
    """What `kubectl auth can-i --list` says, sorted, as are the verbs of each line."""
    found = set()
    for line in rights.splitlines()[1:]:
        what, _, verbs = line.rpartition("[")
        found.add(f"{' '.join(what.split())} {' '.join(sorted(verbs.rstrip('] ').split()))}")
    return sorted(found)


def workers(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """What each worker was told to be, by the name of its Deployment."""
    found = cluster.list("deployment", "-n", SPACE, "-l", "edgewise/system")
    told = {}
    for each in found:
        (inside,) = each["spec"]["template"]["spec"]["containers"]
        told[each["metadata"]["name"]] = json.loads(inside["env"][0]["value"])
    return told


def answers_again(cluster: Cluster, asking: Callable[[], list[list[float]]], count: int = 20) -> None:
    """Wait until so many queries more that began from now on are answered."""
    now = time.time()
    try:
        cluster.wait(lambda: sum(each[0] > now for each in asking()) >= count, 180, "queries to be answered")
    except Exception:
        print(cluster.kubectl("get", "pods", "-n", SPACE, "-o", "wide"))
        print(cluster.kubectl("logs", "deployment/edgewise", "-n", SPACE, "--tail=50", "--all-containers"))
        raise


def test_installed_asked_changed_and_taken_back_under_load(cluster, helm, asking, tmp_path):
    before = names(cluster, OF_RELEASE), names(cluster, OF_CLUSTER)
    began_s = time.monotonic()
    helm("install", "--wait", "--timeout", "300s")
    print(f"ready after {time.monotonic() - began_s:.1f} s")
    answers_again(cluster, asking)
    print(f"first answers after {time.monotonic() - began_s:.1f} s")
    first = workers(cluster)
    assert {each["settings"]["node"] for each in first.values()} == {"n1", "n2"}
    assert "Phase:          Succeeded" in helm("test", "--timeout", "200s")

    account = f"system:serviceaccount:{SPACE}:edgewise"
    rights = cluster.kubectl("auth", "can-i", "--list", f"--as={account}", "-n", SPACE)
    assert lines(rights) == RIGHTS.read_text().splitlines()

    changed = SCENARIO.replace("capacity_qps: 100", "capacity_qps: 90")
    for what, text, capacity in (("upgrade", changed, 90), ("rollback", SCENARIO, 100)):
        (tmp_path / "scenario.yaml").write_text(text)
        began = time.time()
        helm(what, "--wait", "--timeout", "300s")
        answers_again(cluster, asking)
        assert {each["settings"]["capacity_qps"] for each in workers(cluster).values()} == {capacity}
        meanwhile = [each for each in asking() if each[0] + each[1] > began]
        away, turned, lost = (sum(each[n] for each in meanwhile) for n in (2, 3, 4))
        waited_s = max(each[1] for each in meanwhile)
        print(
            f"{what}: {len(meanwhile)} answered, after at most {waited_s:.1f} s; {away} not taken, "
            f"{turned} turned away, {lost} sent without an answer"
        )
        assert lost == 0, "what was accepted was not answered"

    helm("uninstall", "--wait", "--timeout", "120s")
    mine = {"Pod/client"}
    cluster.wait(lambda: names(cluster, OF_RELEASE) - mine <= before[0], 120, "all to be gone")
    assert names(cluster, OF_CLUSTER) == before[1]


def test_workers_go_with_a_pod_that_held_their_state(cluster, helm, asking):
    helm("install", "--wait", "--timeout", "300s")
    answers_again(cluster, asking)
    (pod,) = cluster.list("pod", "-n", SPACE, "-l", "app.kubernetes.io/component=controller")
    before = workers(cluster)
    cluster.kubectl("delete", "pod", pod["metadata"]["name"], "-n", SPACE, "--grace-period=0", "--force")
    cluster.wait(lambda: not set(workers(cluster)) & set(before), 120, "its workers to be gone")
    answers_again(cluster, asking)
    assert len(workers(cluster)) == len(before)
    helm("uninstall", "--wait", "--timeout", "120s")
    cluster.wait(lambda: not workers(cluster), 120, "workers to be gone")
