"""A disk that fails, or a process that dies, at a given change: tests put it in place of `disk.changing`."""

import errno
import os
import signal
from contextlib import contextmanager

from edgewise.runtime import disk


class Full:
    """From its n-th change on the disk takes nothing more, whatever it is; removing goes on."""

    def __init__(self, after):
        self.after, self.changes = after, []

    def __call__(self, what, file):
        self.changes.append((what, file.name))
        if len(self.changes) >= self.after and what != "remove":
            raise OSError(errno.ENOSPC, "no room", str(file))


@contextmanager
def played(changing):
    """Have a function, or a `Full`, called before each change of the disk."""
    former, disk.changing = disk.changing, changing
    try:
        yield changing
    finally:
        disk.changing = former


def killed_at(change, do):
    """Do something in a fork that is killed before its n-th change; True where it came to its end before."""
    number = os.fork()
    if number == 0:
        status, left = 1, [change]

        def changing(what, file):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            with played(changing):
                do()
            status = 0
        finally:
            os._exit(status)
    code = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
    assert code in (0, -signal.SIGKILL), f"it failed at change {change}"
    return code == 0


def killed_at_each(do, check, most=1000):
    """Kill it before its first change, its second and so on, and check what it left; how many there were."""
    for change in range(1, most):
        over = killed_at(change, do)
        check(over)
        if over:
            return change - 1
    raise AssertionError(f"more than {most} changes")
