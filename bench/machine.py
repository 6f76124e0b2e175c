"""What a result was measured on, and with what."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("edgewise", "numba", "llvmlite", "numpy", "cimba", "simpy", "ciw", "anrg-ncsim")


def describe(cpu: int | None) -> dict[str, Any]:
    """Machine, versions, date, commit and load.

    Args:
        cpu: the CPU that the process is pinned to.
    """
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _git("rev-parse", "HEAD"),
        "changed_files": len((_git("status", "--porcelain", "--", "src", "bench") or "").splitlines()),
        "processor": _processor(),
        "cpus": os.cpu_count(),
        "pinned_to": cpu,
        "load_average": [round(x, 2) for x in os.getloadavg()] if hasattr(os, "getloadavg") else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _git(*arguments: str) -> str | None:
    folder = Path(__file__).resolve().parent
    try:
        done = subprocess.run(["git", "-C", folder, *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown"
    )
