"""The SQLite file held, cut off, overwritten or read-only, while it runs and between two runs."""

import os
import shutil
import sqlite3
import subprocess
import time
from contextlib import suppress
from http.client import HTTPException
from threading import Thread

import pytest
from outside import NEEDS, ask, clients_of, edgewise, kill_9, running

from waiting import wait_until

pytestmark = pytest.mark.live
STALL_S = 3.0  # less than SQLite's patience, more than a busy machine takes


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    with running(tmp_path_factory.mktemp("broken")) as made:
        yield made


def store_of(live):
    return live.state / "state.sqlite"


def test_while_another_program_holds_it_queries_go_on(live):
    opened, answers, delays_s = live.open_stream(rate_qps=50)[1], [], []
    holder = sqlite3.connect(store_of(live), isolation_level=None, check_same_thread=False)
    try:
        holder.execute("BEGIN IMMEDIATE")
        url = live.gateways[0]

        def post():
            with suppress(OSError, HTTPException):
                answers.append(ask(url, "POST", "/v1/streams", NEEDS).status)

        posts = [Thread(target=post) for _ in "ab"]
        for thread in posts:
            thread.start()
        until_s = time.monotonic() + 4.0
        while time.monotonic() < until_s and len(answers) < len(posts):
            began_s = time.monotonic()
            assert live.infer(opened).status == 200
            delays_s.append(time.monotonic() - began_s)
            posts[0].join(0.05)  # at the rate that the stream declared
    finally:
        holder.rollback()
        holder.close()
        for thread in posts:
            thread.join()
    assert len(answers) == 2 and set(answers) <= {201, 503}, answers
    assert max(delays_s) < STALL_S
    assert live.close_stream(opened) == 200  # later tests kill a worker: one alone has no room for it, too


def test_after_it_is_let_go_streams_open_again(live):
    wait_until(lambda: live.open_stream(rate_qps=1)[0] == 201)
    wait_until(lambda: not live.get("/v1/status")["store"])  # the controller sees it at its next look


def test_overwritten_while_it_runs_queries_go_on_and_down_ends_all_of_it(live):
    live.kept = live.open_stream(rate_qps=1)[1]
    copy = live.state / "state.sqlite.copy"
    with clients_of(live) as seen:
        for name in ("state.sqlite", "state.sqlite-wal"):
            with (live.state / name).open("r+b") as opened:
                opened.write(b"\xa5" * os.fstat(opened.fileno()).st_size)
        row = next(row for row in live.get("/v1/status")["processes"] if row["kind"] == "worker")
        before = live.pid(row["url"])
        kill_9(before)
        wait_until(lambda: live.get("/v1/status")["store"])
        wait_until(lambda: live.pid(row["url"]) not in (None, before))
    assert all(kinds == {200} for kinds in seen.kinds().values()), seen.kinds()
    said = edgewise("status", "--state", "state", folder=live.folder)
    assert "damaged" in said and "--restore" in said

    def refused():  # as soon as the gateway reads a page again that somebody else wrote
        answer = ask(live.gateways[0], "POST", "/v1/streams", NEEDS)
        return answer.status == 503 and answer.json()["error"]

    assert "damaged" in wait_until(refused)
    live.down()
    assert copy.is_file()


def _cut_off(file):
    os.truncate(file, file.stat().st_size // 2)


def _noise(file):
    file.write_bytes(os.urandom(file.stat().st_size))


def _emptied(file):
    os.truncate(file, 0)


@pytest.mark.parametrize("damage", [_cut_off, _noise, _emptied])
def test_damaged_between_two_runs_it_is_left_alone_and_the_copy_is_offered(live, damage):
    shutil.copy(live.state / "state.sqlite.copy", store_of(live))
    for name in ("state.sqlite-wal", "state.sqlite-shm"):
        (live.state / name).unlink(missing_ok=True)
    damage(store_of(live))
    before = store_of(live).read_bytes()
    said = edgewise(*live.command, folder=live.folder, code=2)
    assert "damaged" in said and "--restore" in said and "state.sqlite.copy" in said
    assert store_of(live).read_bytes() == before and not live.processes()


def test_read_only_it_is_said_in_one_line(live):
    bound = live.folder / "read-only"
    bound.mkdir()
    mounts = (["--bind", str(live.state), str(bound)], ["-o", "remount,bind,ro", str(bound)])
    if any(subprocess.run(["mount", *each], capture_output=True).returncode for each in mounts):
        subprocess.run(["umount", str(bound)], capture_output=True)
        pytest.skip("a read-only file system cannot be mounted here: that takes root and mount")
    try:
        said = edgewise(*(each.replace(str(live.state), str(bound)) for each in live.command),
                        folder=live.folder, code=2)  # fmt: skip
    finally:
        subprocess.run(["umount", "-l", str(bound)], check=True)
    assert "read-only" in said.lower() or "cannot be written" in said, said


def test_from_its_copy_it_goes_on(live):
    assert "restored" in live.up("--restore")
    assert live.open_stream(rate_qps=1)[0] == 201
    assert list(live.state.glob("state.sqlite.damaged-*"))


def test_without_its_log_verbs_say_what_is_wrong_and_down_ends_all_of_it(live):
    opened = live.open_stream(rate_qps=1)[1]
    (live.state / "state.sqlite-wal").unlink()
    assert live.infer(opened).status == 200
    said = edgewise("status", "--state", "state", folder=live.folder, code=None)
    assert "401" not in said and "bearer" not in said, said
    live.down()
