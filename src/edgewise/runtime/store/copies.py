"""Copies of a SQLite file that others write to: kept, checked, and put in its place where it is damaged."""

import os
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

from edgewise.runtime import clock, disk
from edgewise.runtime.store.database import COPY, INDEX, LOG, StoreError, copy_of, help_with, telling, to_read

LONGEST_S = 3600.0  # that a copy takes


def open_copy(file: Path) -> sqlite3.Connection:
    """The last good copy of a damaged file, to read.

    Raises:
        StoreError: the file is damaged, and there is none.
    """
    copy = copy_of(file)
    if not copy.is_file():
        raise StoreError(
            f"state {file}: is damaged; it is left as it is, and {help_with(file)}", damaged=True
        )
    return to_read(copy)


def keep_copy(file: Path) -> None:
    """Copy a file while others write to it; the former copy goes when the new one is whole.

    Raises:
        StoreError: it is damaged, or there is no room.
    """
    _remove_unfinished(file)
    fresh = file.with_name(f"{file.name}{COPY}.{os.getpid()}.new")  # `up` and a controller may both be at it
    try:
        copy_whole(file, fresh)
        disk.move(fresh, copy_of(file))
    except OSError as error:
        raise StoreError(f"state {file}: cannot be copied: {error}; make room on its disk") from error
    finally:
        disk.remove(fresh)


def copy_whole(file: Path, to: Path) -> None:
    """Copy a file that others write to, as one file, and check the copy.

    Raises:
        StoreError: it is damaged.
    """
    disk.make_file(to)
    with telling(file), closing(to_read(file)) as source, closing(disk.connect(to)) as target:
        disk.changing("write", to)
        source.backup(target)
        target.execute("PRAGMA journal_mode = DELETE")  # one file
        _check(target, file)


def _remove_unfinished(file: Path) -> None:
    """Copies that this process, or one that died long ago, has not finished."""
    for left in file.parent.glob(f"{file.name}{COPY}.*.new"):
        with suppress(FileNotFoundError):  # another process removes them, too
            mine = left.name.split(".")[-2] == str(os.getpid())
            if mine or clock.unix_s() - left.stat().st_mtime > LONGEST_S:
                disk.remove(left)


def check_whole(file: Path) -> None:
    """Read a whole file, where there is one.

    Raises:
        StoreError: it is damaged.
    """
    if not file.is_file():
        return
    if file.stat().st_size == 0 and copy_of(file).is_file():  # which SQLite takes for a new one
        raise StoreError(f"state {file}: is damaged (emptied); {help_with(file)}", damaged=True)
    with telling(file), closing(to_read(file)) as source:
        _check(source, file)


def _check(database: sqlite3.Connection, file: Path) -> None:
    found = database.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        message = f"is damaged ({found.splitlines()[-1]}); it is left as it is, and {help_with(file)}"
        raise StoreError(f"state {file}: {message}", damaged=True)


def restore(file: Path) -> Path:
    """Put the last good copy in a file's place; returns where the file is now.

    Raises:
        StoreError: there is no copy, or it is damaged.
    """
    copy = copy_of(file)
    if not copy.is_file():
        raise StoreError(
            f"state {file}: there is no copy to restore; use another --state folder, or move this one away"
        )
    with closing(open_copy(file)) as kept:
        _check(kept, copy)
    aside = file.with_name(f"{file.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
    for part in ("", LOG, INDEX):
        old = Path(f"{file}{part}")
        if old.exists():
            disk.move(old, Path(f"{aside}{part}"))
    disk.write_whole(file, copy.read_bytes())
    return aside
