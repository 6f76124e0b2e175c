"""A live system on a cluster: workers, replicas and tasks are Deployments there, all else runs here.

One that belongs to a Deployment of the cluster is all there: gateways are pods, too, its state is kept in a
Secret, and what runs goes on when its controller is told to end, for the next one to find.
"""

import logging
import os
import secrets
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from socket import gethostname
from typing import Any

from lightkube import ApiError, Client, codecs
from lightkube.models.meta_v1 import ObjectMeta, OwnerReference
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import Namespace, Node, Secret
from lightkube.resources.policy_v1 import PodDisruptionBudget

from edgewise.errors import RunError, ScenarioError
from edgewise.model.topology import Topology
from edgewise.runtime import clock
from edgewise.runtime.backends.contract import Answering, Counted, NodeSeen
from edgewise.runtime.backends.kubernetes.backend import GONE, KubernetesBackend
from edgewise.runtime.backends.kubernetes.calls import CALLS
from edgewise.runtime.backends.kubernetes.gateways import AboutGateways, Standby
from edgewise.runtime.backends.kubernetes.jobs import ClusterJobs
from edgewise.runtime.backends.kubernetes.kept import KeptState, Superseded, name_of
from edgewise.runtime.backends.kubernetes.lease import Leading, release_at_the_end
from edgewise.runtime.backends.kubernetes.manifest import (
    KIND,
    OF_GATEWAYS,
    SYSTEM,
    Give,
    PodPlace,
    Pods,
    budget,
    by_digest,
    sha256_of,
)
from edgewise.runtime.backends.kubernetes.models import ModelServer
from edgewise.runtime.backends.kubernetes.nodes import ClusterNodes, node_has
from edgewise.runtime.backends.kubernetes.seen import client_of
from edgewise.runtime.backends.kubernetes.tasks import ClusterTasks
from edgewise.runtime.backends.local import LocalBackend
from edgewise.runtime.backends.system import CLUSTER, SUPERSEDED, Fork
from edgewise.runtime.http.ports import free_port
from edgewise.runtime.process.pod import TASK
from edgewise.runtime.store import DATABASE, Process, Store
from edgewise.runtime.store.jobs import JobTable
from edgewise.runtime.store.kept import put_back, to_keep

log = logging.getLogger("edgewise.kubernetes")
UNKNOWN_S = 5.0  # between two looks for starts that nobody knows
LEAVE_S = 10.0  # for what was asked and is not done yet
THERE = "deployment/"  # before the names of Deployments: other handles are of this machine
PRIVATE = ("parts", "operator")


@dataclass(frozen=True, slots=True)
class OnCluster:
    """Where a system runs; kept in its store.

    Attributes:
        kubeconfig: file, or None for what the environment says.
        namespace, image: of its pods.
        address: of this machine, or of a Service in front of it, as pods reach it.
        pull: when the image is pulled, as Kubernetes has it.
        system: tells its objects from those of others in the namespace.
        port: where it gives models.
        listen: address at which it does; None: at `address`.
        owner: reference to the Deployment whose system it is, and with which all goes that is made there.
        priority: class of the workers' priority.
    """

    kubeconfig: str | None
    namespace: str
    image: str
    address: str
    pull: str = "IfNotPresent"
    system: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    port: int = field(default_factory=free_port)
    listen: str | None = None
    owner: dict[str, Any] | None = None
    priority: str | None = None

    @property
    def here(self) -> str:
        """Address of this machine at which models are given."""
        return self.listen or self.address

    @property
    def secret(self) -> str:
        """Name of the Secret with its tokens."""
        return f"edgewise-tokens-{self.system}"

    @property
    def budgets(self) -> dict[str, bool]:
        """Names of its disruption budgets, and whether they are of gateways."""
        return {f"edgewise-{self.system}": False, f"edgewise-gateways-{self.system}": True}

    def client(self) -> Client:
        """Who speaks to the API server."""
        return client_of(Path(self.kubeconfig) if self.kubeconfig else None, self.namespace)


def settings_of(wanted: OnCluster, folder: Path, port: int | None = None) -> dict[str, Any]:
    """What the store keeps; the system's name and port stay where it ran on a cluster before.

    A state that is kept there comes to the folder first; for that this has to be its controller, see `lead`.

    Args:
        port: where models are given, if that was said.
    """
    if wanted.owner is not None:
        kept = KeptState(wanted.client(), wanted.owner)
        if kept.text is not None:
            put_back(folder, kept.text)
    if (folder / DATABASE).is_file():
        with closing(Store.readable(folder / DATABASE)) as store:
            before = store.get(CLUSTER)
        if before is not None:
            wanted = replace(wanted, system=before["system"], port=before["port"])
    return asdict(wanted if port is None else replace(wanted, port=port))


def lead(wanted: OnCluster, port: int | None, waiting: Callable[[], None]) -> None:
    """Wait until this is the controller of a Deployment's system; meanwhile it is ready to be.

    Args:
        port: where models are given, if that was said.
        waiting: called once where another one is.
    """
    if wanted.owner is None:
        return
    standby = ModelServer(wanted.here, port or wanted.port, secrets.token_urlsafe(24), Standby(Path()))
    leading = Leading(wanted.client(), wanted.owner, gethostname())
    release_at_the_end(leading)
    try:
        leading.wait(waiting)
    finally:
        standby.close()


def address_of(text: str) -> tuple[str, int | None]:
    """Host and, where it is said, port of an address.

    Raises:
        RunError: the port is no number of one.
    """
    host, colon, port = text.rpartition(":")
    if not colon or ":" in host:  # an address of IPv6 has no port beside it
        return text, None
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise RunError(f"--address {text}: {port!r} is no port; write HOST or HOST:PORT")
    return host, int(port)


def owner_of(client: Client, name: str) -> dict[str, str]:
    """A reference to a Deployment of the namespace, from `deployment/NAME`.

    Raises:
        RunError: it is none, is not there, or may not be asked for.
    """
    kind, _, plain = name.partition("/")
    if kind != "deployment" or not plain:
        raise RunError(f"--owner {name}: write deployment/NAME")
    try:
        found: Any = client.get(Deployment, plain)
    except Exception as error:  # whatever a connection can do
        raise RunError(f"--owner {name}: {error}") from error
    uid = str(found.metadata.uid)
    return {"apiVersion": "apps/v1", "kind": "Deployment", "name": plain, "uid": uid}


def check(wanted: OnCluster, topology: Topology) -> None:
    """See that a cluster has the nodes of a scenario, as large, and that pods can get models here.

    Raises:
        RunError: the API server does not say, or nothing can listen at the address.
        ScenarioError: a node is missing, or smaller.
    """
    ModelServer(wanted.here, 0, "").close()
    try:
        client = wanted.client()
        nodes: list[Any] = list(client.list(Node))
        there = {str(each.metadata.name): node_has(each).has for each in nodes}
    except Exception as error:  # whatever a connection can do
        raise RunError(f"kubernetes: the API server does not list nodes: {error}") from error
    _check_namespace(client, wanted.namespace)
    for node in topology.nodes:
        if node.name not in there:
            known = ", ".join(sorted(there)) or "none"
            raise ScenarioError(f"nodes: the cluster has no {node.name!r}; it has {known}")
        for what, has in zip(("cpu_cores", "memory_bytes"), there[node.name], strict=True):
            if (wants := getattr(node.resources, what)) > has:
                raise ScenarioError(
                    f"nodes: {node.name!r} has {what}: {wants:g}, and {has:g} are allocatable on the cluster"
                )


def _check_namespace(client: Client, name: str) -> None:
    try:
        client.get(Namespace, name)
    except ApiError as error:  # who may not ask hears from what is written there
        if error.status.code == GONE:
            raise RunError(f"--namespace {name}: is not there; kubectl create namespace {name}") from error


class ClusterBackend:
    """Workers, replicas and tasks of pipelines on a cluster; gateways there, too, or of this machine.

    Args:
        folder: state of the system.
        fork: starts processes here, in its controller; None: who asks only looks, and ends.
    Raises:
        RunError: the API server does not answer, or refuses.
    """

    def __init__(self, folder: Path, fork: Fork | None) -> None:
        with closing(Store.readable(folder / DATABASE)) as store:
            self.where = where = OnCluster(**store.get(CLUSTER))
            tokens = {whose: store.secret(whose) for whose in PRIVATE} if fork is not None else {}
            known = [row.process for row in store.processes()] if fork is not None else []
        self._token = tokens.get("parts", "")
        self.here = LocalBackend(folder, fork)
        self._client = client = where.client()
        self.models: ModelServer | None = None
        self._kept: KeptState | None = None
        self._leading: Leading | None = None
        self._nodes: ClusterNodes | None = None
        self._look_s = 0.0
        self._written, self._lock = "", threading.Lock()
        if fork is not None:
            if where.owner is not None:
                self._leading = Leading(client, where.owner, gethostname())
                self._leading.keep()
            _keep_secret(client, where, tokens)
            _keep_budgets(client, where)
            gateways = AboutGateways(folder) if where.owner is not None else None
            self.models = ModelServer(where.here, where.port, self._token, gateways)
            self._kept = None if where.owner is None else KeptState(client, where.owner)
        self._pods = pods = Pods(
            where.system, where.image, f"http://{where.address}:{where.port}", where.secret, where.pull,
            priority=where.priority, owner=where.owner,
        )  # fmt: skip
        self._give: Give = self.models.add if self.models is not None else sha256_of
        for process in known:  # of the controller before: whoever has its pod anew gets its model here
            with suppress(OSError):  # of one that is to go, or whose next start says so
                by_digest(process.settings, self._give)
        self.there = KubernetesBackend(client, pods, _place, self._give, watching=fork is not None)
        if fork is not None:
            self._nodes = ClusterNodes(client, where.system, lambda: self.there.taken.held())

    def start(self, process: Process) -> str:
        """See `Backend`."""
        if process.kind == "gateway" and not process.is_pod:
            return self.here.start(process)
        return THERE + self.there.start(process)

    def alive(self, handle: str) -> bool:
        """See `Backend`."""
        if handle.startswith(THERE):
            return self.there.alive(handle.removeprefix(THERE))
        return self.here.alive(handle)

    def stop(self, handle: str, force: bool = False) -> None:
        """See `Backend`."""
        if handle.startswith(THERE):
            self.there.stop(handle.removeprefix(THERE), force)
        else:
            self.here.stop(handle, force)

    def look(self, process: Process, handle: str) -> Answering:
        """See `ServingBackend`."""
        if handle.startswith(THERE):
            return self.there.look(process, handle.removeprefix(THERE))
        return self.here.look(process, handle)

    def nodes(self) -> Mapping[str, NodeSeen]:
        """See `ServingBackend`."""
        return {} if self._nodes is None else self._nodes.seen()

    @property
    def stays(self) -> bool:
        """See `ServingBackend`: where its state is kept."""
        return self.where.owner is not None

    def keep(self, store: Store) -> None:
        """See `ServingBackend`: in a Secret."""
        if self._kept is not None and clock.monotonic_s() >= self._look_s:
            self._look_s = clock.monotonic_s() + UNKNOWN_S
            self.there.end_unknown({handle.removeprefix(THERE) for handle in store.handles()})
        if self._kept is not None and (text := to_keep(store)) != self._written:
            self._written = text
            self.there.ask(lambda: self._write(text))

    def leave(self, store: Store) -> None:
        """See `ServingBackend`."""
        if self._kept is not None:
            self.there.close(LEAVE_S)  # what was asked is done, and written down
            self._write(to_keep(store))
        if self._leading is not None:
            self._leading.release()

    def _write(self, text: str) -> None:
        assert self._kept is not None
        try:
            with self._lock:
                self._kept.write(text)
        except Superseded as error:
            log.error("superseded", extra={"why": str(error)})
            os._exit(SUPERSEDED)  # whoever took over knows what runs; nothing else is to be asked for

    def jobs(self, book: JobTable) -> ClusterJobs:
        """See `ServingBackend`."""
        return ClusterJobs(self._client, self._pods, book)

    def tasks(self) -> ClusterTasks:
        """See `ServingBackend`."""
        return ClusterTasks(self.there, self._give, self._token)

    def counted(self) -> tuple[Counted, ...]:
        """See `ServingBackend`."""
        return CALLS.counted()


def _place(process: Process) -> PodPlace:
    if process.kind == "gateway":
        return replace(OF_GATEWAYS, near=tuple(process.settings.get("near", ())))
    needs = process.settings["needs"]
    return PodPlace(process.settings["node"], needs["cpu_cores"], needs["memory_bytes"])


def _keep_secret(client: Client, where: OnCluster, tokens: Mapping[str, str]) -> None:
    """Have pods see the tokens of the system.

    Raises:
        RunError: it cannot be written.
    """
    owners = None if where.owner is None else [OwnerReference(**where.owner)]
    meta = ObjectMeta(
        name=where.secret, namespace=where.namespace, labels={SYSTEM: where.system}, ownerReferences=owners
    )
    _keep(client, Secret(metadata=meta, stringData=dict(tokens)))


def _keep_budgets(client: Client, where: OnCluster) -> None:
    """Have whoever drains nodes take one worker or replica at a time, and one gateway, and wait for another.

    Raises:
        RunError: it cannot be written.
    """
    for name, gateways in where.budgets.items():
        made = budget(name, where.namespace, where.system, where.owner, gateways)
        _keep(client, codecs.from_dict(made))


def _keep(client: Client, made: Any) -> None:
    try:
        client.apply(made, force=True)
    except Exception as error:  # whatever a connection can do
        raise RunError(f"kubernetes: {made.metadata.name} cannot be written: {error}") from error


def remove(folder: Path) -> list[str]:
    """Remove what a system that has ended left on its cluster; the names of it.

    Of processes that are tasks, if its controller was killed: their pods wait for one.

    Raises:
        RunError: something stays.
    """
    with closing(Store.readable(folder / DATABASE)) as store:
        if not store.ended():
            return []  # it goes on
        where = OnCluster(**store.get(CLUSTER))
    removed, client = list[str](), where.client()
    left: list[tuple[type, str]] = [(PodDisruptionBudget, name) for name in where.budgets]
    left.append((Secret, where.secret))
    if where.owner is not None:
        left.append((Secret, name_of(where.owner)))
    try:
        found: list[Any] = list(client.list(Deployment, labels={SYSTEM: where.system, KIND: TASK}))
    except Exception as error:  # whatever a connection can do
        raise RunError(f"kubernetes: what is left of {where.system} stays: {error}") from error
    tasks = [(Deployment, str(each.metadata.name)) for each in found]
    for kind, name in [*tasks, *left]:
        try:
            client.delete(kind, name)
            removed.append(name)
        except ApiError as error:
            if error.status.code != GONE:
                raise RunError(f"kubernetes: {name} stays: {error}") from error
    return removed
