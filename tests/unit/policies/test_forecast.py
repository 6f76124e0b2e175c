"""The forecast rule: how many workers for a load, how long they are kept, and what a day teaches."""

import math

import numpy as np
import pytest

from edgewise.core.keyed import Key
from edgewise.core.orchestrate import new_view
from edgewise.model.parsing import parse_scenario
from edgewise.model.pools import orchestrated
from edgewise.policies.orchestrate.forecast import CELL_S, DAY_S, ForecastScaling
from joint_scenarios import pools

FRAME_S = 5.0


@pytest.fixture
def what():
    workers = [{"variant": "small-cpu", "cluster": "near", "count": 1, "least": 1, "most": 8}]
    return orchestrated(parse_scenario(pools(workers=workers), "pools"), None)


def begun(what, **given):
    policy = ForecastScaling(**given)
    policy.reset(what.system, Key(0))
    return policy


def asked(policy, what, now_s, load, streams):
    """Workers that are wanted in the first pool; the other has no load."""
    view = new_view(what.system, 1, np.zeros(1, dtype=np.uint64), what.pools)
    view.world["clock_s"] = now_s
    view.pools["load"][0, 0], view.pools["streams"][0, 0] = load, streams
    current = np.ones((1, 2), dtype=np.int64)
    return policy.desired(view, current)[0].tolist()


@pytest.mark.parametrize(("load", "streams"), [(0.5, 5), (2.0, 10), (4.0, 8)])
def test_there_is_room_for_chance_and_for_one_stream_more(what, load, streams):
    share = load / streams
    expected = math.ceil(load + 1.5 * math.sqrt(load * share) + share)
    assert asked(begun(what), what, 0.0, load, streams) == [max(expected, 2), 2], "two are there at first"


def test_a_pool_has_as_many_as_it_may(what):
    assert asked(begun(what), what, 0.0, 30.0, 100)[0] == 8


def test_fewer_are_wanted_once_that_was_so_for_a_while(what):
    policy = begun(what, keep_s=60.0)
    assert asked(policy, what, 0.0, 4.0, 40)[0] == 6
    wanted = [asked(policy, what, k * FRAME_S, 0.1, 1)[0] for k in range(1, 14)]
    assert wanted == [6] * 11 + [1] * 2


def test_a_load_that_grows_is_met_before_it_is_there(what):
    grows = begun(what)
    for k in range(4):
        found = asked(grows, what, k * FRAME_S, 1.0 + 0.2 * k, 20)[0]
    steady = begun(what)
    for k in range(4):
        still = asked(steady, what, k * FRAME_S, 1.6, 20)[0]
    # 0.2 in 5 s is 0.48 in the 12 s that a start and two frames take.
    assert (still, found) == (math.ceil(1.6 + 1.5 * math.sqrt(1.6 * 0.08) + 0.08), 3)
    assert found == math.ceil(2.08 + 1.5 * math.sqrt(2.08 * 0.08) + 0.08)


def test_the_day_before_says_when_many_come(what):
    policy, rush_s = begun(what, keep_s=FRAME_S), 20 * CELL_S
    for k in range(int(DAY_S / FRAME_S)):
        now_s = k * FRAME_S
        asked(policy, what, now_s, 4.0 if now_s >= rush_s and now_s < rush_s + CELL_S else 1.0, 40)
    early = asked(policy, what, DAY_S + rush_s - 4 * FRAME_S, 1.0, 40)[0]
    just_before = asked(policy, what, DAY_S + rush_s - FRAME_S, 1.0, 40)[0]
    assert (early, just_before) == (2, 5)
