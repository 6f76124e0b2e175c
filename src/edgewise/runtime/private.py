"""Folders and files that only their owner may read, from their first byte on.

The folder of a live system holds tokens, commands and traffic. What lies there is kept from other users
twice: by the folder's rights and by each file's.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from edgewise.errors import RunError
from edgewise.kernels.trust import own_files, replaceable

OTHERS = 0o077  # rights of group and others


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
        with own_files():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    exposed = check_folder(folder, ours)
    if exposed:
        folder.chmod(0o700)
    return exposed


def make_file(file: Path) -> bool:
    """Make an empty file that only its owner may read, or take others' rights to it away.

    Returns:
        whether others had rights to it.
    """
    with suppress(FileExistsError):
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    exposed = bool(file.stat().st_mode & OTHERS)
    if exposed:
        file.chmod(0o600)
    return exposed


def open_file(file: Path, mode: str, **options: Any) -> IO[Any]:
    """As `open`; a file that it makes is its owner's only."""
    return open(file, mode, opener=lambda name, flags: os.open(name, flags, 0o600), **options)


def write_file(file: Path, content: str | bytes) -> None:
    """Write a file that only its owner may read."""
    with open_file(file, "wb") as written:
        written.write(content if isinstance(content, bytes) else content.encode())
