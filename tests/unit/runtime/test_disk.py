"""What is left on the disk when it is full, or when a process is killed before any of its changes."""

import os
import stat
from contextlib import closing

import pytest

from edgewise.runtime import disk
from edgewise.runtime.store import DATABASE, Store
from edgewise.runtime.store.copies import check_whole, keep_copy, open_copy
from edgewise.runtime.store.database import StoreError, copy_of
from faulty_disk import Full, killed_at_each, played


def test_a_whole_file_is_the_former_or_the_new_one_wherever_its_writer_dies(tmp_path):
    file = tmp_path / "a"
    disk.write_file(file, "former")

    def check(over):
        assert file.read_text() == ("new" if over else "former")

    assert killed_at_each(lambda: disk.write_whole(file, "new"), check) == 3  # opened, written, moved


def test_a_file_that_is_written_in_place_may_be_left_empty(tmp_path):
    """Why `write_whole` is there, and that the deaths of these tests come where they should."""
    file, seen = tmp_path / "a", set()
    disk.write_file(file, "former")
    killed_at_each(lambda: disk.write_file(file, "new"), lambda over: seen.add(file.read_text()))
    assert seen == {"former", "", "new"}


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "state" / DATABASE)
    made.put("a", 1)
    made.close()
    return made.file


def test_a_copy_is_whole_wherever_its_writer_dies(store):
    keep_copy(store)

    def again():
        with closing(Store(store)) as db:
            db.put("a", db.get("a") + 1)
        keep_copy(store)

    def check(over):
        check_whole(copy_of(store))
        with closing(open_copy(store)) as kept:
            assert kept.execute("SELECT count(*) FROM setting WHERE name = 'a'").fetchone() == (1,)

    assert killed_at_each(again, check) == 4  # a row; made, filled, moved
    assert len(list(store.parent.glob("*.new"))) == 2, "of two that died; copies an hour later remove them"


def test_a_transaction_is_all_or_nothing_wherever_its_writer_dies(store):
    def change():
        with closing(Store(store)) as db, db.at_once():
            db.put("a", 2)
            db.put("b", 2)

    def check(over):
        with closing(Store.readable(store)) as db:
            assert (db.get("a"), db.get("b")) == ((2, 2) if over else (1, None))

    assert killed_at_each(change, check) == 1, "a transaction is one change of the disk"


@pytest.mark.parametrize("after", [1, 2])
def test_on_a_full_disk_the_former_copy_stays_and_nothing_is_left_beside(store, after):
    keep_copy(store)
    before = copy_of(store).read_bytes()
    with played(Full(after)) as full, pytest.raises(StoreError, match="make room"):
        keep_copy(store)
    assert len(full.changes) >= after
    assert copy_of(store).read_bytes() == before and not list(store.parent.glob("*.new"))


def test_what_is_made_is_its_owners_only_whatever_the_umask(tmp_path):
    former = os.umask(0)
    try:
        disk.write_whole(tmp_path / "a", b"")
        disk.open_in_place(tmp_path / "b").close()
        disk.make_inside(tmp_path / "c")
        disk.make_all(tmp_path / "d" / "e")
    finally:
        os.umask(former)
    rights = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert rights["a"] == rights["b"] == 0o600 and rights["c"] == rights["e"] == 0o700
