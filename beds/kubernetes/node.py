"""One node: containerd, a kubelet and kube-proxy in a namespace; it can be lost and come back."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from beds.kubernetes import dns, groups
from beds.kubernetes.build import run
from beds.kubernetes.images import PAUSE
from beds.kubernetes.network import PODS, Interface, inside
from beds.processes import end, start, wait

# Where CAP_SYS_RESOURCE is missing, a negative oom_score_adj cannot be set: runc is not asked for it.
RUNC = """#!/bin/sh
bundle=; last=
for each in "$@"; do [ "$last" = --bundle ] && bundle=$each; last=$each; done
[ -f "$bundle/config.json" ] && sed -i 's/"oomScoreAdj":-[0-9]*/"oomScoreAdj":0/' "$bundle/config.json"
exec {runc} "$@"
"""
CONTAINERD = """version = 2
root = "{folder}/containerd"
state = "{folder}/state"
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "{folder}/runc"
        Root = "{folder}/runc-state"
        SystemdCgroup = false
"""


@dataclass
class Node:
    """A node of the cluster.

    Attributes:
        name: as Kubernetes knows it.
        net: its place in the network.
        folder: its files.
        programs: folder of Kubernetes' programs.
        minor: of their version: 36 for v1.36.3.
        site: the zone it is labelled with, or None.
    """

    name: str
    net: Interface
    folder: Path
    programs: Path
    minor: int
    site: str | None = None
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def socket(self) -> Path:
        """Of containerd."""
        return self.folder / "containerd.sock"

    def write(self, authority: Path, pair: tuple[Path, Path]) -> None:
        """Write what its daemons read; `kubelet.kubeconfig` and `proxy.kubeconfig` lie there already."""
        for each in ("cni", "kubelet", "pods"):
            (self.folder / each).mkdir()
        runc = self.folder / "runc"
        runc.write_text(RUNC.replace("{runc}", shutil.which("runc") or "runc"))
        runc.chmod(0o755)
        (self.folder / "containerd.toml").write_text(CONTAINERD.format(folder=self.folder, pause=PAUSE))
        bridge = {
            "type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False, "hairpinMode": True,
            "ipam": {
                "type": "host-local", "dataDir": f"{self.folder}/ipam",
                "ranges": [[{"subnet": self.net.pods}]], "routes": [{"dst": "0.0.0.0/0"}],
            },
        }  # fmt: skip
        self._json(
            "cni/10-net.conflist",
            {"cniVersion": "0.4.0", "name": f"edgewise-{self.name}", "plugins": [bridge]},
        )
        self._json("kubelet.json", self._kubelet(authority, pair))
        self._json("proxy.json", {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
            "mode": "iptables", "clusterCIDR": PODS, "hostnameOverride": self.name,
            "healthzBindAddress": "127.0.0.1:10256",
            "clientConnection": {"kubeconfig": f"{self.folder}/proxy.kubeconfig"},
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s",
                          "tcpCloseWaitTimeout": "0s"},
        })  # fmt: skip

    def _kubelet(self, authority: Path, pair: tuple[Path, Path]) -> dict[str, Any]:
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "address": self.net.address, "healthzBindAddress": "127.0.0.1",
            "authentication": {
                "anonymous": {"enabled": False}, "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(authority)},
            },
            "authorization": {"mode": "Webhook"},
            "tlsPrivateKeyFile": str(pair[0]), "tlsCertFile": str(pair[1]),
            "cgroupDriver": "cgroupfs", "cgroupRoot": f"/{groups.OURS}/{self.name}",
            "enforceNodeAllocatable": [], "failSwapOn": False,
            "clusterDNS": [dns.ADDRESS], "clusterDomain": dns.DOMAIN,
            "volumePluginDir": f"{self.folder}/plugins",
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%",
                             "nodefs.inodesFree": "1%"},
            # Seconds in place of the minutes of real nodes, so that tests see what nodes report.
            "nodeStatusUpdateFrequency": "4s", "syncFrequency": "2s",
        }  # fmt: skip
        if self.minor >= 27:
            config["containerRuntimeEndpoint"] = f"unix://{self.socket}"
        if self.minor >= 31:
            config |= {"failCgroupV1": False, "podLogsDir": f"{self.folder}/pods"}
        return config

    def _json(self, name: str, content: dict[str, Any]) -> None:
        (self.folder / name).write_text(json.dumps(content, indent=1))

    def load(self, archive: Path) -> None:
        """Import images."""
        run(["ctr", "-a", str(self.socket), "-n", "k8s.io", "images", "import", str(archive)])

    def up(self, archives: list[Path]) -> None:
        """Start its daemons; images are there before the kubelet begins."""
        groups.make(self.name)
        self._start("containerd", ["containerd", "--config", self.folder / "containerd.toml"])

        def answers() -> bool:
            said = subprocess.run(
                ["ctr", "-a", str(self.socket), "version"], capture_output=True, check=False
            )
            return said.returncode == 0

        wait(f"containerd of {self.name}", answers, 30, self.folder / "containerd.log")
        for each in archives:
            self.load(each)
        self._start("kubelet", [
            self.programs / "kubelet", "--config", self.folder / "kubelet.json",
            "--kubeconfig", self.folder / "kubelet.kubeconfig", "--hostname-override", self.name,
            "--node-ip", self.net.address, "--root-dir", self.folder / "kubelet",
            "--cert-dir", self.folder / "pki",
            *self._labels(), *self._before_27(),
        ])  # fmt: skip
        self._start("kube-proxy", [self.programs / "kube-proxy", "--config", self.folder / "proxy.json"])

    def _labels(self) -> list[str]:
        return [f"--node-labels=topology.kubernetes.io/zone={self.site}"] if self.site else []

    def _before_27(self) -> list[str]:
        if self.minor >= 27:
            return []
        remote = ["--container-runtime=remote"] if self.minor < 24 else []
        return [*remote, f"--container-runtime-endpoint=unix://{self.socket}"]

    def _start(self, name: str, command: list[str | Path]) -> None:
        log = self.folder / f"{name}.log"
        within = [groups.daemons(self.name)]
        self._running[name] = start([*inside(self.net.namespace), *command], log, groups=within)

    # what may happen to it

    def lose(self) -> None:
        """As if its power went: everything on it is killed and its link is dead."""
        self.net.plug(False)
        groups.kill(self.name)
        for each in self._running.values():
            each.wait()
        self._running.clear()

    def back(self) -> None:
        """Start what was lost."""
        self.net.plug(True)
        self.up([])

    def down(self) -> None:
        """End its daemons in order, then whatever is left."""
        groups.freeze(self.name, False)
        for name in ("kubelet", "kube-proxy"):
            if name in self._running:
                end(self._running.pop(name))
        groups.kill(self.name)
        for each in self._running.values():
            each.wait()
        self.net.close()
