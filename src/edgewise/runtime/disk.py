"""The disk: the one way in which a live system changes it.

Folders and files are made such that only their owner may read them, from their first byte on: the folder of
a live system holds tokens, commands and traffic. What lies there is kept from other users twice: by the
folder's rights and by each file's.

Before each change `changing` is called. Who replaces it plays a disk that is full, or the death of a process
between any two changes, in one place; see `tests/faulty_disk.py`.
"""

import os
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from edgewise.errors import RunError
from edgewise.kernels.trust import own_files, replaceable

OTHERS = 0o077  # rights of group and others


def _goes_on(what: str, file: Path) -> None:
    """Of this machine's disk nothing is to be said before it is changed."""


changing: Callable[[str, Path], None] = _goes_on  # what is about to be done, to which file or folder


def check_folder(folder: Path, ours: str) -> bool:
    """Refuse a folder that cannot be kept from other users; nothing is made or changed.

    Args:
        ours: file that a folder of this kind holds. Rights to any other folder with content stay.
    Returns:
        whether others have rights to it.
    Raises:
        RunError: it is a link, somebody else's, open to all writers, or holds other things; or others could
            put another one in its place.
    """
    if (place := replaceable(folder.absolute())) is not None:
        mode = stat.S_IMODE(place.stat().st_mode)
        raise RunError(
            f"state {folder}: others may write to {place} (mode {mode:04o}) and "
            f"could put another folder in its place; chmod go-w {place}, or use a folder elsewhere"
        )
    if not os.path.lexists(folder):
        return False
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise RunError(f"state {folder}: is a link, or no folder; name the folder itself")
    if found.st_uid != os.geteuid():
        raise RunError(f"state {folder}: belongs to user {found.st_uid}; use a folder of your own")
    if not found.st_mode & OTHERS:
        return False
    if found.st_mode & stat.S_IWOTH:
        raise RunError(f"state {folder}: everybody may write there; use a folder of its own, as runs/live")
    if not (folder / ours).exists() and any(folder.iterdir()):
        raise RunError(f"state {folder}: holds other things, and others may read it; use a folder of its own")
    return True


def make_folder(folder: Path, ours: str) -> bool:
    """Make a folder that only its owner may enter, or take others' rights to it away.

    Folders above it that are missing are made for their owner alone to write, whatever the umask.

    Args:
        ours: as of `check_folder`.
    Returns:
        whether others had rights to it.
    Raises:
        RunError: as `check_folder`.
        OSError: it cannot be made.
    """
    if not os.path.lexists(folder):
        check_folder(folder, ours)
        changing("make", folder)
        with own_files():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    exposed = check_folder(folder, ours)
    if exposed:
        changing("rights", folder)
        folder.chmod(0o700)
    return exposed


def make_file(file: Path) -> bool:
    """Make an empty file that only its owner may read, or take others' rights to it away.

    Returns:
        whether others had rights to it.
    """
    if not file.exists():
        changing("make", file)
    with suppress(FileExistsError):
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    exposed = bool(file.stat().st_mode & OTHERS)
    if exposed:
        changing("rights", file)
        file.chmod(0o600)
    return exposed


def make_inside(folder: Path) -> Path:
    """A folder of ours in one that there is; made where it is missing."""
    if not folder.is_dir():
        changing("make", folder)
        folder.mkdir(exist_ok=True, mode=0o700)
    return folder


def make_all(folder: Path) -> Path:
    """A folder of ours, and all above it that are missing."""
    if not folder.is_dir():
        changing("make", folder)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def open_file(file: Path, mode: str, **options: Any) -> IO[Any]:
    """As `open`, to write; a file that it makes is its owner's only."""
    changing("open", file)
    return open(file, mode, opener=lambda name, flags: os.open(name, flags, 0o600), **options)


def open_in_place(file: Path) -> IO[str]:
    """Open a file that is locked, and written over where it is; made where it is missing."""
    changing("open", file)
    return os.fdopen(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+")


def write_file(file: Path, content: str | bytes) -> None:
    """Write a file that only its owner may read."""
    with open_file(file, "wb") as written:
        changing("write", file)
        written.write(content if isinstance(content, bytes) else content.encode())


def write_whole(file: Path, content: str | bytes) -> None:
    """Write a file such that others find what was there before, or all of it."""
    fresh = file.with_name(f"{file.name}.new")
    write_file(fresh, content)
    move(fresh, file)


def move(file: Path, to: Path) -> None:
    """Give a file another name; what had that name before is gone."""
    changing("move", to)
    file.replace(to)


def link(file: Path, to: Path) -> None:
    """Give a file a second name.

    Raises:
        FileExistsError: another file has it.
    """
    changing("link", to)
    os.link(file, to)


def remove(file: Path) -> None:
    """Remove a file, if it is there."""
    if os.path.lexists(file):
        changing("remove", file)
        file.unlink(missing_ok=True)


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it, as far as that can be done."""
    changing("remove", folder)
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def passing_folder() -> Iterator[Path]:
    """A folder of one's own in the system's place for such, which goes with all that is in it."""
    import tempfile  # brings random numbers and archives

    changing("make", Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix="edgewise-") as made:
        yield Path(made).resolve()


def connect(file: Path | str, **options: Any) -> sqlite3.Connection:
    """A connection to a SQLite file. Who writes through it says so to `changing`: SQLite writes by itself."""
    made: sqlite3.Connection = sqlite3.connect(file, **options)
    return made
