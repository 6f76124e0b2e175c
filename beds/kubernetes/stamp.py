"""Whether the bed's own tests have passed as its folder is now: CI runs them once a change."""

from __future__ import annotations

import hashlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
FILE = HERE / "tested.txt"
ALSO = (HERE.parent / "processes.py", HERE.parent / "go.py")


def digest() -> str:
    """Of every source file that the bed consists of."""
    made = hashlib.sha256()
    for file in sorted([*HERE.rglob("*.py"), *ALSO]):
        made.update(file.relative_to(HERE.parent).as_posix().encode() + b"\0" + file.read_bytes())
    return made.hexdigest()


def holds() -> bool:
    """Whether they have passed as it is now."""
    return FILE.exists() and FILE.read_text().split()[0] == digest()


def write() -> None:
    """Note that they have."""
    FILE.write_text(f"{digest()}  beds/kubernetes as its tests last passed; see `tested --write`\n")
