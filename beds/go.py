"""Programs that are built from Go modules, kept by version outside the clone."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from beds.processes import BedError, cache

VEGETA = ("github.com/tsenart/vegeta/v12", "v12.12.0")


def built(module: str, version: str, package: str = "") -> Path:
    """The program of a module, built once.

    Raises:
        BedError: there is no Go, or it cannot be built.
    """
    name = next(part for part in reversed(f"{module}/{package}".strip("/").split("/")) if part[:2] != "v1")
    program = cache() / "go" / f"{name}-{version}" / name
    if program.exists():
        return program
    if shutil.which("go") is None:
        raise BedError(
            f"{name} is built from Go modules, and there is no Go; install it or put it at {program}"
        )
    program.parent.mkdir(parents=True, exist_ok=True)
    # Required by a module of our own: `go install` fails where the list of versions cannot be had.
    here = program.parent / "module"
    here.mkdir(exist_ok=True)
    (here / "go.mod").write_text(f"module bed\n\ngo 1.23\n\nrequire {module} {version}\n")
    settings = {"GOFLAGS": "-mod=mod", "CGO_ENABLED": "0"}
    made = subprocess.run(
        ["go", "build", "-trimpath", "-o", str(program), f"{module}/{package}".rstrip("/")],
        cwd=here, env=os.environ | settings, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if made.returncode:
        raise BedError(f"{name} {version} cannot be built:\n{made.stderr[-2000:]}")
    return program
