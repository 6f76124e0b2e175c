"""A policy is taken in every form, for every decision, wherever policies are run."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import edgewise as ew
from edgewise import policies, sweeps
from edgewise.errors import PolicyError, ScenarioError
from edgewise.model.parsing import parse_scenario
from edgewise.policies.cards import SHIPPED
from edgewise.run import assigning
from edgewise.runtime.controller import plan

OWN = """
import numpy as np
from edgewise import ScorePolicy
from edgewise.core.orchestrate import HOLD, AddReplica
from edgewise.core.place import Placement
from edgewise.policies.split import closed


class Counts:
    asked = 0

    def reset(self, world, key):
        self.world, self.begun_with = world, self.asked


class Streams(ScorePolicy):
    asked = 0

    def score(self, view, item):
        self.asked += 1
        return view.network_s if self.asked > 3 else -view.network_s


class Requests(Counts):
    decision = "requests"

    def decide(self, view):
        self.asked += 1
        return np.where(view.head >= 0, 0, HOLD)


class Replicas(Counts):
    decision = "orchestrate"

    def decide(self, view):
        self.asked += 1
        return [AddReplica(0, 0)] if self.asked == 1 else []


class Queries(Counts):
    decision = "split"

    def decide(self, view):
        self.asked += 1
        tasks = len(closed(self.world.classes[view.job].graph).tasks)
        return np.full(tasks, min(self.asked, 3) - 1)


class Pipelines(Counts):
    decision = "place"

    def decide(self, view):
        self.asked += 1
        free, placed, none = view.free_memory_bytes.copy(), [], np.zeros(0, dtype=np.int64)
        for job in view.waiting:
            if free[job.source] >= job.memory_bytes.sum():
                free[job.source] -= job.memory_bytes.sum()
                node, flows = np.full(len(job.work_ops), job.source), len(job.head)
                placed.append(Placement(job, node, np.zeros(flows + 1, int), none, np.full(flows, np.inf)))
        return placed


class Jobs(Counts):
    decision = "defer"

    def decide(self, view):
        self.asked += 1
        return view.startable & (self.asked > 2)
"""
SERVICES = ("scarce", {"duration_s": 50, "services.frame_s": 25})
PIPELINES = ("recognition", {"topology.nodes": 10, "pipelines.0.count": 3})
# decision → scenario and changes, class of `OWN`, a policy that ships
CASES: dict[str, tuple[tuple[str, dict[str, Any]], str, str]] = {
    "dispatch": (("three-tier", {"duration_s": 20}), "Streams", "farthest"),
    "requests": (SERVICES, "Requests", "greedy"),
    "split": (("split-inception", {"duration_s": 20}), "Queries", "whole-random"),
    "place": (PIPELINES, "Pipelines", "tp"),
    "orchestrate": (SERVICES, "Replicas", "autoscaler"),
    "defer": (("deferrable", {"jobs.drawn.per_slot": 3}), "Jobs", "fifo"),
}
CARDS = {
    "dispatch": "chooser-any", "requests": "kais/kais-scarce", "orchestrate": "kais/kais-scarce",
    "defer": "defer/osdec",
}  # fmt: skip
FORMS = ("file", "class", "function", "instance")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The module of `OWN`."""
    file = tmp_path_factory.mktemp("own") / "own.py"
    file.write_text(OWN)
    spec = importlib.util.spec_from_file_location("own_policies", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["own_policies"] = module
    spec.loader.exec_module(module)
    return module


def given_as(form: str, own: Any, name: str) -> Any:
    """A policy of `OWN` in a form."""
    cls = getattr(own, name)
    return {"file": f"{own.__file__}:{name}", "class": cls, "function": lambda: cls(), "instance": cls()}[
        form
    ]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("decision", CASES)
def test_every_decision_takes_every_form_and_runs_share_nothing(decision: str, form: str, own: Any) -> None:
    (scenario, changes), name, shipped = CASES[decision]
    loaded, given = ew.load_scenario(scenario, changes), given_as(form, own, name)
    simulated = ew.simulate(loaded, {decision: given}, (0, 1))
    assert simulated.fixed[decision] == name
    compared = ew.compare(loaded, {decision: [shipped, given]}, (0, 1)).result
    assert compared.policies == (shipped, name)
    rows: dict[str, list[Any]] = {policy: [] for policy in compared.policies}
    for row in compared.items.to_pylist():
        rows[row.pop("policy")].append(row)
    again = simulated.items.drop_columns(["policy"]).to_pylist()
    assert rows[name] == again
    assert rows[name] != rows[shipped]
    alone = ew.simulate(loaded, {decision: getattr(own, name)}, (1,)).items.drop_columns(["policy"])
    assert [row for row in again if row["seed"] == 1] == alone.to_pylist(), "the first run changed the second"
    if form == "instance":
        assert given.asked == 0


@pytest.mark.parametrize("decision", CASES)
def test_every_decision_takes_names_and_cards(decision: str) -> None:
    (scenario, changes), _, shipped = CASES[decision]
    loaded = ew.load_scenario(scenario, changes)
    assert ew.simulate(loaded, {decision: shipped}, (0,)).fixed[decision] == shipped
    if decision in CARDS:
        card = SHIPPED / f"{CARDS[decision]}.json"
        for form in (str(card), card):
            assert ew.simulate(loaded, {decision: form}, (0,)).fixed[decision] == card.stem


@pytest.mark.parametrize("decision", CASES)
def test_what_is_no_policy_of_a_decision_is_refused_and_said(decision: str, own: Any) -> None:
    other = "defer" if decision != "defer" else "place"
    for form in FORMS:
        with pytest.raises(PolicyError, match=f"^policy '.*' decides {other}, not {decision}$"):
            policies.load(decision, given_as(form, own, CASES[other][1]))
    for what, why in (
        (3, "3 is no policy; give a name, file.py:Class"),
        (object, "'object': its class says decision = None"),
        (lambda world: world, "TypeError when created"),
        (lambda: 1 / 0, "ZeroDivisionError when created"),
    ):
        with pytest.raises(PolicyError, match=why):
            policies.load(decision, what)


def test_a_policy_that_cannot_be_copied_says_what_to_give(own: Any) -> None:
    made = own.Jobs()
    made.open = sys.stdout
    with pytest.raises(PolicyError, match=r"cannot be copied for each run .*; give its class, or a function"):
        ew.simulate("deferrable", {"defer": made})


@pytest.mark.parametrize("named", [{}, {"defer": "sjf", "requests": "greedy", "dispatch": "closest"}])
@pytest.mark.parametrize("name", ["campus", "campus-small", "kais-live", "three-tier", "deferrable"])
def test_simulation_and_a_running_system_decide_by_the_same(name: str, named: dict[str, str]) -> None:
    scenario = ew.load_scenario(name, {f"policies.{decision}": policy for decision, policy in named.items()})
    simulated: dict[str, str] = {}
    for work in scenario.holds:
        simulated |= assigning.defaults(scenario, work)
    live = plan.deciding(scenario)
    both = simulated.keys() & live.keys()
    assert both and {each: simulated[each] for each in both} == {each: live[each] for each in both}
    assert {each: simulated.get(each, policy) for each, policy in named.items()} == named
    assert (simulated | live).items() <= (policies.USUAL | scenario.policies).items()


@pytest.mark.parametrize(("old", "new"), [("dispatch", "requests"), ("orchestrate", "orchestrate")])
def test_where_services_named_policies_is_said_to_be_elsewhere_now(old: str, new: str) -> None:
    with pytest.raises(ScenarioError, match=f"setting 'services.{old}': is now 'policies.{new}'"):
        ew.load_scenario("kais-demo", {f"services.{old}": "greedy"})
    data = ew.load_scenario("kais-demo").spec.model_dump(mode="json", exclude_none=True)
    data["services"][old] = "greedy"
    with pytest.raises(ScenarioError, match=f"'services.{old}' is now 'policies.{new}'; move it there"):
        parse_scenario(data, "old")


@pytest.mark.parametrize(
    ("missing", "extra", "line"),
    [
        ("gymnasium", "environments", "ew.DispatchEnv"),
        ("pettingzoo", "environments", "ew.JointEnv"),
        ("torch", "learn", "ew.train"),
        ("topohub", "place", "ew.load_scenario('isp')"),
        ("httptools", "live", "ew.testing.check_backend(None, None)"),
        ("onnxruntime", "live", "ew.simulate('full-edge', 'chooser-full-edge')"),
    ],
)
def test_a_missing_extra_is_named_in_python_too(missing: str, extra: str, line: str) -> None:
    script = f"""
import sys
sys.modules[{missing!r}] = None  # as where it is not installed
import edgewise as ew, edgewise.testing
try:
    {line}
except ew.EdgewiseError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert missing in done.stdout and f"pip install 'edgewise[{extra}]'" in done.stdout, done.stderr


def test_policies_with_identical_records_are_named_as_the_same(tmp_path: Path, own: Any) -> None:
    class Twin(own.Jobs):  # type: ignore[misc]
        pass

    scenario = ew.load_scenario(*CASES["defer"][0])
    found = ew.compare(scenario, {"defer": [own.Jobs, "fifo", Twin]}, (0, 1))
    assert found.result.alike == (("Jobs", "Twin"),)
    assert "Jobs and Twin decided alike: identical records" in str(found)
    assert ew.compare(scenario, {"defer": [own.Jobs, "fifo"]}, (0, 1)).result.alike == ()
    vary = sweeps.Vary("jobs.drawn.per_slot", (3, 4))
    points = sweeps.Points("deferrable", (vary,), {"defer": [own.Jobs, "fifo", Twin]}, seeds=(0, 1))
    found = sweeps.sweep(points, [sweeps.parse_target("jobs.started>=1")])
    assert "Jobs and Twin decided alike: identical records" in found.sentences
    assert len([line for line in found.sentences if "alike" in line]) == 1


NOTING = """
import os
from pathlib import Path
import numba.core.event as event

class Noted(event.Listener):
    def on_start(self, event):
        with open(os.environ["COMPILED"], "a") as file:
            print(event.data, file=file)
    def on_end(self, event): pass

event.register("numba:compile", Noted())
"""
UNKNOWN = [
    ("simulate deferrable --policy defer=nope", "no defer policy 'nope'"),
    ("simulate campus-small --policy dispatch=closest --policy defer=own.py:Job", "did you mean 'Jobs'"),
    ("simulate deferrable --policy defer=own.py:Replicas", "decides orchestrate, not defer"),
    ("compare deferrable --policies defer=osdec,fifo,nope", "no defer policy 'nope'"),
    ("compare campus-small --policies defer=fifo,sjf --policy dispatch=none.py:X", "no file none.py"),
    ("sweep tiny --vary duration_s=10,20 --policies chooser-any,nope --jobs 1", "no dispatch policy 'nope'"),
    ("size tiny --vary duration_s=10,20 --target streams.ok=1% --policy nope", "no dispatch policy 'nope'"),
    ("up tiny --policy closest --policy defer=nope", "no defer policy 'nope'"),
    ("up tiny --policy closest --policy defer=own.py:Replicas", "decides orchestrate, not defer"),
    ("up tiny --state open/state", "others may write to"),
]


@pytest.mark.parametrize(("line", "why"), [("", ""), *UNKNOWN])
def test_policies_are_looked_for_before_anything_is_compiled(line: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(NOTING)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "own.py").write_text(OWN)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    noted = {"COMPILED": str(tmp_path / "compiled"), "PYTHONPATH": path, "EDGEWISE_CACHE": str(tmp_path)}
    command = [sys.executable, "-m", "edgewise", *line.split()]
    if not line:  # that compiling is noted
        command = [sys.executable, "-c", "import numba; numba.njit(lambda x: x + 1)(1)"]
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | noted, capture_output=True, text=True, check=False
    )
    assert (tmp_path / "compiled").exists() == (not line), done.stderr
    assert done.returncode == (2 if line else 0) and why in " ".join(done.stderr.split()), done.stderr
    assert "Traceback" not in done.stderr
