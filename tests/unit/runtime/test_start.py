"""What every process of a live system loads before it serves."""

import subprocess
import sys

SLOW = ("matplotlib", "scipy.optimize", "scipy.sparse", "scipy.stats", "torch")


def test_a_process_starts_without_what_few_of_them_need():
    code = (
        f"import sys, edgewise.runtime.process.entry; print([name for name in {SLOW} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
