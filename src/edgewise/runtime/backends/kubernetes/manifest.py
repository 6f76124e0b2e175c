"""A worker, gateway or task as users of Kubernetes know it: a Deployment of one pod.

The pod runs `edgewise pod` as nobody, on a root that it cannot write, under Pod Security `restricted`. What
it is to be stands in its environment, tokens in a Secret, and its model, whole or cut, comes by SHA-256 into
a folder of its own before it answers; a gateway has a copy of what its controller keeps. Kubernetes asks
whether it is ready, ends what hangs, and starts anew what died.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from edgewise.runtime.process.pod import MODELS_FOLDER, MODELS_URL, PROCESS, STATE_FOLDER, TASK, TOKENS
from edgewise.runtime.store import Process

SYSTEM, START, PORT = "edgewise/system", "edgewise/start", "edgewise/port"  # labels
OWNER = "edgewise/owner"  # another: the Deployment whose system it is
KIND = "app.kubernetes.io/component"  # another
VOLUMES = ("models", MODELS_FOLDER), ("state", STATE_FOLDER)  # of all others, of gateways
NAME = "edgewise/process"  # an annotation: labels hold fewer letters
NAME_LETTERS = 40  # of a process's name in that of its Deployment, of 63
PROBE_S, STARTS_WITHIN_S = 1, 300
TASK_PATIENCE_S = 1  # of a task: it ends when it is told
# From being told to its end, else 1: who asks hears of it meanwhile. A busy node took 5 s for a gateway.
TURNED_AWAY_S = {"gateway": 10}
NOBODY = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
NO_RIGHTS = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
Give = Callable[[Path], str]  # has pods get a file, and says its SHA-256


@dataclass(frozen=True, slots=True)
class Pods:
    """What all pods of a system have in common.

    Attributes:
        system: its name; all of its objects have it as a label.
        image: of edgewise.
        models: URL where pods get a model by its SHA-256; `/` and the digest follow.
        secret: that holds the tokens `parts` and `operator`.
        pull: when the image is pulled, as Kubernetes has it.
        patience_s: from being told to end to being killed.
        priority: class of their priority, where the cluster has one for them.
        owner: an owner reference; with that object goes whatever is made here.
    """

    system: str
    image: str
    models: str
    secret: str = "edgewise-tokens"
    pull: str = "IfNotPresent"
    patience_s: int = 30
    priority: str | None = None
    owner: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class PodPlace:
    """Where a pod belongs, and what it holds there.

    Attributes:
        node: None: wherever the scheduler finds room.
        near: then first of all on these nodes.
    """

    node: str | None
    cpu_cores: float
    memory_bytes: float
    near: tuple[str, ...] = ()


OF_GATEWAYS = PodPlace(None, 0.25, 512e6)


def start_name(process: Process, start: str) -> str:
    """Name of the Deployment of one start of a process, which no other start has."""
    plain = re.sub(r"[^a-z0-9]+", "-", process.name.lower()).strip("-")[:NAME_LETTERS].strip("-")
    return f"{plain or 'process'}-{start}"


def by_digest(settings: Mapping[str, Any], give: Give) -> dict[str, Any]:
    """The settings of a process as its pod has them: files by SHA-256, of a network that is cut by name.

    A gateway has the networks that are cut of all workers.


    Raises:
        OSError: a file cannot be read.
    """

    def cut(folder: Path) -> dict[str, str]:
        return {each.name: give(each) for each in sorted(folder.iterdir())}

    if "splits" in settings:
        return {**settings, "splits": {name: cut(Path(of)) for name, of in settings["splits"].items()}}
    if "file" not in settings:  # of a task
        return dict(settings)
    file = Path(settings["file"])
    if settings["split"] is None:
        return {**settings, "file": give(file)}
    return {**settings, "file": file.name, "split": cut(file.parent)}


def deployment(process: Process, start: str, pods: Pods, place: PodPlace) -> dict[str, Any]:
    """The Deployment of one start of a worker or gateway.

    Args:
        process: with its files by SHA-256, see `by_digest`.
        start: letters and digits that no other start has.
    """
    labels = {
        "app.kubernetes.io/name": "edgewise", KIND: process.kind,
        SYSTEM: pods.system, START: start, PORT: str(process.port),
        **({} if pods.owner is None else {OWNER: pods.owner["name"]}),
    }  # fmt: skip
    named = {NAME: process.name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": start_name(process, start),
            "labels": labels,
            "annotations": named,
            **owned(pods.owner),
        },
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 0,
            "strategy": {"type": "Recreate"},  # another start is another Deployment
            "selector": {"matchLabels": {START: start}},
            "template": {
                "metadata": {"labels": labels, "annotations": named},
                "spec": _pod(process, pods, place),
            },
        },
    }


def owned(owner: Mapping[str, str] | None) -> dict[str, Any]:
    """What the metadata of an object says of its owner."""
    return {} if owner is None else {"ownerReferences": [dict(owner)]}


def _pod(process: Process, pods: Pods, place: PodPlace) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": TASK_PATIENCE_S if process.kind == TASK else pods.patience_s,
        "securityContext": NOBODY,
        "containers": [_container(process, pods, place)],
        "volumes": [
            {"name": "tokens", "secret": _tokens(process.kind, pods.secret)},
            {"name": VOLUMES[process.kind == "gateway"][0], "emptyDir": {}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }
    if process.kind == "gateway":
        spec |= {"initContainers": [_folder(pods)], "topologySpreadConstraints": [_apart(pods)]}
    if pods.priority is not None:
        spec["priorityClassName"] = pods.priority
    if place.node is not None or place.near:
        spec["affinity"] = {"nodeAffinity": _on(place)}
    return spec


def _on(place: PodPlace) -> dict[str, Any]:
    """The node that a pod needs, or those that it would have rather than others."""

    def named(node: str) -> dict[str, Any]:  # one value each, says the API
        return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}

    if place.node is not None:
        terms = {"nodeSelectorTerms": [named(place.node)]}
        return {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    rather = [{"weight": 100, "preference": named(node)} for node in place.near]
    return {"preferredDuringSchedulingIgnoredDuringExecution": rather}


def _tokens(kind: str, secret: str) -> dict[str, Any]:
    """What a pod sees of the tokens; a task runs its user's code, and no operator asks it anything."""
    parts = {"items": [{"key": "parts", "path": "parts"}]} if kind == TASK else {}
    return {"secretName": secret, "defaultMode": 0o444, **parts}


def _asked(process: Process) -> dict[str, Any]:
    """How Kubernetes asks whether a process is there, and has it end.

    A task waits for one connection: its controller's, which sees whether it lives.
    """

    def probe(path: str, **more: int) -> dict[str, Any]:
        return {"httpGet": {"path": path, "port": process.port}, "periodSeconds": PROBE_S} | more

    if process.kind == TASK:
        listens = {"tcpSocket": {"port": process.port}, "periodSeconds": PROBE_S}
        return {"startupProbe": listens | {"failureThreshold": STARTS_WITHIN_S}}
    return {
        "startupProbe": probe("/v2/health/ready", failureThreshold=STARTS_WITHIN_S),
        "readinessProbe": probe("/v2/health/ready", failureThreshold=2),
        "livenessProbe": probe("/v2/health/live", failureThreshold=10, timeoutSeconds=2),
        "lifecycle": {"preStop": {"sleep": {"seconds": TURNED_AWAY_S.get(process.kind, 1)}}},
    }


def _container(process: Process, pods: Pods, place: PodPlace) -> dict[str, Any]:
    told = asdict(replace(process, cores=(), address=None))
    volume, folder = VOLUMES[process.kind == "gateway"]
    part = {"subPath": "state"} if process.kind == "gateway" else {}
    return {
        "name": process.kind,
        "image": pods.image,
        "imagePullPolicy": pods.pull,
        "args": ["pod"],
        "env": [
            {"name": PROCESS, "value": json.dumps(told, sort_keys=True)},
            {"name": MODELS_URL, "value": pods.models},
        ],
        "ports": _ports(process),
        "resources": {
            "requests": requests(place.cpu_cores, place.memory_bytes)
        },  # a limit would kill who takes more than its variant says
        **_asked(process),
        "securityContext": NO_RIGHTS,
        "volumeMounts": [
            {"name": "tokens", "mountPath": TOKENS, "readOnly": True},
            {"name": volume, "mountPath": folder, **part},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }


def _ports(process: Process) -> list[dict[str, Any]]:
    """Ports of a container; that of a gateway for clients has the gateway's name, which Services know."""
    private: list[dict[str, Any]] = [{"containerPort": process.port}]
    if process.kind != "gateway":
        return private
    front = process.front
    found = [*private, {"name": front.name, "containerPort": front.port}]
    if (grpc_port := front.settings["grpc_port"]) is not None:
        found.append({"name": f"{front.name}-grpc"[-15:], "containerPort": grpc_port})
    return found


def _folder(pods: Pods) -> dict[str, Any]:
    """Makes a folder that is the user's alone: the root of a volume is everybody's to write."""
    volume = VOLUMES[True][0]
    return {
        "name": volume,
        "image": pods.image,
        "imagePullPolicy": pods.pull,
        "args": ["pod", "--make-folder", "/volume/state"],
        "securityContext": NO_RIGHTS,
        "volumeMounts": [
            {"name": volume, "mountPath": "/volume"},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }


def _apart(pods: Pods) -> dict[str, Any]:
    """Gateways are on different nodes, where these have room."""
    of = {SYSTEM: pods.system, KIND: "gateway"}
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": of},
    }


def budget(
    name: str, namespace: str, system: str, owner: Mapping[str, str] | None = None, gateways: bool = False
) -> dict[str, Any]:
    """A disruption budget: of a system's workers and replicas one at a time may be taken away on purpose.

    Of tasks all may: their pipeline is started again elsewhere, or where they were.

    Args:
        gateways: of these, instead.
    """
    others = {"operator": "NotIn", "values": [TASK, "gateway"]}
    kind = {"operator": "In", "values": ["gateway"]} if gateways else others
    starts = [
        {"key": SYSTEM, "operator": "In", "values": [system]},
        {"key": START, "operator": "Exists"},
        {"key": KIND, **kind},
    ]
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace, "labels": {SYSTEM: system}, **owned(owner)},
        "spec": {"maxUnavailable": 1, "selector": {"matchExpressions": starts}},
    }


def requests(cpu_cores: float, memory_bytes: float) -> dict[str, str]:
    """What a container asks for, as Kubernetes writes it."""
    return {"cpu": f"{round(1e3 * cpu_cores)}m", "memory": str(round(memory_bytes))}


def sha256_of(model: Path) -> str:
    """Name under which pods ask for a model.

    Raises:
        OSError: it cannot be read.
    """
    with model.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
