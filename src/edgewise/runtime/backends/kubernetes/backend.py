"""Starts, watches and ends processes on a cluster; a handle is the name of one start's Deployment.

No method waits: what is asked is carried out by a thread, again and again while the API server is away, and
what is there is what the watches last saw. A start that was done and not written down, as its controller was
killed in between, is found by its port when another takes its place, and ended, as on one machine.
"""

import logging
import threading
import uuid
from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from typing import Any

from lightkube import ApiError, Client, codecs
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import Pod
from lightkube.types import CascadeType

from edgewise.errors import RunError
from edgewise.runtime.backends.contract import Answering, NodeSeen
from edgewise.runtime.backends.kubernetes.errands import Errands
from edgewise.runtime.backends.kubernetes.manifest import (
    Give,
    PodPlace,
    Pods,
    by_digest,
    deployment,
    sha256_of,
)
from edgewise.runtime.backends.kubernetes.seen import (
    DeploymentSeen,
    deployment_seen,
    key,
    url_of,
    watched_deployments,
    watched_pods,
)
from edgewise.runtime.backends.kubernetes.taken import TakenPods
from edgewise.runtime.backends.taken import TAKEN
from edgewise.runtime.process.pod import TASK
from edgewise.runtime.store import Process, Store
from edgewise.runtime.store.jobs import JobTable

GONE, THERE, REFUSED = 404, 409, (400, 401, 403, 404, 422)  # what an API server says

log = logging.getLogger("edgewise.kubernetes")


class KubernetesBackend:
    """Workers and gateways as Deployments of a namespace.

    Args:
        client: of the API server, in the namespace.
        pods: what all pods have in common.
        place: node of a process, and what it holds there.
        give: has pods get a file, and says its SHA-256.
        watching: False: what is there is seen once, and what is asked is done before a method returns; for
            whoever asks a few things about a system that another one keeps.
    Attributes:
        taken: pods that somebody else runs.
    Raises:
        RunError: the API server does not answer, or refuses.
    """

    def __init__(
        self,
        client: Client,
        pods: Pods,
        place: Callable[[Process], PodPlace],
        give: Give = sha256_of,
        watching: bool = True,
    ) -> None:
        self.pods, self._client, self._place, self._give = pods, client, place, give
        self.taken = TakenPods(client)
        self._lock = threading.Lock()
        self._coming: dict[str, int | None] = {}  # starts that no watch has shown yet: version, once there
        self._making: str | None = None  # the start that the API server is asked for now
        self._ending: set[tuple[str, bool]] = set()  # asked and not carried out
        self._unknown = set[str]()
        self._deployments = watched_deployments(client, pods.system, self._settle)
        self._pods = watched_pods(client, pods.system)
        for watch in (self._deployments, self._pods):
            watch.begin(watching)
        self._errands = Errands("kubernetes") if watching else None
        self.ask = _at_once if self._errands is None else self._errands.put

    def start(self, process: Process) -> str:
        """See `Backend`."""
        if process.taken:
            return self.taken.start(process)
        try:
            settings = by_digest(process.settings, self._give)
        except OSError as error:
            raise RunError(f"{process.name}: its model cannot be read: {error}") from error
        start = uuid.uuid4().hex[:10]
        told = replace(process, settings=settings)
        made = deployment(told, start, self.pods, self._place(process))
        handle = str(made["metadata"]["name"])
        with self._lock:
            self._coming[handle] = None
        self.ask(lambda: self._create(process, handle, made))
        return handle

    def alive(self, handle: str) -> bool:
        """See `Backend`: as long as its Deployment, or a pod of it, is there."""
        if handle.startswith(TAKEN):
            return self.taken.alive(handle)
        with self._lock:
            if handle in self._coming:
                return True
        start = _start_of(handle)
        there = self._there(handle)
        return there is not None or any(pod.start == start for pod in self._pods.rows.values())

    def stop(self, handle: str, force: bool = False) -> None:
        """See `Backend`."""
        if handle.startswith(TAKEN):
            return self.taken.stop(handle)
        with self._lock:
            if handle != self._making:
                self._forget(handle)
            if (handle, force) in self._ending:
                return
            self._ending.add((handle, force))
        self.ask(lambda: self._delete(handle, force))

    def look(self, process: Process, handle: str) -> Answering:
        """See `ServingBackend`: at its pod; ready once Kubernetes has seen that it is."""
        if handle.startswith(TAKEN):
            return self.taken.look(process, handle)
        start, there = _start_of(handle), self._there(handle)
        mine = [pod for pod in self._pods.rows.values() if pod.start == start and pod.address]
        pod = max(mine, key=lambda each: (each.ready, not each.ends, each.version), default=None)
        if pod is None:
            return Answering(process.url, False)
        ready = pod.ready and not pod.ends and there is not None and not there.ends
        return Answering(url_of(pod.address, process.port), ready)

    def nodes(self) -> Mapping[str, NodeSeen]:
        """See `ServingBackend`: who keeps a system watches them beside this."""
        return {}

    def jobs(self, book: JobTable) -> None:
        """See `ServingBackend`: who keeps a system keeps them beside this."""

    def tasks(self) -> None:
        """See `ServingBackend`: who keeps a system keeps them beside this."""

    def there(self, kind: str) -> list[str]:
        """Handles of all starts of a kind of process that are there."""
        return [each.name for each in self._deployments.rows.values() if each.kind == kind]

    def counted(self) -> tuple[()]:
        """See `ServingBackend`."""
        return ()

    @property
    def stays(self) -> bool:
        """See `ServingBackend`: its processes do, and nothing of their owner's."""
        return False

    def keep(self, store: Store) -> None:
        """See `ServingBackend`."""

    def leave(self, store: Store) -> None:
        """See `ServingBackend`."""

    def end_unknown(self, known: Container[str]) -> None:
        """End starts that nobody knows: a controller was killed, or paused, before it wrote them down.

        Only such as were unknown the last time, too: what is started now is written down soon. Tasks are
        nobody's but their controller's, which ends them when it begins.
        """
        with self._lock:
            coming = set(self._coming)
        rows = {row.name for row in self._deployments.rows.values() if not row.ends and row.kind != TASK}
        unknown = {handle for handle in rows - coming if handle not in known}
        for handle in unknown & self._unknown:
            log.warning("unknown start ended", extra={"handle": handle})
            self.stop(handle, force=True)
        self._unknown = unknown

    def close(self, patience_s: float = 0.0) -> None:
        """Ask and watch no longer; what runs goes on.

        Args:
            patience_s: for what was asked and is not done yet.
        """
        if self._errands is not None:
            self._errands.close(patience_s)
        for watch in (self._deployments, self._pods, self.taken):
            watch.close()

    def _there(self, handle: str) -> DeploymentSeen | None:
        return self._deployments.rows.get(key(self._client.namespace, handle))

    def _forget(self, handle: str) -> None:
        """A start that was not made yet is not made any more."""
        if self._coming.get(handle, 0) is None:
            del self._coming[handle]

    def _settle(self) -> None:
        """Starts that a watch has shown, or that were there and are gone, are coming no longer."""
        seen, version = self._deployments.rows, self._deployments.version
        with self._lock:
            for handle, made in list(self._coming.items()):
                if key(self._client.namespace, handle) in seen or (made is not None and made <= version):
                    del self._coming[handle]

    def _create(self, process: Process, handle: str, made: dict[str, Any]) -> None:
        with self._lock:
            if handle not in self._coming:  # ended before it began
                return
            self._making = handle
        try:
            self._end_lost(process, handle)
            version = self._created(process, handle, made)
        finally:
            with self._lock:
                self._making = None
        with self._lock:
            if version is None:
                self._coming.pop(handle, None)
            elif handle in self._coming:
                self._coming[handle] = version
        self._settle()

    def _created(self, process: Process, handle: str, made: dict[str, Any]) -> int | None:
        """Version of a Deployment that is there now; None where there will be none."""
        try:
            return deployment_seen(self._client.create(codecs.from_dict(made))).version
        except ApiError as error:
            if error.status.code == THERE:  # asked once more, since no answer came
                return deployment_seen(self._client.get(Deployment, handle)).version
            if error.status.code in REFUSED:
                log.error("refused", extra={"who": process.name, "why": error.status.message})
                return None
            raise

    def _end_lost(self, process: Process, handle: str) -> None:
        """End a start with this one's port: nobody knows it, or this process would not be started."""
        for other in self._deployments.rows.values():
            same = (other.process, other.port) == (process.name, str(process.port))
            if same and other.name != handle and not other.ends:
                log.warning("lost start ended", extra={"who": process.name, "handle": other.name})
                self._delete(other.name, force=True)

    def _delete(self, handle: str, force: bool) -> None:
        with self._lock:
            self._forget(handle)  # its start may be asked for again
        self._remove(Deployment, handle, CascadeType.FOREGROUND)  # no pod is made in its place
        if force:
            for pod in [pod for pod in self._pods.rows.values() if pod.start == _start_of(handle)]:
                self._remove(Pod, pod.name, None, grace_period=0)
        with self._lock:
            self._ending.discard((handle, force))

    def _remove(
        self, kind: Any, name: str, cascade: CascadeType | None, grace_period: int | None = None
    ) -> None:
        try:
            self._client.delete(kind, name, cascade=cascade, grace_period=grace_period)
        except ApiError as error:
            if error.status.code != GONE:
                raise


def _at_once(do: Callable[[], None]) -> None:
    try:
        do()
    except Exception as error:  # whatever a connection can do
        raise RunError(f"kubernetes: the API server does not do what was asked: {error}") from error


def _start_of(handle: str) -> str:
    """The label of a start, from the name of its Deployment."""
    return handle.rpartition("-")[2]
