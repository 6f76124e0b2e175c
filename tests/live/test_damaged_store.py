"""A damaged or full store: one line says what is safe and what to do; nothing is lost, queries go on."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import closing, contextmanager

import pytest
from running_system import System, infer, infer_until, open_stream, small_scenario

from command_line import edgewise
from edgewise.config import dump_scenario
from edgewise.runtime import http
from edgewise.runtime.clients.reaching import operator
from edgewise.runtime.controller.plan import DATABASE, prepare
from edgewise.runtime.process.machine import alive_handle
from edgewise.runtime.process.places import holders
from edgewise.runtime.store import Store
from edgewise.runtime.store.copies import check_whole, keep_copy
from edgewise.runtime.store.database import COPY, StoreError, connect, copy_of
from edgewise.runtime.store.steady import SteadyStore
from waiting import becomes

pytestmark = pytest.mark.live
HANG_S = 90.0


def overwrite(file, begin, end):
    """Other bytes in a part of a file, which keeps its size."""
    with file.open("r+b") as opened:
        size = os.fstat(opened.fileno()).st_size
        opened.seek(int(begin * size))
        opened.write(b"\xa5" * (int(end * size) - int(begin * size)))


DAMAGES = {
    "another header": lambda file: overwrite(file, 0.0, 0.002),
    "other pages": lambda file: overwrite(file, 0.2, 0.9),
    "cut off": lambda file: os.truncate(file, file.stat().st_size // 2),
    "something else": lambda file: file.write_text("hello " * 1000),
}


@contextmanager
def on_a_small_disk(folder):
    """A file system of 4 MiB of its own."""
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m,mode=0700", "tmpfs", folder], capture_output=True
    )
    if made.returncode:
        pytest.skip("a file system cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(folder):
    """A file that takes all the room there is."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as opened:
        try:
            while True:
                opened.write(bytes(4096))
        except OSError:
            return ballast


@pytest.fixture
def prepared(tmp_path):
    """A folder whose system does not run, with some streams in its store."""
    store = prepare(tmp_path, small_scenario(workers=2), gateways=1)
    for number in range(200):
        store.records.open_stream("gateway-0", {"task": "score", "note": "x" * number}, None)
    store.close()
    keep_copy(tmp_path / DATABASE)
    (tmp_path / "small.yaml").write_text(dump_scenario(small_scenario(workers=2)))
    return tmp_path


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_store_is_left_as_it_is_and_its_copy_is_offered(prepared, damage):
    file = prepared / DATABASE
    DAMAGES[damage](file)
    before, copy = file.read_bytes(), copy_of(file).read_bytes()
    said = edgewise("up", "small.yaml", "--state", ".", "--port", "0", folder=prepared, code=2)
    assert "damaged" in said and str(copy_of(file)) in said and "--restore" in said
    assert len([line for line in said.strip().splitlines() if not line.startswith("compiling kernels")]) == 1
    assert file.read_bytes() == before and copy_of(file).read_bytes() == copy
    with pytest.raises(StoreError, match="damaged"):
        keep_copy(file)  # a good copy is not replaced by a bad one
    assert copy_of(file).read_bytes() == copy
    assert "nothing runs" in edgewise("down", "--state", ".", folder=prepared)


def test_without_a_copy_it_says_so(prepared):
    file = prepared / DATABASE
    copy_of(file).unlink()
    DAMAGES["something else"](file)
    said = edgewise("up", "small.yaml", "--state", ".", folder=prepared, code=2)
    assert "damaged" in said and "no copy" in said
    assert "no copy" in edgewise("up", "small.yaml", "--state", ".", "--restore", folder=prepared, code=2)


def test_up_goes_on_from_the_copy_when_told_to(prepared):
    file = prepared / DATABASE
    assert "whole" in edgewise("up", "small.yaml", "--state", ".", "--restore", folder=prepared, code=2)
    DAMAGES["other pages"](file)
    before = file.read_bytes()
    command = ["up", "small.yaml", "--state", ".", "--port", "0", "--restore"]
    up = subprocess.Popen(
        [sys.executable, "-m", "edgewise", *command], cwd=prepared, stdout=subprocess.PIPE, text=True
    )
    try:
        said = [up.stdout.readline()]
        while not said[-1].startswith("up after"):
            said.append(up.stdout.readline())
            assert said[-1], said
        assert "is restored" in said[0]
        store = Store(file)
        assert len(store.records.streams()) == 200
        store.close()
        (aside,) = (path for path in prepared.glob(f"{DATABASE}.damaged-*") if path.read_bytes() == before)
        assert aside.is_file()
    finally:
        up.send_signal(signal.SIGINT)
        assert up.wait(30) == 0


@pytest.mark.parametrize("how", ["full", "read-only"])
def test_a_disk_that_takes_nothing_is_said_in_one_line(tmp_path, how):
    (tmp_path / "small.yaml").write_text(dump_scenario(small_scenario(workers=2)))
    with on_a_small_disk(tmp_path / "disk") as folder:
        prepare(folder, small_scenario(workers=2), gateways=1).close()
        before = (folder / DATABASE).read_bytes()
        if how == "full":
            fill(folder)
        else:
            subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        with pytest.raises(StoreError, match="what it holds is safe"):
            prepare(folder, small_scenario(workers=2), gateways=2)
        assert (folder / DATABASE).read_bytes() == before


# while it runs


async def status_of(controller):
    return json.loads((await controller.request("GET", "/v1/status")).body)


async def store_is(controller, out_of_order):
    return bool((await status_of(controller))["store"]) == out_of_order


@contextmanager
def running(folder):
    system = System(folder, small_scenario(workers=2), gateways=1)
    system.start()
    try:
        asyncio.run(asyncio.wait_for(system.ready(), HANG_S))
        yield system, operator(system.store)
    finally:
        system.nursery.send_signal(signal.SIGTERM)
        system.nursery.wait(30)


def test_on_a_full_disk_queries_go_on_processes_come_back_and_room_mends_it(tmp_path):
    async def checkpointed():
        with closing(connect(tmp_path / "disk" / DATABASE)) as database:
            return database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0

    async def scenario(system, controller):
        client, end = system.gateway(), asyncio.Event()
        streams = [(await open_stream(client))[1] for _ in range(3)]
        asking = [asyncio.create_task(infer_until(client, s["stream"], end, 0.02)) for s in streams]
        await becomes(checkpointed)  # its log has no room of its own then
        ballast = fill(system.folder)
        needs = {"task": "score", "rate_qps": 10, "size_bytes": 100, "deadline_s": 5.0}
        answer = http.Response(201)
        while answer.status == 201:  # a page of the log may still have room
            answer = await client.request("POST", "/v1/streams", body=json.dumps(needs).encode())
        assert answer.status == 503 and b"make room" in answer.body
        closed = await client.request("DELETE", f"/v1/streams/{streams[2]['stream']}")
        assert closed.status == 200  # and is written down later
        end.set()
        await asyncio.gather(*asking[:2])
        worker = streams[0]["worker"]
        os.kill(system.pid(worker), signal.SIGKILL)
        await becomes(lambda: store_is(controller, True))
        said = await asyncio.to_thread(edgewise, "status", "--state", str(system.folder), folder=tmp_path)
        assert "make room" in said
        assert (await infer(client, streams[0]["stream"])).status == 200

        async def came_back():
            rows = {row["name"]: row for row in (await status_of(controller))["processes"]}
            return rows[worker]["state"] == "running" and rows[worker]["since_s"] is not None

        await becomes(came_back)
        said = (system.folder / "logs/controller.log").read_text().count("out of order")
        assert said <= 1
        ballast.unlink()
        await becomes(lambda: store_is(controller, False))
        assert (await open_stream(client))[0] == 201
        rows = {row["stream"]: row for row in await system.get("/v1/streams")}
        assert rows[streams[0]["stream"]]["closed_s"] is None

        async def written():
            rows = {row["stream"]: row for row in await system.get("/v1/streams")}
            return rows[streams[2]["stream"]]["closed_s"] is not None

        await becomes(written)
        client.close()

    with on_a_small_disk(tmp_path / "disk") as folder, running(folder) as (system, controller):
        asyncio.run(asyncio.wait_for(scenario(system, controller), HANG_S))
        system.store.close()


def test_with_a_damaged_store_queries_go_on_and_down_ends_it(tmp_path):
    async def scenario(system, controller):
        client = system.gateway()
        _, opened = await open_stream(client)
        keep_copy(system.folder / DATABASE)
        for name in (DATABASE, f"{DATABASE}-wal"):
            overwrite(system.folder / name, 0.0, 1.0)
        os.kill(system.pid_before[opened["worker"]], signal.SIGKILL)
        await becomes(lambda: store_is(controller, True))
        for _ in range(20):
            assert (await infer(client, opened["stream"])).status == 200
        client.close()

    with running(tmp_path / "s") as (system, controller):
        system.pid_before = {r.process.name: system.pid(r.process.name) for r in system.store.processes()}
        handles, number = [r.handle for r in system.store.processes()], system.pid("controller")
        asyncio.run(asyncio.wait_for(scenario(system, controller), HANG_S))
        status = edgewise("status", "--state", "s", folder=tmp_path)
        assert "damaged" in status and "--restore" in status
        os.kill(number, signal.SIGKILL)  # none can begin from a damaged store
        assert "everything has ended" in edgewise("down", "--state", "s", folder=tmp_path)
        assert not any(alive_handle(handle) for handle in handles)
        assert not holders(tmp_path / "s")  # nor what came back and could not be written down
        assert (tmp_path / "s" / f"{DATABASE}{COPY}").is_file()


def test_copies_are_kept_while_it_runs(tmp_path):
    store = prepare(tmp_path, small_scenario(workers=2), gateways=1)
    number = store.records.open_stream("gateway-0", {"task": "score"}, None)
    keep_copy(store.file)
    found = Store.readable(copy_of(store.file))
    assert [opened.id for opened in found.records.open_streams("gateway-0")] == [number]
    assert oct(copy_of(store.file).stat().st_mode & 0o777) == "0o600"
    assert json.loads(json.dumps(store.get("policies"))) == found.get("policies")
    found.close()
    store.close()


def without_log(file):
    (file.parent / f"{file.name}-wal").unlink()


def test_without_its_log_nobody_opens_it_anew_and_whoever_has_it_open_writes_it_down(tmp_path):
    """What a new user of the file wrote by SQLite's index of the log would damage it for the others."""
    prepare(tmp_path, small_scenario(workers=2)).close()
    file = tmp_path / DATABASE
    used = SteadyStore(file)
    used.put("before", 1)
    without_log(file)
    used.put("after", 2)
    for open_it in (Store, connect, keep_copy, check_whole):
        with pytest.raises(StoreError, match=r"log state.sqlite-wal was removed.*edgewise down, then"):
            open_it(file)
    copy = Store.readable(file)  # what is needed to ask the controller, and to end it
    assert [copy.secret(each) for each in ("operator", "parts")] == [
        used.secret(each) for each in ("operator", "parts")
    ]
    assert copy.get("controller") == used.get("controller") and copy.processes()
    copy.close()
    used.settle()
    assert "was removed" in used.trouble
    (tmp_path / "left").mkdir(mode=0o700)
    shutil.copy(file, tmp_path / "left")  # all that there would be, were it killed now
    left = Store(tmp_path / "left" / DATABASE)
    assert (left.get("before"), left.get("after")) == (1, 2)
    left.close()
    used.close()


def test_without_its_log_and_unused_it_opens_as_it_was_written_last(tmp_path):
    store = prepare(tmp_path, small_scenario(workers=2))
    secret, ports = store.secret("operator"), [r.process.port for r in store.processes()]
    code = "import os, sys\nfrom pathlib import Path\nfrom edgewise.runtime.store import Store\n"
    code += "store = Store(Path(sys.argv[1]))\nstore.put('a', 1)\nos._exit(0)\n"  # as killed
    store.close()
    subprocess.run([sys.executable, "-c", code, tmp_path / DATABASE], check=True)
    assert (tmp_path / f"{DATABASE}-shm").exists()
    without_log(tmp_path / DATABASE)
    with closing(Store(tmp_path / DATABASE)) as store:
        assert store.secret("operator") == secret
        assert [r.process.port for r in store.processes()] == ports


def test_down_ends_what_no_longer_knows_its_operator(tmp_path):
    with running(tmp_path / "s") as (system, controller):
        handles = [r.handle for r in system.store.processes()]
        system.store.run("UPDATE setting SET value = '\"another\"' WHERE name = 'secret of operator'")
        assert "everything has ended" in edgewise("down", "--state", "s", folder=tmp_path)
        assert not any(alive_handle(handle) for handle in handles)


def test_who_copies_at_the_same_time_is_left_alone_and_what_the_dead_left_goes(tmp_path):
    store = Store(tmp_path / DATABASE)
    theirs, left = (tmp_path / f"{DATABASE}{COPY}.{number}.new" for number in (1, 2))
    theirs.touch(), left.touch()
    os.utime(left, (0.0, 0.0))
    keep_copy(store.file)
    assert theirs.exists() and not left.exists()
    assert sorted(tmp_path.glob(f"{DATABASE}{COPY}*")) == [copy_of(store.file), theirs]
    store.close()
