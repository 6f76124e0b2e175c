"""A live system on a cluster: workers, replicas and tasks are Deployments there, all else runs here."""

import uuid
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from lightkube import ApiError, Client, codecs
from lightkube.models.meta_v1 import ObjectMeta, OwnerReference
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import Namespace, Node, Pod, Secret
from lightkube.resources.policy_v1 import PodDisruptionBudget

from edgewise.errors import RunError, ScenarioError
from edgewise.model.topology import Topology
from edgewise.runtime.backends.contract import Answering, Counted, NodeSeen
from edgewise.runtime.backends.kubernetes.backend import GONE, KubernetesBackend
from edgewise.runtime.backends.kubernetes.calls import CALLS
from edgewise.runtime.backends.kubernetes.jobs import ClusterJobs
from edgewise.runtime.backends.kubernetes.manifest import (
    KIND,
    SYSTEM,
    Give,
    PodPlace,
    Pods,
    budget,
    sha256_of,
)
from edgewise.runtime.backends.kubernetes.models import ModelServer
from edgewise.runtime.backends.kubernetes.nodes import ClusterNodes, node_has
from edgewise.runtime.backends.kubernetes.seen import client_of
from edgewise.runtime.backends.kubernetes.tasks import ClusterTasks
from edgewise.runtime.backends.local import LocalBackend
from edgewise.runtime.backends.system import CLUSTER, Fork
from edgewise.runtime.http.ports import free_port
from edgewise.runtime.process.pod import TASK
from edgewise.runtime.store import DATABASE, Process, Store
from edgewise.runtime.store.jobs import JobTable

THERE = "deployment/"  # before the names of Deployments: other handles are of this machine
PRIVATE = ("parts", "operator")
OWNERS: dict[str, Any] = {"deployment": Deployment, "pod": Pod}


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
        owner: reference to the object with which all goes that is made there.
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
    def budget(self) -> str:
        """Name of the disruption budget of its workers and replicas."""
        return f"edgewise-{self.system}"

    def client(self) -> Client:
        """Who speaks to the API server."""
        return client_of(Path(self.kubeconfig) if self.kubeconfig else None, self.namespace)


def settings_of(wanted: OnCluster, folder: Path, port: int | None = None) -> dict[str, Any]:
    """What the store keeps; the system's name and port stay where it ran on a cluster before.

    Args:
        port: where models are given, if that was said.
    """
    if (folder / DATABASE).is_file():
        with closing(Store.readable(folder / DATABASE)) as store:
            before = store.get(CLUSTER)
        if before is not None:
            wanted = replace(wanted, system=before["system"], port=before["port"])
    return asdict(wanted if port is None else replace(wanted, port=port))


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
    """A reference to an object of the namespace, from `deployment/NAME` or `pod/NAME`.

    Raises:
        RunError: it is neither, is not there, or may not be asked for.
    """
    kind, _, plain = name.partition("/")
    if kind not in OWNERS or not plain:
        raise RunError(f"--owner {name}: write deployment/NAME or pod/NAME")
    try:
        found: Any = client.get(OWNERS[kind], plain)
    except Exception as error:  # whatever a connection can do
        raise RunError(f"--owner {name}: {error}") from error
    version = "apps/v1" if kind == "deployment" else "v1"
    return {"apiVersion": version, "kind": kind.title(), "name": plain, "uid": str(found.metadata.uid)}


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
    """Gateways of this machine, workers, replicas and tasks of pipelines on a cluster.

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
        self._token = tokens.get("parts", "")
        self.here = LocalBackend(folder, fork)
        self._client = client = where.client()
        self.models: ModelServer | None = None
        if fork is not None:
            _keep_secret(client, where, tokens)
            _keep_budget(client, where)
            self.models = ModelServer(where.here, where.port, self._token)
        self._pods = pods = Pods(
            where.system, where.image, f"http://{where.address}:{where.port}", where.secret, where.pull,
            priority=where.priority, owner=where.owner,
        )  # fmt: skip
        self._nodes = ClusterNodes(client, where.system) if fork is not None else None
        self._give: Give = self.models.add if self.models is not None else sha256_of
        self.there = KubernetesBackend(client, pods, _place, self._give, watching=fork is not None)

    def start(self, process: Process) -> str:
        """See `Backend`."""
        if process.kind == "gateway":
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
    try:
        client.apply(Secret(metadata=meta, stringData=dict(tokens)), force=True)
    except Exception as error:  # whatever a connection can do
        raise RunError(f"kubernetes: secret {where.secret} cannot be written: {error}") from error


def _keep_budget(client: Client, where: OnCluster) -> None:
    """Have whoever drains nodes take one worker or replica at a time, and wait until it is back.

    Raises:
        RunError: it cannot be written.
    """
    try:
        client.apply(
            codecs.from_dict(budget(where.budget, where.namespace, where.system, where.owner)), force=True
        )
    except Exception as error:  # whatever a connection can do
        raise RunError(f"kubernetes: budget {where.budget} cannot be written: {error}") from error


def remove(folder: Path) -> list[str]:
    """Remove what a system that has ended left on its cluster; the names of it.

    Of processes that are tasks, if its controller was killed: their pods wait for one.

    Raises:
        RunError: something stays.
    """
    with closing(Store.readable(folder / DATABASE)) as store:
        where = OnCluster(**store.get(CLUSTER))
    removed, client = list[str](), where.client()
    left: list[tuple[type, str]] = [(PodDisruptionBudget, where.budget), (Secret, where.secret)]
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
