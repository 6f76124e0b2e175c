"""The reproduction of KaiS: load balancers of the field choose as they say."""

import csv

import numpy as np
import pytest

from edgewise.core.keyed import Key
from edgewise.core.orchestrate import HOLD
from edgewise.seeds import VALIDATION
from edgewise.sim.slots.replicas import ReplicaWorlds
from edgewise_studies.frozen import results_folder
from edgewise_studies.papers import field, kais_published
from edgewise_studies.papers.kais import FIELD, dispatch_named
from edgewise_studies.training.kais.settings import setting


def nearest_below(view, system, w, b, most):
    """Slow and obvious: the nearest node with fewer requests than `most`, else the one with the fewest."""
    s = int(view.head_service[w, b])
    there = [k for k in range(1, view.ready.shape[1]) if view.ready[w, k, s] > view.removing[w, k, s]]
    if not there:
        return 0
    requests = {k: int(view.waiting[w, k, s] + view.busy[w, k, s]) for k in there}
    free = [k for k in there if requests[k] < most]
    return min(free, key=lambda k: system.delay_s[b, k]) if free else min(there, key=requests.__getitem__)


@pytest.mark.parametrize(("name", "most"), [("least-request", 0), ("request-threshold-2", 2)])
def test_load_balancers_of_requests_choose_as_they_say(name, most):
    where, seeds = setting("scarce-small", frames=2), VALIDATION[:2]
    worlds = ReplicaWorlds(where.system, where.draw(seeds), where.slots, seeds)
    policy = dispatch_named(name)
    policy.reset(where.system, Key(0))
    assert policy.name == name
    heads = busiest = 0
    while not worlds.done:
        view, stations = worlds.view, policy.decide(worlds.view)
        for w, b in np.ndindex(view.head.shape):
            if view.head[w, b] < 0:
                assert stations[w, b] == HOLD
                continue
            heads += 1
            assert stations[w, b] == nearest_below(view, where.system, w, b, most)
            busiest = max(busiest, int((view.waiting + view.busy)[w, 1:].max()))
        worlds.step(stations)
    assert heads > 100 and busiest > 2


def test_the_field_has_two_choices_least_request_and_thresholds_under_the_autoscaler():
    assert [pair[0] for pair in FIELD][:2] == ["two-choices", "least-request"] and len(FIELD) == 6
    assert {pair[1] for pair in FIELD} == {"autoscaler"}
    assert field.load_requests("two-choices").name == "two-choices"


def test_the_recipe_of_kais_as_published_is_the_one_that_validation_favours():
    with (results_folder() / "kais-published" / "tuning.csv").open(encoding="utf-8", newline="") as file:
        rates = {row["recipe"]: float(row["rate"]) for row in csv.DictReader(file)}
    assert max(rates, key=rates.__getitem__) == kais_published.RECIPE
