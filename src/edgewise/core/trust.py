"""Whether compiled code in a folder can only be from this user or root.

Such code is run as it is, so whoever may write to its folder, or may put another in that one's place, runs
what they like as whoever uses it.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def why_not(folder: Path) -> str | None:
    """Why code in a folder, with its absolute path, is not to be trusted; None where it is or does not exist.

    The folder and all above it belong to this user or to root, and nobody else may write to them. In a
    folder with the sticky bit, as `/tmp`, others cannot replace what is not theirs.
    """
    for place in (folder, *folder.parents):
        try:
            found = place.stat()
        except OSError:  # what is made there later is made by this user
            continue
        sticky = place != folder and bool(found.st_mode & stat.S_ISVTX)
        if (why := _why_not(found, sticky)) is not None:
            return f"{place} {why}"
    return None


def all_own(folder: Path) -> bool:
    """Whether nobody else may write to a folder or to what lies right in it."""
    try:
        found = [folder.stat(), *(entry.stat() for entry in os.scandir(folder))]
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return all(_why_not(each, False) is None for each in found)


@contextmanager
def own_files() -> Iterator[None]:
    """What is made inside can be written by its owner only, whatever the umask."""
    before = os.umask(0o022)
    os.umask(before | 0o022)
    try:
        yield
    finally:
        os.umask(before)


def _why_not(found: os.stat_result, sticky: bool) -> str | None:
    if found.st_uid not in (0, os.geteuid()):
        return f"belongs to user {found.st_uid}"
    private = found.st_gid == found.st_uid  # the owner's own group, as many systems give to each user
    if found.st_mode & (stat.S_IWOTH | (0 if private else stat.S_IWGRP)) and not sticky:
        return "can be written by others"
    return None
