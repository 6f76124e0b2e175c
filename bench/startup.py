"""Start-up: a new process that simulates `tiny` with kernels compiled before.

The probe imports in this order, so each part is what it costs after the ones before it.
"""

from __future__ import annotations

PROBE = """
import json, time
marks, names = [time.perf_counter()], []
def mark(name):
    names.append(name); marks.append(time.perf_counter())
import numpy; mark("import numpy")
import edgewise.core.compiled; mark("import numba")
import pyarrow; mark("import pyarrow")
import pydantic, yaml; mark("import pydantic and yaml")
import edgewise; mark("import edgewise")
edgewise.load_scenario("tiny"); mark("load the scenario")
edgewise.simulate("tiny", "closest"); mark("load kernels, simulate")
edgewise.simulate("tiny", "closest"); mark("simulate again")
print(json.dumps(dict(zip(names, [b - a for a, b in zip(marks, marks[1:])]))))
"""

# What is timed: the same without marks and without the second simulation.
SCRIPT = "import edgewise; edgewise.simulate('tiny', 'closest')"
BARE = "pass"
