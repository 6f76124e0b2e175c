"""What the fallback decides in a policy's place is counted and said, of all decisions; see `core.guard`."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import edgewise as ew
from edgewise.cli import app
from edgewise.config import load_scenario
from edgewise.core.guard import Decided, Guard
from edgewise.report.records import read_run

DEMO = {"duration_s": 500, "services.frame_s": 50}
SITES = {"duration_s": 63, "services.gateways": "per_site", "services.requests.rate_qps": 60}
ON_NODES = {"jobs.room": "nodes"}
# decision, as it is given, scenario, changes, a policy that can decide, and answers that are of no use
GREEDY, MARGINAL, SJF = "'requests', 'greedy'", "'orchestrate', 'marginal'", "'defer', 'sjf'"
HEADS, POOL = "np.full(seen[0].head.shape, {})", "np.full(seen[0].job.shape, {})"
CHANGES, TASKS = "np.full((len(seen[0].arrived), 1, 2), {})", "np.full(self.inner.decide(*seen).shape, {})"
CASES = {
    "dispatch": (
        "dispatch", "tiny", {}, "'dispatch', 'closest'", "Decisions(np.full(len(seen[1]), {}))",
    ),
    "requests at sites": ("requests", "kais-live", SITES, GREEDY, HEADS),
    "requests in slots": ("requests", "kais-demo", DEMO, GREEDY, HEADS),
    "orchestrate": ("orchestrate", "kais-live", SITES, MARGINAL, CHANGES),
    "orchestrate in slots": ("orchestrate", "kais-demo", DEMO, MARGINAL, CHANGES),
    "place": ("place", "recognition", {}, "'place', 'otfa'", "[{}]"),
    "split": ("split", "split-inception", {"duration_s": 20}, "'split', 'whole-least-loaded'", TASKS),
    "defer": ("defer", "deferrable", {}, SJF, POOL),
    "defer on nodes": ("defer", "deferrable", ON_NODES, SJF, POOL),
}  # fmt: skip
HOW = {
    "raises": "1 / 0",
    "nothing": "None",
    "nan": "ANSWER(float('nan'))",
    "below": "ANSWER(-7)",
    "far": "ANSWER(10_000)",
}
MINE = """
import numpy as np

from edgewise import policies
from edgewise.core.dispatch.views import Decisions


GOOD = policies.load({good})


class Mine:
    name = "mine"
    decision = GOOD.decision

    def __init__(self):
        self.inner, self.asked = policies.load({good}), 0
        if hasattr(self.inner, "batched"):
            self.batched = self.inner.batched

    def reset(self, *given):
        self.inner.reset(*given)

    def decide(self, *seen):
        self.asked += 1
        if {when}:
            return {answer}
        return self.inner.decide(*seen)
"""
LINE = 1 + MINE.split("\n").index("            return {answer}")
DECIDES = 1 + MINE.split("\n").index("    def decide(self, *seen):")


def mine(folder: Path, case: str, how: str, when: str = "True") -> str:
    """The name of a policy in a file, which gives an answer of no use when it is said."""
    *_, good, wrong = CASES[case]
    answer = HOW[how].replace("ANSWER(", f"(lambda x: {wrong.format('x')})(")
    (folder / "mine.py").write_text(MINE.format(good=good, when=when, answer=answer))
    return f"{folder / 'mine.py'}:Mine"


def run_of(case: str, policy: str, seeds=(0, 1)) -> tuple[ew.Result, Decided]:
    """A run under a policy of a case's decision, and what the policy decided in it."""
    given, scenario, changes, *_ = CASES[case]
    result = ew.simulate(load_scenario(scenario, changes), {given: policy}, seeds)
    decision = case.split()[0]
    (found,) = (of[decision] for of in result.all_decided.values() if decision in of)
    return result, found


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("case", CASES)
def test_of_a_policy_that_never_has_an_answer_of_use_nothing_is_its_own(tmp_path, case, how):
    result, decided = run_of(case, mine(tmp_path, case, how))
    assert decided.nothing and decided.share == 1.0 and decided.policy == "mine"
    ((times, why),) = decided.faults.values()
    assert times == decided.questions == decided.instead > 1
    assert f"(mine.py:{LINE})" in why or f"(mine.py:{DECIDES})" in why
    assert how != "raises" or why == f"ZeroDivisionError: division by zero (mine.py:{LINE})"
    (said,) = result.undecided()
    assert "'mine'" in said and why in said


@pytest.mark.parametrize("case", CASES)
def test_the_share_is_that_of_the_questions_at_which_a_policy_raises(tmp_path, case):
    result, decided = run_of(case, mine(tmp_path, case, "raises", "self.asked % 10 == 0"))
    assert 0 < decided.instead < decided.questions and not result.undecided()
    if case not in ("place", "orchestrate in slots"):  # which are asked a few times
        assert 0.05 < decided.share < 0.15
    (said,) = result.said()
    assert f"mine.py:{LINE}" in said and f"{decided.instead} of {decided.questions}" in said


@pytest.mark.parametrize("case", CASES)
def test_of_a_policy_that_decides_every_decision_is_its_own(tmp_path, case):
    result, decided = run_of(case, mine(tmp_path, case, "raises", "False"))
    assert decided.questions > 1 and decided == Decided("mine", decided.questions)
    assert not result.faults and not result.said() and not result.undecided()


class Compiled(ew.ScorePolicy):
    """Its score is compiled, and NaN for each tenth item."""

    def score(self, view, item):
        return view.impedance_s if item.id % 10 else np.nan * view.impedance_s


def test_what_compiled_code_decides_is_counted_too():
    result = ew.simulate("three-tier", Compiled, range(1))
    decided = result.decided["Compiled"]["dispatch"]
    assert 0.05 < decided.share < 0.15 and decided.questions > 100
    ((times, why),) = decided.faults.values()
    assert times == decided.instead and "score is NaN" in why and Path(__file__).name in why


RULE = """
from edgewise.kernels.compiled import kernel
from edgewise.policies.requests.rules import KernelDispatch


@kernel(cache=False)
def odd(system, view, world, b, memory):
    return -7 if int(1000.0 * view.site[world, b].head_deadline_s) % 10 == 0 else 0


class Rule(KernelDispatch):
    name = "rule"
    rule = staticmethod(odd)
"""


@pytest.mark.parametrize(("scenario", "changes"), [("kais-demo", DEMO), ("kais-live", SITES)])
def test_a_compiled_rule_that_chooses_no_station_is_replaced_and_counted(tmp_path, scenario, changes):
    (tmp_path / "mine.py").write_text(RULE)
    result = ew.simulate(
        load_scenario(scenario, changes), {"requests": f"{tmp_path / 'mine.py'}:Rule"}, range(1)
    )
    (found,) = (of["requests"] for of in result.all_decided.values() if "requests" in of)
    assert 0.02 < found.share < 0.2 and "mine.py" in result.said()[0]


class Elsewhere(ew.ScorePolicy):
    """Raises when a window begins."""

    def score(self, view, item):
        return view.impedance_s

    def tick(self, view):
        raise KeyError("window")


def test_what_is_decided_while_a_policy_is_suspended_is_the_fallbacks():
    decided = ew.simulate("tiny", Elsewhere, range(1)).decided["Elsewhere"]["dispatch"]
    assert decided.nothing and {"raised KeyError", "suspended until the next tick"} == decided.faults.keys()


def test_one_guard_counts_questions_not_what_a_policy_is_told():
    guard = Guard()
    assert guard.tell(lambda: None) and not guard.tell(lambda: 1 // 0)
    assert (guard.questions, guard.instead) == (0, 0) and guard.faults.total() == 1
    assert guard.ask(lambda: 1, lambda: 2) == 1 and guard.ask(lambda: 1 // 0, lambda: 2) == 2
    guard.blame("too old")
    assert (guard.questions, guard.instead) == (3, 2) and guard.faults.total() == 3


def run(line: str, status: int):
    """A command, its output and what it says beside."""
    done = CliRunner().invoke(app, line.split(), env={"COLUMNS": "250"})
    assert done.exit_code == status, done.output + repr(done.exception)
    return done


def test_commands_say_the_share_the_message_and_the_line_and_exit_with_status_1(tmp_path):
    policy, folder = mine(tmp_path, "dispatch", "raises"), tmp_path / "run"
    where = f"ZeroDivisionError: division by zero (mine.py:{LINE})"
    said = run(f"simulate tiny --policy {policy} --seeds 0:2 --out {folder}", 1).output
    assert "fallback %" in said and "100.0" in said and where in said
    assert "error: policy 'mine' (dispatch) decided nothing itself" in said
    manifest = json.loads((folder / "manifest.json").read_text())
    (found,) = manifest["decided"]["mine"].values()
    assert found["share"] == 1.0 and found["faults"][0]["why"] == where
    page = (folder / "report.html").read_text()
    assert "fallback %" in page and where in page and "decided nothing itself" in page
    assert read_run(folder).decided["mine"]["dispatch"].nothing

    said = run(f"compare tiny --policies closest,{policy} --seeds 0:2 --out {folder}", 1).output
    assert "fallback %" in said and where in said
    done = run(f"compare tiny --policies closest,{policy} --seeds 0:2 --json --out {folder}", 1)
    decided = json.loads(done.stdout)["decided"]
    assert decided["closest"]["dispatch"]["share"] == 0.0 and decided["mine"]["dispatch"]["share"] == 1.0

    at = "streams.arrivals.clients_per_min=5..10..5"
    for verb, more in (("sweep", f"--policies closest,{policy}"), ("size", f"--policy {policy}")):
        place = tmp_path / verb
        line = f"{verb} tiny --vary {at} --target streams.ok=1% {more} --seeds 0:2 --out {place}"
        said = run(line, 1).output
        assert "fallback %" in said and where in said and "decided nothing itself" in said
        page = (place / "report.html").read_text()
        assert "fallback %" in page and where in page
        summary = json.loads((place / "summary.json").read_text())
        shares = {each["policy"]: each["fallback_share"] for each in summary["points"]}
        assert shares.pop("mine") == 1.0 and not any(shares.values())
        assert "fallback_share" in (place / "points.csv").read_text().split("\n")[0]


def test_a_policy_that_fails_now_and_then_is_said_and_is_no_error(tmp_path):
    policy = mine(tmp_path, "dispatch", "raises", "self.asked % 10 == 0")
    said = run(f"simulate tiny --policy {policy} --seeds 0:2 --out {tmp_path / 'run'}", 0).output
    assert "fallback %" in said and f"mine.py:{LINE}" in said and "nothing itself" not in said
    said = run(f"simulate tiny --policy closest --seeds 0:2 --out {tmp_path / 'run'}", 0).output
    assert "fallback" not in said
