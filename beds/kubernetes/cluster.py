"""A cluster for a test or for trying things; everything ends with the block."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from beds.kubernetes import build, cleanup, dns, groups, images, kwok, network, place
from beds.kubernetes.control_plane import ControlPlane
from beds.kubernetes.network import Interface
from beds.kubernetes.node import Node
from beds.processes import BedError, Started, end, folder


class Cluster(Started):
    """Kubernetes with real nodes in namespaces.

        with Cluster(nodes=3) as cluster:
            cluster.kubectl("apply", "-f", "-", stdin=manifest)
            cluster.wait(lambda: cluster.get("pod", "web")["status"]["phase"] == "Running")

    Args:
        nodes: how many, called n1, n2, …; or
        sites: how many at each site, which is their zone's label.
        images: beside busybox (`images.BUSYBOX`).
        users: groups of each further user; `kubeconfig_of` gives what they log in with.
        version: of Kubernetes; the variable KUBERNETES_VERSION where it is not given.

    Attributes:
        kubeconfig: of the administrator, for use on this host.
        place: where it may say what it is, to those who ask what runs.

    Raises:
        BedError: this machine cannot have a cluster, or one runs already.
    """

    def __init__(
        self,
        nodes: int = 3,
        sites: Mapping[str, int] | None = None,
        images: Sequence[images.Image] = (),
        users: Mapping[str, Sequence[str]] | None = None,
        version: str = build.VERSION,
    ) -> None:
        super().__init__()
        self._sites = [site for site, count in (sites or {}).items() for _ in range(count)] or [None] * nodes
        self._images, self._users, self.version = images, users or {}, version
        self._kwok: subprocess.Popen[bytes] | None = None

    def _start(self) -> None:
        build.check_machine()
        programs = build.programs(self.version)
        self.place = self.enter_context(place.taken())
        cleanup.clean()
        self.work = self.enter_context(folder("kubernetes"))
        self.callback(cleanup.clean)
        network.make_control()
        users = {user: list(of) for user, of in self._users.items()}
        names = [f"n{number}" for number in range(1, len(self._sites) + 1)]
        kubelets = {f"system:node:{name}": ["system:nodes"] for name in names}
        self.control = ControlPlane(self._folder("control"), programs, users | kubelets)
        self.control.write()
        self.callback(self.control.down)
        self.control.up()
        self.kubeconfig = self.kubeconfig_of("admin")
        self._kubectl = programs / "kubectl"
        basic = images.archive([*self._basic(), *self._images], self.work / "images.tar")
        self.nodes: dict[str, Node] = {}
        for number, (name, site) in enumerate(zip(names, self._sites, strict=True), 1):
            here = self._folder(name)
            node = Node(name, Interface(number, here / "relay.log"), here, programs, self.minor, site)
            self.nodes[name] = node
            node.net.make()
            self.control.kubeconfig(f"system:node:{name}", here / "kubelet.kubeconfig", host=False)
            self.control.kubeconfig("system:kube-proxy", here / "proxy.kubeconfig", host=False)
            pair = self.control.authority.sign(
                name, f"/O=system:nodes/CN=system:node:{name}", [node.net.address, name]
            )
            node.write(self.control.authority.certificate, pair)
            self.callback(node.down)
            node.up([basic])
        self.wait(lambda: self.ready() >= set(names), 90, "the nodes to be Ready")
        self.wait(self._takes_pods, 30, "the default service account")
        if self._has_dns:
            self.apply(*dns.objects())
            self.kubectl("rollout", "status", "-n", "kube-system", "deployment/coredns", "--timeout=90s")

    @property
    def minor(self) -> int:
        """Of its version: 36 for v1.36.3."""
        return int(self.version.split(".")[1])

    @property
    def _has_dns(self) -> bool:
        return self.minor >= dns.FIRST_MINOR

    def _basic(self) -> list[images.Image]:
        folder = self._folder("images")
        return [*images.basic(folder), *([dns.image(folder)] if self._has_dns else [])]

    def _takes_pods(self) -> bool:
        """Whether the account that pods use is there; before 1.24 with its token."""
        account = self.find("serviceaccount", "default")
        return account is not None and (self.minor >= 24 or "secrets" in account)

    def _folder(self, name: str) -> Path:
        made = self.work / name
        made.mkdir()
        return made

    # asking

    def kubeconfig_of(self, user: str, namespace: str = "default") -> Path:
        """The kubeconfig of a user, with a token of its own."""
        return self.control.kubeconfig(
            user, self.work / f"{user.replace(':', '-')}.kubeconfig", namespace=namespace
        )

    def kubectl(
        self, *arguments: object, stdin: str | Mapping[str, Any] | None = None, user: str = "admin"
    ) -> str:
        """Run kubectl.

        Args:
            stdin: a manifest, as text or as an object.
            user: who asks.

        Raises:
            BedError: it fails; with what it said.
        """
        said = json.dumps(stdin) if isinstance(stdin, Mapping) else stdin
        config = self.kubeconfig if user == "admin" else self.kubeconfig_of(user)
        own = [f"--kubeconfig={config}", f"--cache-dir={self.work}/kubectl"]  # the next cluster is another
        return build.run([str(self._kubectl), *own, *map(str, arguments)], input=said, timeout=120)

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Create objects, or change them."""
        self.kubectl("apply", "-f", "-", stdin={"apiVersion": "v1", "kind": "List", "items": list(objects)})

    def get(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any]:
        """An object.

        Raises:
            BedError: there is none.
        """
        found: dict[str, Any] = json.loads(self.kubectl("get", kind, name, "-n", namespace, "-o", "json"))
        return found

    def find(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any] | None:
        """An object, or None."""
        said = self.kubectl("get", kind, name, "-n", namespace, "-o", "json", "--ignore-not-found")
        return json.loads(said) if said.strip() else None

    def list(self, kind: str, *selector: str) -> list[dict[str, Any]]:
        """Objects of a kind."""
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", kind, *selector, "-o", "json"))["items"]
        return found

    def ready(self) -> set[str]:
        """Names of the nodes that are Ready."""
        return {each["metadata"]["name"] for each in self.list("node") if is_ready(each)}

    def wait(
        self, holds: Callable[[], bool], within_s: float = 60.0, what: str = "what was asked for"
    ) -> None:
        """Wait until something holds.

        Raises:
            BedError: it does not in time.
        """
        until_s = time.monotonic() + within_s
        while not holds():
            if time.monotonic() > until_s:
                raise BedError(f"waited {within_s:g} s for {what}")
            time.sleep(0.1)

    # images and simulated nodes

    def load(self, *more: images.Image) -> None:
        """Give every node further images."""
        archive = images.archive(more, self.work / "more.tar")
        for node in self.nodes.values():
            node.load(archive)

    def simulate(self, count: int, cores: float = 8.0, memory_bytes: int = 32 * 2**30) -> list[str]:
        """Add nodes that kwok simulates; pods that tolerate their taint can be placed on them."""
        if self._kwok is None:
            self._kwok = kwok.run_kwok(self.kubeconfig, self.work)
            self.callback(end, self._kwok)
        names = [f"fake-{number}" for number in range(1, count + 1)]
        self.apply(*(kwok.node(name, cores, memory_bytes) for name in names))
        self.wait(lambda: self.ready() >= set(names), 120, f"{count} simulated nodes to be Ready")
        return names

    # links and faults

    def members(self, place: str) -> list[Node]:
        """The nodes of a site, or one node by its name.

        Raises:
            BedError: there is neither.
        """
        found = [node for node in self.nodes.values() if place in (node.name, node.site)]
        if not found:
            raise BedError(f"{place!r} is no node and no site of this cluster")
        return found

    def link(
        self, a: str, b: str, rate_bps: float | None = None, delay_s: float = 0.0, loss: float = 0.0
    ) -> None:
        """Rate, delay and loss, each way, between two nodes or two sites; what is not given is taken away."""
        for one, other in self._pairs(a, b):
            for sender, receiver in ((one, other), (other, one)):
                sender.net.shape(receiver.net.number, rate_bps, delay_s)
                receiver.net.lose(sender.net.number, loss)

    def _pairs(self, a: str, b: str) -> Iterator[tuple[Node, Node]]:
        for one in self.members(a):
            for other in self.members(b):
                if one is not other:
                    yield one, other

    @contextlib.contextmanager
    def cut(self, a: str, b: str | None = None) -> Iterator[None]:
        """No packet passes between two nodes or two sites, or between one and all else.

        Args:
            b: `control` is the control plane; None pulls the cables of `a`.
        """
        with contextlib.ExitStack() as repairs:
            for node in self.members(a) if b is None else ():
                node.net.plug(False)
                repairs.callback(node.net.plug, True)
            for node, source in self._refused(a, b) if b else ():
                node.net.refuse(source, True)
                repairs.callback(node.net.refuse, source, False)
            yield

    def _refused(self, a: str, b: str) -> list[tuple[Node, str]]:
        """Nodes, and what they are to refuse so that nothing passes between two places."""
        if b == "control":
            sources = (network.API_ADDRESS, network.CONTROL_SIDE)
            return [(node, source) for node in self.members(a) for source in sources]
        both = [pair for one, other in self._pairs(a, b) for pair in ((one, other), (other, one))]
        return [(one, source) for one, other in both for source in (other.net.address, other.net.pods)]

    @contextlib.contextmanager
    def lost(self, place: str) -> Iterator[None]:
        """As if the power of a node or a site went; it starts again afterwards."""
        with contextlib.ExitStack() as repairs:
            for node in self.members(place):
                node.lose()
                repairs.callback(node.back)
            yield

    @contextlib.contextmanager
    def frozen(self, place: str) -> Iterator[None]:
        """Everything on a node or at a site stops where it is, keeps what it has, and answers nothing."""
        with contextlib.ExitStack() as repairs:
            for node in self.members(place):
                groups.freeze(node.name, True)
                repairs.callback(groups.freeze, node.name, False)
            yield

    @contextlib.contextmanager
    def slow(self, place: str, share: float = 0.2) -> Iterator[None]:
        """Everything on a node or at a site gets a share of the time only, as of a host that others use, too.

        Raises:
            BedError: the share is not above 0 and below 1.
        """
        if not 0 < share < 1:
            raise BedError(f"share {share:g}: of the time, above 0 and below 1, as 0.2")
        with contextlib.ExitStack() as repairs:
            for node in self.members(place):
                repairs.enter_context(groups.slowed(node.name, share))
            yield

    @contextlib.contextmanager
    def api_server_away(self) -> Iterator[None]:
        """The API server is killed, and starts again afterwards."""
        self.control.stop_api_server()
        try:
            yield
        finally:
            self.control.start_api_server()


def is_ready(of: Mapping[str, Any]) -> bool:
    """Whether a node or a pod says that it is ready."""
    return any(c["type"] == "Ready" and c["status"] == "True" for c in of["status"].get("conditions", []))
