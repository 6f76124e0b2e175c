"""Deferrable Jobs beside a real Kueue, in one namespace: each of the two has its own."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from beds.go import built, go_module
from beds.kubernetes import Cluster
from beds.kubernetes.images import NOBODY, Image
from beds.kubernetes.tests.test_edgewise_jobs import Jobs, complete, job, jobs  # noqa: F401
from beds.kubernetes.tests.test_edgewise_up import SPACE, begins, given, up  # noqa: F401
from beds.processes import BedError

MODULE = ("sigs.k8s.io/kueue", "v0.15.2")
IMAGE, WHERE = "docker.io/edgewise-bed/kueue:1", "kueue-system"
CONTROLLER, SETTINGS = "kueue-controller-manager", "kueue-manager-config"
GROUP, QUEUE = "kueue.x-k8s.io", "night"
CORES = "0.6"  # of the queue: one Job at a time


def configuration(cluster: Cluster) -> str:
    """Of Kueue's own module, with the image that was built here."""
    source = Path(go_module(*MODULE)["Dir"]) / "config/default"
    text = cluster.kubectl("kustomize", source)
    text, count = re.subn(r"image: \S*kueue\S*", f"image: {IMAGE}", text)
    assert count == 1
    return re.sub(r"imagePullPolicy: \w+", "imagePullPolicy: Never", text)


def queue() -> list[dict]:
    """A queue of the namespace, with a quota."""
    version = f"{GROUP}/v1beta1"
    quota = [{"name": "cpu", "nominalQuota": CORES}, {"name": "memory", "nominalQuota": "1Gi"}]
    flavors = [{"name": "any", "resources": quota}]
    of_all = {"namespaceSelector": {}, "resourceGroups": [
        {"coveredResources": ["cpu", "memory"], "flavors": flavors},
    ]}  # fmt: skip
    return [
        {"apiVersion": version, "kind": "ResourceFlavor", "metadata": {"name": "any"}},
        {"apiVersion": version, "kind": "ClusterQueue", "metadata": {"name": "all"}, "spec": of_all},
        {
            "apiVersion": version, "kind": "LocalQueue", "metadata": {"name": QUEUE, "namespace": SPACE},
            "spec": {"clusterQueue": "all"},
        },
    ]  # fmt: skip


def answers(cluster: Cluster, *objects: dict) -> bool:
    """Whether objects are taken; a webhook that is yet to begin refuses them."""
    try:
        cluster.apply(*objects)
    except BedError:
        return False
    return True


def begun(cluster: Cluster) -> bool:
    """Whether Kueue's controller is ready."""
    return bool(cluster.get("deployment", CONTROLLER, WHERE)["status"].get("readyReplicas"))


@pytest.fixture(scope="module")
def kueue(cluster: Cluster, given, tmp_path_factory) -> None:  # noqa: F811
    root = tmp_path_factory.mktemp("kueue") / "root"
    (root / "tmp").mkdir(parents=True)
    shutil.copy(built(*MODULE, "cmd/kueue"), root / "manager")
    cluster.load(Image(IMAGE, root, ("/manager",), user=NOBODY))
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=configuration(cluster))
    cluster.wait(lambda: begun(cluster), 240, "Kueue")
    cluster.wait(lambda: answers(cluster, *queue()), 120, "its webhooks")


def workloads(cluster: Cluster) -> set[str]:
    """Jobs that Kueue has taken."""
    found = cluster.list(f"workloads.{GROUP}", "-n", SPACE)
    return {each["metadata"]["ownerReferences"][0]["name"] for each in found}


def test_each_begins_its_own_jobs(cluster, given, kueue, tmp_path, jobs):  # noqa: F811
    in_queue = {f"{GROUP}/queue-name": QUEUE}
    with up(tmp_path, given):
        begins(cluster, tmp_path)
        for name, labels in (("one", in_queue), ("other", in_queue), ("ours", {})):
            cluster.apply(job(name, "sleep", "5", **labels))
        for name in ("ours", "one", "other"):
            cluster.wait(lambda name=name: complete(jobs.get(name)), 240, f"the Job {name}")
        assert workloads(cluster) == {"one", "other"}
        assert set(jobs.rows()) == {"sleep 5"}, "one row, of the Job that is in no queue"
        assert jobs.reasons("ours") == ["Deferred", "Started"]
        assert jobs.reasons("one") == jobs.reasons("other") == ["LeftToKueue"]


def test_a_kueue_that_manages_all_is_noticed(cluster, given, kueue, tmp_path, jobs):  # noqa: F811
    settings = cluster.get("configmap", SETTINGS, WHERE)
    (file,) = settings["data"]
    text = settings["data"][file]
    assert "manageJobsWithoutQueueName" in text
    text = re.sub(r"#?\s*manageJobsWithoutQueueName: \w+", "\nmanageJobsWithoutQueueName: true", text)
    patch = ("--type=merge", "--patch-file=/dev/stdin")
    cluster.kubectl("patch", "configmap", SETTINGS, "-n", WHERE, *patch, stdin={"data": {file: text}})
    for verb in ("restart", "status"):
        cluster.kubectl("rollout", verb, f"deployment/{CONTROLLER}", "-n", WHERE)
    with up(tmp_path, given):
        begins(cluster, tmp_path)
        cluster.wait(lambda: answers(cluster, job("taken", "sleep", "5")), 60, "its webhooks")
        cluster.wait(lambda: "SuspendedByAnother" in jobs.reasons("taken"), 120, "edgewise to notice")
