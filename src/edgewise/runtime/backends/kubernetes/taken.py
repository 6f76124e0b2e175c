"""Pods with servers that somebody else runs, by their labels: one is one worker's as long as it is there."""

from typing import Any, NamedTuple

from lightkube import Client
from lightkube.resources.core_v1 import Pod

from edgewise.runtime.backends.contract import Answering
from edgewise.runtime.backends.kubernetes.seen import ObjectWatch, is_ready, url_of
from edgewise.runtime.backends.taken import TakenServers
from edgewise.runtime.store import Process

Which = tuple[str, tuple[tuple[str, str], ...]]  # a namespace, and labels


class ServerPod(NamedTuple):
    """What is kept of a pod; one that ends has no address any more. `made_s` orders those that are alike."""

    node: str | None
    address: str | None
    ready: bool
    made_s: float


class TakenPods(TakenServers):
    """Finds a pod for each process: of those with its labels one on a node of its cluster, best its own.

    Where a pod is not ready, and another one is that nobody has, that one is taken. Pods are watched from the
    first look on; until they were seen, a server is where it was, maybe for a controller before this one.

    Args:
        client: of the API server, in the namespace of the system.
    """

    def __init__(self, client: Client) -> None:
        super().__init__()
        self._client = client
        self._watches: dict[Which, ObjectWatch[ServerPod]] = {}
        self._pod_of: dict[str, str] = {}  # by name of a process
        self._held: dict[str, tuple[float, float]] = {}  # by pod, where it is on the node of its process

    def find(self, process: Process) -> Answering | None:
        """See `TakenServers`: a URL means the same everywhere."""
        served_by = process.settings["served_by"]
        if served_by["url"] is not None:
            return super().find(process)
        watch = self._watch(served_by)
        if not watch.listed:
            return Answering(process.url, False)
        pod = self._pod(process, watch.rows)
        return None if pod is None else Answering(url_of(pod.address, served_by["port"]), pod.ready)

    def _pod(self, process: Process, rows: dict[str, ServerPod]) -> ServerPod | None:
        """The pod of a process, of those that there are; it is nobody else's from now on."""
        name, node, served_by = process.name, process.settings["node"], process.settings["served_by"]
        former, taken = self._pod_of.get(name), set(self._pod_of.values())

        def last(key: str) -> tuple[bool | float, ...]:
            pod, was = rows[key], url_of(rows[key].address, served_by["port"]) == process.url
            return not pod.ready, key != former, not was, pod.node != node, pod.made_s

        free = [key for key in rows if key == former or key not in taken]
        free = [key for key in free if rows[key].address and rows[key].node in served_by["nodes"]]
        key = min(free, key=last, default=None)
        if key != former:
            self.forget(name)
        if key is None:
            return None
        self._pod_of[name] = key
        if rows[key].node == node:
            needs = process.settings["needs"]
            self._held[key] = needs["cpu_cores"], needs["memory_bytes"]
        return rows[key]

    def forget(self, name: str) -> None:
        """See `TakenServers`."""
        self._held.pop(self._pod_of.pop(name, ""), None)

    def held(self) -> dict[str, tuple[float, float]]:
        """Cores and memory that the ledger of nodes has for pods already, as those of our workers, by pod."""
        return dict(self._held)

    def close(self) -> None:
        """Watch no longer."""
        for watch in self._watches.values():
            watch.close()

    def _watch(self, served_by: dict[str, Any]) -> ObjectWatch[ServerPod]:
        namespace, labels = served_by["namespace"] or self._client.namespace, served_by["labels"]
        which = namespace, tuple(sorted(labels.items()))
        if which not in self._watches:
            self._watches[which] = ObjectWatch(self._client, Pod, labels, server_pod, namespace=namespace)
            self._watches[which].begin_later()
        return self._watches[which]


def server_pod(of: Any) -> ServerPod:
    """What is kept of a pod."""
    meta, made = of.metadata, of.metadata.creationTimestamp
    address = of.status.podIP if of.status and meta.deletionTimestamp is None else None
    return ServerPod(of.spec.nodeName, address, is_ready(of), made.timestamp() if made else 0.0)
