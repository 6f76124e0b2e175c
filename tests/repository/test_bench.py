"""The benchmarks run, and edgewise and its peers compute the same figures; nothing is timed."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PEERS = ("simpy", "ciw", "cimba", "ncsim")
missing = [name for name in PEERS if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(
    bool(missing), reason=f"pip install 'edgewise[bench]': no {', '.join(missing)}"
)
ERLANG_C_WAIT_S = 0.2046  # M/M/10 at 80 % load, mean service 1 s


@pytest.fixture(autouse=True)
def _bench_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


def python(*arguments: str) -> str:
    """Output of a new process: cimba cannot compile its models where others compiled kernels before."""
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_queues_agree_with_theory() -> None:
    from bench import queues

    assert queues.edgewise(1_000_000)() == pytest.approx(ERLANG_C_WAIT_S, rel=0.03)
    cimba = float(python("-c", "from bench import queues; print(queues.cimba_store(1_000_000)())"))
    assert cimba == pytest.approx(ERLANG_C_WAIT_S, rel=0.03)
    # Few queries of slow peers: a wider band, which still tells nine servers from ten (0.77 s).
    for slow in (queues.simpy_store, queues.simpy_resource, queues.ciw_node):
        assert slow(60_000)() == pytest.approx(ERLANG_C_WAIT_S, rel=0.15)


def test_both_forms_in_simpy_are_one_model() -> None:
    from bench import queues

    assert queues.simpy_store(20_000)() == pytest.approx(queues.simpy_resource(20_000)(), rel=0.05)


def test_graphs_agree_on_the_same_arrivals() -> None:
    from bench import graphs

    assert graphs.edgewise(4_000)() == pytest.approx(graphs.ncsim_pinned(4_000)(), abs=1e-5)


def test_ncsim_overlaps_tasks_only_where_the_page_says_so() -> None:
    from bench import graphs

    times = graphs.sent_s(2_000)
    assert graphs.overlaps(graphs.run_ncsim(graphs.dags(times, (0, 1, 2, 3)))) == 0
    assert graphs.overlaps(graphs.run_ncsim(graphs.dags(times, (0, 0, 1, 2)))) > 0


def test_quick_run_writes_its_results(tmp_path: Path) -> None:
    names = ["queue", "graphs", "decisions", "breakdown"]
    python("-m", "bench", *names, "--quick", "--out", str(tmp_path))
    result = json.loads((tmp_path / "bench.json").read_text(encoding="utf-8"))
    assert set(result) == set(names)
    ratios = {row["name"]: row["ratio"] for row in result["queue"]["rows"] if "ratio" in row}
    assert set(ratios) == {"cimba", "SimPy", "SimPy, process per query", "Ciw"}
    assert all(row["statistic"] == 0.0 for row in result["decisions"]["rows"])  # nothing is refused
    assert "M/M/10 at 80 % load" in (tmp_path / "bench.md").read_text(encoding="utf-8")
    assert (tmp_path / "ratios.png").stat().st_size > 1000
