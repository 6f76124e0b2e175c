"""Workers of streams that come and go: what is said of them, how they drain, and that nothing is lost."""

import numpy as np
import pytest

from edgewise import policies
from edgewise.core.dispatch.events import (
    Bind,
    Refuse,
    Release,
    StreamOpened,
    Tick,
    WorkerChanged,
)
from edgewise.core.dispatch.views import REASONS, Violation
from edgewise.core.keyed import Purpose, uniform
from edgewise.core.ledger import NodeLedger, Reservation
from edgewise.core.orchestrate import AddReplica, RemoveReplica, commands_of
from edgewise.core.orchestrate.core import orchestrating
from edgewise.core.orchestrate.events import (
    EndReplica,
    FrameBegan,
    KeepReplica,
    ReplicaSeen,
    RequestsCounted,
    StartReplica,
    StreamsCounted,
)
from edgewise.errors import ScenarioError
from edgewise.limits import cures
from edgewise.limits.reach import reach_of
from edgewise.limits.rooms import rooms_of
from edgewise.model.parsing import parse_scenario as parsed
from edgewise.model.pools import orchestrated
from edgewise.model.topology import Resources
from edgewise.model.work import Stream
from edgewise.policies.orchestrate.autoscale import Autoscaler
from edgewise.run import assigning
from edgewise.run.joint import JointRun
from edgewise.sim.simulate import Simulation
from edgewise.testing import small_world
from joint_scenarios import OF_POOLS, SMALL, SMALL_CPU, each_query_ended_once, pools

STARTING = REASONS[Violation.STARTING]


def stream(i=0, **needs):
    base = dict(site=0, application="a", task="detect", open_s=0.0, close_s=9.0, rate_qps=5.0,
                size_bytes=1e4, deadline_s=1.0, min_accuracy=0.0)  # fmt: skip
    return Stream(id=i, **(base | needs))


def only_two(make_core):
    """A core of which two workers of one task are up, and these."""
    core = make_core(small_world(), policies.load("dispatch", "least-loaded-feasible"))
    mine = np.flatnonzero(core.world.task == core.world.task_index("detect"))[:2].tolist()
    for w in set(range(core.world.workers)) - set(mine):
        core.handle(WorkerChanged(0.0, w, False))
    return core, mine


def test_streams_of_a_worker_that_is_to_go_move_where_there_is_room(make_core):
    core, (one, other) = only_two(make_core)
    core.handle(WorkerChanged(0.0, other, False))
    assert core.handle(StreamOpened(0.0, stream())) == [Bind(0, one)]
    core.handle(WorkerChanged(0.5, other, True))
    assert core.handle(WorkerChanged(1.0, one, False, drains=True)) == [Release(0, one), Bind(0, other)]
    core.validate()


def test_a_stream_stays_at_a_worker_that_is_to_go_until_there_is_room_elsewhere(make_core):
    core, (one, other) = only_two(make_core)
    core.handle(WorkerChanged(0.0, other, False))
    core.handle(StreamOpened(0.0, stream()))
    assert core.handle(WorkerChanged(1.0, one, False, drains=True)) == []
    core.validate()
    assert core.bindings == {0: one} and not core.refused
    assert core.handle(StreamOpened(1.5, stream(1))) == [Refuse(1, REASONS[Violation.DOWN])], "no new ones"
    assert core.handle(WorkerChanged(2.0, other, True)) == [Bind(1, other)]
    assert core.bindings[0] == one, "until the window ends"
    assert core.handle(Tick(3.0)) == [Release(0, one), Bind(0, other)]
    core.validate()


def test_a_worker_that_was_to_go_and_dies_loses_its_streams(make_core):
    core, (one, other) = only_two(make_core)
    core.handle(WorkerChanged(0.0, other, False))
    core.handle(StreamOpened(0.0, stream()))
    core.handle(WorkerChanged(1.0, one, False, drains=True))
    release, refuse = core.handle(WorkerChanged(2.0, one, False))
    assert release == Release(0, one) and isinstance(refuse, Refuse)
    core.validate()


def test_a_worker_that_is_kept_takes_streams_again(make_core):
    core, (one, other) = only_two(make_core)
    core.handle(WorkerChanged(0.0, other, False))
    core.handle(WorkerChanged(1.0, one, False, drains=True))
    core.handle(WorkerChanged(2.0, one, True))
    assert core.handle(StreamOpened(2.0, stream())) == [Bind(0, one)]


def test_who_could_be_served_by_a_worker_that_starts_waits_for_it(make_core):
    core, (one, other) = only_two(make_core)
    core.handle(WorkerChanged(0.0, other, False))
    full = float(core.world.capacity_qps[one])
    core.handle(StreamOpened(0.0, stream(0, rate_qps=full, size_bytes=float(core.world.largest_bytes[one]))))
    assert core.handle(StreamOpened(0.0, stream(1))) == [Refuse(1, REASONS[Violation.CAPACITY])]
    core.handle(WorkerChanged(1.0, other, False, ready_s=4.0))
    assert core.view().ready_s[other] == 4.0 and core.view().ready_s[one] == 0.0
    assert core.handle(StreamOpened(1.0, stream(2))) == [Refuse(2, STARTING)]
    assert core.final(1) and not core.final(2)
    assert Bind(2, other) in core.handle(WorkerChanged(4.0, other, True))


def test_who_could_not_be_served_in_time_does_not_wait(make_core):
    core, (one, other) = only_two(make_core)
    for w in (one, other):
        core.handle(WorkerChanged(0.0, w, False, ready_s=4.0))
    (refuse,) = core.handle(StreamOpened(1.0, stream(0, deadline_s=1e-4)))
    assert refuse.reason != STARTING


def parse_scenario(data):
    return parsed(data, data["name"])


def test_workers_that_may_start_stand_behind_those_that_are_there():
    topology = parse_scenario(pools()).topology
    assert [(p.name, p.least, p.most) for p in topology.pools] == [
        ("small-cpu@near-0", 1, 4), ("small-cpu@near-1", 1, 4),
    ]  # fmt: skip
    assert [w.name for w in topology.at_first] == [
        f"small-cpu@near-{c}.node-{n}#0" for c in range(2) for n in range(2)
    ]
    assert len(topology.workers) == 16 and not topology.for_good, "four fit each of four nodes"


@pytest.mark.parametrize(
    ("worker", "message"),
    [
        ({"least": 3, "most": 2}, "least: 3 is more than most, 2"),
        ({"count": "fill", "most": 2}, "'fill' workers are there for good"),
        ({"count": 1, "least": 3}, "2 of 'small-cpu' in 'near-0' at first, where least is 3"),
        ({"count": 3, "most": 4}, "6 of 'small-cpu' in 'near-0' at first"),
    ],
)
def test_what_cannot_be_is_said(worker, message):
    data = pools(workers=[{"variant": "small-cpu", "cluster": "near"} | worker])
    with pytest.raises(ScenarioError, match=message):
        parse_scenario(data)


def test_workers_come_and_go_or_are_there_for_good():
    some = [
        {"variant": "small-cpu", "cluster": "near-0", "most": 2},
        {"variant": "small-cpu", "node": "near-0.node-1"},
    ]
    with pytest.raises(ScenarioError, match="another form places it there too"):
        parse_scenario(pools(workers=some))


def test_a_pool_can_do_what_its_most_workers_can_and_is_cured_by_more():
    for most, cure in ((3, ["workers.0.most = 5 (small-cpu at near)"]), (8, [])):
        scenario = parse_scenario(
            pools(workers=[{"variant": "small-cpu", "cluster": "near", "least": 1, "most": most}])
        )
        groups = reach_of(scenario).groups
        assert [(g.name, g.most, g.capacity_qps) for g in groups] == [
            (f"small-cpu at near-{c}", most, 50.0 * most) for c in range(2)
        ]
        found = cures.workers(scenario, rooms_of(scenario), groups[0], 1.2)
        assert [each.text for each in found if "most" in each.text] == cure


class Dice:
    """Starts and ends workers as dice fall."""

    name, decision, batched = "dice", "orchestrate", True

    def reset(self, world, key):
        self.frame = 0

    def decide(self, view):
        self.frame += 1
        draws = uniform(int(view.seed[0]) + 7, int(Purpose.POLICY), np.arange(24), self.frame)
        places = np.argwhere(view.replicas["may"][0, 1:] > 0).tolist()
        chosen = [
            (AddReplica if more < 0.5 else RemoveReplica)(*places[int(which * len(places))])
            for more, which in draws.reshape(12, 2).tolist()[: 1 + int(draws[-1] * 5)]
        ]
        return commands_of([chosen])


class Dices(Dice):
    """With another sequence for each world."""

    def __init__(self, seed):
        self.seed = seed

    def decide(self, view):
        view.world["seed"][0] = self.seed
        return super().decide(view)


def run_of(scenario, seed, orchestrate=None):
    _, chosen = assigning.assigned(scenario, {})
    made = {decision: assigning.maker(decision, each)[1] for decision, each in chosen.items()}
    made["orchestrate"] = orchestrate or (lambda: Dices(seed))
    run = JointRun(scenario, assigning.beside(scenario, "streams"), made, seed, check=True)
    return run, run.run()["streams"].items


def rows_of(items):
    return [dict(zip(items, row, strict=True)) for row in zip(*items.values(), strict=True)]


WORLDS = [
    {"sharing": sharing, "streams.gateways": gateways}
    for sharing in ("none", "fifo", "ps")
    for gateways in ("one", "per_site")
]


def world_of(kind, **changes):
    data = pools(**changes, sharing=kind["sharing"])
    data["streams"]["gateways"] = kind["streams.gateways"]
    return parse_scenario(data)


@pytest.mark.parametrize("kind", WORLDS, ids=lambda kind: "-".join(kind.values()))
def test_no_query_is_lost_whatever_comes_and_goes(kind):
    scenario = world_of(kind)
    for seed in range(6):
        run, items = run_of(scenario, seed)
        kinds = [type(command) for _, command in run.joint.log]
        assert kinds.count(StartReplica) >= 4 and kinds.count(EndReplica) >= 4
        assert each_query_ended_once(run, rows_of(items))
        served = [row for row in rows_of(items) if row["worker"] is not None]
        late = [row["stream"] for row in served if row["failed"]]
        assert not late, f"seed {seed}: streams {late} lost queries; 30 s are enough for all"
        check_pools(run, scenario)


@pytest.mark.parametrize("kind", WORLDS, ids=lambda kind: "-".join(kind.values()))
def test_nodes_that_die_take_only_what_they_have(kind):
    timeline = [
        {"at_s": at_s, "node": node, "up": up}
        for at_s, node, up in ((20.05, "near-0.node-0", False), (31.1, "near-0.node-0", True),
                               (50.0, "near-1.node-1", False), (70.2, "near-1.node-1", True))
    ]  # fmt: skip
    scenario = world_of(kind, timeline=timeline)
    for seed in range(6):
        run, items = run_of(scenario, seed)
        assert each_query_ended_once(run, rows_of(items))
        check_pools(run, scenario)


def check_pools(run, scenario):
    """Every pool has always had as many workers as it may, by the commands that were given."""
    pool_of = {worker.name: worker.pool for worker in scenario.topology.workers}
    count = {pool.name: 0 for pool in scenario.topology.pools}
    most = {pool.name: (pool.least, pool.most) for pool in scenario.topology.pools}
    for worker in scenario.topology.at_first:
        if worker.pool is not None:
            count[worker.pool] += 1
    for _, command in run.joint.log:
        if isinstance(command, StartReplica):
            pool = scenario.topology.pools[command.service].name
            count[pool] += 1
        elif isinstance(command, KeepReplica | EndReplica):
            pool = pool_of[command.replica]
            count[pool] += 1 if isinstance(command, KeepReplica) else -1
        assert most[pool][0] <= count[pool] <= most[pool][1], (pool, count)


def test_the_same_seed_gives_the_same_run():
    scenario = world_of(WORLDS[3])
    (one, first), (other, second) = (run_of(scenario, 3) for _ in range(2))
    assert first == second and one.joint.log == other.joint.log


def test_a_worker_takes_its_image_and_its_start_before_it_serves(monkeypatch):
    """20 MB at 100 Mbit/s take 1.6 s, and 5 ms to come; 2 s to start; its node has it the second time."""
    scenario = world_of(WORLDS[0], workers=[{"variant": "small-cpu", "cluster": "near-0", "most": 3}])

    class Twice(Dice):
        def decide(self, view):
            self.frame += 1
            return commands_of([[AddReplica(1, 0)] if self.frame in (3, 6) else []])

    began = []
    begin = Simulation.begin_worker

    def noted(self, w, now_s):
        began.append((w, now_s))
        begin(self, w, now_s)

    monkeypatch.setattr(Simulation, "begin_worker", noted)
    run, _ = run_of(scenario, 0, Twice)
    names = run.parts["streams"].simulation.world.worker_names
    assert [names[w] for w, _ in began] == ["small-cpu@near-0.node-1#0", "small-cpu@near-0.node-1#1"]
    assert [at_s for _, at_s in began] == [pytest.approx(10.0 + 1.605 + 2.0), pytest.approx(27.0)]


def test_nobody_is_left_when_all_pools_may_be_empty_and_nobody_comes():
    data = pools(workers=[{"variant": "small-cpu", "cluster": "near", "least": 0, "most": 4}])
    data["streams"]["arrivals"] = {"clients_per_min": 0.001}
    run, items = run_of(parse_scenario(data), 0, policies.load("orchestrate", "autoscaler").__class__)
    ended = [command for _, command in run.joint.log if isinstance(command, EndReplica)]
    assert len(ended) == 4 and not items["stream"]
    assert not [each for each in run.plane.ledger.reservations if each.decision == "orchestrate"]


def test_the_first_stream_starts_a_worker_where_there_is_none():
    data = pools(workers=[{"variant": "small-cpu", "cluster": "near", "count": 1, "least": 0, "most": 4}])
    data["streams"]["arrivals"] = {"clients_per_min": [{"at_s": 0, "rate": 0.0001}, {"at_s": 90, "rate": 20}]}
    run, items = run_of(parse_scenario(data), 0, policies.load("orchestrate", "autoscaler").__class__)
    starts = [at_s for at_s, command in run.joint.log if isinstance(command, StartReplica)]
    assert starts and starts[0] > 90.0
    assert any(worker is not None for worker in items["worker"])


def test_who_needs_an_accelerator_starts_where_one_is_free():
    """The first node has none, the second one, on which there is room for one worker."""
    accelerated = {"accelerator_memory_bytes": "8GB"}
    on_gpu = {**SMALL_CPU, "name": "small-gpu", "resources": SMALL_CPU["resources"] | accelerated}
    both = [OF_POOLS | {"name": "plain"}, OF_POOLS | {"name": "fast"}]
    both[1] = both[1] | {"resources": OF_POOLS["resources"] | accelerated}
    data = pools(
        catalog={
            "models": [SMALL],
            "variants": [SMALL_CPU, {**on_gpu, "providers": ["CUDAExecutionProvider"]}],
        },
        clusters=[{"name": "near", "tier": 0, "nodes": both}],
        sites=[{"name": "site", "cluster": "near"}],
        workers=[{"variant": "small-gpu", "cluster": "near", "count": 1, "least": 1, "most": 2}],
    )
    scenario = parse_scenario(data)
    what = orchestrated(scenario, None)
    core = orchestrating(what, Autoscaler(), NodeLedger(scenario.topology.nodes))
    nothing = np.zeros(0, dtype=np.int64)
    core.handle(RequestsCounted(nothing, 0.0, np.zeros(0), 10, nothing))
    everywhere = commands_of([[AddReplica(n, 0) for n in (0, 1, 1)]])[0]
    assert core.carried_out(everywhere) == [StartReplica(1, 0)]
    core.ledger.hold(Reservation("another", "fast", Resources(accelerator_memory_bytes=4e9)))
    assert core.carried_out(everywhere) == []


@pytest.mark.parametrize("job_on", [None, 0, 1])
@pytest.mark.parametrize("other", [0.7, 0.0], ids=["alone", "as another ends"])
def test_a_new_worker_goes_where_no_job_has_to_go(job_on, other):
    """Of two nodes with one worker each; a job has all cores that the worker leaves, and gives way."""
    what = orchestrated(parse_scenario(pools()), None)
    ledger = NodeLedger(parse_scenario(pools()).topology.nodes)
    core = orchestrating(what, Autoscaler(stabilisation=1), ledger)
    for p, names in enumerate(what.workers):
        for name in names[:2]:
            core.handle(ReplicaSeen(name, what.nodes.index(what.node_of[name]), p, up=True))
    if job_on is not None:
        ledger.hold(Reservation("job", what.nodes[job_on], Resources(cpu_cores=3.0), 0, preemptible=True))
    load, none = np.zeros((len(what.nodes), 2)), np.zeros(2)
    load[:2, 0], load[2:4, 1] = 0.95, other
    nothing = np.zeros(0, dtype=np.int64)
    core.handle(RequestsCounted(nothing, 0.0, np.zeros(0), 10, nothing))
    core.handle(StreamsCounted(load, none, none, none + 1.0, np.zeros((2, 5), dtype=np.int64)))
    said = core.handle(FrameBegan(0.0))
    assert StartReplica(1 if job_on == 0 else 0, 0) in said
    assert sum(isinstance(command, StartReplica) for command in said) == 1
    assert any(isinstance(command, EndReplica) for command in said) == (other == 0.0)
