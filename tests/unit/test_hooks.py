"""Optional hooks of policies: six, each a protocol; one that nobody would call is an error."""

import ast
from pathlib import Path

import pytest

import edgewise
from edgewise import ScorePolicy, policies
from edgewise.core import hooks
from edgewise.core.orchestrate import commands_of
from edgewise.errors import PolicyError

PACKAGE = Path(edgewise.__file__).parent
DOCS = Path(__file__).parents[2] / "docs" / "tutorials" / "own-policy.md"


class Scored(ScorePolicy):
    """Good, without hooks."""

    def score(self, view, item):
        return view.impedance_s


class Replicas:
    """Good, without hooks."""

    decision = "orchestrate"

    def reset(self, world, key):
        """Nothing to remember."""

    def decide(self, view):
        return commands_of([[]])


def made(base, **members):
    return policies.load(base.decision, type("Mine", (base,), members))


def test_there_are_six_and_the_tutorial_has_them_all():
    assert len(hooks.HOOKS) == 6
    table = hooks.__doc__.split("|---|---|---|")[1] + DOCS.read_text(encoding="utf-8")
    for name, hook in hooks.HOOKS.items():
        assert table.count(f"| {', '.join(hook.decisions)} |") >= 2, name
        assert table.count(f"| `{name}") == 2, name


def test_nobody_asks_a_policy_for_a_hook_by_its_name():
    asked = [
        f"{path.relative_to(PACKAGE)}:{node.lineno} {node.args[1].value}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("getattr", "hasattr")
        and isinstance(node.args[1], ast.Constant)
        and node.args[1].value in {*hooks.HOOKS, "live", "current", "active", "plan", "compiled"}
    ]
    assert asked == []


@pytest.mark.parametrize(
    ("base", "members", "held"),
    [
        (Scored, {}, []),
        (Scored, {"tick": lambda self, view: None, "max_age_s": 2}, ["tick", "max_age_s"]),
        (Scored, {"observe": lambda self, view, more=1: None}, ["observe"]),
        (Scored, {"_ticks": lambda self: None, "ticks": 3, "age_s": 1.0}, []),
        (Replicas, {"rests": property(lambda self: True), "batched": False}, ["batched", "rests"]),
        (Replicas, {"batch": 32, "tests": 4}, []),
    ],
)
def test_hooks_of_a_policy(base, members, held):
    assert hooks.held(made(base, **members)) == held


@pytest.mark.parametrize(
    ("base", "members", "complaint"),
    [
        (Scored, {"tikc": lambda self, view: None}, "Mine.*no hook is called 'tikc'; did you mean 'tick'"),
        (Scored, {"ticks": lambda self, view: None}, "did you mean 'tick'.*may be called _ticks"),
        (Scored, {"obsrve": lambda self, view: None}, "did you mean 'observe'"),
        (Scored, {"max_age": 2.0}, "did you mean 'max_age_s'"),
        (Scored, {"batched": True}, "batched is a hook of requests, orchestrate, defer.* tick, observe"),
        (Scored, {"tick": lambda self: None}, "tick must take 1 argument beside self"),
        (Scored, {"tick": True}, "tick is True; it must be a method"),
        (Scored, {"max_age_s": "2 s"}, "max_age_s is '2 s'; it must be int or float or None"),
        (Replicas, {"tick": lambda self, view: None}, "tick is a hook of dispatch.*decides orchestrate"),
        (Replicas, {"batched": 1}, "batched is 1; it must be bool"),
        (Replicas, {"rest": True}, "did you mean 'rests'"),
    ],
)
def test_a_hook_that_nobody_would_call_is_an_error(base, members, complaint):
    with pytest.raises(PolicyError, match=complaint):
        made(base, **members)


def test_what_is_set_when_a_policy_is_made_counts_too():
    def begin(self):
        self.max_ages_s = 2.0

    with pytest.raises(PolicyError, match="did you mean 'max_age_s'"):
        made(Scored, __init__=begin)


def test_a_policy_that_runs_in_simulation_only_stays_so_in_a_subclass():
    shadow = type(policies.load("requests", "gsp-ss"))
    mine = type("Mine", (shadow,), {})
    assert not policies.runs_live(mine) and "gsp-ss" not in policies.names("requests", live=True)
    with pytest.raises(PolicyError, match="runs in simulation only"):
        policies.load("requests", mine, live=True)
