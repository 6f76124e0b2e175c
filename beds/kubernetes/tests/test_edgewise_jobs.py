"""Deferrable jobs on a cluster: Jobs that users write, and those that `edgewise submit` makes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from beds.kubernetes import Cluster
from beds.kubernetes.images import BUSYBOX, PYTHON
from beds.kubernetes.tests.test_edgewise_up import SPACE, begins, command, given, up  # noqa: F401

WINDOW = {"edgewise/latest-start": "10m", "edgewise/duration": "20m"}


def job(name: str, *does: str, notes: dict[str, str] = WINDOW, cpu: str = "500m", **labels: str) -> dict:
    """A Job as a user would write it."""
    inside = {
        "name": "c", "image": BUSYBOX, "imagePullPolicy": "Never", "command": list(does),
        "resources": {"requests": {"cpu": cpu, "memory": "16Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }  # fmt: skip
    nobody = {"runAsNonRoot": True, "runAsUser": 65534, "seccompProfile": {"type": "RuntimeDefault"}}
    pod = {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "securityContext": nobody,
        "containers": [inside],
    }  # fmt: skip
    meta = {"name": name, "namespace": SPACE, "annotations": notes}
    taken_away = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    return {
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": meta | {"labels": {"edgewise/deferred": "true"} | labels},
        "spec": {
            "suspend": True, "backoffLimit": 0, "podFailurePolicy": {"rules": [taken_away]},
            "template": {"spec": pod},
        },
    }  # fmt: skip


class Jobs:
    """The Jobs of the bed's namespace, and what edgewise says of them."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder

    def said(self, *arguments: str) -> str:
        at = arguments.index("--") if "--" in arguments else len(arguments)
        whole = command(*arguments[:at], "--state", "live", *arguments[at:])
        return subprocess.check_output(whole, cwd=self.folder, text=True)

    def rows(self) -> dict[str, dict[str, Any]]:
        """What `edgewise jobs` lists, by what a job runs."""
        found = json.loads(self.said("jobs", "--all", "--json"))
        return {" ".join(each["command"]): each for each in found}

    def get(self, name: str) -> dict[str, Any]:
        return self.cluster.get("job", name, SPACE)

    def pods(self, name: str) -> list[dict[str, Any]]:
        return self.cluster.list("pod", "-n", SPACE, "-l", f"batch.kubernetes.io/job-name={name}")

    def reasons(self, name: str) -> list[str]:
        found = self.cluster.list("event", "-n", SPACE, "--field-selector", f"involvedObject.name={name}")
        return sorted(each["reason"] for each in found if each["source"].get("component") == "edgewise")

    def runs(self, name: str) -> str | None:
        """Node of the running pod of a Job."""
        alive = [each for each in self.pods(name) if each["status"]["phase"] == "Running"]
        alive = [each for each in alive if "deletionTimestamp" not in each["metadata"]]
        return alive[0]["spec"]["nodeName"] if alive else None


@pytest.fixture
def jobs(cluster: Cluster, tmp_path: Path):
    yield Jobs(cluster, tmp_path)
    cluster.kubectl("delete", "jobs", "--all", "-n", SPACE, "--wait=true", "--timeout=60s")


def complete(found: dict[str, Any]) -> bool:
    return any(
        each["type"] == "Complete" and each["status"] == "True"
        for each in found["status"].get("conditions", ())
    )


def test_jobs_wait_for_their_window_and_what_is_not_ours_is_left_alone(cluster, given, tmp_path, jobs):  # noqa: F811
    cluster.apply(job("soon", "sleep", "2"))
    cluster.apply(job("later", "sleep", "3", notes=WINDOW | {"edgewise/earliest-start": "5m"}))
    cluster.apply(job("queued", "sleep", "4", **{"kueue.x-k8s.io/queue-name": "night"}))
    cluster.apply(job("odd", "sleep", "5", notes={"edgewise/duration": "1h"}))
    with up(tmp_path, given):
        begins(cluster, tmp_path)
        cluster.wait(lambda: complete(jobs.get("soon")), 120, "the job that may run now")
        cluster.wait(lambda: jobs.rows()["sleep 2"]["state"] == "done", 30, "edgewise to know")
        assert jobs.rows()["sleep 2"]["node"] in ("n1", "n2", "n3")
        cluster.wait(lambda: jobs.reasons("soon") == ["Deferred", "Started"], 30, "both events")
        assert jobs.rows()["sleep 3"]["state"] == "waiting" and jobs.get("later")["spec"]["suspend"]
        assert jobs.reasons("queued") == ["LeftToKueue"] and jobs.get("queued")["spec"]["suspend"]
        assert jobs.reasons("odd") == ["InvalidDeferral"] and jobs.rows().keys() == {"sleep 2", "sleep 3"}
        cluster.kubectl("delete", "job", "later", "-n", SPACE)
        cluster.wait(lambda: jobs.rows()["sleep 3"]["state"] == "cancelled", 30, "edgewise to let go of it")

        said = jobs.said("submit", "--cores", "0.5", "--duration", "5m", "--", PYTHON, "-c", "print('here')")
        number = said.split()[1]
        cluster.wait(lambda: jobs.rows()[f"{PYTHON} -c print('here')"]["state"] == "done", 120, "its end")
        assert jobs.said("job", "output", number) == "here\n"
        window = ("--earliest", "+1h", "--latest", "+2h")
        mine = jobs.said("submit", "--duration", "5m", "--cores", "0.5", *window, "--", PYTHON, "-V")
        jobs.said("job", "cancel", mine.split()[1])
        made = "app.kubernetes.io/managed-by=edgewise"

        def ends() -> list[str]:
            found = cluster.list("job", "-n", SPACE, "-l", made)
            return sorted(each["metadata"]["annotations"].get("edgewise/ended", "") for each in found)

        cluster.wait(lambda: ends() == ["", "cancelled"], 30, "the one that was cancelled to say so")


def test_a_job_gives_its_node_back_and_runs_elsewhere(cluster, given, tmp_path, jobs):  # noqa: F811
    cluster.apply(job("long", "sleep", "600", cpu="600m"))
    with up(tmp_path, given) as first:
        begins(cluster, tmp_path)
        cluster.wait(lambda: jobs.runs("long"), 120, "the job to run")
        (pod,) = jobs.pods("long")
        os.kill(first.pid, signal.SIGKILL)
        first.wait(30)
    said = (tmp_path / "up.log").read_text()
    with up(tmp_path, given):
        begins(cluster, tmp_path, said)
        assert [each["metadata"]["uid"] for each in jobs.pods("long")] == [pod["metadata"]["uid"]]
        at = pod["spec"]["nodeName"]
        has = float(cluster.get("node", at)["status"]["allocatable"]["cpu"])
        inside = {
            "name": "c", "image": BUSYBOX, "imagePullPolicy": "Never", "command": ["sleep", "3600"],
            "resources": {"requests": {"cpu": f"{int(1000 * (has - 0.4))}m"}},
        }  # fmt: skip
        cluster.apply({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "tenants"},
            "value": 1000,
        })  # fmt: skip
        cluster.apply({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "tenant"},
            "spec": {
                "nodeSelector": {"kubernetes.io/hostname": at}, "priorityClassName": "tenants",
                "containers": [inside],
            },
        })  # fmt: skip
        try:
            cluster.wait(lambda: jobs.runs("long") not in (None, at), 120, "the job to run elsewhere")
            row = jobs.rows()["sleep 600"]
            assert row["state"] == "running" and row["attempt"] == 1 and row["node"] == jobs.runs("long")
            assert "Evicted" in jobs.reasons("long") and jobs.reasons("long").count("Started") == 2
        finally:
            cluster.kubectl("delete", "pod", "tenant", "--grace-period=0", "--force")
    cluster.wait(lambda: not jobs.pods("long"), 60, "what ran to end with the system")
    assert jobs.get("long")["spec"]["suspend"]
