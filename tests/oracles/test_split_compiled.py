"""Split policies and their simulation agree, compiled and interpreted."""

import pytest
from interpreter import run

SCRIPT = """
import json
from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.policies.split import QueryClass, build_program, split_policy
from edgewise.sim.parts.graphs import simulate_split
names = ["root", "a", "b", "c", "sink"]
tasks = tuple(Task(n, w) for n, w in zip(names, (1e9, 8e9, 1e10, 5e9, 1e9)))
edges = tuple(Edge(*p, 4e6) for n in "abc" for p in (("root", n), (n, "sink")))
program = build_program([QueryClass(TaskGraph("fan", tasks, edges), 1.0)], 4, 1e10, 1e9)
found = {}
for name in ("nona", "nona-queues", "nona-free", "scatter", "earliest-finish", "whole-two-choices"):
    policy = split_policy(name, program, share=0.5)
    found[name] = simulate_split(policy, program, 40, seed=2).time_s.tolist()
    if policy.plan: found[name] += policy.plan.theta.tolist() + [policy.plan.bound]
print(json.dumps(found))
"""


def test_compiled_equals_interpreted():
    compiled, plain = run(SCRIPT, jit=True), run(SCRIPT, jit=False)
    assert len(plain) == 6
    for name, values in plain.items():
        assert compiled[name] == pytest.approx(values, rel=1e-9, abs=1e-12), name
