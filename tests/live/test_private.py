"""The folder of a live system, seen by its owner and by another user of the machine."""

import asyncio
import json
import os
import pwd
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from connections import ask_raw
from running_system import System, small_scenario
from test_deferrable_jobs import ended, submit

from edgewise.errors import RunError
from edgewise.runtime.clients.reaching import operator
from edgewise.runtime.controller.plan import DATABASE, prepare
from edgewise.runtime.store import Store
from waiting import becomes

pytestmark = pytest.mark.live
LOGS = ("-wal", "-shm")


@pytest.fixture(scope="module")
def system():
    """A system in a folder that every user can reach, started under the usual rights of new files."""
    base = Path(tempfile.mkdtemp())
    base.chmod(0o755)
    before = os.umask(0o022)
    made = System(base / "state", small_scenario(workers=2))
    made.start()
    os.umask(before)
    asyncio.run(made.ready())
    yield made
    made.stop()
    shutil.rmtree(base)


def as_user_nobody(act):
    """Do `act()` in a process of the user nobody; returns its number."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    nobody, number = pwd.getpwnam("nobody"), os.fork()
    if number == 0:
        try:
            os.setgroups([])
            os.setgid(nobody.pw_gid)
            os.setuid(nobody.pw_uid)
            act()
        finally:
            os._exit(0)
    return number


def as_nobody(act):
    """What `act()` returns there."""
    mine, its = os.pipe()
    number = as_user_nobody(lambda: os.write(its, json.dumps(act()).encode()))
    os.close(its)
    with os.fdopen(mine) as said:
        text = said.read()
    os.waitpid(number, 0)
    return json.loads(text)


def refused(act):
    try:
        act()
    except PermissionError:
        return True
    return False


def test_everything_in_the_folder_is_private(system):
    number = asyncio.run(submit(system, ["/bin/sh", "-c", "echo done"]))
    asyncio.run(ended(system, [number]))
    found = [system.folder, *system.folder.rglob("*")]
    names = {file.name for file in found}
    assert {DATABASE, *(DATABASE + end for end in LOGS), "scenario.yaml", "nursery.lock", "logs"} <= names
    assert {"places", "gateway-0.log", "output", "started", "ended"} <= names
    wide = [str(file) for file in found if stat.S_IMODE(file.lstat().st_mode) & 0o077]
    assert wide == []


def test_another_user_cannot_read_list_or_submit(system):
    port = system.store.get("controller")["port"]
    job = json.dumps({"key": "x", "command": ["id"], "folder": "/", "duration_s": 1}).encode()
    post = "POST /v1/admin/jobs HTTP/1.1"

    def attack():
        files = [system.folder / f"{DATABASE}{end}" for end in ("", *LOGS)]
        return {
            "list": refused(lambda: os.listdir(system.folder)),
            "read": [refused(file.read_bytes) for file in files],
            "submit": ask_raw(port, post, "host: localhost", body=job)[0],
        }

    assert as_nobody(attack) == {"list": True, "read": [True] * 3, "submit": 401}


def test_the_first_byte_is_private(tmp_path):
    """The rights at the moment at which each file appears: a watcher looks on while the store is made."""
    folder = tmp_path / "open" / "state"
    code = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "os.umask(0)\n"
        "def look(event, args):\n"
        "    if event in ('sqlite3.connect', 'open', 'os.chmod'):\n"
        "        for file in [folder, *folder.glob('*')] if folder.exists() else []:\n"
        "            if file.lstat().st_mode & 0o077: print('wide', file, flush=True)\n"
        "folder = Path(sys.argv[1])\n"
        "from edgewise.runtime.controller.plan import DATABASE\n"
        "from edgewise.runtime.store import Store\n"
        "sys.addaudithook(look)\n"
        "store = Store(folder / DATABASE)\n"
        "store.put('a', 'b')\n"
        "look('open', ())\n"
        "print('end')\n"
    )
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
    assert done.stdout == "end\n"
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) == 0o755  # else others could replace it


def test_tokens_that_others_could_read_are_replaced(tmp_path):
    folder = tmp_path / "state"
    system = System(folder, small_scenario(workers=2))
    before = system.store.secret("operator"), system.store.secret("parts")
    for file, rights in ((folder, 0o755), (folder / DATABASE, 0o644), (folder / f"{DATABASE}-wal", 0o644)):
        file.chmod(rights)
    prepare(folder, small_scenario(workers=2)).close()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / f"{DATABASE}-wal").stat().st_mode) == 0o600
    with nursery_output(system) as said:
        asyncio.run(system.ready())
        assert "other users could read it" in said.readline()
        after = system.store.secret("operator"), system.store.secret("parts")
        assert set(before).isdisjoint(after)
        assert asyncio.run(system.get("/v1/status"))["processes"]


@contextmanager
def nursery_output(system):
    command = [sys.executable, "-m", "edgewise.runtime.controller.nursery", str(system.folder)]
    system.nursery = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield system.nursery.stdout
    finally:
        system.stop()


def test_folders_that_cannot_be_trusted_are_refused(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(RunError, match="is a link"):
        Store(tmp_path / "link" / DATABASE)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    with pytest.raises(RunError, match="everybody may write"):
        Store(shared / DATABASE)
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    mixed.chmod(0o755)
    (mixed / "other").touch()
    with pytest.raises(RunError, match="holds other things"):
        Store(mixed / DATABASE)
    assert stat.S_IMODE(mixed.stat().st_mode) == 0o755
    if os.geteuid() == 0:
        os.chown(tmp_path / "real", pwd.getpwnam("nobody").pw_uid, -1)
        with pytest.raises(RunError, match="belongs to user"):
            Store(tmp_path / "real" / DATABASE)


@pytest.mark.parametrize(
    ("mode", "group", "refused"),
    [(0o777, 0, True), (0o1777, 0, False), (0o775, 12345, True), (0o775, None, False), (0o755, 12345, False)],
)
@pytest.mark.parametrize("through", ["itself", "a link"])
def test_below_a_folder_that_others_may_write_to_it_is_refused(tmp_path, mode, group, refused, through):
    """Group None is the owner's own."""
    shared = tmp_path / "shared"
    (shared / "mine").mkdir(parents=True)
    if os.geteuid() == 0:
        os.chown(shared, -1, os.geteuid() if group is None else group)
    elif group:
        pytest.skip("only root can give a folder to a group of others")
    shared.chmod(mode)
    place = shared
    if through == "a link":
        place = tmp_path / "link"
        place.symlink_to(shared / "mine")
    for folder in (place / "state", place / "new" / "state"):
        if refused:
            with pytest.raises(RunError, match=rf"{shared} \(mode {mode:04o}\).*chmod go-w {shared}"):
                Store(folder / DATABASE)
            assert not folder.exists()
        else:
            Store(folder / DATABASE).close()


def test_below_a_link_that_others_may_replace_it_is_refused(tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "shared" / "link").symlink_to(tmp_path / "mine")
    (tmp_path / "shared").chmod(0o777)
    with pytest.raises(RunError, match="could put another folder in its place"):
        Store(tmp_path / "shared" / "link" / "state" / DATABASE)
    Store(tmp_path / "mine" / "state" / DATABASE).close()


def test_below_a_folder_of_another_user_it_is_not_refused(tmp_path):
    """As in a checkout of whoever started a container, and with sudo."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a folder of another user")
    (tmp_path / "theirs").mkdir(mode=0o755)
    os.chown(tmp_path / "theirs", 12345, 12345)
    Store(tmp_path / "theirs" / "runs" / "live" / DATABASE).close()


def test_a_stranger_at_the_controllers_port_hears_no_token(tmp_path):
    store = prepare(tmp_path / "state", small_scenario(workers=2))
    port, (hold, release) = store.get("controller")["port"], os.pipe()

    def squat():
        os.close(release)
        with socket.create_server(("127.0.0.1", port)):
            os.write(its, b".")
            os.read(hold, 1)  # until the test has ended

    mine, its = os.pipe()
    number = as_user_nobody(squat)
    os.read(mine, 1)
    with pytest.raises(RunError, match="is taken by user"):
        operator(store)
    os.close(release)
    os.waitpid(number, 0)
    operator(store).close()
    store.close()


def test_no_secret_is_in_a_command_line_or_a_log(system):
    secrets = [system.store.secret(whose).encode() for whose in ("operator", "parts")]
    asyncio.run(killed_nursery(system))  # whoever comes now is an interpreter of its own
    lines = [file.read_bytes() for file in Path("/proc").glob("[0-9]*/cmdline") if readable(file)]
    mine = [line for line in lines if str(system.folder).encode() in line]
    assert any(b"runtime.process.entry" in line for line in mine)
    former = system.pid("controller")
    system.start()
    asyncio.run(becomes(lambda: system.pid("controller") not in (former, None)))  # it was taken over
    logs = [file.read_bytes() for file in (system.folder / "logs").iterdir()]
    for text in (*lines, *logs):
        assert not any(secret in text for secret in secrets)
    assert not any(b"capacity_qps" in line for line in mine)  # nor what else a process is told


def readable(file):
    try:
        file.read_bytes()
    except OSError:
        return False
    return True


async def killed_nursery(system):
    """Kill the nursery and a worker: the controller starts that one with an interpreter."""
    worker = next(r.process.name for r in system.store.processes("worker"))
    system.nursery.kill()
    system.nursery.wait()
    await system.kill(worker)
    await becomes(lambda: system.pid(worker) is not None)
