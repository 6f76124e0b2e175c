"""Deferrable jobs: optimum, forecast, safety, data, and the same policies on a live ledger."""

import gzip
import itertools
import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgewise import policies
from edgewise.core.defer import Objective, Trajectories, left_over_of, view_of
from edgewise.core.ledger import NodeLedger, Reservation
from edgewise.errors import PolicyError, ScenarioError
from edgewise.model.topology import Node, Resources
from edgewise.model.work import DeferrableJob
from edgewise.policies.defer.forecast import Forecast, Safe
from edgewise.policies.defer.horizon import Horizon
from edgewise.policies.defer.rules import Fifo, Tetris
from edgewise.policies.defer.schedule import hindsight
from edgewise.sim.slots.defer import DeferralWorlds, simulate
from edgewise.workloads.azure_packing import AzureTrace, read_azure_packing, worlds_of
from edgewise.workloads.deferrable import PAPER, generate

SMALL = replace(PAPER, slots=24, jobs_per_slot=4.0, load_mean=0.85)
FROZEN = Path(__file__).parents[3] / "docs" / "results" / "frozen.json"
EXTRACT = Path(__file__).parents[4] / "shared" / "data" / "azure_packing_2020" / "vm_first17h.csv.gz"


def one_world(jobs, left_over):
    """jobs: (g, e, l, d, c) rows."""
    table = np.array([row[:4] for row in jobs], dtype=np.int64)
    demand = np.array([[row[4]] for row in jobs], dtype=float)[None]
    columns = (table[None, :, k] for k in range(4))
    left = np.array(left_over, dtype=float)[None, :, None]
    return Trajectories(np.array([len(jobs)]), *columns, demand, left, np.array([10.0]), 1.0)


def worth(jobs, starts, left_over, objective):
    value = sum(
        c * d - objective.delay * (s - e) for (_, e, _, d, c), s in zip(jobs, starts, strict=True) if s >= 0
    )
    for t, capacity in enumerate(left_over):
        use = sum(j[4] for j, s in zip(jobs, starts, strict=True) if 0 <= s <= t < s + j[3])
        value -= objective.violation * max(0.0, use - capacity)
    return value


@pytest.mark.parametrize("seed", range(15))
def test_hindsight_is_the_best_of_all_schedules(seed):
    rng = np.random.default_rng(seed)
    jobs = []
    for g in sorted(rng.integers(0, 4, 5).tolist()):
        e = g + int(rng.integers(0, 2))
        jobs.append((g, e, e + int(rng.integers(0, 3)), int(rng.integers(1, 4)), int(rng.integers(1, 5))))
    left_over = rng.integers(0, 8, 9).tolist()
    objective = Objective(delay=2.0, violation=float(rng.choice([0.3, 10.0])))
    windows = [[-1, *range(e, last + 1)] for _, e, last, _, _ in jobs]
    best = max(worth(jobs, starts, left_over, objective) for starts in itertools.product(*windows))
    found = hindsight(one_world(jobs, left_over), 0, objective, gap=1e-9)
    assert found.value == pytest.approx(best) and found.bound >= best - 1e-6
    assert worth(jobs, found.start.tolist(), left_over, objective) == pytest.approx(best)
    assert hindsight(one_world(jobs, left_over), 0, objective, whole=False).bound >= best - 1e-6


def test_no_policy_beats_the_hindsight_bound_and_the_horizon_beats_fifo():
    worlds = generate(SMALL, range(6))
    forecast = Forecast.fit(generate(SMALL, range(100, 130)).left_over, 12)
    bound = np.array([hindsight(worlds, w).bound for w in range(6)])
    pytest.importorskip("onnxruntime", reason="the extra `live` is not installed")
    rewards = {
        name: simulate(worlds, policies.load("defer", name)).reward for name in policies.names("defer")
    }
    rewards["horizon, fitted"] = simulate(worlds, Horizon(forecast)).reward
    assert all((reward <= bound + 1e-6).all() for reward in rewards.values())
    assert rewards["horizon, fitted"].mean() > rewards["fifo"].mean()


def test_two_resources_bind():
    pattern = replace(SMALL, memory_bytes_per_core=4e9)
    worlds = generate(pattern, range(4))
    assert worlds.demand.shape[2] == 2
    out, cores_only = simulate(worlds, Tetris()), simulate(generate(SMALL, range(4)), Tetris())
    assert (
        out.violation <= cores_only.violation + 1e-9
    ).all() and out.revenue.sum() < cores_only.revenue.sum()
    memory = worlds.left_over.copy()
    memory[:, :, 1] = 0.0
    assert simulate(worlds._replace(left_over=memory), Tetris()).started.sum() == 0


def test_forecast_finds_a_known_process():
    rng = np.random.default_rng(0)
    series = np.full((400, 40), 50.0)
    for t in range(1, 40):
        series[:, t] = 50.0 + 0.8 * (series[:, t - 1] - 50.0) + rng.normal(size=400)
    forecast = Forecast.fit(series[:, :, None], 4)
    np.testing.assert_allclose(forecast.persistence[:, 0], 0.8 ** np.arange(4), atol=0.03)
    with pytest.raises(ValueError, match="2 series"):
        Forecast.fit(series[:1, :, None], 4)


def test_safety_layer_bounds_the_chance_of_violation():
    """Volatile capacity: what starts must exceed it later no more often than asked, and FIFO does."""
    pattern = replace(
        PAPER, slots=48, load_noise=0.08, load_memory=0.7, duration_shares=(0.1, 0.1, 0.2, 0.2, 0.2, 0.2)
    )
    forecast = Forecast.fit(generate(pattern, range(1000, 1100)).left_over, 12)
    worlds, chance = generate(pattern, range(60)), 0.05
    bare, safe = simulate(worlds, Fifo()), simulate(worlds, Safe(Fifo(), forecast, chance))
    assert safe.violation.mean() < 0.2 * bare.violation.mean() and (safe.started > 0).all()
    assert _violated(worlds, safe.start) <= chance < _violated(worlds, bare.start)
    with pytest.raises(ValueError, match="between 0 and 1"):
        Safe(Fifo(), forecast, 1.0)


def test_a_trained_policy_can_be_made_safe():
    pytest.importorskip("onnxruntime", reason="the extra `live` is not installed")
    pattern = replace(SMALL, load_noise=0.08, load_memory=0.7, duration_shares=(0.1, 0.1, 0.2, 0.2, 0.2, 0.2))
    forecast, worlds = (
        Forecast.fit(generate(pattern, range(1000, 1050)).left_over, 12),
        generate(pattern, range(20)),
    )
    bare, trained = simulate(worlds, policies.load("defer", "osdec")), policies.load("defer", "osdec")
    safe = simulate(worlds, Safe(trained, forecast, 0.05))
    assert safe.violation.mean() < 0.3 * bare.violation.mean() and safe.started.mean() > 3


def _violated(worlds, start):
    slots = np.arange(worlds.slots)[None, :, None]
    runs = (start[:, None] >= 0) & (start[:, None] <= slots) & (slots < (start + worlds.duration)[:, None])
    return float(((runs * worlds.demand[:, None, :, 0]).sum(axis=2) > worlds.left_over[:, :, 0]).mean())


def test_left_over_comes_from_the_ledger_and_the_same_rule_decides_live():
    ledger = NodeLedger([Node("a", "c", Resources(8.0)), Node("b", "c", Resources(4.0))])
    ledger.reserve(Reservation("inference", "a", Resources(5.0), priority=2))
    ledger.reserve(Reservation("job-9", "b", Resources(2.0), priority=0, preemptible=True))
    left = left_over_of(ledger)
    assert left.tolist() == [7.0]  # 12 - 5: a deferrable job does not count
    jobs = [
        DeferrableJob(9, Resources(2.0), 1200.0, 0.0, 0.0, 0.0),
        DeferrableJob(1, Resources(4.0), 600.0, 0.0, 600.0, 1200.0),
        DeferrableJob(2, Resources(2.0), 600.0, 10.0, 600.0, 1200.0),
        DeferrableJob(3, Resources(1.0), 600.0, 20.0, 1200.0, 1200.0),
    ]
    view = view_of(jobs, {9: 0.0}, np.array([[7.0], [7.0]]), np.array([12.0]), 600.0, 600.0)
    assert view.free.tolist() == [[5.0]]
    started = {
        name: view.job[policies.load("defer", name).decide(view) > 0].tolist()
        for name in ("fifo", "tetris", "sjf")
    }
    assert started == {
        "fifo": [1],
        "tetris": [1],
        "sjf": [1],
    }  # 4 of 5 cores; job 2 does not fit, 3 is too early


def seconds(view):
    """The view's jobs as the live system keeps them, and since when they run."""
    places = np.flatnonzero(view.state[0])
    rows = zip(
        *(
            getattr(view, name)[0, places].tolist()
            for name in ("job", "duration", "submitted", "earliest", "latest")
        ),
        view.demand[0, places, 0],
        strict=True,
    )
    jobs = [
        DeferrableJob(i, Resources(c), d * view.slot_s, g * view.slot_s, e * view.slot_s, last * view.slot_s)
        for i, d, g, e, last, c in rows
    ]
    runs = {
        int(view.job[0, p]): int(view.ends[0, p] - view.duration[0, p])
        for p in places
        if view.ends[0, p] >= 0
    }
    return jobs, {job: start * view.slot_s for job, start in runs.items()}


@pytest.mark.parametrize("name", policies.names("defer"))
def test_every_policy_decides_on_live_jobs_as_in_simulation(name):
    """Slot by slot, the view of one world is made anew from jobs in seconds and shown to a second policy."""
    if name.startswith("osdec"):
        pytest.importorskip("onnxruntime", reason="the extra `live` is not installed")
    simulated, live = policies.load("defer", name), policies.load("defer", name)
    if name == "horizon":  # as it comes it decides in what time there is
        simulated, live = (Horizon(Forecast.steady(12)) for _ in range(2))
    loop = DeferralWorlds(generate(replace(SMALL, jobs_per_slot=8.0), [5]))
    started = 0
    while not loop.done:
        view = loop.view()
        jobs, since_s = seconds(view)
        seen = view_of(jobs, since_s, view.past[0], view.total, view.now * view.slot_s, view.slot_s)
        starts = simulated.decide(view)
        if name != "random":  # keyed by places, and gaps of the pool are not copied
            assert set(seen.job[live.decide(seen) > 0]) == set(view.job[starts > 0])
        started += (starts > 0).sum()
        loop.step(starts > 0)
    assert started > 0


def test_a_trained_policy_asked_each_second_remembers_quarters_of_an_hour():
    pytest.importorskip("onnxruntime", reason="the extra `live` is not installed")
    jobs = [DeferrableJob(k, Resources(2.0), 1800.0, 0.0, 0.0, 7200.0) for k in range(3)]

    def view(now_s, slot_s):
        past = np.full((1, 1), 5.0)
        return view_of(jobs, {}, past, np.array([100.0]), now_s, slot_s)

    coarse, fine = policies.load("defer", "osdec"), policies.load("defer", "osdec")
    for quarter in range(3):
        wanted = coarse.decide(view(900.0 * quarter, 900.0))
        for second in (0.0, 1.0, 899.0):
            found = fine.decide(view(900.0 * quarter + second, 1.0))
            assert (found > 0).sum() == (wanted > 0).sum() == 2
        np.testing.assert_allclose(fine.before, coarse.before)


def test_pattern_is_as_it_was_frozen_and_seeds_are_worlds():
    assert PAPER.sha256() == json.loads(FROZEN.read_text())["osdec-paper"]["sha256"]
    a, b = generate(PAPER, [7]), generate(PAPER, [3, 7])
    n = a.jobs[0]
    assert b.jobs[1] == n and (a.demand[0, :n] == b.demand[1, :n]).all()
    assert (a.left_over[0] == b.left_over[1]).all() and (a.latest + a.duration <= PAPER.slots).all()
    with pytest.raises(ValueError, match="core_shares"):
        replace(PAPER, core_shares=(0.5, 0.5))


def test_generated_classes_have_their_shares():
    worlds = generate(PAPER, range(40))
    real = np.arange(worlds.demand.shape[1]) < worlds.jobs[:, None]
    cores = worlds.demand[:, :, 0][real]
    shares = [(cores == c).mean() for c in PAPER.cores]
    np.testing.assert_allclose(shares, PAPER.core_shares, atol=0.01)


HEADER = "vmId,tenantId,vmTypeId,priority,starttime_s,endtime_s\n"
ROWS = "1,1,5,0,0,100\n2,1,5,1,50,4000\n3,2,6,0,9,5\n4,2,6,7,9,50\n2,1,5,1,50,90\n5,x,6,0,9,50\n6,3,6,0,10,\n"


def test_azure_extract_is_read_and_bad_rows_are_counted(tmp_path):
    path = tmp_path / "vm.csv.gz"
    path.write_bytes(gzip.compress((HEADER + ROWS).encode()))
    trace = read_azure_packing(path)
    assert trace.start_s.tolist() == [0.0, 10.0, 50.0] and np.isinf(trace.end_s[1])
    assert sum(trace.bad.values()) == 4 and trace.bad["ends before it starts"] == 1
    path.write_bytes(gzip.compress(b"a,b\n1,2\n"))
    with pytest.raises(ScenarioError, match="column 'vmId' is missing"):
        read_azure_packing(path)
    with pytest.raises(ScenarioError, match="cannot be read"):
        read_azure_packing(tmp_path / "none.csv")


def test_the_real_extract_gives_worlds_that_policies_run_in():
    if not EXTRACT.is_file():
        pytest.skip(f"needs {EXTRACT.name} in ../shared/data/azure_packing_2020, which is not shipped")
    trace = read_azure_packing(EXTRACT)
    assert trace.tenant.size > 300_000 and trace.bad == {"ends before it starts": 24}
    shares = [(trace.cores == cores).mean() for cores in PAPER.cores]
    np.testing.assert_allclose(shares, PAPER.core_shares, atol=0.01)
    worlds = worlds_of(trace, PAPER, range(2))
    assert (simulate(worlds, policies.load("defer", "fifo")).started > 0.2 * worlds.jobs).all()


def test_azure_sqlite_gives_cores_as_shares_of_a_machine(tmp_path):
    path = tmp_path / "trace.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE vm (vmId, tenantId, vmTypeId, priority, starttime, endtime)")
        database.execute("CREATE TABLE vmType (vmTypeId, machineId, core, memory)")
        database.executemany(
            "INSERT INTO vmType VALUES (?, ?, ?, ?)", [(1, 1, 0.25, 0.1), (1, 2, 0.125, 0.1)]
        )
        database.executemany(
            "INSERT INTO vm VALUES (?,?,?,?,?,?)", [(1, 1, 1, 0, -0.5, 0.5), (2, 1, 1, 1, 0.1, None)]
        )
    database.close()
    trace = read_azure_packing(path, machine_cores=40.0)
    assert trace.cores.tolist() == [10.0, 10.0] and trace.start_s.tolist() == [-43200.0, 8640.0]
    worlds = worlds_of(trace, SMALL, [0, 1], jobs_per_slot=1.0)
    assert worlds.left_over.shape == (2, 24, 1)


def test_starts_lives_and_load_of_a_trace_lie_on_one_time_axis():
    draws = np.random.default_rng(0)
    start_s, lives_s = np.sort(draws.uniform(0, 40_000, 200)), draws.exponential(4000, 200)
    columns = (draws.integers(0, 20, 200), draws.random(200) < 0.5)

    def worlds(stretch):
        times = (start_s * stretch, (start_s + lives_s) * stretch)
        return worlds_of(AzureTrace(*columns, *times, np.ones(200), {}), SMALL, range(3))

    for one, other in zip(worlds(1.0), worlds(4.0), strict=True):
        np.testing.assert_array_equal(one, other)


def test_unknown_policy_names_the_nearest():
    with pytest.raises(PolicyError, match="did you mean 'tetris'"):
        policies.load("defer", "tetriss")
