"""Every registered policy keeps the contract, and the kit catches those that do not."""

import numpy as np
import pytest

from edgewise import policies
from edgewise.core.policy import ScorePolicy
from edgewise.core.views import Decisions
from edgewise.testing import check_policy


@pytest.mark.parametrize(
    "name", [name for name in policies.names("dispatch") if not name.startswith("aset-")]
)
def test_registered_policy_keeps_the_contract(name):
    check_policy(lambda: policies.load("dispatch", name))


class Broken(ScorePolicy):
    name = "broken"

    def score(self, view, item):
        return view.network_s


class Peeks(Broken):
    calls = 0

    def decide(self, view, items):
        Peeks.calls += 1
        return Decisions(np.full(len(items), Peeks.calls % 2 - 1), np.ones(len(items), dtype=np.int8))


class Writes(Broken):
    def tick(self, view):
        view.load_qps.setflags(write=True)
        view.load_qps[:] = 1.0


class IgnoresMask(Broken):
    def decide(self, view, items):
        return Decisions(np.zeros(len(items), dtype=np.int64), np.zeros(len(items), dtype=np.int8))


class WrongShape(Broken):
    def decide(self, view, items):
        return Decisions(np.zeros(len(items) + 1, dtype=np.int64))


class Silent(Broken):
    def decide(self, view, items):
        return Decisions(np.full(len(items), -1), np.zeros(len(items), dtype=np.int8))


class Forgets(Broken):
    def state_dict(self):
        return {}


@pytest.mark.parametrize(
    ("policy", "complaint"),
    [
        (Writes, "changed its view"),
        (IgnoresMask, "infeasible"),
        (WrongShape, "shape"),
        (Silent, "without a reason"),
        (Forgets, "go together"),
        (Peeks, "infeasible|other decisions|fallback"),
    ],
)
def test_kit_catches_a_broken_policy(policy, complaint):
    with pytest.raises(AssertionError, match=complaint):
        check_policy(policy)
