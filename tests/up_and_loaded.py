"""`edgewise up`, `load` and `pipelines` of a scenario, as somebody with three terminals has them."""

import json
import subprocess
import sys
from contextlib import contextmanager

from in_process import edgewise
from waiting import wait_until


def up(folder, scenario, *more, cwd):
    """What says whether a scenario is up, with its state in a folder; it is to be ended."""
    command = [sys.executable, "-m", "edgewise", "up", scenario, "--state", str(folder), "--port", "0", *more]
    return subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, text=True)


@contextmanager
def running(folder, scenario, *more, cwd):
    """A live system; what it says until it is up."""
    system = up(folder, scenario, *more, cwd=cwd)
    try:
        said = []
        while not any("up after" in line for line in said):
            said.append(system.stdout.readline())
            assert said[-1], said
        yield "".join(said)
    finally:
        assert edgewise("down", "--state", folder, cwd=cwd).returncode == 0
        system.communicate(timeout=60)


def measured(folder, cwd, number=1, least=5):
    """What a pipeline does beside its plan, once it has done some frames in the last seconds."""

    def seen():
        done = edgewise("pipelines", number, "--state", folder, "--json", cwd=cwd)
        found = json.loads(done.stdout) if done.returncode == 0 else {"rates": None}
        return found if found["rates"] and found["frames"] >= least else None

    return wait_until(seen, limit_s=180.0)  # it is profiled first


@contextmanager
def loading(state, cwd):
    """`edgewise load` beside what is done meanwhile."""
    load = subprocess.Popen(
        [sys.executable, "-m", "edgewise", "load", "--state", str(state)], cwd=cwd, stdout=subprocess.PIPE
    )
    yield load
    load.communicate(timeout=120)
