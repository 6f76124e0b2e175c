"""What the API server last said of a system's Deployments and pods: two watches, each in a thread.

Of an object only what the backend asks for is kept. While the API server is away all stays as it was seen.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from lightkube import Client, KubeConfig
from lightkube.config.kubeconfig import SERVICE_ACCOUNT as ACCOUNT
from lightkube.core.exceptions import ConfigError, LoadResourceError
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import Pod

from edgewise.errors import RunError
from edgewise.runtime.backends.kubernetes.calls import CALLS
from edgewise.runtime.backends.kubernetes.manifest import KIND, NAME, PORT, START, SYSTEM

Row = TypeVar("Row")
WATCH_AGAIN_S, WATCH_S = 0.5, 240  # before a watch begins again; how long the server keeps one open

log = logging.getLogger("edgewise.kubernetes")


@dataclass(frozen=True, slots=True)
class DeploymentSeen:
    """What is kept of a Deployment; `ends` once it is being deleted."""

    name: str
    version: int
    port: str
    process: str
    ends: bool
    kind: str


@dataclass(frozen=True, slots=True)
class PodSeen:
    """What is kept of a pod: of which start it is, where it answers, and whether it does."""

    name: str
    version: int
    start: str
    address: str | None
    ready: bool
    ends: bool


def client_of(kubeconfig: Path | None, namespace: str | None = None) -> Client:
    """Who speaks to an API server: that of a kubeconfig, else what KUBECONFIG says, in a pod its own cluster.

    In a pod the token of its service account is read anew for each question: the kubelet renews it.

    Raises:
        RunError: nothing says where it is, or the file cannot be read.
    """
    named = kubeconfig or os.environ.get("KUBECONFIG")
    try:
        config = KubeConfig.from_file(named) if named else KubeConfig.from_env(ACCOUNT)
        return CALLS.client(config.get(), namespace)
    except KeyError as error:  # a service account is there, and nothing says where the API server is
        raise RunError(
            f"kubernetes: a service account, and no {error.args[0]}; name a --kubeconfig"
        ) from error
    except (ConfigError, LoadResourceError, OSError, ValueError) as error:
        where = f"kubeconfig {kubeconfig}" if kubeconfig else "kubernetes: KUBECONFIG"
        raise RunError(f"{where}: {error}; name a file that kubectl --kubeconfig takes") from error


class ObjectWatch(Generic[Row]):
    """Objects of one kind with some labels, as they were last seen, by name; of all namespaces with theirs.

    Args:
        row: what is kept of one.
        changed: called after each change, in the thread of the watch.
        namespace: None: the client's.
    """

    def __init__(
        self,
        client: Client,
        kind: Any,
        labels: Mapping[str, str],
        row: Callable[[Any], Row],
        changed: Callable[[], None] = lambda: None,
        namespace: str | None = None,
    ) -> None:
        self.rows: dict[str, Row] = {}
        self.version = 0  # of the last list
        self.listed = False
        self._client, self._kind = client, kind
        self._which: dict[str, Any] = {"labels": dict(labels) or None, "namespace": namespace}
        self._row, self._changed, self._closed = row, changed, threading.Event()

    def begin(self, watching: bool) -> None:
        """See all objects once, and, `watching`, from then on.

        Raises:
            RunError: the API server does not answer, or refuses.
        """
        try:
            self._list()
        except Exception as error:  # whatever a connection can do
            what = f"kubernetes: the API server does not list {self._kind.__name__}s"
            raise RunError(f"{what}: {error}") from error
        if watching:
            self.begin_later()

    def begin_later(self) -> None:
        """See all objects as soon as the API server says, and from then on."""
        threading.Thread(target=self._keep, name=f"watch {self._kind.__name__}", daemon=True).start()

    def close(self) -> None:
        """Watch no longer; the thread ends with what comes next."""
        self._closed.set()

    def _list(self) -> None:
        found = self._client.list(self._kind, **self._which)
        rows = {key(each.metadata.namespace, each.metadata.name): self._row(each) for each in found}
        self.rows, self.version, self.listed = rows, int(found.resourceVersion or 0), True
        self._changed()

    def _keep(self) -> None:
        while not self._closed.is_set():
            try:
                if not self.listed:
                    self._list()
                for what, each in self._news():
                    self._note(what, each)
                    if self._closed.is_set():
                        return
            except Exception as error:  # whatever a connection can do: what is there is seen anew
                log.warning("watch begins anew", extra={"kind": self._kind.__name__, "why": str(error)[:200]})
            self._closed.wait(WATCH_AGAIN_S)
            with contextlib.suppress(Exception):  # away still; the next round says so
                self._list()

    def _news(self) -> Iterator[tuple[str, Any]]:
        news: Iterator[tuple[str, Any]] = self._client.watch(
            self._kind, resource_version=str(self.version), server_timeout=WATCH_S, **self._which
        )
        return news

    def _note(self, what: str, each: Any) -> None:
        rows = dict(self.rows)  # readers have the old one
        if what == "DELETED":
            rows.pop(key(each.metadata.namespace, each.metadata.name), None)
        else:
            rows[key(each.metadata.namespace, each.metadata.name)] = self._row(each)
        self.rows = rows
        self._changed()


def key(namespace: str | None, name: str) -> str:
    """What an object is kept under."""
    return f"{namespace}/{name}" if namespace else name


def watched_deployments(
    client: Client, system: str, changed: Callable[[], None]
) -> ObjectWatch[DeploymentSeen]:
    """The Deployments of a system."""
    return ObjectWatch(client, Deployment, {SYSTEM: system}, deployment_seen, changed)


def watched_pods(client: Client, system: str) -> ObjectWatch[PodSeen]:
    """The pods of a system."""
    return ObjectWatch(client, Pod, {SYSTEM: system}, _pod)


def deployment_seen(of: Any) -> DeploymentSeen:
    """What is kept of a Deployment."""
    meta = of.metadata
    named, labels = meta.annotations or {}, meta.labels or {}
    return DeploymentSeen(
        meta.name, int(meta.resourceVersion or 0), labels.get(PORT, ""), named.get(NAME, ""),
        meta.deletionTimestamp is not None, labels.get(KIND, ""),
    )  # fmt: skip


def _pod(of: Any) -> PodSeen:
    meta, status = of.metadata, of.status
    return PodSeen(
        meta.name, int(meta.resourceVersion or 0), (meta.labels or {}).get(START, ""),
        status.podIP if status else None,
        is_ready(of), meta.deletionTimestamp is not None,
    )  # fmt: skip


def is_ready(of: Any) -> bool:
    """Whether Kubernetes says of a pod, or a node, that it is ready."""
    conditions = (of.status and of.status.conditions) or ()
    return any(each.type == "Ready" and each.status == "True" for each in conditions)


def url_of(address: str | None, port: int) -> str:
    """Where something answers at a pod's address."""
    return f"http://[{address}]:{port}" if ":" in str(address) else f"http://{address}:{port}"
