"""Start-up: a new process that simulates `tiny` with kernels that were compiled before."""

from __future__ import annotations

SCRIPT = "import edgewise; edgewise.simulate('tiny', 'closest')"
BARE = "pass"

PROBE = """
import json, time
marks, names = [time.process_time()], []
def mark(name):
    names.append(name); marks.append(time.process_time())
import edgewise; edgewise.simulate; mark("import")
scenario = edgewise.load_scenario("tiny"); mark("read the scenario")
edgewise.simulate(scenario, "closest"); mark("load kernels and simulate")
edgewise.simulate(scenario, "closest"); mark("simulate once more")
print(json.dumps(dict(zip(names, [b - a for a, b in zip(marks, marks[1:])]))))
"""
