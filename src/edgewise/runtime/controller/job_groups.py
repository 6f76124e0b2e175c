"""Control groups (version 2) of jobs: limits that hold for all processes of a job, a freezer and a kill.

A group is made where its limits hold: in the nearest group, from this process's own upwards, that passes the
processor controller on and may be written; otherwise in the own one, to freeze and kill. Groups pass nothing
on while processes are in them, so a job's group mostly lies beside that of its controller.
"""

import contextlib
import hashlib
import os
import time
from pathlib import Path

from edgewise.runtime import clock, disk

NOTE = "group"  # file in a job's folder with the path of its group
PERIOD_US = 100_000
LONGEST_REMOVAL_S = 0.2


def make_group(place: Path, cores: float, memory_bytes: float) -> Path | None:
    """The group of the job whose folder is `place`, with its limits; None where none may be made."""
    group = group_of(place) or parent_group() / f"edgewise-job-{place.name}-{_digest(place)}"
    try:
        group.mkdir(exist_ok=True)
    except OSError:
        return None
    disk.write_file(place / NOTE, str(group))
    write_control(group, "cpu.max", f"{int(cores * PERIOD_US)} {PERIOD_US}")
    write_control(group, "cpu.idle", "1")
    if memory_bytes:
        write_control(group, "memory.max", str(int(memory_bytes)))
        write_control(group, "memory.swap.max", "0")
        write_control(group, "memory.oom.group", "1")
    return group


def group_of(place: Path) -> Path | None:
    """The group that `make` made for a job's folder."""
    with contextlib.suppress(OSError):
        return Path((place / NOTE).read_text())
    return None


def remove_group(group: Path) -> None:
    """Kill what is left in a group and remove it, unless it takes too long."""
    write_control(group, "cgroup.kill", "1")
    until_s = clock.monotonic_s() + LONGEST_REMOVAL_S
    while group.is_dir() and clock.monotonic_s() < until_s:
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.002)


def write_control(group: Path, name: str, text: str) -> bool:
    """Whether a control file was there and took the text."""
    try:
        if not (group / name).exists():
            return False
        (group / name).write_text(text)
    except OSError:
        return False
    return True


def parent_group() -> Path:
    """Where groups are made."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    mount = Path(next((fields[1] for fields in mounts if fields[2] == "cgroup2"), "/sys/fs/cgroup"))
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    own = mount / next((line[3:] for line in lines if line[:3] == "0::"), "/").strip("/")
    for controller in ("+cpu", "+memory"):
        write_control(own, "cgroup.subtree_control", controller)  # the root of all groups alone takes it
    for group in (own, *own.parents):
        if mount in (group, *group.parents) and "cpu" in passed_on(group) and _may_hold_groups(group):
            return group
    return own


def passed_on(group: Path) -> set[str]:
    """Controllers that a group gives to those in it."""
    with contextlib.suppress(OSError):
        return set((group / "cgroup.subtree_control").read_text().split())
    return set()


def _may_hold_groups(group: Path) -> bool:
    return os.access(group, os.W_OK) and os.access(group / "cgroup.procs", os.W_OK)


def _digest(place: Path) -> str:
    """The same for a job's folder whoever asks, so that a group that nobody noted is found again."""
    return hashlib.sha256(str(place.resolve()).encode()).hexdigest()[:8]
