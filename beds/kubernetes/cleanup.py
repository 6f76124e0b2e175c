"""Removes whatever a bed has made: processes, mounts, namespaces, control groups, files."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

from beds.kubernetes import groups
from beds.kubernetes.network import CONTROL
from beds.processes import root_folder

NETWORK = "edgewise-n"  # the names of the pods' networks begin so
# Where kubelet, containerd and CNI put things, whatever they are told; removed where nothing else is in them.
PLUGINS = "/var/lib/kubelet/device-plugins"
PLACES = (
    PLUGINS, "/var/lib/kubelet", "/var/lib/cni/results", "/var/lib/cni", "/run/containerd/s",
    "/run/containerd", "/var/log/containers", "/var/log/pods",
)  # fmt: skip


def clean() -> None:
    """Remove what earlier beds have left; nothing of anybody else."""
    groups.kill()
    for pid in _in_our_namespaces():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    _unmount()
    names = _namespaces()
    pods = [name for name in names if name.startswith("cni-") and _is_ours(name)]
    for name in [*pods, *(name for name in names if name.startswith(CONTROL))]:
        _quietly("ip", "netns", "del", name)
    _quietly("ip", "link", "del", CONTROL)
    groups.remove()
    _files()


def _quietly(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _namespaces() -> list[str]:
    return [line.split()[0] for line in _quietly("ip", "netns", "list").splitlines() if line]


def _is_ours(name: str) -> bool:
    """Whether a pod's namespace has an address of our pods."""
    return " 10.199." in _quietly("ip", "-n", name, "-o", "-4", "addr")


def _in_our_namespaces() -> list[int]:
    """Processes of the control plane and relays: their network namespace is ours."""
    ours = {os.stat(f"/run/netns/{name}").st_ino for name in _namespaces() if name.startswith(CONTROL)}
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit() and int(each.name) != os.getpid():
            with suppress(OSError):
                if (each / "ns/net").stat().st_ino in ours:
                    found.append(int(each.name))
    return found


def _unmount() -> None:
    """Mounts below the beds' folder, and the namespaces of our pods; the innermost first."""
    root = str(root_folder("kubernetes"))
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for each in sorted((each for each in mounts if each.startswith(root)), reverse=True):
        _quietly("umount", "--lazy", each)


def _files() -> None:
    """What programs keep in places of their own, and the beds' folder."""
    root = root_folder("kubernetes")
    results = Path("/var/lib/cni/results")
    for each in results.glob(f"{NETWORK}*"):
        pod = each.name.split("-")[2]  # of edgewise-n1-POD-eth0
        (results / f"cni-loopback-{pod}-lo").unlink(missing_ok=True)
        each.unlink(missing_ok=True)
    for each in Path("/run/containerd/s").glob("*"):
        if not _answers(each):
            each.unlink(missing_ok=True)
    if not _answers(Path(PLUGINS) / "kubelet.sock"):
        for name in ("kubelet.sock", "DEPRECATION"):
            (Path(PLUGINS) / name).unlink(missing_ok=True)
    for pod in root.glob("*/*/kubelet/pods/*"):  # before 1.31 their logs lie in one place for all nodes
        for each in Path("/var/log/pods").glob(f"*_{pod.name}"):
            shutil.rmtree(each, ignore_errors=True)
    for each in Path("/var/log/containers").glob("*"):
        if each.is_symlink() and (not each.exists() or os.readlink(each).startswith(f"{root}/")):
            each.unlink()
    for place in PLACES:
        with suppress(OSError):
            os.rmdir(place)
    for each in root.iterdir():
        if each.name.partition("-")[0] != str(os.getpid()):
            shutil.rmtree(each, ignore_errors=True)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client, suppress(OSError):
        client.settimeout(0.5)
        client.connect(str(path))
        return True
    return False
