"""Control groups of the bed's nodes, version 1 (each controller a tree) or 2 (one tree)."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
OURS = "edgewise-bed"
UNIFIED = (ROOT / "cgroup.controllers").exists()
PERIOD_S = 0.1  # of a slow node: it runs for a share of it
LEFT_OUT = {"net_cls", "net_prio", "net_cls,net_prio", "perf_event", "hugetlb", "rdma", "misc"}


def trees() -> list[Path]:
    """The roots of the hierarchies."""
    if UNIFIED:
        return [ROOT]
    return [
        each
        for each in ROOT.iterdir()
        if each.is_dir() and not each.is_symlink() and each.name not in LEFT_OUT
    ]


def make(node: str) -> None:
    """The groups of a node, and one in it for the daemons that freeze with it."""
    for tree in trees():
        group = tree / OURS / node
        group.mkdir(parents=True, exist_ok=True)
        if UNIFIED:
            for each in (tree, tree / OURS, group):
                _hand_down(each)
        elif tree.name == "cpuset":
            for each in (tree / OURS, group):
                for file in ("cpuset.cpus", "cpuset.mems"):
                    (each / file).write_text((tree / file).read_text())
    daemons(node).mkdir(exist_ok=True)


def _hand_down(group: Path) -> None:
    """Let groups below have every controller that is here, each by itself: one may be refused."""
    for controller in (group / "cgroup.controllers").read_text().split():
        with suppress(OSError):
            (group / "cgroup.subtree_control").write_text(f"+{controller}")


def daemons(node: str) -> Path:
    """The group that a node's daemons are in."""
    return (ROOT if UNIFIED else ROOT / "freezer") / OURS / node / "daemons"


def freeze(node: str, frozen: bool) -> None:
    """Stop everything of a node in its tracks, or let it go on."""
    group = daemons(node).parent
    if UNIFIED:
        (group / "cgroup.freeze").write_text("1" if frozen else "0")
    else:
        (group / "freezer.state").write_text("FROZEN" if frozen else "THAWED")


@contextmanager
def slowed(node: str, share: float) -> Iterator[None]:
    """Everything of a node runs for a share of each period, and stands still for the rest.

    Not by a quota of processor time: in groups of version 1 a node could have none below the limit of a pod.
    """
    done = threading.Event()

    def pulse() -> None:
        while not done.wait(share * PERIOD_S):
            freeze(node, True)
            done.wait((1 - share) * PERIOD_S)
            freeze(node, False)

    pulsing = threading.Thread(target=pulse, name=f"slow {node}", daemon=True)
    pulsing.start()
    try:
        yield
    finally:
        done.set()
        pulsing.join()


def processes(below: str = "") -> set[int]:
    """Processes in the bed's groups, or in those of one node."""
    found: set[int] = set()
    for file in _files(below, "cgroup.procs"):
        with suppress(OSError):
            found |= {int(line) for line in file.read_text().split()}
    return found - {0, os.getpid()}


def kill(below: str = "", within_s: float = 10.0) -> None:
    """Kill everything in the bed's groups, or in those of one node, and wait until it is gone."""
    for node in [below] if below else [each.parent.name for each in _files("", "daemons")]:
        with suppress(OSError):
            freeze(node, False)  # what is frozen cannot die
    until_s = time.monotonic() + within_s
    while (left := processes(below)) and time.monotonic() < until_s:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def remove() -> None:
    """Remove the bed's groups; they must be empty."""
    for tree in trees():
        for folder, _, _ in os.walk(tree / OURS, topdown=False):
            with suppress(OSError):  # a group with a process that is just ending; the next start tries again
                os.rmdir(folder)


def _files(below: str, name: str) -> Iterator[Path]:
    for tree in trees():
        yield from (tree / OURS / below).rglob(name)
