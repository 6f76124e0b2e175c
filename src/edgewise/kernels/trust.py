"""Whether what lies in a folder can only be from this user or root.

Compiled code is run as it is, so whoever may write to its folder, or may put another in that one's place,
runs what they like as whoever uses it. The state of a live system is as good as that: it holds commands.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

OPEN = "can be written by others"


def why_not(folder: Path) -> str | None:
    """Why code in a folder, with its absolute path, is not to be trusted; None where it is or does not exist.

    The folder and all above it belong to this user or to root, and nobody else may write to them.
    """
    for place in (folder, *folder.parents):
        found = _stat(place)
        if found is not None and (why := _strange(found)) is not None:
            return f"{place} {why}"
    found = _stat(folder)
    if found is not None and _open(found):
        return f"{folder} {OPEN}"
    above = replaceable(folder)
    return None if above is None else f"{above} {OPEN}"


def replaceable(folder: Path) -> Path | None:
    """Where others may put another folder in this one's place; None where nobody else may.

    They may where a folder above it, as it is written or as its links lead there, can be written by all or by
    a group, unless that has the sticky bit, as `/tmp` has: then they cannot replace what is not theirs. A
    folder that belongs to somebody else counts as that one's alone to write, as a container's or a mount's.

    Args:
        folder: with its absolute path; need not exist, nor all above it.
    """
    above = dict.fromkeys((*folder.parents, *folder.resolve().parents))
    for place in above:
        found = _stat(place)
        if found is not None and _open(found) and not found.st_mode & stat.S_ISVTX:
            return place
    return None


def all_own(folder: Path) -> bool:
    """Whether nobody else may write to a folder or to what lies right in it."""
    try:
        found = [folder.stat(), *(entry.stat() for entry in os.scandir(folder))]
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return not any(_strange(each) or _open(each) for each in found)


@contextmanager
def own_files() -> Iterator[None]:
    """What is made inside can be written by its owner only, whatever the umask."""
    before = os.umask(0o022)
    os.umask(before | 0o022)
    try:
        yield
    finally:
        os.umask(before)


def _stat(place: Path) -> os.stat_result | None:
    try:
        return place.stat()
    except OSError:  # what is made there later is made by this user
        return None


def _strange(found: os.stat_result) -> str | None:
    """Whose it is, where it is neither ours nor root's."""
    return f"belongs to user {found.st_uid}" if found.st_uid not in (0, os.geteuid()) else None


def _open(found: os.stat_result) -> bool:
    """Whether others than its owner may write to it."""
    private = found.st_gid == found.st_uid  # the owner's own group, as many systems give to each user
    return bool(found.st_mode & (stat.S_IWOTH | (0 if private else stat.S_IWGRP)))
