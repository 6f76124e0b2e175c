"""Control groups of nodes in both versions: in the one that this machine has, and in a tree of version 2."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from beds.processes import REPOSITORY

# In a process of its own: where a controller's tree lies is looked at once.
SCRIPT = """
import subprocess, sys
from pathlib import Path
from beds.kubernetes import groups
from beds.processes import start, wait

def running():  # the state of a process that counts: stopped by its group, it uses no time
    return int(Path(f"/proc/{busy.pid}/stat").read_text().rpartition(")")[2].split()[11])

assert groups.UNIFIED == (sys.argv[1] == "2"), groups.trees()
groups.OURS = "edgewise-bed-groups"  # beside a bed that may run
groups.make("n1")
if groups.UNIFIED:
    handed = (groups.ROOT / groups.OURS / "n1/cgroup.subtree_control").read_text().split()
    assert handed and handed == (groups.ROOT / "cgroup.controllers").read_text().split(), handed
busy = start(["sh", "-c", "while :; do :; done"], Path("/dev/null"), groups=[groups.daemons("n1")])
try:
    wait("it in its group", lambda: groups.processes("n1") == {busy.pid} == groups.processes(), 5)
    wait("it to run", lambda: running() > 2, 5)
    groups.freeze("n1", True)
    state = "cgroup.events" if groups.UNIFIED else "freezer.state"
    frozen = lambda: {"frozen 1", "FROZEN"} & set((groups.daemons("n1") / state).read_text().splitlines())
    wait("it to stand still", frozen, 5)
    before = running()
    try:
        busy.wait(0.3)
    except subprocess.TimeoutExpired:
        assert running() == before
    groups.freeze("n1", False)
    wait("it to go on", lambda: running() > before, 5)
    groups.freeze("n1", True)  # what is frozen can be killed, too
    groups.kill("n1", 5)
    busy.wait(5)
    assert not groups.processes()
finally:
    busy.kill()
    groups.kill()
    groups.remove()
assert not [tree for tree in groups.trees() if (tree / groups.OURS).exists()]
"""


@pytest.mark.parametrize("version", ["as it is", "2"])
def test_a_node_is_frozen_goes_on_and_is_killed_by_its_groups(version):
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("control groups are made by root, and those of version 2 need unshare")
    unified = os.path.exists("/sys/fs/cgroup/cgroup.controllers")
    command = [sys.executable, "-c", SCRIPT, "2" if unified or version == "2" else "1"]
    if version == "2" and not unified:
        mount = 'mount -t cgroup2 none /sys/fs/cgroup && exec "$@"'
        command = ["unshare", "--mount", "sh", "-c", mount, "sh", *command]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
