"""`edgewise up --on kubernetes`: gateways here, workers on a cluster; from nothing to answers, and back."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from beds.kubernetes import Cluster
from beds.kubernetes.cluster import is_ready
from beds.kubernetes.images import BUSYBOX
from beds.kubernetes.network import HOST_SIDE

SPACE, PORT = "cameras", 8640
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
  - name: east
    tier: 1
    nodes: [{name: n3, resources: {cpu_cores: 1, memory_bytes: 1GB}}]
sites: [{name: gate, uplink_bps: 1Gbps}]
links:
  - {site: gate, cluster: west, delay_s: 1ms}
  - {site: gate, cluster: east, delay_s: 4ms}
workers:
  - {variant: echo-cpu, node: n1}
  - {variant: echo-cpu, node: n3}
streams:
  applications: [{name: any, task: score, rate_qps: 10, size_bytes: 100, deadline_s: 5, length_s: 60}]
  arrivals: {clients_per_min: 1}
"""
TENSOR = {"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}


@pytest.fixture(scope="module")
def given(cluster: Cluster, edgewise_image) -> dict[str, str]:
    """Options that say where; Pod Security `restricted` is enforced there."""
    cluster.load(edgewise_image)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE, "labels": labels}})
    cluster.wait(lambda: cluster.find("serviceaccount", "default", SPACE) is not None, 30, "the account")
    return {
        "--on": "kubernetes", "--kubeconfig": str(cluster.kubeconfig), "--namespace": SPACE,
        "--image": edgewise_image.name, "--pull": "Never", "--address": HOST_SIDE,
    }  # fmt: skip


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "edgewise", *arguments]


@contextlib.contextmanager
def up(folder: Path, given: dict[str, str], text: str = SCENARIO) -> Iterator[subprocess.Popen[str]]:
    """The system of a folder, until it has ended."""
    (folder / "cameras.yaml").write_text(text)
    options = [each for pair in given.items() for each in pair]
    arguments = ["up", "cameras.yaml", "--state", "live", "--port", str(PORT), *options]
    with (folder / "up.log").open("a") as log:
        running = subprocess.Popen(command(*arguments), cwd=folder, stdout=log, stderr=log, text=True)
        try:
            yield running
        finally:
            if running.poll() is None:
                running.send_signal(signal.SIGINT)
                running.wait(60)


def asked(path: str, body: object | None = None, **headers: str) -> dict:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", data, headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read() or b"{}")


def stream() -> str:
    needs = {"task": "score", "rate_qps": 10, "size_bytes": 100, "deadline_s": 5}
    return str(asked("/v1/streams", needs)["stream"])


def answered(of: str) -> str:
    """The worker that answers a query of a stream."""
    answer = asked("/v2/models/score/infer", {"inputs": [TENSOR]}, **{"edgewise-stream": of})
    assert answer["outputs"][0]["data"] == [1, 2, 3]
    return answer["parameters"]["edgewise_worker"]


def answers(of: str) -> bool:
    """Whether a query of a stream is answered; where the machine is busy a worker may seem to be down."""
    with contextlib.suppress(OSError, ValueError):
        return bool(answered(of))
    return False


def begins(cluster: Cluster, folder: Path, before: str = "") -> str:
    """Wait until a system is up, which its log says after `before`; a stream whose first query is answered.

    A stream that comes while no worker is up is kept, and takes of what there is once one comes.
    """
    log = folder / "up.log"
    try:
        cluster.wait(lambda: "up after" in log.read_text().removeprefix(before), 180, "workers and gateway")
        made = stream()
        cluster.wait(lambda: answers(made), 60, "a first answer")
    except Exception:
        print(log.read_text()[-3000:], cluster.kubectl("get", "pods", "-n", SPACE, "-o", "wide"))
        raise
    return made


def metrics(folder: Path) -> list[str]:
    """What the controller counts."""
    said = (folder / "up.log").read_text()
    url = said.split("controller: ")[1].split(";")[0]
    token = subprocess.check_output(command("token", "--state", "live"), cwd=folder, text=True).strip()
    request = urllib.request.Request(f"{url}/metrics", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode().splitlines()


def there(cluster: Cluster, kind: str = "deployment") -> list[str]:
    return [each["metadata"]["name"] for each in cluster.list(kind, "-n", SPACE, "-l", "edgewise/system")]


def all_ready(cluster: Cluster, gone: set[str]) -> bool:
    """Whether both workers have pods that are ready, and none of those that are gone."""
    found = {each["metadata"]["name"]: is_ready(each) for each in cluster.list("pod", "-n", SPACE)}
    return len(found) == 2 and all(found.values()) and not gone & set(found)


def test_from_nothing_to_an_answer_and_whoever_kills_a_pod_has_it_back(cluster, given, tmp_path):
    with up(tmp_path, given):
        began_s = time.monotonic()
        mine = begins(cluster, tmp_path)
        print(f"first answer after {time.monotonic() - began_s:.1f} s")
        assert {n["spec"]["nodeName"] for n in cluster.list("pod", "-n", SPACE)} == {"n1", "n3"}
        worker = asked(f"/v1/streams/{mine}")["worker"]
        (pod,) = [
            each["metadata"]["name"]
            for each in cluster.list("pod", "-n", SPACE)
            if each["metadata"]["annotations"]["edgewise/process"] == worker
        ]
        cluster.kubectl("delete", "pod", pod, "-n", SPACE, "--grace-period=0", "--force")
        got, until_s = 0, time.monotonic() + 120
        while got < 50 and time.monotonic() < until_s:
            got += answers(mine)  # what was inside the dead pod is lost
        assert got == 50
        said = json.loads(
            subprocess.check_output(command("status", "--state", "live", "--json"), cwd=tmp_path, text=True)
        )
        states = {each["name"]: each["state"] for each in said["processes"]}
        assert states == dict.fromkeys(("echo-cpu@n1", "echo-cpu@n3", "gateway-0"), "running")
        assert len(there(cluster, "poddisruptionbudget")) == 2  # of workers, and of gateways
        print("\n".join(each for each in metrics(tmp_path) if "kubernetes" in each))
        assert any(
            each.startswith('edgewise_kubernetes_calls_total{verb="watch"}') for each in metrics(tmp_path)
        )
    assert [there(cluster, kind) for kind in ("deployment", "secret", "poddisruptionbudget")] == [[], [], []]


def test_who_is_killed_finds_workers_again_and_a_change_replaces_them(cluster, given, tmp_path):
    with up(tmp_path, given) as first:
        begins(cluster, tmp_path)
        before = sorted(there(cluster))
        os.kill(first.pid, signal.SIGKILL)
        first.wait(30)
        assert sorted(there(cluster)) == before
    said = (tmp_path / "up.log").read_text()
    with up(tmp_path, given):
        begins(cluster, tmp_path, said)
        assert sorted(there(cluster)) == before, "workers were started anew"
        gone = {each["metadata"]["name"] for each in cluster.list("pod", "-n", SPACE)}
        cluster.kubectl("delete", "pod", *gone, "-n", SPACE, "--grace-period=0", "--force")
        cluster.wait(lambda: all_ready(cluster, gone), 120, "pods in their place, which get models, too")
        changed = SCENARIO.replace("capacity_qps: 100", "capacity_qps: 90")
        (tmp_path / "cameras.yaml").write_text(changed)
        options = [each for pair in given.items() for each in pair]
        subprocess.run(
            command("up", "cameras.yaml", "--state", "live", "--port", str(PORT), *options),
            cwd=tmp_path, check=True, timeout=240, capture_output=True,
        )  # fmt: skip
        mine = stream()
        cluster.wait(lambda: answers(mine), 60, "an answer of what took over")
        cluster.wait(lambda: len(there(cluster)) == len(before), 60, "the former workers to be gone")
        assert not set(there(cluster)) & set(before)
    assert there(cluster) == []


def test_what_pods_of_others_ask_for_is_in_the_ledger(cluster, given, tmp_path):
    def others() -> float:
        said = subprocess.check_output(command("nodes", "--state", "live", "--json"), cwd=tmp_path, text=True)
        (row,) = [each for each in json.loads(said) if each["node"] == "n2"]
        return sum(each["cpu_cores"] for each in row["holders"] if each["owner"] == "others on n2")

    allocatable = cluster.get("node", "n2")["status"]["allocatable"]["cpu"]
    asks = {"requests": {"cpu": f"{int(1000 * (float(allocatable) - 0.4))}m"}}
    inside = {"name": "c", "image": BUSYBOX, "imagePullPolicy": "Never", "args": ["sleep", "3600"]}
    tenant = {"nodeSelector": {"kubernetes.io/hostname": "n2"}, "containers": [inside | {"resources": asks}]}
    with up(tmp_path, given):
        begins(cluster, tmp_path)
        assert others() < 0.3  # what the bed's own pods ask for may be there
        cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "tenant"}, "spec": tenant})
        cluster.wait(lambda: others() >= 0.6 - 1e-6, 60, "the tenant to be seen")
        cluster.kubectl("delete", "pod", "tenant", "--grace-period=0", "--force")
        cluster.wait(lambda: others() < 0.3, 60, "the room to be free again")
        cluster.kubectl("cordon", "n2")
        cluster.wait(lambda: others() == 1.0, 60, "the node to take nothing new")
        cluster.kubectl("uncordon", "n2")
        cluster.wait(lambda: others() < 0.3, 60, "the node to be open again")


@pytest.mark.parametrize(
    ("options", "text", "words"),
    [
        ({"--image": None}, SCENARIO, "needs --image"),
        ({}, SCENARIO.replace(" n3", " n9"), "no 'n9'; it has n1, n2, n3"),
        ({}, SCENARIO.replace("cpu_cores: 1,", "cpu_cores: 4096,"), "4096, and"),
        ({"--namespace": "nowhere"}, SCENARIO, "kubectl create namespace nowhere"),
        ({"--address": "192.0.2.1"}, SCENARIO, "nothing can listen"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_before_anything_runs(cluster, given, tmp_path, options, text, words):
    (tmp_path / "cameras.yaml").write_text(text)
    pairs = {name: value for name, value in (given | options).items() if value is not None}
    arguments = ["up", "cameras.yaml", "--state", "live", "--port", str(PORT)]
    done = subprocess.run(
        command(*arguments, *(each for pair in pairs.items() for each in pair)),
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert done.returncode != 0 and words in said and "Traceback" not in said
    assert there(cluster) == []
