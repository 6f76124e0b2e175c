"""Replicas that the decision `orchestrate` starts and ends, as pods: they come and go with the load."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from beds.kubernetes import Cluster
from beds.kubernetes.cluster import is_ready
from beds.kubernetes.images import BUSYBOX
from beds.kubernetes.tests.test_edgewise_up import SPACE, command, given, there, up  # noqa: F401

CORES, LEFT = 0.2, 0.5  # what a replica holds, and what a tenant leaves of its node
SCENARIO = """
name: orchestrated
duration_s: 60
sharing: none
catalog:
  models: [{name: model, task: score, accuracy: 50}]
  variants:
    - name: slow
      model: model
      resources: {cpu_cores: 0.2, memory_bytes: 100MB}
      profile: {fixed_s: 100ms, source: "made up for this test"}
      largest_bytes: 1000
clusters:
  - name: hall
    tier: 0
    nodes:
      - {name: n1, resources: {cpu_cores: 1, memory_bytes: 1GB}}
      - {name: n2, resources: {cpu_cores: 1, memory_bytes: 1GB}}
  - name: cloud
    tier: 1
    nodes: [{name: n3, resources: {cpu_cores: 1, memory_bytes: 1GB}}]
sites: [{name: gate, cluster: hall, uplink_bps: 1Gbps}]
links:
  - {site: gate, cluster: hall, delay_s: 1ms, over: lan}
  - {site: gate, cluster: cloud, delay_s: 20ms, over: wan}
  - {name: lan, bandwidth_bps: 1Gbps}
  - {name: wan, bandwidth_bps: 100Mbps}
workers: [{variant: slow, cluster: cloud}]
policies: {requests: two-choices, orchestrate: autoscaler}
services:
  cloud: cloud
  frame_s: 2
  cores_held: life
  offered: [{variant: slow, deadline_s: 2, initial: 1}]
  requests: {rate_qps: 20, service_s: 100ms, slack: 20}
"""


class Replicas:
    """Of a system that is up, in a folder."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder

    def said(self, *arguments: str) -> str:
        return subprocess.check_output(command(*arguments, "--state", "live"), cwd=self.folder, text=True)

    def ready(self) -> Counter[str]:
        """How many pods of replicas are ready on each node, and go on."""
        found = self.cluster.list("pod", "-n", SPACE, "-l", "app.kubernetes.io/component=replica")
        return Counter(
            each["spec"]["nodeName"]
            for each in found
            if is_ready(each) and "deletionTimestamp" not in each["metadata"]
        )

    def pods(self) -> list[str]:
        """Names of all pods of replicas."""
        found = self.cluster.list("pod", "-n", SPACE, "-l", "app.kubernetes.io/component=replica")
        return [each["metadata"]["name"] for each in found]

    def pending(self) -> list[str]:
        """Pods of the namespace that have no node."""
        found = self.cluster.list("pod", "-n", SPACE)
        return [each["metadata"]["name"] for each in found if "nodeName" not in each["spec"]]

    @contextlib.contextmanager
    def loaded(self, rate_qps: int) -> Iterator[None]:
        """Requests come, for as long as this is entered."""
        arguments = ("slow", "--rate-qps", str(rate_qps), "--seconds", "600", "--state", "live")
        loads = subprocess.Popen(command("load", *arguments), cwd=self.folder, stdout=subprocess.DEVNULL)
        try:
            yield
        finally:
            loads.kill()
            loads.wait()

    def became(self) -> dict[str, int]:
        """What became of requests that come now."""
        answer = self.said("load", "slow", "--rate-qps", "5", "--seconds", "15", "--json")
        return json.loads(answer)["became"]


@pytest.fixture(scope="module")
def replicas(cluster: Cluster, given, tmp_path_factory) -> Iterator[Replicas]:  # noqa: F811
    """A system beside a tenant that leaves little of `n2`."""
    has_cores = float(cluster.get("node", "n2")["status"]["allocatable"]["cpu"])
    asks = {"requests": {"cpu": f"{1000 * (has_cores - LEFT):.0f}m"}}
    inside = {"name": "c", "image": BUSYBOX, "imagePullPolicy": "Never", "command": ["sleep", "3600"]}
    cluster.apply({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "tenant"},
        "spec": {"nodeName": "n2", "containers": [inside | {"resources": asks}]},
    })  # fmt: skip
    made = tmp_path_factory.mktemp("orchestrate")
    with up(made, given, SCENARIO):
        try:
            cluster.wait(lambda: "up after" in (made / "up.log").read_text(), 300, "all that is to be up")
        except Exception:
            print((made / "up.log").read_text()[-3000:])
            print(cluster.kubectl("get", "pods", "-n", SPACE, "-o", "wide"))
            raise
        yield Replicas(cluster, made)
    assert there(cluster) == []


def test_replicas_come_with_the_load_and_go_with_it(cluster, replicas):
    cluster.wait(lambda: replicas.ready().total() == 1, 120, "the first replica")
    with replicas.loaded(15):
        cluster.wait(lambda: replicas.ready().total() >= 4, 240, "more replicas")
        found, at = replicas.became(), replicas.ready()
        print(found, at)
        assert at["n2"] <= LEFT / CORES and at.keys() <= {"n1", "n2"} and replicas.pending() == []
        assert found["in time"] >= 0.5 * sum(found.values()) and not found.get("failed")
    cluster.wait(lambda: replicas.ready().total() == 1, 240, "one replica again")
    cluster.wait(lambda: len(there(cluster)) == 2, 60, "its Deployment and the worker's alone")


def test_another_policy_takes_over_and_whoever_deletes_a_replica_has_it_back(cluster, replicas):
    replicas.said("policy", "set", "orchestrate=marginal")
    with replicas.loaded(10):
        cluster.wait(lambda: replicas.ready().total() >= 3, 240, "more replicas")
        pods = replicas.pods()
        cluster.kubectl("delete", "pod", pods[0], "-n", SPACE, "--grace-period=0", "--force")
        cluster.wait(lambda: replicas.ready().total() >= len(pods), 240, "it to be back")
        assert pods[0] not in replicas.pods() and replicas.pending() == []
        assert replicas.became()["in time"] > 0
