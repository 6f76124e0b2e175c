"""Compiled kernels: said while it lasts, kept, brought along for any processor, read-only, for any user."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from edgewise import policies
from edgewise.kernels.compiled import GENERIC, JIT, Processor, kernel, kernel_hash

KERNEL = """
from edgewise.kernels.compiled import kernel

@kernel
def twice(x):
    return helper(x, 1) + helper(x, 2)

@kernel(allocates=False)
def helper(x, by):
    return x * 2.0 / by
"""
CALL = """
import sys
sys.path.insert(0, {folder!r})
from edgewise.kernels import compiled
compiled.watch(lambda name: print("compiles", name))
import small
print(small.twice(3.0), compiled.numba.config.CPU_NAME, len(small.helper.called.signatures))
"""


# Root without the right to pass over the modes of files; the interpreter may lie where nobody else can go.
MODES_COUNT = ["setpriv", "--bounding-set", "-dac_override"] if os.geteuid() == 0 else []


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory() as name:  # not pytest's own, which no other user may enter
        (Path(name) / "small.py").write_text(KERNEL)
        Path(name).chmod(0o755)
        yield Path(name)


def kept(folder):
    (found,) = (folder / "own" / "edgewise").iterdir()
    return found


def call(folder, script=CALL, **variables):
    own = ("EDGEWISE_KERNELS", "EDGEWISE_CACHE", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_CACHE_DIR")
    environment = {name: value for name, value in os.environ.items() if name not in own}
    done = subprocess.run(
        [*MODES_COUNT, sys.executable, "-c", script.format(folder=str(folder))],
        env=environment | variables, cwd="/", capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [*done.stdout.splitlines(), *done.stderr.splitlines()]


def test_a_kernel_is_compiled_once_for_all_literals_and_kept(folder):
    first = call(folder, EDGEWISE_CACHE=str(folder / "own"))
    assert first == ["compiles twice", "compiles helper", "9.0 None 1"]
    assert call(folder, EDGEWISE_CACHE=str(folder / "own")) == ["9.0 None 0"]


PARTS = """
import sys
sys.path.insert(0, {folder!r})
from edgewise.kernels import compiled
compiled.watch(lambda name: print("compiles", name))
import parts
for call in (parts.entry, parts.other):
    try:
        print(call(-1.0))
    except ValueError as error:
        print(error)
{last}
"""
PART = """
from edgewise.kernels.compiled import kernel

@kernel
def root_of(x):
    if x < 0.0:
        raise ValueError("below 0")
    return x ** 0.5

@kernel
def entry(x):
    return root_of(x) + 1.0

@kernel
def other(x):
    return root_of(x) + 2.0
"""


def test_only_what_python_calls_becomes_machine_code_and_the_rest_is_linked(folder):
    """Also from disk: by the second process both are there, by the third one that calls them is new."""
    (folder / "parts.py").write_text(PART)
    said, own = ["below 0", "below 0"], {"EDGEWISE_CACHE": str(folder / "own")}
    (row,) = (
        "(made,) = parts.root_of.called.overloads.values(); print(made.library.is_machine_code)".splitlines()
    )
    first = call(folder, PARTS.replace("{last}", row), **own)
    assert first == ["compiles entry", "compiles root_of", said[0], "compiles other", said[1], "False"]
    assert call(folder, PARTS.replace("{last}", ""), **own) == said
    for file in kept(folder).glob("*/*entry-*"):
        file.unlink()
    assert call(folder, PARTS.replace("{last}", row), **own) == ["compiles entry", *said, "False"]


def test_what_an_image_brings_is_used_by_who_can_write_nothing(folder):
    brought, empty = folder / "brought", folder / "home"
    generic = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    assert call(folder, EDGEWISE_CACHE=str(brought), **generic)[:2] == ["compiles twice", "compiles helper"]
    empty.mkdir(mode=0o555)
    for file in brought.rglob("*"):
        file.chmod(0o555 if file.is_dir() else 0o444)
    variables = {"EDGEWISE_KERNELS": str(brought), "HOME": str(empty), "PYTHONDONTWRITEBYTECODE": "1"}
    for script in (CALL, "import numba\n" + CALL):
        assert call(folder, script, **variables) == ["9.0 generic 0"]
    assert not list(empty.iterdir())


def test_where_nothing_can_be_kept_kernels_are_compiled_all_the_same(folder):
    (folder / "file").touch()
    assert call(folder, EDGEWISE_CACHE=str(folder / "file"))[-1] == "9.0 None 1"


def test_kernels_of_one_processor_are_never_those_of_another():
    one, two = Processor("znver5", "+avx512f"), Processor("znver5", "-avx512f")
    hashes = {kernel_hash(processor=processor) for processor in (one, two, GENERIC)}
    assert len(hashes) == 3


def test_one_line_on_stderr_says_that_kernels_are_compiled_and_only_then(folder):
    script = CALL.replace('compiled.watch(lambda name: print("compiles", name))', "say_when_compiling(0.0)")
    script = "from edgewise.cli.compiling import say_when_compiling\n" + script
    cold, warm = (call(folder, script, EDGEWISE_CACHE=str(folder / "own")) for _ in range(2))
    said = f"compiling kernels of small for this machine, once: 2 left; kept in {kept(folder)} …"
    assert cold == ["9.0 None 1", said]
    assert warm == ["9.0 None 0"]
    (folder / "file").touch()
    (anew,) = call(folder, script, EDGEWISE_CACHE=str(folder / "file"))[1:]
    assert anew.startswith("compiling kernels, in every run anew because") and "EDGEWISE_CACHE" in anew


LINE = "from edgewise.cli.compiling import say_when_compiling\n" + CALL.replace(
    'compiled.watch(lambda name: print("compiles", name))', "say_when_compiling()"
)
OTHER = 12345  # a user that nobody is


def of_another(place):
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(place, OTHER, OTHER)


def for_everybody(place):
    place.chmod(0o777)


@pytest.mark.parametrize(
    ("spoilt", "why"), [(of_another, f"belongs to user {OTHER}"), (for_everybody, "by others")]
)
@pytest.mark.parametrize("depth", [0, 1, 2], ids=["above", "cache", "kernels"])
def test_code_that_another_user_may_have_written_is_not_loaded(folder, spoilt, why, depth):
    own = folder / "own"
    call(folder, EDGEWISE_CACHE=str(own))
    place = [own, own / "edgewise", kept(folder)][depth]
    spoilt(place)
    result, line = call(folder, LINE, EDGEWISE_CACHE=str(own))
    assert result == "9.0 None 1"
    assert (
        line.startswith("compiling kernels, in every run anew because ")
        and f"{place} " in line
        and why in line
    )


@pytest.mark.parametrize("spoilt", [of_another, for_everybody])
def test_nor_is_a_single_file_that_another_user_may_have_written(folder, spoilt):
    own = folder / "own"
    call(folder, EDGEWISE_CACHE=str(own))
    spoilt(next(kept(folder).glob("*/*.nbi")))
    assert call(folder, EDGEWISE_CACHE=str(own)) == ["compiles twice", "compiles helper", "9.0 None 1"]


def test_kernels_of_an_image_that_another_user_may_have_written_are_not_loaded(folder):
    brought, own = folder / "brought", folder / "own"
    call(folder, EDGEWISE_CACHE=str(brought))
    for_everybody(brought)
    result, line = call(folder, LINE, EDGEWISE_KERNELS=str(brought), EDGEWISE_CACHE=str(own))
    assert result == "9.0 None 1" and f"not used: {brought} can be written by others" in line
    assert call(folder, EDGEWISE_KERNELS=str(brought), EDGEWISE_CACHE=str(own)) == ["9.0 None 0"]


def test_what_is_kept_only_its_owner_can_write_whatever_the_umask(folder):
    call(folder, "import os; os.umask(0)\n" + CALL, EDGEWISE_CACHE=str(folder / "own"))
    assert not [file for file in (folder / "own").rglob("*") if file.stat().st_mode & 0o022]
    assert call(folder, EDGEWISE_CACHE=str(folder / "own")) == ["9.0 None 0"]


SIMULATED = """
from edgewise.kernels import compiled
compiled.watch(lambda name: print("compiles", name))
from edgewise import precompile
precompile.compile_parts(["PART"])
"""


@pytest.mark.parametrize("part", ["splitting:whole-random", "together:fifo"])
def test_a_second_process_compiles_nothing(folder, part):
    own = {"EDGEWISE_CACHE": os.environ.get("EDGEWISE_CACHE") or str(Path.home() / ".cache")}
    again = SIMULATED.replace("PART", part)
    call(folder, again, **own)  # quick where other tests compiled before
    assert call(folder, again, **own) == []


def test_the_first_run_is_timed_for_every_shipped_policy(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3]))
    from bench import cold

    commands = cold.commands()
    assert all(
        commands[f"simulate tiny --policy {name}"][-1] == name
        for name in policies.names("dispatch")
        if not name.startswith("chooser-")
    )
    shipped = [f"requests={name}" for name in policies.names("requests")]
    shipped += [
        f"{decision}={name}"
        for decision in ("orchestrate", "place", "split", "defer")
        for name in policies.names(decision)
        if name != "nona-layout"
    ]
    assert "splitting:nona-layout" in commands and not any(
        "orchestrate kais-demo" in name for name in commands
    )
    assert all(any(name in command for command in commands) for name in shipped)


def test_a_policy_whose_package_is_missing_is_left_out_and_the_others_are_compiled():
    script = """
from edgewise import precompile
fifo = precompile.parts()["deferral:fifo"]
def theirs():
    import no_such_package
precompile.parts = lambda: dict([("deferral:theirs", theirs), ("deferral:fifo", fifo)])
print(*precompile.compile_parts(["deferral:theirs", "deferral:fifo"]))
"""
    (left_out,) = call(Path("/"), script)
    assert left_out.startswith("deferral:theirs:") and "no_such_package" in left_out


REHEARSED = """
import sys
import numpy as np
from dataclasses import replace
from edgewise import policies
from edgewise.config import load_scenario
from edgewise.kernels import compiled
from edgewise.core.grants import Grants, Leases
from edgewise.core.world import World
from edgewise.model.services import services_of
from edgewise.model.work import Stream
from edgewise.core.dispatch import events, requests as core
from edgewise.runtime.gateway import session
from edgewise import policies

streamed, served = load_scenario("tiny"), services_of(load_scenario("kais-live"))
world = World.build(streamed.catalog, streamed.topology)
request_policy = policies.load("requests", "greedy", live=True)
session.rehearse(policies.load("dispatch", "closest"), world)
core.rehearse(served, request_policy)
compiled.watch(lambda name: print("compiles", name))

rules = session.StreamRules(retry_refused=True)
made = session.Session(world, policies.load("dispatch", "closest"), 1, lambda: 0.0, rules)
stream = Stream(1, 0, "", world.task_names[0], 0.0, 9.0, 1.0, 1.0, 1e6, 0.0)
for each in (stream, replace(stream, id=2, rate_qps=1e9), replace(stream, id=3)):
    made.open_stream(each)
leases, granted = Leases(made.core), Grants(8.0)
for number in (1, 2, 3):
    leases.settle(number)
    leases.answered(number, 0, number == 1)
    leases.over(number)
for gateway in "abc":
    granted.grant(0.0, gateway, gateway, 1.0)
    granted.renew(0.1, gateway, {{gateway: 1.0, "new": 9.0}}, 0.5)
    granted.others_qps(0.1, gateway)
    granted.release(0.2, gateway, gateway)
granted.total_qps(9.0)
made.reserved_elsewhere(0, 1.0)
made.request_sent(0, 1e6)
made.came_back(0, 0.1)
made.sample()
made.tick()
made.hand(made.core, "dispatch", policies.load("dispatch", "closest"), watches=True)
for worker in range(world.workers):
    made.worker_changed(worker, up=False)
made.worker_changed(0, up=True)
for number in (1, 2, 3):
    made.close_stream(number)

requests = core.RequestCore(served, 0, request_policy, 1)
for replica in requests.replicas.values():
    replica.up = True
requests.handle(events.RequestArrived(0.0, 0, 0, 1e6, 1.0))
requests.handle(events.RequestReturned(0.1, 0, "answered", 0.1))
requests.report()
print("done")
"""


def test_nothing_is_compiled_after_a_policy_was_rehearsed(folder):
    """A refusal's reason once was: a gateway whose kernels were new stood still for a tenth of a second."""
    assert call(folder, REHEARSED, EDGEWISE_CACHE=str(folder / "own")) == ["done"]


@pytest.mark.skipif(not JIT, reason="kernels are not compiled")
def test_nobody_is_told_of_each_call_of_the_compiler():
    from numba.core.event import install_recorder

    @kernel(cache=False)
    def twice(x):
        return 2 * x

    with install_recorder("numba:compile") as compiles, install_recorder("numba:llvm_lock") as calls:
        assert twice(3) == 6
    assert len(compiles.buffer) >= 2 and not calls.buffer
