"""What a dead server of a split model had goes elsewhere once that is heard, as a gateway has it."""

import numpy as np
import pytest

from edgewise.core.split.core import QueryLost, RunQuery, ServersTold, SplitCore, TasksGivenUp
from joint_scenarios import five_kinds, held, run_of

FAILS_S, LAG_S, BACK_S = 20.0, 2.0, 60.0


def with_a_failure(back_s, lag_s=LAG_S, busy=20.0):
    """Two servers, of which one dies; a query has three tasks of a second each."""
    data = held(five_kinds([], timeline=[(FAILS_S, False), (back_s, True)]), "graphs")
    data["telemetry"] = {"period_s": 0.5, "lag_s": lag_s}
    for operator in data["graphs"][0]["operators"]:
        operator["work_ops"] *= busy
    data["graphs"][0]["rate_qps"] = 0.4
    return data


def noted(patched):
    log, handle = [], SplitCore.handle

    def handle_and_note(core, event):
        commands = handle(core, event)
        core.validate()
        log.append((event, commands))
        return commands

    patched.setattr(SplitCore, "handle", handle_and_note)
    return log


@pytest.mark.parametrize("policy", ["nona-queues", "whole-random", "whole-shortest-queue"])
def test_what_a_dead_server_had_goes_whole_to_another_when_that_is_heard(policy, monkeypatch):
    log = noted(monkeypatch)
    run, rows = run_of(with_a_failure(BACK_S), 3, split=policy)
    lost = [(event, said) for event, said in log if isinstance(event, QueryLost)]
    assert lost and all(event.time_s == FAILS_S + LAG_S and event.lost == (0,) for event, _ in lost)
    for _, (command,) in lost:
        assert isinstance(command, RunQuery) and set(command.servers.tolist()) == {1}
    given_up = [event for event, _ in log if isinstance(event, TasksGivenUp)]
    assert len(given_up) == len(lost) and all(0 in event.servers.tolist() for event in given_up)
    world = run.parts["graphs"].world
    done_s = {event.query: float(world.engine.queries.done_s[event.query]) for event, _ in lost}
    assert all(FAILS_S + LAG_S < end_s < BACK_S for end_s in done_s.values())
    assert all(row["time_s"] is not None for row in rows["graphs"])


def test_who_is_back_before_anybody_has_heard_begins_anew_what_it_had(monkeypatch):
    log = noted(monkeypatch)
    _, rows = run_of(with_a_failure(FAILS_S + 1.0, lag_s=2.0), 3, split="whole-random")
    assert not any(isinstance(event, QueryLost | TasksGivenUp) for event, _ in log)
    assert all(row["time_s"] is not None for row in rows["graphs"])


@pytest.mark.parametrize(("policy", "seed"), [("whole-random", 3), ("nona", 2), ("nona", 3)])
def test_after_all_is_done_nothing_is_outstanding(policy, seed, monkeypatch):
    """What a server that is up works on for a query that has left counts once: when it ends."""
    log = noted(monkeypatch)
    run, _ = run_of(with_a_failure(BACK_S), seed, split=policy)
    assert any(isinstance(event, TasksGivenUp) for event, _ in log)
    world = run.parts["graphs"].world
    counts = (world.engine.tallies()[name][: world.servers] for name in ("busy_s", "served"))
    worked_s, served = counts
    world.core.handle(ServersTold(world.engine.now_s, worked_s, served.astype(np.int64)))
    assert world.core.state.ledger.tasks.tolist() == [0, 0]
    assert world.core.state.ledger.work_s == pytest.approx([0.0, 0.0], abs=1e-9)
