"""A process dies by kill -9 right before a change of the disk, where a test wants it to.

Python imports this file where its folder is in PYTHONPATH. In the folder `EDGEWISE_DEATHS` a test writes to
`before` which of the next changes, by whichever process of the system, is to be that one's last; `seen` has
one byte for each change.
"""

import fcntl
import importlib.abc
import importlib.machinery
import os
import signal
import sys

DISK = "edgewise.runtime.disk"
FOLDER = os.environ.get("EDGEWISE_DEATHS", "")


def _changing(what, file):
    with open(os.path.join(FOLDER, "seen"), "ab") as seen:
        fcntl.flock(seen, fcntl.LOCK_EX)
        seen.write(b".")
        seen.flush()
        with open(os.path.join(FOLDER, "before")) as before:
            last = int(before.read() or 0) == os.fstat(seen.fileno()).st_size
        if last:
            with open(os.path.join(FOLDER, "died"), "w") as died:
                died.write(f"{os.getpid()} before it could {what} {os.path.basename(file)}")
            os.kill(os.getpid(), signal.SIGKILL)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != DISK:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        executed = spec.loader.exec_module

        def exec_module(module):
            executed(module)
            module.changing = _changing

        spec.loader.exec_module = exec_module
        return spec


if FOLDER:
    sys.meta_path.insert(0, _Finder())
