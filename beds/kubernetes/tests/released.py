"""A release of the chart on the bed, a client that asks it, and what became of its queries."""

from __future__ import annotations

import contextlib
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
from beds.kubernetes.cluster import is_ready
from beds.kubernetes.images import PYTHON, Image, of_edgewise
from beds.kubernetes.tests.test_edgewise_up import SCENARIO as CAMERAS
from beds.processes import REPOSITORY

CHART = REPOSITORY / "charts/edgewise"
SPACE, TOKEN = "edgewise", "for-tests-only"
SCENARIO = CAMERAS.replace("node: n3", "node: n2")  # the client has n3
SCENARIO = SCENARIO.replace("{name: gate,", "{name: gate, cluster: west,")
OF_RELEASE = "all,configmap,secret,role,rolebinding,serviceaccount,networkpolicy,poddisruptionbudget,pvc"
OF_CLUSTER = "clusterrole,clusterrolebinding,priorityclass"
# Asks one query after another, each until it is answered; a line for each: when it began, how long it took,
# how often nobody took it, was turned away, and sent without an answer, and why it was turned away last.
ASKING = """
import json, socket, sys, time, urllib.error, urllib.parse, urllib.request
name, url = urllib.parse.urlsplit(sys.argv[1]).hostname, ""
while not url:  # looked up once: nameservers are not what is tried
    try:
        url = sys.argv[1].replace(name, socket.gethostbyname(name))
    except OSError:
        time.sleep(0.1)
tensor = {"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}
body = json.dumps({"inputs": [tensor]}).encode()
said = {"authorization": "Bearer " + sys.argv[2], "edgewise-rate-qps": "40", "edgewise-deadline-s": "30"}
while True:
    began, away, lost, turned, why = time.time(), 0, 0, 0, ""
    while True:
        try:
            request = urllib.request.Request(url, body, said)
            with urllib.request.urlopen(request, timeout=40) as answer:
                assert json.load(answer)["outputs"][0]["data"] == [1, 2, 3]
            break
        except urllib.error.HTTPError as error:
            turned += 1
            why = f"{error.code} {error.read()[:120]}"
        except urllib.error.URLError as error:
            away += 1
        except OSError as error:
            lost += 1
        time.sleep(0.05)
    print(json.dumps([began, time.time() - began, away, turned, lost, why]), flush=True)
    time.sleep(0.05)
"""
Helm = Callable[..., str]
Asking = Callable[[], list[list[float]]]


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


@contextlib.contextmanager
def releasing(cluster: Cluster, image: Image, folder: Path) -> Iterator[Helm]:
    """Runs helm on the release, which ends with this; `install` and `upgrade` are told what stays."""
    program = built("helm.sh/helm/v3", "v3.22.0", "cmd/helm")
    folders = {f"HELM_{each}_HOME": str(folder / each) for each in ("CACHE", "CONFIG", "DATA")}
    (folder / "scenario.yaml").write_text(SCENARIO)

    def do(what: str, *options: str) -> str:
        made = [str(CHART), "--set", f"image={image.name},pullPolicy=Never,token.existingSecret=clients",
                "--set-file", f"scenario={folder / 'scenario.yaml'}"]  # fmt: skip
        given = made if what in ("install", "upgrade") else []
        where = ["--kubeconfig", str(cluster.kubeconfig), "-n", SPACE]
        command = [str(program), what, "edgewise", *given, *where, *options]
        return run(command, timeout=700, env=os.environ | folders)

    try:
        yield do
    finally:
        do("uninstall", "--ignore-not-found", "--wait", "--timeout", "120s")


@contextlib.contextmanager
def a_client(cluster: Cluster, image: Image) -> Iterator[Asking]:
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

    try:
        cluster.wait(lambda: is_ready(cluster.get("pod", "client", SPACE)), 180, "the client")
        yield seen
    finally:
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
    return made(cluster, "worker")


def made(cluster: Cluster, kind: str) -> dict[str, dict[str, Any]]:
    """What each process of a kind was told to be, by the name of its Deployment."""
    of = f"edgewise/system,app.kubernetes.io/component={kind}"
    found = cluster.list("deployment", "-n", SPACE, "-l", of)
    told = {}
    for each in found:
        (inside,) = each["spec"]["template"]["spec"]["containers"]
        told[each["metadata"]["name"]] = json.loads(inside["env"][0]["value"])
    return told


def answers_again(cluster: Cluster, asking: Asking, count: int = 20) -> None:
    """Wait until so many queries more that began from now on are answered."""
    now = time.time()
    told_why(cluster, lambda: sum(each[0] > now for each in asking()) >= count, 180, "queries to be answered")


def told_why(cluster: Cluster, done: Callable[[], bool], within_s: float, what: str) -> None:
    """Wait for something of the release; where it does not come, print what its pods say."""
    try:
        cluster.wait(done, within_s, what)
    except Exception:
        print(cluster.kubectl("get", "pods", "-n", SPACE, "-o", "wide"))
        print(cluster.kubectl("get", "lease", "edgewise", "-n", SPACE, "-o", "yaml"))
        for of in ("controller", "gateway", "worker"):
            of = f"app.kubernetes.io/component={of}"
            print(cluster.kubectl("logs", "-n", SPACE, "--tail=80", "--prefix", "--timestamps", "-l", of))
        print(cluster.kubectl("get", "events", "-n", SPACE, "--sort-by=.lastTimestamp"))
        raise


def since(began: float, what: str, asking: Asking) -> tuple[int, int, int]:
    """How often, of queries that ended since then, nobody took it, it was turned away, or got no answer."""
    meanwhile = [each for each in asking() if each[0] + each[1] > began]
    away, turned, lost = (int(sum(each[n] for each in meanwhile)) for n in (2, 3, 4))
    waited_s = max(each[1] for each in meanwhile)
    print(
        f"{what}: {len(meanwhile)} answered, after at most {waited_s:.1f} s; {away} not taken, "
        f"{turned} turned away, {lost} sent without an answer"
    )
    for each in meanwhile:
        if sum(each[2:5]):
            print(f"  {each[0] - began:.1f} s after it began: {each[1:]}")
    return away, turned, lost


def leader(cluster: Cluster) -> str:
    """The pod of the controller that leads; "" where none does."""
    found = cluster.find("lease", "edgewise", SPACE)
    return str(found["spec"].get("holderIdentity", "")) if found else ""


def leads(cluster: Cluster, other_than: str = "") -> str:
    """Wait until a controller leads that is not this one, and has all that is wanted; its pod."""

    def ready() -> bool:
        if (pod := leader(cluster)) in ("", other_than):
            return False
        return "up after" in cluster.kubectl("logs", pod, "-n", SPACE, "-c", "edgewise", "--tail=20")

    cluster.wait(ready, 240, "a controller to lead")
    return leader(cluster)
