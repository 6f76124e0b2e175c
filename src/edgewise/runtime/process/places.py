"""Where a process of a live system leaves its log, and what tells others that it holds its port."""

import contextlib
from pathlib import Path

from edgewise.runtime import disk


def log_file(folder: Path, name: str) -> Path:
    """Where a process writes its log."""
    return disk.make_inside(folder / "logs") / f"{name}.log"


def place_file(folder: Path, port: int) -> Path:
    """What the process of a port holds locked while it lives."""
    return disk.make_inside(folder / "places") / str(port)


def holders(folder: Path) -> dict[int, int]:
    """Port and process id of everything that holds a place, whether its start was written down or not."""
    found = dict[int, int]()
    for place in (folder / "places").glob("*"):
        with contextlib.suppress(OSError, ValueError):  # it ended
            number = int(place.read_text())
            if any(_is(each, place) for each in Path(f"/proc/{number}/fd").iterdir()):
                found[int(place.name)] = number
    return found


def _is(opened: Path, file: Path) -> bool:
    """Whether what a process has open is a file; it may be closed by now."""
    with contextlib.suppress(OSError):
        return opened.samefile(file)
    return False
