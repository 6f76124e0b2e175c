"""A cluster ends without a trace, however it ends, and what cannot be started is said."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from beds.kubernetes import Cluster, cleanup, groups
from beds.kubernetes.images import BUSYBOX
from beds.kubernetes.network import CONTROL
from beds.processes import REPOSITORY, BedError, wait

POD = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "left"},
    "spec": {"nodeName": "n1", "containers": [
        {"name": "c", "image": BUSYBOX, "imagePullPolicy": "Never", "command": ["sleep", "1000"]}]},
}  # fmt: skip


# Where programs of a cluster put things beside the bed's own folder.
PLACES = (
    "/var/lib/kubelet", "/var/lib/cni", "/var/lib/containerd", "/var/log/containers", "/var/log/pods",
    "/run/containerd", "/opt/containerd", "/usr/libexec/kubernetes", "/var/run/kubernetes",
)  # fmt: skip


def traces() -> dict[str, list[str]]:
    """What a bed leaves anywhere on the machine."""
    said = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    return {
        "namespaces": [line for line in said.splitlines() if line.startswith((CONTROL, "cni-"))],
        "links": [line for line in links.splitlines() if CONTROL in line],
        "mounts": [line for line in Path("/proc/mounts").read_text().splitlines() if "edgewise-beds" in line],
        "groups": [str(tree / groups.OURS) for tree in groups.trees() if (tree / groups.OURS).exists()],
        "folders": [str(each) for each in Path(f"/tmp/edgewise-beds-{os.getuid()}/kubernetes").iterdir()],
        "results": [str(each) for each in Path("/var/lib/cni/results").glob("edgewise-n*")],
        "places": [each for each in PLACES if Path(each).exists()],
        "processes": [str(pid) for pid in groups.processes()],
    }


def command(verb: str, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "beds.kubernetes", verb, *more],
                          cwd=REPOSITORY, capture_output=True, text=True, check=False)  # fmt: skip


@pytest.mark.parametrize("how", [None, signal.SIGINT, signal.SIGKILL])
def test_it_leaves_nothing_behind_however_it_ends(kubernetes, how):
    before = traces()["places"]  # of another Kubernetes or containerd
    assert command("up", "--nodes", "1").returncode == 0
    state = json.loads(command("status").stdout)
    tool = [f"{state['programs']}/kubectl", f"--kubeconfig={state['kubeconfig']}"]
    subprocess.run([*tool, "apply", "-f", "-"], input=json.dumps(POD), text=True, check=True)
    waited = ["wait", "--for=condition=Ready", "pod/left", "--timeout=60s"]
    for _ in range(50):  # the pod's controller may not have seen it yet
        if not subprocess.run([*tool, *waited], capture_output=True, check=False).returncode:
            break
        time.sleep(0.1)
    if how is not None:
        os.kill(state["pid"], how)
        wait("its end", lambda: not Path(f"/proc/{state['pid']}").exists(), 60)
    if how == signal.SIGKILL:
        assert traces()["mounts"]  # its pods outlive it; what comes next removes them
    assert command("down").returncode == 0
    assert {kind: left for kind, left in traces().items() if left} == ({"places": before} if before else {})
    assert command("status").returncode == 1


def test_a_version_that_is_none_is_said(kubernetes):
    with pytest.raises(BedError, match="a release as v1"), Cluster(version="latest"):
        pass
    cleanup.clean()  # what never started leaves nothing that could be cleaned: this must not fail
