"""Meta-policies, states and cards of the chooser, and lookahead, on small worlds."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from edgewise import policies
from edgewise.config import load_scenario
from edgewise.core.dispatch.views import Bound, Rows
from edgewise.core.keyed import Key
from edgewise.core.world import World
from edgewise.errors import PolicyError
from edgewise.policies.cards import SHIPPED
from edgewise.policies.dispatch.chooser import (
    Chooser,
    History,
    golden_states,
    group_of,
    pooled_state,
    trained,
)
from edgewise.policies.dispatch.meta import ALL, Chosen
from edgewise.sim.simulate import Simulation
from edgewise.sim.streams.lookahead import Habits, Lookahead
from edgewise.sim.streams.rollout import hindsight_bound

CARDS = sorted(path.stem for path in SHIPPED.glob("*.json"))


class Watching(Chosen):
    """Keeps the views of its windows."""

    def reset(self, world, key):
        super().reset(world, key)
        self.views, self.history = [], History()

    def observe(self, view):
        self.history.observe(view)

    def choose(self, view):
        self.views.append((view, self.history.state(view)))
        return self.index


@pytest.fixture(scope="module")
def watched():
    policy = Watching()
    simulation = Simulation(load_scenario("three-tier"), policy, seed=1)
    simulation.run()
    assert not simulation.core.faults
    return policy.views


def test_history_agrees_with_a_slow_count(watched):
    view, state = watched[-1]
    assert state.shape == (view.world.workers, 12, 25)
    rates = np.zeros((view.world.workers, 9))
    for w, g, rate in zip(view.bound.worker, group_of(view.bound), view.bound.items.rate_qps, strict=True):
        rates[w, g] += rate
    newest = view.bound.opened_s.max()
    if newest < view.now_s - 2:  # every bound stream was there at the newest second
        assert np.allclose(state[:, 3:, -1], rates, rtol=1e-5)
    assert (state[:, 3:, -1] <= rates + 1e-3).all()
    assert (np.diff(state[:, 3:], axis=2) >= 0).all()
    assert state[:, 2].max() <= 1.0 + 1e-6


def test_pooled_state_turns_with_the_workers(watched):
    view, _ = watched[-1]
    state = pooled_state(view)
    assert np.isfinite(state).all()
    assert np.allclose(state[:, 4], view.load_qps / view.world.capacity_qps)


def test_a_chosen_policy_decides_as_the_policy_itself():
    scenario, chosen = load_scenario("tiny"), Chosen()
    chosen.index = ALL.index("least-impedance")
    mine = Simulation(scenario, chosen, seed=3)
    other = Simulation(scenario, policies.load("dispatch", "least-impedance"), seed=3)
    assert [c for _, c in mine.run().commands] == [c for _, c in other.run().commands]
    assert set(mine.active) == {"least-impedance"}


def test_a_meta_policy_refuses_what_is_not_a_score():
    with pytest.raises(PolicyError, match="only score policies"):
        Chosen(["bandit"])


@pytest.mark.parametrize("name", CARDS)
def test_shipped_networks_keep_their_cards(name):
    found = trained(SHIPPED / f"{name}.json")
    workers = found.workers or 11
    states = golden_states(found.state, workers)
    assert found.values(states).shape == (16, len(found.actions))
    if not found.workers:
        shuffled = states[:, np.random.default_rng(1).permutation(workers)]
        assert np.allclose(found.values(states), found.values(shuffled), atol=1e-4)
    assert found.card.about["seeds"]["training"][1] <= 500_000


@pytest.mark.parametrize("kind", ["dc-cloud", "co-dc-cloud", "full-edge", "full-edge-scarce"])
def test_each_topology_has_the_papers_network_and_others_one_that_fits(kind):
    chooser = Chooser()
    chooser.reset(World.build(*_parts(kind)), Key(1))
    assert chooser.trained.card.name == f"chooser-{kind}"
    assert (
        chooser.trained.state == "history"
        and chooser.trained.card.about["config"]["scenario"] == f"{kind}-published"
    )
    chooser.reset(World.build(*_parts("three-tier")), Key(1))
    assert chooser.trained.card.name == "chooser-any" and chooser.trained.workers == 0


def test_a_card_of_other_decisions_is_refused(tmp_path):
    for suffix in ("json", "onnx.xz"):
        shutil.copy(SHIPPED / f"{CARDS[0]}.{suffix}", tmp_path)
    path = tmp_path / f"{CARDS[0]}.json"
    card = json.loads(path.read_text())
    changed = card | {"golden": [(a + 1) % len(ALL) for a in card["golden"]]}
    path.write_text(json.dumps(changed))
    with pytest.raises(PolicyError, match="in the golden cases"):
        policies.load("dispatch", str(path))
    path.write_text(json.dumps(card | {"features_sha256": "0"}))
    with pytest.raises(PolicyError, match="trained on other features"):
        policies.load("dispatch", str(path))


def test_it_says_when_its_card_is_missing(tmp_path):
    mine = type("Mine", (Chooser,), {"card": str(tmp_path / "no.json")})()
    with pytest.raises(PolicyError, match=r"no\.json"):
        mine.reset(World.build(*_parts("tiny")), Key(1))


def _parts(name):
    scenario = load_scenario(name)
    return scenario.catalog, scenario.topology


@pytest.mark.parametrize("name", ["chooser", "lookahead", "bandit"])
def test_meta_policies_run_without_faults(name):
    simulation = Simulation(load_scenario("three-tier"), policies.load("dispatch", name), seed=2)
    simulation.run()
    assert not simulation.core.faults
    assert set(simulation.active) <= set(ALL)


def test_lookahead_does_not_peek():
    """Two worlds that agree up to a moment get the same decisions until then."""
    scenario = load_scenario("three-tier")
    first = Simulation(scenario, Lookahead(), seed=5)
    half = scenario.window_s * 2
    later = [replace(s, close_s=min(s.close_s, half + 1.0)) for s in first.trace if s.open_s < half]
    second = Simulation(scenario, Lookahead(), seed=5, streams=later, world=first.world)
    first.run_until(half)
    second.run_until(half)
    assert first.active == second.active
    assert first.core.bindings == second.core.bindings


def test_habits_learn_how_long_streams_last(watched):
    view, _ = watched[-1]
    rng, habits, lasts = np.random.default_rng(3), Habits(), 40.0
    opens = np.sort(rng.uniform(0, 2000.0, 4000))
    closes = opens + rng.exponential(lasts, opens.size)
    items = Rows(*(np.repeat(column[:1], opens.size) for column in view.bound.items))
    items = items._replace(id=np.arange(opens.size))
    for now_s in np.arange(25.0, 2000.0, 25.0):
        here = (opens < now_s) & (closes > now_s)
        rows = Rows(*(column[here] for column in items))
        bound = Bound(rows, np.zeros(here.sum(), dtype=np.int64), opens[here])
        habits.watch(replace(view, now_s=now_s, bound=bound))
    kinds = list(habits.watched_s)
    assert habits.ends_per_s(kinds)[0] == pytest.approx(1 / lasts, rel=0.15)


@pytest.mark.parametrize("scenario", ["tiny", "three-tier"])
def test_nothing_exceeds_the_bound(scenario):
    loaded = load_scenario(scenario)
    if loaded.timeline:
        loaded = replace(loaded, timeline=())
    for seed in (1, 2):
        bound = hindsight_bound(loaded, seed)
        for name in (*ALL, "lookahead"):
            simulation = Simulation(loaded, policies.load("dispatch", name), seed)
            simulation.run()
            ok, *lost = simulation.tally.queries.sum(axis=1)
            assert ok / (ok + sum(lost)) <= bound + 1e-12


def test_the_bound_is_below_one_where_deadlines_cannot_be_met():
    loaded = load_scenario("tiny")
    tight = tuple(
        app.model_copy(update={"deadline_s": (0.001, 0.001)}) for app in loaded.streams.applications
    )
    assert hindsight_bound(replace(loaded, streams=replace(loaded.streams, applications=tight)), 1) == 0.0
