"""Where results are kept, and which code made them."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

LOOKS = "looks.jsonl"


@dataclass(frozen=True, slots=True)
class CodeVersion:
    """The code that ran.

    Attributes:
        commit: of the checkout; None outside of one or without git.
        dirty: files differ from the commit; None where it is unknown.
        version: of the package.
    """

    commit: str | None
    dirty: bool | None
    version: str


def checkout() -> Path | None:
    """Root of the git checkout that this package runs from, if it runs from one."""
    root = Path(__file__).resolve().parents[3]
    return root if (root / ".git").exists() and (root / "pyproject.toml").is_file() else None


def results_folder() -> Path:
    """docs/results of the checkout; elsewhere `runs` below the current folder."""
    root = checkout()
    return Path("runs") if root is None else root / "docs" / "results"


def code(root: Path | None) -> CodeVersion:
    """Commit of a checkout, and whether it was changed since; the log of looks does not count."""
    commit = None if root is None else _git(root, "rev-parse", "HEAD")
    if root is None or commit is None:
        return CodeVersion(None, None, version("edgewise"))
    changes = _git(root, "status", "--porcelain", "--", ".", f":(exclude,glob)**/{LOOKS}")
    return CodeVersion(commit, None if changes is None else bool(changes), version("edgewise"))


def _git(root: Path, *arguments: str) -> str | None:
    """What git says; None when there is no git, or it fails."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
