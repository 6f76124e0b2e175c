"""Compiled and interpreted kernels agree to the last bit, and the cache notices edits."""

import math
from pathlib import Path

import pytest
from interpreter import run

from edgewise.kernels.compiled import PACKAGE, kernel_hash

GOLDEN = Path(__file__).parent.parent / "golden"
SCRIPT = """
import json, sys, edgewise as ew
table = ew.simulate(ew.load_scenario("tiny", {"sharing": sys.argv[1]}), "closest", seeds=[3]).items
print(json.dumps(table.to_pydict()))
"""


@pytest.mark.parametrize("sharing", ["none", "fifo", "ps"])
def test_compiled_equals_interpreted(sharing):
    compiled, plain = run(SCRIPT, sharing, jit=True), run(SCRIPT, sharing, jit=False)
    for name, values in plain.items():
        if name.startswith("delay"):
            # libm and LLVM may differ in the last bit of log and cos.
            pairs = zip(values, compiled[name], strict=True)
            assert all(a == b or abs(a - b) < 1e-9 * abs(a) for a, b in pairs)
        else:
            assert values == compiled[name], name


@pytest.mark.parametrize("decorator", ["kernel", "inner"])
def test_cache_folder_changes_when_an_imported_kernel_changes(tmp_path, decorator):
    (tmp_path / "a.py").write_text(f"@{decorator}\ndef f(): return 1\n")
    (tmp_path / "plain.py").write_text("x = 1\n")
    before = kernel_hash(tmp_path)
    (tmp_path / "plain.py").write_text("x = 2\n")
    assert kernel_hash(tmp_path) == before
    (tmp_path / "a.py").write_text(f"@{decorator}\ndef f(): return 2\n")
    assert kernel_hash(tmp_path) != before
    assert kernel_hash(PACKAGE) == kernel_hash(PACKAGE)


INNER = """
import json
from edgewise.policies.requests.features import squashed
print(json.dumps([squashed(x) for x in (0.0, 3.0, -3.0)]))
"""


def test_python_may_call_what_is_compiled_for_kernels():
    for jit in (True, False):
        assert run(INNER, jit=jit) == pytest.approx([0.0, math.log(4.0), -math.log(4.0)])


TIES = """
import json, sys
sys.path.insert(0, sys.argv[1])
from golden_runs import replicas
run = replicas("edge-cloud-complex", "flow", "marginal", duration_s=25, services__frame_s=25)
print(json.dumps({name: column.tolist() for name, column in run.tables()["frames"].items()}))
"""


def test_what_is_equal_is_ordered_alike():
    """Stations that cost the same: which comes first decides what travels."""
    compiled, plain = (run(TIES, str(GOLDEN), jit=jit) for jit in (True, False))
    assert compiled == plain and sum(compiled["forwarded_bytes"]) > 0
