"""What a live system leaves behind stays bounded."""

import asyncio
import sqlite3
import subprocess
import sys
import time

import pytest

from edgewise.runtime.backends.local import LocalBackend
from edgewise.runtime.controller import upkeep
from edgewise.runtime.controller.controller import Controller
from edgewise.runtime.controller.reconcile import reconcile
from edgewise.runtime.controller.upkeep import OLDEST_S
from edgewise.runtime.store import Process, Store
from edgewise.runtime.store.jobs import Wish
from edgewise.runtime.watch.logs import begin_anew, end_of
from waiting import becomes, wait_until

pytestmark = pytest.mark.live


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "state.sqlite")
    made.want([Process("gateway-0", "gateway", 1)])
    yield made
    made.close()


def closed(store, count):
    numbers = [store.records.open_stream("gateway-0", {"task": "x" * 500}, None) for _ in range(count)]
    for number in numbers:
        store.records.close_stream(number, None, {"reason": "no worker implements the task"})
    return numbers


def pages(store):
    with sqlite3.connect(store.file) as db:
        return db.execute("PRAGMA page_count").fetchone()[0]


def test_closed_streams_are_forgotten_beyond_a_number_and_the_file_shrinks(store):
    open_one = store.records.open_stream("gateway-0", {"task": "score"}, None)
    numbers, before = closed(store, 2_000), pages(store)
    assert store.records.purge_streams(100, 0.0, at_once=1_500) == 1_500
    assert store.records.purge_streams(100, 0.0) == 400
    assert store.records.purge_streams(100, 0.0) == 0
    assert [row["stream"] for row in store.records.streams()] == [open_one, *numbers[-100:]]
    assert pages(store) < before / 4
    assert store.records.open_stream("gateway-0", {}, None) not in numbers  # numbers are never used again


def test_closed_streams_are_forgotten_beyond_an_age_and_open_ones_never(store):
    open_one = store.records.open_stream("gateway-0", {"task": "score"}, None)
    closed(store, 3)
    assert store.records.purge_streams(100, time.time() + 1.0) == 3
    assert [row["stream"] for row in store.records.streams()] == [open_one]
    assert store.records.streams_open() == 1


def test_streams_of_a_gateway_that_is_no_more_are_closed(store):
    number = store.records.open_stream("gateway-7", {"task": "score"}, None)
    kept = store.records.open_stream("gateway-0", {"task": "score"}, None)
    store.records.purge_streams(100, 0.0)
    rows = {row["stream"]: row for row in store.records.streams()}
    assert rows[kept]["closed_s"] is None
    assert rows[number]["closed_s"] is not None and "no longer there" in rows[number]["reason"]


def test_jobs_that_are_over_are_forgotten_with_their_files(store):
    controller = Controller(store, LocalBackend(store.file.parent))
    book, jobs = controller.jobs.book, controller.jobs
    wish = Wish("k", ("true",), "/", 1.0, 1.0, 1.0, 0.0, 9e9, 0)
    numbers = []
    for k in range(6):
        numbers.append(
            book.submit(Wish(**{name: getattr(wish, name) for name in wish.__slots__} | {"key": f"k{k}"})).id
        )
        for name in (str(numbers[-1]), f"{numbers[-1]}.1"):
            place = jobs.processes.folder / name
            place.mkdir(parents=True)
            (place / "output").write_text("said")
    for number in numbers[:5]:
        book.end(number, "done", "exit status 0", time.time())
    upkeep.forget(store, jobs, time.time(), kept=2)
    assert [job.id for job in book.listed()] == numbers[4:]
    assert {place.name.split(".")[0] for place in jobs.processes.folder.iterdir()} == set(
        map(str, numbers[4:])
    )
    upkeep.forget(store, jobs, time.time() + OLDEST_S + 1.0)
    assert [job.id for job in Store(store.file).jobs.listed()] == numbers[5:]  # the one that waits


def test_a_log_is_begun_anew_under_its_writer_and_few_are_kept(store):
    folder = store.file.parent / "logs"
    folder.mkdir()
    file = folder / "gateway-0.log"
    with file.open("ab") as log:
        code = "import sys\nfor line in sys.stdin: print('x' * 99, line.strip(), flush=True)"
        writer = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=log, text=True)
    for k in range(60):
        print(k, file=writer.stdin, flush=True)
        wait_until(lambda line=f" {k}\n": line in file.read_text())
        upkeep.shorten(store.file.parent, time.time(), log_bytes=1_000)
    writer.communicate()
    names = sorted(each.name for each in folder.iterdir())
    assert names == ["gateway-0.log", "gateway-0.log.1", "gateway-0.log.2"]
    assert sum(each.stat().st_size for each in folder.iterdir()) < 3 * 1_300
    size, text = end_of(file, 10_000)
    assert size == len(text)
    seen = [int(line.split()[1]) for line in text.decode().splitlines()]
    assert seen == list(range(60 - len(seen), 60)) and len(seen) >= 10  # nothing between them is lost
    upkeep.shorten(store.file.parent, time.time() + OLDEST_S + 60.0)
    assert not list(folder.iterdir())


def test_output_of_a_job_is_bounded_and_its_end_is_shown(store):
    processes = Controller(store, LocalBackend(store.file.parent)).jobs.processes
    file = processes.output(7)
    file.parent.mkdir(parents=True)
    file.write_bytes(b"begin" + 5_000 * b"." + b"\nthe end\n")
    file.chmod(0o600)
    assert begin_anew(file, 1_000, 2) and not begin_anew(file, 1_000, 2)
    kept = file.with_name("output.1")
    assert kept.stat().st_size == 1_000 and kept.stat().st_mode & 0o777 == 0o600
    assert end_of(file, 8) == (1_000, b"the end\n") and processes.last_line(7) == "the end"
    assert end_of(file.with_name("none"), 8) == (0, b"")


def test_a_controller_forgets_processes_that_are_no_more(store):
    async def go():
        controller = Controller(store, LocalBackend(store.file.parent))
        store.put("controller", {"admin_token": "t"})
        for k in range(50):  # replicas come and go, each at a port of its own
            gone = Process(f"replica-{k}", "replica", 2_000 + k)
            controller.health.silent_s[f"1:{k}"] = 1.0
            controller.processes.end(f"1:{k}")
            controller.health.served.add(f"1:{k}")
            await controller.answer_of(gone, "GET", "/")
        stays = Process("worker", "worker", 3_000)
        store.want([stays], {})
        await controller.answer_of(stays, "GET", "/")
        checking = asyncio.create_task(reconcile([controller.passes()["health"]]))
        await becomes(lambda: len(controller.clients) <= 1 and not controller.health.silent_s)
        checking.cancel()
        assert not any(controller.processes.told(f"1:{k}") for k in range(50))
        assert not controller.health.served
        assert {url for url, _ in controller.clients} == {stays.url}

    asyncio.run(asyncio.wait_for(go(), 20))
