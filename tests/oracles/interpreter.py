"""Runs a script with and without the compiler, in an interpreter of its own."""

import json
import os
import subprocess
import sys


def run(script, *arguments, jit):
    """What the script prints, as JSON."""
    environment = os.environ | {"EDGEWISE_JIT": "1" if jit else "0"}
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    return json.loads(done.stdout)
