"""Programs that are built from Go modules, kept by version outside the clone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from beds.processes import BedError, cache

VEGETA = ("github.com/tsenart/vegeta/v12", "v12.12.0")
SETTINGS = {"GOFLAGS": "-mod=mod", "CGO_ENABLED": "0"}


def built(module: str, version: str, package: str = "", main: str = "") -> Path:
    """The program of a module, built once.

    Args:
        package: its folder in the module, where that is not the module's own.
        main: a program of our own that takes what it needs from the module, in place of the module's.

    Raises:
        BedError: there is no Go, or it cannot be built.
    """
    path = f"{module}/{package}".strip("/")
    name = next(part for part in reversed(path.split("/")) if not part.removeprefix("v").isdigit())
    program = cache() / "go" / f"{name}-{version}" / name
    if program.exists():
        return program
    if shutil.which("go") is None:
        raise BedError(
            f"{name} is built from Go modules, and there is no Go; install it or put it at {program}"
        )
    print(f"building {name} {version} once, into {program.parent}", flush=True)
    # Required by a module of our own: `go install` fails where the list of versions cannot be had.
    here = module_file(program.parent / "module", f"module bed\n\ngo 1.23\n\nrequire {module} {version}\n")
    if main:
        (here / "main.go").write_text(main)
    _go(here, "build", "-trimpath", "-ldflags", "-s -w", "-o", str(program), "." if main else path)
    return program


def module_file(folder: Path, text: str) -> Path:
    """A folder that holds a module's description."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "go.mod").write_text(text)
    return folder


def go_module(module: str, version: str) -> dict[str, Any]:
    """Where the files of a module lie, downloaded when they are not there yet: `Dir`, `GoMod`."""
    here = module_file(cache() / "go" / "downloads", "module bed\n\ngo 1.23\n")
    found: dict[str, Any] = json.loads(_go(here, "mod", "download", "-json", f"{module}@{version}"))
    return found


def _go(here: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["go", *arguments], cwd=here, env=os.environ | SETTINGS, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BedError(f"go {' '.join(arguments)}:\n{(done.stderr or done.stdout)[-2000:]}")
    return done.stdout
