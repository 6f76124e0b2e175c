"""Names for pods: CoreDNS as a Deployment behind the service `kube-dns`, as clusters have it.

It is built from its own module with the few plugins that a cluster needs, without the libraries of clouds.
Other names than the cluster's are said not to exist, at once: pods reach nothing outside the bed.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from beds.go import built
from beds.kubernetes.images import NOBODY, Image

MODULE = ("github.com/coredns/coredns", "v1.12.4")
FIRST_MINOR = 21  # it watches endpoint slices, v1
ADDRESS = "10.197.0.10"
DOMAIN = "cluster.local"
IMAGE = "docker.io/edgewise-bed/coredns:1"
PORT = 5353  # in its pods, whose user may have none below 1024
PLUGINS = ("cache", "errors", "health", "kubernetes", "ready", "template")
MAIN = """package main

import (
	"github.com/coredns/coredns/coremain"
{plugins}
)

func main() {{
	coremain.Run()
}}
"""
COREFILE = f"""{DOMAIN}:{PORT} in-addr.arpa:{PORT} ip6.arpa:{PORT} {{
    errors
    health :8080
    ready :8181
    kubernetes {DOMAIN} in-addr.arpa ip6.arpa {{
        pods insecure
        ttl 5
    }}
    cache 5
}}
.:{PORT} {{
    errors
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""
RBAC = "rbac.authorization.k8s.io"
LABELS = {"k8s-app": "kube-dns"}
WHERE = {"name": "coredns", "namespace": "kube-system"}


def program() -> Path:
    """CoreDNS, built once.

    Raises:
        BedError: it cannot be built here.
    """
    plugins = "\n".join(f'\t_ "{MODULE[0]}/plugin/{each}"' for each in PLUGINS)
    return built(*MODULE, main=MAIN.format(plugins=plugins))


def image(work: Path) -> Image:
    """Its image: the program and what it is to do; it runs as nobody."""
    folder = work / "coredns"
    folder.mkdir()
    shutil.copy(program(), folder / "coredns")
    (folder / "Corefile").write_text(COREFILE)
    return Image(IMAGE, folder, ("/coredns", "-conf", "/Corefile"), user=NOBODY)


def objects(replicas: int = 2) -> list[dict[str, Any]]:
    """What makes it answer: rights to watch, its pods, and the service whose address kubelets tell pods."""
    watched = {"": ["endpoints", "services", "pods", "namespaces"], "discovery.k8s.io": ["endpointslices"]}
    rights = [
        {"apiGroups": [group], "resources": kinds, "verbs": ["list", "watch"]}
        for group, kinds in watched.items()
    ]
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "system:coredns"}
    named = {"name": "system:coredns"}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": WHERE},
        {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": named, "rules": rights},
        {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": named,
         "roleRef": role, "subjects": [{"kind": "ServiceAccount", **WHERE}]},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": WHERE, "spec": {
            "replicas": replicas, "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": _pod()}}},
        {"apiVersion": "v1", "kind": "Service", "metadata": {**WHERE, "name": "kube-dns", "labels": LABELS},
         "spec": {"clusterIP": ADDRESS, "selector": LABELS, "ports": [
             {"name": "dns", "port": 53, "targetPort": PORT, "protocol": "UDP"},
             {"name": "dns-tcp", "port": 53, "targetPort": PORT, "protocol": "TCP"}]}},
    ]  # fmt: skip


def _pod() -> dict[str, Any]:
    """Of one that answers; the two lie on different nodes where there are two."""
    runs = {
        "name": "coredns", "image": IMAGE, "imagePullPolicy": "Never",
        "resources": {"requests": {"cpu": "20m", "memory": "24Mi"}, "limits": {"memory": "128Mi"}},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
        "securityContext": {"runAsNonRoot": True, "readOnlyRootFilesystem": True},
    }  # fmt: skip
    spread = {
        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": LABELS},
    }  # fmt: skip
    return {
        "serviceAccountName": "coredns", "priorityClassName": "system-cluster-critical",
        "dnsPolicy": "Default", "terminationGracePeriodSeconds": 0, "containers": [runs],
        "topologySpreadConstraints": [spread],
    }  # fmt: skip
