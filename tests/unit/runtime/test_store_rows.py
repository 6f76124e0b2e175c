"""Typed rows of the store: read as written, in files of earlier versions too, and all parts in one file."""

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

pytest.importorskip("msgspec", reason="the extra `live` is not installed")

from edgewise.runtime import clock
from edgewise.runtime.store import SteadyStore, Store
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
