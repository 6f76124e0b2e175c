"""etcd, API server, controller manager and scheduler, in the control plane's namespace."""

from __future__ import annotations

import ssl
import subprocess
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from beds.kubernetes import pki
from beds.kubernetes.network import API_ADDRESS, API_SERVICE, CONTROL, CONTROL_SIDE, SERVICES, inside
from beds.processes import end, start, wait

USERS = {
    "admin": ["system:masters"],
    "system:kube-controller-manager": [],
    "system:kube-scheduler": [],
    "system:kube-proxy": [],
}
ETCD = "http://127.0.0.1:2379"
# Requests a second, and in a burst: the usual 20 and 30 take minutes for the pods of 200 simulated nodes.
RATES = ("--kube-api-qps", "300", "--kube-api-burst", "600")
FRONT_PROXY = "front-proxy-client"


@dataclass
class ControlPlane:
    """The part of the cluster that is not a node.

    Attributes:
        folder: its files.
        programs: folder of Kubernetes' programs.
        users: groups of each user beside those that the cluster itself needs.
    """

    folder: Path
    programs: Path
    users: dict[str, list[str]]
    tokens: dict[str, str] = field(default_factory=dict)
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def write(self) -> None:
        """Make keys, certificates and tokens."""
        self.authority = pki.Authority(self.folder / "pki")
        self.tokens = pki.tokens(self.folder / "tokens.csv", {**USERS, **self.users})
        names = [API_ADDRESS, CONTROL_SIDE, API_SERVICE, "127.0.0.1", "kubernetes.default.svc", "kubernetes"]
        self.server = self.authority.sign("apiserver", "/CN=kube-apiserver", names)
        self.to_kubelets = self.authority.sign(
            "to-kubelets", "/O=system:masters/CN=kube-apiserver-to-kubelets"
        )
        self.accounts = self.authority.key_pair("accounts")
        # An authority of its own: who shows its certificates may speak for any user.
        self.front = pki.Authority(self.folder / "front-proxy-pki")
        self.as_proxy = self.front.sign("front-proxy", f"/CN={FRONT_PROXY}")

    def kubeconfig(self, user: str, file: Path, host: bool = True, namespace: str = "default") -> Path:
        """A user's kubeconfig, for use on the host or inside the bed."""
        address = CONTROL_SIDE if host else API_ADDRESS
        server = f"https://{address}:6443"
        return pki.kubeconfig(file, server, self.authority.certificate, user, self.tokens[user], namespace)

    def up(self) -> None:
        """Start everything, and wait until the API server is ready."""
        self._start("etcd", [
            "etcd", "--name", "bed", "--data-dir", self.folder / "etcd", "--listen-client-urls", ETCD,
            "--advertise-client-urls", ETCD, "--listen-peer-urls", "http://127.0.0.1:2380",
            "--initial-advertise-peer-urls", "http://127.0.0.1:2380",
            "--initial-cluster", "bed=http://127.0.0.1:2380", "--log-level", "warn", "--unsafe-no-fsync",
        ])  # fmt: skip
        self.start_api_server()
        for name, user in (("kube-controller-manager", "system:kube-controller-manager"),
                           ("kube-scheduler", "system:kube-scheduler")):  # fmt: skip
            config = self.kubeconfig(user, self.folder / f"{name}.kubeconfig", host=False)
            own = ["--kubeconfig", config, "--bind-address", "127.0.0.1", "--leader-elect=false", *RATES]
            if name == "kube-controller-manager":
                own += [
                    "--service-account-private-key-file", self.accounts[0],
                    "--use-service-account-credentials",
                    "--root-ca-file", self.authority.certificate, "--node-monitor-grace-period", "16s",
                    "--flex-volume-plugin-dir", self.folder / "plugins",
                ]  # fmt: skip
            self._start(name, [self.programs / name, *own])

    def start_api_server(self) -> None:
        """Start the API server; again after `stop_api_server`."""
        key, certificate = self.server
        self._start("kube-apiserver", [
            self.programs / "kube-apiserver", "--etcd-servers", ETCD, "--bind-address", "0.0.0.0",
            "--advertise-address", API_ADDRESS, "--secure-port", "6443", "--allow-privileged=true",
            "--tls-private-key-file", key, "--tls-cert-file", certificate,
            "--client-ca-file", self.authority.certificate, "--token-auth-file", self.folder / "tokens.csv",
            "--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction",
            "--anonymous-auth=false", "--service-cluster-ip-range", SERVICES,
            "--service-account-signing-key-file", self.accounts[0],
            "--service-account-key-file", self.accounts[1],
            "--service-account-issuer", "https://kubernetes.default.svc",
            "--kubelet-client-key", self.to_kubelets[0], "--kubelet-client-certificate", self.to_kubelets[1],
            "--kubelet-certificate-authority", self.authority.certificate,
            "--kubelet-preferred-address-types", "InternalIP",
            # Webhooks and APIs of other projects are services: it has a way to their pods alone.
            "--enable-aggregator-routing=true", "--requestheader-client-ca-file", self.front.certificate,
            "--requestheader-allowed-names", FRONT_PROXY, "--requestheader-username-headers", "X-Remote-User",
            "--requestheader-group-headers", "X-Remote-Group",
            "--requestheader-extra-headers-prefix", "X-Remote-Extra-",
            "--proxy-client-key-file", self.as_proxy[0], "--proxy-client-cert-file", self.as_proxy[1],
        ])  # fmt: skip
        wait("the API server", self.ready, 90, self.folder / "kube-apiserver.log")

    def stop_api_server(self) -> None:
        """Kill the API server; everything else goes on without it."""
        process = self._running.pop("kube-apiserver")
        process.kill()
        process.wait()

    def ready(self) -> bool:
        """Whether the API server says so, to a client that verifies its certificate."""
        trust = ssl.create_default_context(cafile=str(self.authority.certificate))
        request = urllib.request.Request(f"https://{CONTROL_SIDE}:6443/readyz")
        request.add_header("authorization", f"Bearer {self.tokens['admin']}")
        with (
            suppress(urllib.error.URLError, OSError),
            urllib.request.urlopen(request, timeout=2, context=trust) as said,
        ):
            return bool(said.status == 200)
        return False

    def _start(self, name: str, command: list[str | Path]) -> None:
        log = self.folder / f"{name}.log"
        self._running[name] = start([*inside(CONTROL), *command], log, cwd=self.folder)

    def down(self) -> None:
        """End everything, the store last."""
        for name in reversed(self._running):
            end(self._running[name])
        self._running.clear()
