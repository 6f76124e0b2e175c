"""Typed rows of the store: read as written, in files of earlier versions too, and all parts in one file."""

import sqlite3
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

pytest.importorskip("msgspec", reason="the extra `live` is not installed")

from edgewise.runtime import clock
from edgewise.runtime.store import Process, SteadyStore, Store
from edgewise.runtime.store.database import Database, StoreError, StorePart
from edgewise.runtime.store.jobs import Wish


@dataclass(frozen=True)
class Apple:
    name: str
    ripe: bool
    parts: dict[str, list[int]]
    eaten_s: float | None = None


class Pear(NamedTuple):
    name: str
    grams: float


class Fruit(StorePart):
    SCHEMA = """
    CREATE TABLE IF NOT EXISTS apple (name TEXT PRIMARY KEY, ripe INTEGER NOT NULL, parts TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS pear (name TEXT PRIMARY KEY, grams REAL NOT NULL);
    """


class LaterFruit(Fruit):
    ADDED = {"apple": {"eaten_s": "REAL"}}  # noqa: RUF012


class Former(Database):
    TABLES = (Fruit,)


class Basket(Database):
    TABLES = (LaterFruit,)


def test_rows_are_read_as_they_were_written(tmp_path):
    basket = Basket(tmp_path / "state.sqlite")
    apples = [Apple("a", True, {"seeds": [1, 2]}), Apple("b", False, {}, 3.5)]
    basket.keep("apple", apples, ("parts",))
    basket.keep("pear", [Pear("c", 120.0)])
    basket.keep("pear", [])
    assert basket.kept(Apple, "apple ORDER BY name", as_json=("parts",)) == apples
    assert basket.kept(Pear, "pear WHERE grams > ?", (100.0,)) == [Pear("c", 120.0)]


def test_one_of_the_same_key_is_written_as_is_said(tmp_path):
    basket = Basket(tmp_path / "state.sqlite")
    then = "ON CONFLICT (name) DO UPDATE SET grams = excluded.grams"
    for grams in (120.0, 130.0):
        basket.keep("pear", [Pear("c", grams)], then=then)
    assert basket.kept(Pear, "pear") == [Pear("c", 130.0)]


def test_a_file_of_an_earlier_version_gets_the_columns_that_it_lacks(tmp_path):
    former = Former(tmp_path / "state.sqlite")
    former.run("INSERT INTO apple VALUES ('a', 1, '{}')")
    former.close()
    for _ in range(2):  # and the next start finds them
        basket = Basket(tmp_path / "state.sqlite")
        assert basket.kept(Apple, "apple", as_json=("parts",)) == [Apple("a", True, {})]
        basket.close()


def a_wish(key):
    return Wish(key, ("/bin/true",), "/", 1.0, 0.0, 1.0, 0.0, 1.0, 0)


def test_jobs_share_the_connection_and_the_transactions_of_their_store(tmp_path):
    store = Store(tmp_path / "state.sqlite")

    def half() -> Any:
        with store.at_once():
            store.jobs.submit(a_wish("a"))
            store.put("seen", True)
            raise RuntimeError("cut off")

    with pytest.raises(RuntimeError, match="cut off"):
        half()
    assert store.jobs.listed() == [] and store.get("seen") is None
    store.jobs.submit(a_wish("b"))
    assert [job.key for job in Store(store.file).jobs.listed()] == ["b"]


def test_what_a_steady_store_cannot_write_is_owed_and_what_it_must_not_promise_fails(tmp_path, monkeypatch):
    store = SteadyStore(tmp_path / "state.sqlite", wait_s=0.0)
    number = store.records.open_stream("gateway-0", {"task": "x"}, None)
    other = Store(store.file)
    other.run("BEGIN EXCLUSIVE")
    store.records.close_stream(number, None, {"reason": "over"})
    with pytest.raises(StoreError):
        store.jobs.submit(a_wish("a"))
    assert store.records.streams_open() in (0, 1)  # read or not, it goes on
    other.run("ROLLBACK")
    other.close()
    monkeypatch.setattr(clock, "monotonic_s", lambda: time.monotonic() + 2.0)  # it looks again after a while
    store.settle()
    assert [row["reason"] for row in store.records.streams()] == ["over"]


FIRST = """
CREATE TABLE setting (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE process (
    name TEXT PRIMARY KEY, kind TEXT NOT NULL, port INTEGER NOT NULL, cores TEXT NOT NULL,
    settings TEXT NOT NULL, wanted INTEGER NOT NULL DEFAULT 1,
    handle TEXT, started_s REAL NOT NULL DEFAULT 0, restarts INTEGER NOT NULL DEFAULT 0,
    failures INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE stream (
    id INTEGER PRIMARY KEY AUTOINCREMENT, gateway TEXT NOT NULL, needs TEXT NOT NULL, key TEXT,
    opened_s REAL NOT NULL, closed_s REAL, worker TEXT, outcome TEXT
);
CREATE TABLE request (
    id INTEGER PRIMARY KEY, at_s REAL NOT NULL, site TEXT NOT NULL, service TEXT NOT NULL,
    deadline_s REAL NOT NULL, size_bytes REAL NOT NULL
);
CREATE TABLE job (
    id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT UNIQUE, command TEXT NOT NULL, folder TEXT NOT NULL,
    cores REAL NOT NULL, memory_bytes REAL NOT NULL, duration_s REAL NOT NULL, submitted_s REAL NOT NULL,
    earliest_s REAL NOT NULL, latest_s REAL NOT NULL, priority INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'waiting', node TEXT, started_s REAL, ended_s REAL,
    suspended_s REAL NOT NULL DEFAULT 0, stopped_s REAL, cancel INTEGER NOT NULL DEFAULT 0, why TEXT
);
INSERT INTO setting VALUES ('policies', '{"defer": "first-fit"}');
INSERT INTO process VALUES ('w', 'worker', 8001, '[0]', '{"node": "n"}', 1, '17:4', 5.0, 1, 0);
INSERT INTO stream VALUES (7, 'gateway-0', '{"task": "t"}', NULL, 1.0, NULL, 'w', NULL);
INSERT INTO request VALUES (1, 1.0, 'here', 's', 2.0, 3.0);
INSERT INTO job
(key, command, folder, cores, memory_bytes, duration_s, submitted_s, earliest_s, latest_s, priority)
VALUES ('k', '["true"]', '/', 1.0, 0.0, 1.0, 0.0, 0.0, 9.0, 0);
"""


def test_a_state_of_the_first_store_is_read_and_goes_on(tmp_path):
    with sqlite3.connect(file := tmp_path / "state.sqlite") as first:
        first.executescript(FIRST)
    first.close()
    for _ in range(2):
        store = Store(file)
        assert store.policy("defer") == "first-fit"
        (worker,) = store.processes()
        assert (worker.process, worker.handle) == (Process("w", "worker", 8001, {"node": "n"}, (0,)), "17:4")
        assert store.handles() == {"17:4"}
        assert [(each.id, each.owner) for each in store.records.open_streams("gateway-0")] == [(7, "")]
        assert [each.site for each in store.records.requests(0.0)] == ["here"]
        assert (store.jobs.get(1).key, store.jobs.get(1).when_evicted) == ("k", "pause")
        assert store.jobs.submit(a_wish("later")).id == 2
        number = store.records.open_stream("gateway-0", {"task": "t"}, None)
        assert number > 7 and not store.pipelines.listed()
        store.records.close_stream(number, None, {})
        store.close()
