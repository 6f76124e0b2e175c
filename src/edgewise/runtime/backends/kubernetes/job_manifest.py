"""The Job that `edgewise submit` makes, which is what a user would write, and what becomes of one."""

import hashlib
from datetime import UTC, datetime
from typing import Any

from edgewise.runtime.backends.kubernetes.job_seen import (
    DEFERRED,
    EARLIEST,
    EVERY,
    LASTS,
    LATEST,
    PRIORITY,
    RUN,
    SAVED,
    STOPPED,
    JobSeen,
)
from edgewise.runtime.backends.kubernetes.manifest import NO_RIGHTS, NOBODY, SYSTEM, Pods, owned, requests
from edgewise.runtime.store.jobs import Job, Wish

MADE_BY, US = "app.kubernetes.io/managed-by", "edgewise"
HOSTNAME = "kubernetes.io/hostname"


def job_of(wish: Wish, pods: Pods) -> dict[str, Any]:
    """A Job that waits until it may run; a submission that is repeated has the same name."""
    notes = {
        EARLIEST: _written(wish.earliest_s), LATEST: _written(wish.latest_s), LASTS: f"{wish.duration_s:g}s",
        PRIORITY: str(wish.priority),
    }  # fmt: skip
    if wish.checkpoint_s is not None:
        notes[EVERY] = f"{wish.checkpoint_s:g}s"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"job-{hashlib.sha256(wish.key.encode()).hexdigest()[:10]}",
            "labels": {DEFERRED: "true", MADE_BY: US, SYSTEM: pods.system},
            "annotations": notes,
            **owned(pods.owner),
        },
        "spec": {
            "suspend": True,
            "backoffLimit": 0,  # a command runs once, but for a pod that others took away
            "podFailurePolicy": {
                "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]
            },
            "template": {"metadata": {"annotations": {SAVED: "0"}}, "spec": _pod_of(wish, pods)},
        },
    }


def _pod_of(wish: Wish, pods: Pods) -> dict[str, Any]:
    saved = {"fieldRef": {"fieldPath": f"metadata.annotations['{SAVED}']"}}
    container = {
        "name": "job", "image": pods.image, "imagePullPolicy": pods.pull, "command": list(wish.command),
        "env": [{"name": "EDGEWISE_SAVED_S", "valueFrom": saved}],
        "resources": {"requests": requests(wish.cores, wish.memory_bytes)},
        "securityContext": NO_RIGHTS,
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }  # fmt: skip
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": NOBODY,
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }


def begun(job: Job, run: str, seen: JobSeen, system: str) -> dict[str, Any]:
    """What is written to a Job that begins: it goes to its node, and its pods are no others' for the ledger.

    Who wrote the Job meanwhile is not overwritten: the API server refuses an older version.
    """
    pod = {
        "metadata": {"labels": {SYSTEM: system}, "annotations": {SAVED: f"{job.saved_s:g}"}},
        "spec": {"nodeSelector": {HOSTNAME: job.node}},
    }
    meta = {"resourceVersion": seen.version, "annotations": {RUN: run, STOPPED: None}}
    return {"metadata": meta, "spec": {"suspend": False, "template": pod}}


def stopped(run: str) -> dict[str, Any]:
    """What is written to a Job that gives its node back: its pods are deleted."""
    return {"metadata": {"annotations": {STOPPED: run}}, "spec": {"suspend": True}}


def _written(moment_s: float) -> str:
    return datetime.fromtimestamp(moment_s, UTC).isoformat(timespec="milliseconds")
