"""Where a command will write: what cannot be written is said before the work begins."""

from __future__ import annotations

import tempfile
from pathlib import Path

from edgewise.errors import RunError


def check_file(flag: str, file: Path) -> None:
    """Make a file's folder, and see that the file may be written.

    Raises:
        RunError: it is a folder, or its own cannot be made or written.
    """
    if file.is_dir():
        raise RunError(f"{flag} {file}: is a folder; name a file")
    check_folder(flag, file.parent)


def check_folder(flag: str, folder: Path) -> None:
    """Make a folder, and see that it may be written.

    Raises:
        RunError: it is a file, or cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise RunError(f"{flag} {folder}: {error.strerror or error}; check the path and its rights") from None
