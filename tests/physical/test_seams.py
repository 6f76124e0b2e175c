"""Live processes reach time, network, disk and processes through one module each: tests can play these.

Time is `edgewise.runtime.clock`, sockets are `edgewise.runtime.http`, processes `runtime.process.machine`,
and what changes the disk is `edgewise.runtime.disk`.
Who keeps real processes waits for these in their own way, and is played as a whole.
"""

import ast
import re
from pathlib import Path

import pytest

import edgewise

RUNTIME = Path(edgewise.__file__).parent / "runtime"
KEEP_PROCESSES = {"nursery.py", "job_groups.py", "job_runner.py"}
PAST_THE_BACKENDS = {
    "process/machine.py": "the seam itself",
    "controller/nursery.py": "forks what the backend asks it for, and keeps the controller",
    "controller/job_runner.py": "becomes the command of a job; it knows the standard library alone",
    "process/entry.py": "kills who holds its port and was lost by its controller, before it serves",
    "apart/process.py": "a policy belongs to whoever asks it, over a channel that the process inherits",
    "process/compiling.py": "a child that is asked once, and awaited",
    "testbeds/kernel.py": "carries out `ip` and `tc`, and empties a namespace that goes",
    "backends/conformance.py": "plays a program of its own against a test bed",
    "clients/split_trial.py": "starts a whole system, as a user does",
}
PAST_THE_DISK = {
    "disk.py": "the seam itself",
    "controller/job_runner.py": "becomes the command of a job; it knows the standard library alone",
    "controller/job_groups.py": "control files of the kernel, on no disk",
    "process/compiling.py": "a mark in the compiler's cache, and a control file of the kernel",
    "backends/kubernetes/lease.py": "`replace` of an object of a cluster, on no disk",
    "backends/kubernetes/kept.py": "the same",
    "worker/pieces.py": "cuts a network for a user, in a folder of theirs, before anything runs",
}
CHANGING = {  # of files and folders, of `os` and of `shutil`; `replace` of a path has one argument
    "write_text", "write_bytes", "mkdir", "unlink", "rmdir", "touch", "rename", "chmod", "hardlink_to",
    "symlink_to",
}  # fmt: skip
CHANGING_OF = {
    "os": {
        "replace", "rename", "renames", "link", "symlink", "unlink", "remove", "mkdir", "makedirs", "rmdir",
        "truncate", "chmod",
    },
    "shutil": {"copy", "copy2", "copyfile", "copytree", "move", "rmtree"},
    "sqlite3": {"connect"},
}  # fmt: skip
STARTING = {"fork", "kill", "killpg", "waitpid", "pidfd_open", "posix_spawn", "system", "popen"}  # of os
MODULES = {"time", "socket", "select", "selectors", "socketserver", "urllib", "http", "requests"}
WAITING = {"sleep", "timeout", "timeout_at", "wait_for", "call_later", "call_at", "time"}
CONNECTING = {
    "open_connection", "start_server", "open_unix_connection", "start_unix_server",
    "create_connection", "create_server", "create_datagram_endpoint",
}  # fmt: skip


def past_the_seams(source):
    """What reaches time or network by itself, in words."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names):
                yield from (each.name for each in names if each.name.partition(".")[0] in MODULES)
            case ast.ImportFrom(module="urllib.parse"):
                pass
            case ast.ImportFrom(module=str(module), names=names) if module.partition(".")[0] in MODULES:
                yield from (f"{module}.{each.name}" for each in names)
            case ast.Attribute(value=ast.Name("asyncio"), attr=name) if name in WAITING:
                yield f"asyncio.{name}"
            case ast.Attribute(value=ast.Call(), attr=name) if name in WAITING:  # of the running loop
                yield f"().{name}"
            case ast.Attribute(attr=name) if name in CONNECTING or name in ("call_later", "call_at"):
                yield name


@pytest.mark.parametrize("part", ["gateway", "controller"])
def test_gateways_and_controller_reach_time_and_network_through_their_seams(part):
    files = [file for file in (RUNTIME / part).glob("*.py") if file.name not in KEEP_PROCESSES]
    found = {file.name: list(past_the_seams(file.read_text())) for file in files}
    assert len(found) > 8
    assert not any(found.values()), f"use edgewise.runtime.clock and edgewise.runtime.http: {found}"


@pytest.mark.parametrize(
    "source",
    [
        "import time", "from time import sleep", "import socket as s", "import http.client",
        "async def f(): await asyncio.sleep(1)", "asyncio.get_running_loop().call_later(1, f)",
        "loop.call_at(1, f)", "now_s = asyncio.get_running_loop().time()",
        "await_ = asyncio.open_connection('a', 1)", "loop.create_server(f)",
    ],
)  # fmt: skip
def test_what_goes_past_the_seams_is_seen(source):
    assert list(past_the_seams(source))


def test_nobody_in_the_runtime_reads_a_clock_of_their_own():
    files = [file for file in RUNTIME.rglob("*.py") if file.name != "clock.py"]
    # What is written into another process's program is no clock of ours.
    found = [
        f"{file.name}: {line.strip()}"
        for file in files
        for line in re.sub(r'COUNTING = """.*?"""', "", file.read_text(), flags=re.S).splitlines()
        if re.search(r"\btime\.(monotonic|time)\b", line)
    ]
    assert not found, f"use edgewise.runtime.clock: {found}"


def past_the_backends(source):
    """What starts, signals or awaits processes by itself, in words."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names):
                yield from (each.name for each in names if each.name in ("subprocess", "multiprocessing"))
            case ast.ImportFrom(module="subprocess" | "multiprocessing" as module):
                yield module
            case ast.ImportFrom(module="os", names=names):
                yield from (each.name for each in names if each.name in STARTING)
            case ast.Attribute(value=ast.Name("os"), attr=name) if name in STARTING:
                yield f"os.{name}"
            case ast.Attribute(attr="create_subprocess_exec" | "create_subprocess_shell" as name):
                yield name


def test_processes_are_reached_through_backends_but_where_a_reason_is_given():
    found = {
        str(file.relative_to(RUNTIME)): sorted(set(past_the_backends(file.read_text())))
        for file in RUNTIME.rglob("*.py")
    }
    past = {name for name, words in found.items() if words}
    assert past == PAST_THE_BACKENDS.keys(), {name: found[name] for name in past ^ PAST_THE_BACKENDS.keys()}


@pytest.mark.parametrize(
    "source",
    [
        "import subprocess", "from subprocess import Popen", "import os\nos.fork()", "from os import kill",
        "os.killpg(1, 9)", "os.waitpid(-1, 0)", "await_ = asyncio.create_subprocess_exec('a')",
    ],
)  # fmt: skip
def test_what_starts_processes_past_the_backends_is_seen(source):
    assert list(past_the_backends(source))


def past_the_disk(source):
    """What changes files and folders by itself, in words."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module="os" | "shutil" | "sqlite3" as module, names=names):
                yield from (each.name for each in names if each.name in CHANGING_OF[module])
            case ast.Import(names):
                yield from (each.name for each in names if each.name == "tempfile")
            case ast.Attribute(value=ast.Name("os" | "shutil" | "sqlite3" as of), attr=name):
                if name in CHANGING_OF[of]:
                    yield f"{of}.{name}"
            case ast.Call(ast.Attribute(ast.Name("os"), "open"), [_, *flags]):
                if [ast.unparse(each) for each in flags] != ["os.O_RDONLY"]:
                    yield "os.open"
            case ast.Call(ast.Attribute(ast.Name("disk" | "fcntl"))):
                pass
            case ast.Call(ast.Name("open"), [_, ast.Constant(str(mode)), *_]) if set(mode) & set("wax+"):
                yield f"open {mode}"
            case ast.Call(ast.Attribute(attr="open"), [ast.Constant(str(mode)), *_]) if set(mode) & set(
                "wax+"
            ):
                yield f".open {mode}"
            case ast.Call(ast.Attribute(attr="replace"), [_], []):
                yield ".replace"
            case ast.Call(ast.Attribute(attr=name)) if name in CHANGING:
                yield f".{name}"


def test_the_disk_is_changed_through_its_seam_but_where_a_reason_is_given():
    found = {
        str(file.relative_to(RUNTIME)): sorted(set(past_the_disk(file.read_text())))
        for file in RUNTIME.rglob("*.py")
    }
    past = {name for name, words in found.items() if words}
    assert past == PAST_THE_DISK.keys(), {name: found[name] for name in past ^ PAST_THE_DISK.keys()}


@pytest.mark.parametrize(
    "source",
    [
        "open(a, 'w')", "open(a, 'r+b')", "a.open('a')", "os.open(a, os.O_RDWR)", "from os import replace",
        "os.link(a, b)", "a.replace(b)", "a.unlink()", "a.mkdir()", "a.write_text('')", "shutil.rmtree(a)",
        "sqlite3.connect(a)", "import tempfile", "a.chmod(0)",
    ],
)  # fmt: skip
def test_what_changes_the_disk_past_its_seam_is_seen(source):
    assert list(past_the_disk(source))


@pytest.mark.parametrize(
    "source", ["open(a)", "open(a, 'rb')", "a.open()", "a.replace(b, c)", "replace(a, b=c)", "a.read_text()"]
)
def test_what_only_reads_is_not_taken_for_a_change(source):
    assert not list(past_the_disk(source))
