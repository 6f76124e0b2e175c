"""News of split servers in simulation: what a policy knows when, and that nothing later reaches it."""

from __future__ import annotations

import numpy as np
import pytest
import yaml

import edgewise as ew
from edgewise.config import dump_scenario, load_scenario
from edgewise.model.grammar.scenario import TelemetrySpec
from edgewise.model.parsing import parse_scenario
from edgewise.model.work import Task, TaskGraph
from edgewise.policies.split import QueryClass, build_program, split_policy
from edgewise.sim.parts import graphs as simulated
from edgewise.sim.parts.graphs import simulate_split
from split_graphs import fan

ONE = build_program([QueryClass(TaskGraph("one", (Task("t", 1e10),), ()), 1.0)], 2, 1e10, 1e9)  # 1 s each


class Noting:
    """Every query on the first server; notes what was outstanding there."""

    name = "noting"

    def __init__(self):
        self.seen = []

    def reset(self, program, key):
        self.seen = []

    def decide(self, view):
        self.seen.append((float(view.ledger.work_s[0]), int(view.ledger.tasks[0])))
        return np.zeros(1, dtype=np.int64)


def seen_at(sent_s, telemetry, monkeypatch):
    """What is outstanding as each of the queries comes."""
    times = np.array(sent_s), np.zeros(len(sent_s), dtype=np.int64)
    monkeypatch.setattr(simulated, "poisson_queries", lambda *_: times)
    policy = Noting()
    simulate_split(policy, ONE, len(sent_s), 0, telemetry)
    return policy.seen


def test_as_published_the_policy_knows_how_far_each_server_is(monkeypatch):
    seen = seen_at([0.0, 0.25, 0.5, 1.5, 3.0], None, monkeypatch)
    assert [work_s for work_s, _ in seen] == pytest.approx([0.0, 0.75, 1.5, 1.5, 1.0])
    assert [tasks for _, tasks in seen] == [0, 1, 2, 2, 1]


def test_with_telemetry_it_counts_what_it_gave_until_it_hears_of_tasks_that_ended(monkeypatch):
    """Tasks end at 1, 2 and 3 s; samples at 0.8, 1.6, 2.4 … s are heard half a second later."""
    late, sent_s = TelemetrySpec(period_s=0.8, lag_s=0.5), [0.0, 0.25, 0.5, 2.0, 2.2, 2.8, 3.0, 3.8]
    seen = seen_at(sent_s, late, monkeypatch)
    assert [tasks for _, tasks in seen] == [0, 1, 2, 3, 3, 4, 4, 4]
    assert [work_s for work_s, _ in seen] == pytest.approx([0.0, 1.0, 2.0, 3.0, 3.0, 4.0, 4.0, 4.0])


def test_a_sample_tells_what_had_ended_by_then_and_comes_before_a_query_of_the_same_moment(monkeypatch):
    at_once = TelemetrySpec(period_s=1.0, lag_s=0.0)
    assert seen_at([0.0, 0.0, 1.0, 1.5, 2.0], at_once, monkeypatch) == [
        (0, 0),
        (1, 1),
        (1, 1),
        (2, 2),
        (2, 2),
    ]


def test_what_comes_later_changes_no_decision(monkeypatch):
    late = TelemetrySpec(period_s=0.3, lag_s=0.7)
    one, other = (
        seen_at([*np.arange(20) * 0.6, *more], late, monkeypatch) for more in ([11.5], [40.0, 41.0])
    )
    assert one[:20] == other[:20]


def test_news_that_come_late_make_the_shortest_queue_worse_and_a_random_server_as_it_was():
    short, long = (QueryClass(fan([work, work]), rate) for work, rate in ((2e9, 2.0), (3e10, 0.3)))
    program = build_program([short, long], 4, 1e10, 1e10)

    def mean_s(name, telemetry):
        run = simulate_split(split_policy(name, program), program, 4_000, 5, telemetry)
        return run.settled().time_s.mean()

    often, rarely = (TelemetrySpec(period_s=period_s, lag_s=period_s) for period_s in (0.01, 30.0))
    published, soon, late = (mean_s("whole-shortest-queue", news) for news in (None, often, rarely))
    assert published == pytest.approx(soon, rel=0.05) and late > 1.2 * soon
    assert mean_s("whole-random", None) == mean_s("whole-random", rarely)


def test_a_scenario_says_so_and_says_it_still_when_it_was_written_down():
    settings = {
        "telemetry.servers": True,
        "telemetry.period_s": 5,
        "duration_s": 10,
        "graphs.0.rate_qps": 100,
    }
    late = load_scenario("split-inception", settings)
    again = parse_scenario(yaml.safe_load(dump_scenario(late)), "again")
    plain = load_scenario(
        "split-inception", {key: settings[key] for key in ("duration_s", "graphs.0.rate_qps")}
    )
    means = [
        ew.simulate(scenario, {"split": "whole-least-loaded"}, range(1)).windows["mean_s"].to_pylist()
        for scenario in (late, again, plain, parse_scenario(yaml.safe_load(dump_scenario(plain)), "again"))
    ]
    assert means[0] == means[1] != means[2] == means[3]
