"""Services of a live scenario: their form, the replicas that are planned, commands carried out, requests."""

import asyncio
import itertools
import logging

import numpy as np
import pytest

from edgewise import policies
from edgewise.config import dump_scenario, load_scenario
from edgewise.core.dispatch.events import (
    Drop,
    ReplicaChanged,
    ReplicaForgotten,
    ReplicaTold,
    RequestArrived,
    RequestEnded,
    RequestReturned,
    Send,
    Wait,
)
from edgewise.core.dispatch.requests import RequestCore, rehearse
from edgewise.core.keyed import Key
from edgewise.core.orchestrate import HOLD, AddReplica, RemoveReplica, commands_of
from edgewise.core.orchestrate.events import EndReplica, KeepReplica, RequestsCounted, StartReplica
from edgewise.errors import PolicyError, ScenarioError
from edgewise.model.services import services_of
from edgewise.runtime import clock
from edgewise.runtime.controller.heard import AWAITED_S
from edgewise.runtime.controller.live_plane import LivePlane
from edgewise.runtime.controller.plan import prepare
from edgewise.runtime.controller.reconcile import Pass, reconcile
from edgewise.runtime.controller.replicas import FRAME, Replicas

CAMERA, PLATES, SORTING = range(3)
GB = 1e9


def scenario(**changes):
    return load_scenario("kais-live", {name.replace("__", "."): value for name, value in changes.items()})


# the scenario


def test_stations_are_the_cloud_and_all_other_nodes():
    services = services_of(scenario())
    system = services.system
    assert services.names == ("camera", "plates", "sorting")
    assert services.nodes == ("west-0", "west-1", "east-0", "east-1")
    assert [(w.name, w.service) for w in services.workers] == [
        ("camera@cloud", 0),
        ("plates@cloud", 1),
        ("sorting@cloud", 2),
    ]
    assert system.site_of.tolist() == [0, 0, 1, 1]
    assert system.delay_s[0] == pytest.approx([0.12, 0.002, 0.002, 0.01, 0.01])  # there and back
    assert system.initial.sum(axis=0).tolist() == [1, 1, 1]
    assert services.service_s == pytest.approx([0.04, 0.03, 0.02])
    assert system.rate_bps.tolist() == [[1e8, 1e9, 1e9, 1e9, 1e9]] * 2
    assert services_of(load_scenario("tiny")) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"services__cloud": "clout"},
            "services.cloud: unknown cluster 'clout'; did you mean 'cloud'",
        ),
        ({"services__offered.0.variant": "camra"}, "unknown variant 'camra'; did you mean 'camera'"),
        ({"services__offered.0.variant": "plates"}, "'plates' is given twice"),
        ({"services__offered.0.initial": 9}, "8 of 9 replicas of 'camera' fit the nodes; lower it"),
        ({"services__frame_s": 0}, "services.frame_s"),
        ({"workers.0.cluster": "west"}, "no worker of 'camera' in the cloud; add"),
        ({"catalog.variants.0.resources": {"cpu_cores": 1}}, "needs cpu_cores and memory_bytes above 0"),
        (
            {"catalog.models.0.task": "camera", "streams.applications.0.task": "camera"},
            "'camera' is also a task",
        ),
    ],
)
def test_what_is_wrong_with_services_is_said(changes, message):
    with pytest.raises(ScenarioError) as caught:
        scenario(**changes)
    assert message in str(caught.value)


def test_workers_of_streams_on_a_node_leave_less_to_replicas():
    kept = scenario(**{"workers.0": {"variant": "camera", "cluster": "cloud"}})
    data = dump_scenario(kept).replace("workers:\n", "workers:\n- {variant: other, node: west-0, count: 1}\n")
    data = data.replace(
        "  variants:\n",
        "  variants:\n  - {name: other, model: reader, resources: {cpu_cores: 1, memory_bytes: 2GB}, "
        "profile: {fixed_s: 1}, largest_bytes: 1kB}\n",
    )
    import yaml

    from edgewise.model.parsing import parse_scenario

    system = services_of(parse_scenario(yaml.safe_load(data), "x")).system
    assert system.memory_bytes[1:].tolist() == [0.5 * GB, 2.5 * GB, 2.5 * GB, 2.5 * GB]
    assert system.cpu_cores[1:].tolist() == [1.0, 2.0, 2.0, 2.0]


# what is planned


def prepared(folder, made=None):
    store = prepare(folder, made or scenario())
    return store, services_of(made or scenario())


def names(store):
    return sorted(r.process.name for r in store.processes("replica") if r.process.wanted)


def test_first_replicas_are_processes_and_stay_when_the_scenario_is_prepared_again(tmp_path):
    store, _ = prepared(tmp_path)
    assert names(store) == ["camera@west-0#0", "plates@west-1#0", "sorting@east-0#0"]
    assert store.policy("requests") == "deadline-queue"
    before = [r.process for r in store.processes("replica")]
    store.close()
    store, _ = prepared(tmp_path)
    assert [r.process for r in store.processes("replica")] == before
    store.close()
    smaller = scenario(**{"clusters.0.nodes.0.resources.memory_bytes": "900MB"})
    store, _ = prepared(tmp_path, smaller)  # no camera fits the west any more: the first two move
    assert names(store) == ["camera@east-1#0", "plates@east-0#0", "sorting@east-0#0"]
    store.close()


def test_a_policy_that_does_not_exist_is_refused_before_anything_starts(tmp_path):
    with pytest.raises(PolicyError, match="no requests policy 'neerest'"):
        prepare(tmp_path, scenario(policies__requests="neerest"))
    with pytest.raises(PolicyError, match="no orchestrate policy"):
        prepare(tmp_path, scenario(policies__orchestrate="x"))
    with pytest.raises(PolicyError, match="there is no such file"):
        prepare(tmp_path, scenario(policies__requests="x.json"))


# the controller's part


async def nobody(method, path):
    return []


def controller(folder, made=None, ask=nobody, ends=lambda handle: False):
    store, services = prepared(folder, made)
    return Replicas(LivePlane(store), ask, ends), store, services


def carry_out(replicas, *commands):
    """What came of commands, as the core says and as the store has it then."""
    services = replicas.plane.services
    counted = RequestsCounted(none := np.zeros(3, dtype=np.int64), 0.1, services.service_s, 100, none)
    plane = replicas.plane
    plane.listen(0.0)
    plane.tell(counted, 0.0)
    core = plane.cores["orchestrate"]
    found = core.carried_out(commands_of([commands])[0])
    for command in found:
        plane.carry_out[type(command)](command, 0.0)
    plane.validate()
    return found


def placed(replicas, services):
    """(N, S) replicas that are wanted."""
    table = np.zeros((len(services.nodes), len(services.names)), dtype=int)
    for running in replicas.store.processes("replica"):
        if running.process.wanted:
            settings = running.process.settings
            table[services.nodes.index(settings["node"]), services.names.index(settings["service"])] += 1
    return table


def test_a_system_that_runs_keeps_its_policies_until_they_are_switched(tmp_path):
    first = scenario(policies__requests="greedy", policies__orchestrate="none")
    prepare(tmp_path, first, gateways=2).close()
    changed = scenario(policies__requests="closest", policies__orchestrate="autoscaler")
    store = prepare(tmp_path, changed, gateways=2, given=None)  # as `up` does where it runs already
    assert (store.policy("requests"), store.policy("orchestrate")) == ("greedy", "none")
    store.set_policy("requests", str(tmp_path / "gone.json"))  # one that cannot be used goes with the change
    store.close()
    store = prepare(tmp_path, changed, gateways=2, given=None)
    assert (store.policy("requests"), store.policy("orchestrate")) == ("closest", "none")
    store.close()
    store = prepare(tmp_path, changed, gateways=2)
    assert store.policy("orchestrate") == "autoscaler"
    store.close()


def test_commands_add_and_remove_within_memory_and_what_cannot_be_does_nothing(tmp_path):
    replicas, store, _ = controller(tmp_path)
    services = replicas.plane.services
    carry_out(
        replicas,
        AddReplica(0, 0),
        AddReplica(0, 0),
        AddReplica(0, 2),
        AddReplica(0, 2),
        AddReplica(9, 0),
        AddReplica(-1, 0),
        AddReplica(3, 8),
        RemoveReplica(3, 0),
    )
    assert placed(replicas, services)[0].tolist() == [2, 0, 1]  # 2 GB and 0.5 GB of 2.5 GB
    assert placed(replicas, services)[3].tolist() == [0, 0, 0]
    replicas.plane.listen(0.0)
    free = replicas.plane.ledger.free("west-0")
    assert free.memory_bytes == 0.0 and free.cpu_cores == 0.0
    ports = [r.process.port for r in store.processes()]
    assert len(set(ports)) == len(ports)
    # what goes holds its memory until its process has ended
    carry_out(replicas, RemoveReplica(0, 0), AddReplica(0, 1))
    store.started("camera@west-0#1", "1:1", 0)
    carry_out(replicas, AddReplica(0, 1))
    assert placed(replicas, services)[0, CAMERA] == 1


def test_memory_of_a_replica_that_goes_is_free_when_its_process_has_ended(tmp_path):
    replicas, store, _ = controller(tmp_path)
    services = replicas.plane.services
    carry_out(replicas, AddReplica(0, 0), AddReplica(0, 2))
    for running in store.processes("replica"):
        store.started(running.process.name, f"1:{running.process.port}", 0)
    assert carry_out(replicas, RemoveReplica(0, CAMERA))
    assert not carry_out(replicas, AddReplica(0, PLATES))
    gone = next(r.process.name for r in store.processes("replica") if not r.process.wanted)
    store.started(gone, None, 0)
    assert carry_out(replicas, AddReplica(0, PLATES))
    asyncio.run(replicas.step(0.0))
    assert gone not in [r.process.name for r in store.processes("replica")]
    assert placed(replicas, services)[0].tolist() == [1, 1, 1]


@pytest.mark.parametrize("told", [False, True])
def test_adding_keeps_a_replica_that_is_to_go_unless_it_was_told_to_end(tmp_path, told):
    replicas, store, _ = controller(tmp_path, ends=lambda handle: told)
    store.started("camera@west-0#0", "1:1", 0)
    gone = carry_out(replicas, RemoveReplica(0, CAMERA), RemoveReplica(0, CAMERA))
    assert gone == [EndReplica("camera@west-0#0")]
    assert carry_out(replicas, AddReplica(0, CAMERA)) == [
        StartReplica(0, CAMERA) if told else KeepReplica("camera@west-0#0")
    ]
    assert names(store)[0] == ("camera@west-0#1" if told else "camera@west-0#0")


@pytest.mark.parametrize("answer", ["silent", "refuses", "holds none", "holds one"])
def test_a_replica_is_in_use_until_each_gateway_that_runs_says_that_it_is_not(tmp_path, monkeypatch, answer):
    name, now_s = "camera@west-0#0", [0.0]
    monkeypatch.setattr(clock, "monotonic_s", lambda: now_s[0])

    def held(count):
        view = {"up": True, "wanted": False, "held": count}
        return {"cloud_delay_s": 0.1, "services": {}, "replicas": {name: view}}

    async def ask(method, path):
        second = {"silent": [], "refuses": [None], "holds none": [held(0)], "holds one": [held(1)]}[answer]
        return [{"gateway": f"gateway-{k}", "answer": each} for k, each in enumerate([held(0), *second])]

    replicas, store, _ = controller(tmp_path, ask=ask)
    for number in range(2):
        store.started(f"gateway-{number}", f"{number}:1", 0)
    assert replicas.in_use(name), "nobody was asked yet"
    asyncio.run(replicas.step(0.0))
    assert replicas.in_use(name) == (answer in ("silent", "holds one"))
    now_s[0] = AWAITED_S
    assert replicas.in_use(name) == (answer == "holds one")
    store.started("gateway-1", "2:1", 0)
    assert replicas.in_use(name), "one that began since was not asked"


def test_nodes_per_frame_bounds_where_replicas_change(tmp_path):
    replicas, _, _ = controller(tmp_path, scenario(services__nodes_per_frame=1))
    services = replicas.plane.services
    before = placed(replicas, services)
    carry_out(replicas, AddReplica(1, 0), AddReplica(3, 2), AddReplica(1, 2), AddReplica(3, 0))
    assert (placed(replicas, services) - before).sum(axis=1).tolist() == [0, 2, 0, 0]


def test_replicas_that_hold_cores_for_life_are_added_only_where_cores_are_free(tmp_path):
    life = {"services.cores_held": "life", "clusters.0.nodes.0.resources.memory_bytes": "99GB"}
    replicas, _, _ = controller(tmp_path, load_scenario("kais-live", life))
    services = replicas.plane.services
    carry_out(replicas, *[AddReplica(0, CAMERA)] * 9)
    assert placed(replicas, services)[0].tolist() == [1, 0, 1]  # a core and half a core, of 2
    assert carry_out(replicas, AddReplica(0, PLATES), AddReplica(0, PLATES)) == [StartReplica(0, PLATES)]


def test_a_changed_scenario_keeps_no_more_replicas_than_its_nodes_have_cores_for(tmp_path):
    large, small = {"count": 1, "resources.memory_bytes": "99GB"}, {"resources.cpu_cores": 1}
    life, small = (
        {"services.cores_held": "life"} | {f"clusters.0.nodes.0.{name}": x for name, x in part.items()}
        for part in (large, large | small)
    )
    prepare(tmp_path, load_scenario("kais-live", life)).close()
    changed = load_scenario("kais-live", small)
    store, services = prepare(tmp_path, changed), services_of(changed)
    rows = [services.place(r.process.settings) for r in store.processes("replica") if r.process.wanted]
    assert sorted(s for _, s in rows) == [CAMERA, PLATES, SORTING]
    for n, cores in enumerate(services.system.node_has[:, 1]):
        assert sum(services.holds[s].cpu_cores for at, s in rows if at == n) <= cores


def report(**held):
    """A gateway's answer; camera@west-0#0 is up, and holds requests."""
    wanted = held.pop("wanted", True)
    replica = {"service": "camera", "up": True, "wanted": wanted, "held": held.get("camera", 0)}
    totals = {"arrived": held.get("arrived", 0), "in_time": 0, "late": 0, "dropped": 0, "failed": 0}
    return {
        "policy": "x", "cloud_delay_s": 0.2,
        "services": {name: totals if name == "camera" else dict.fromkeys(totals, 0)
                     for name in ("camera", "plates", "sorting")},
        "replicas": {"camera@west-0#0": replica, "camera@cloud": {**replica, "held": 3}},
    }  # fmt: skip


def test_the_view_sums_what_gateways_say(tmp_path):
    answers = [report(camera=2, arrived=5), report(camera=1, arrived=4)]

    async def ask(method, path):
        return [{"gateway": f"gateway-{k}", "answer": answer} for k, answer in enumerate(answers)]

    replicas, store, _ = controller(tmp_path, ask=ask)
    store.started("camera@west-0#0", "1:1", 0)
    replicas.frame = 0
    asyncio.run(replicas.step(0.0))
    replicas.plane.listen(0.0)
    replicas.plane.tell(replicas.counted(replicas.plane.orchestrated), 0.0)
    core = replicas.plane.cores["orchestrate"]
    view = core.view(0.0)
    assert (view.busy[0, 1, CAMERA], view.waiting[0, 1, CAMERA], view.ready[0, 1, CAMERA]) == (1, 2, 1)
    assert view.waiting_s[0, 1, CAMERA] == pytest.approx(0.08)
    assert view.starting[0, 2, PLATES] == 1 and view.ready[0, 2, PLATES] == 0
    assert (view.busy[0, 0, CAMERA], view.waiting[0, 0, CAMERA]) == (1, 5)
    assert view.cloud_delay_s[0] == pytest.approx(0.2)
    assert view.arrived[0].tolist() == [9, 0, 0]
    answers[0]["services"]["camera"]["arrived"] = 7
    answers[1]["services"]["camera"]["arrived"] = 1  # it was started anew
    asyncio.run(replicas.step(0.0))
    assert replicas.counted(replicas.plane.orchestrated).arrived.tolist() == [3, 0, 0]
    found = replicas.report()
    assert found["services"][CAMERA]["nodes"]["west-0"]["ready"] == 1
    assert found["services"][CAMERA]["requests"]["arrived"] == 8


def test_a_replica_that_goes_is_in_use_until_gateways_know_and_hold_nothing(tmp_path):
    answers = []

    async def ask(method, path):
        return [{"gateway": f"gateway-{k}", "answer": answer} for k, answer in enumerate(answers)]

    replicas, _, _ = controller(tmp_path, ask=ask)
    name = "camera@west-0#0"
    assert replicas.in_use(name)  # nothing heard yet
    for first, second, used in (
        (report(), report(wanted=False), True),  # one does not know yet
        (report(wanted=False, camera=1), report(wanted=False), True),  # one waits for an answer
        (report(wanted=False), report(wanted=False), False),
        ({"error": "no services"}, report(wanted=False), False),  # a gateway of a newer scenario
    ):
        answers[:] = [first, second]
        asyncio.run(replicas.step(0.0))
        assert replicas.in_use(name) is used


def test_a_new_controller_decides_in_its_first_frame_once_gateways_have_answered(tmp_path):
    answers = []

    async def ask(method, path):
        return answers

    replicas, store, services = controller(tmp_path, ask=ask)
    asyncio.run(replicas.step(0.0))
    assert store.get(FRAME) is None and placed(replicas, replicas.plane.services).sum() == 3
    answers.append({"gateway": "gateway-0", "answer": report(camera=3)})
    asyncio.run(replicas.step(1.0))
    assert store.get(FRAME) == 0
    assert placed(replicas, replicas.plane.services)[:, CAMERA].sum() > 1


def test_frames_ask_the_policy_once_and_a_policy_that_fails_changes_nothing(tmp_path, caplog):
    async def ask(method, path):
        return [{"gateway": "gateway-0", "answer": report(camera=3)}]

    replicas, store, _ = controller(tmp_path, ask=ask)
    services = replicas.plane.services
    frame_s = services.spec.frame_s
    store.put(FRAME, 10)
    asyncio.run(replicas.step(10 * frame_s))  # a controller that starts again does not repeat a frame
    assert placed(replicas, services).sum() == 3
    since = replicas.counted(replicas.plane.orchestrated)
    assert since.arrived.tolist() == [0, 0, 0]  # nor count what came before
    asyncio.run(replicas.step(11 * frame_s))
    grown = placed(replicas, services)
    assert grown[:, CAMERA].sum() > 1
    asyncio.run(replicas.step(11.5 * frame_s))
    assert (placed(replicas, services) == grown).all()
    replicas.core.policy.policy.decide = lambda view: 1 / 0
    store.set_policy("orchestrate", "autoscaler")

    async def keep():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reconcile([Pass("replicas", 0.001, "", replicas.go_on)]), 0.2)

    replicas.frame = 0
    with caplog.at_level(logging.ERROR):
        asyncio.run(keep())
    assert "of orchestrate failed: ZeroDivisionError" in caplog.text and "ZeroDivisionError" in replicas.fault
    assert (placed(replicas, services) == grown).all()


# the gateway's part


@pytest.fixture
def site():
    """Makes the core of a site whose replicas in the cloud are up; checked at the end."""
    made = []

    def make(policy="greedy"):
        loaded = policies.load("requests", policy, live=True)
        core = RequestCore(services_of(scenario()), 0, loaded, 0)
        for replica in core.replicas.values():
            replica.up = True
        made.append(core)
        return core

    yield make
    for core in made:
        core.validate()


NUMBERS = itertools.count()


def ask(core, service, left_s=1.0, size_bytes=100.0):
    """What a request gets that comes at 5 s, and is gone when it has got it."""
    number = next(NUMBERS)
    (command,) = core.handle(RequestArrived(5.0, number, service, 5.0 + left_s, size_bytes))
    if isinstance(command, Send):
        assert core.handle(RequestReturned(5.0, number, "failed")) == []
    elif isinstance(command, Wait):
        assert core.handle(RequestEnded(5.0, number)) == []
    return command._replace(request=-1)


def put(core, name, station=1, wanted=True, up=True, others=0):
    core.handle(ReplicaChanged(0.0, name, CAMERA, station, wanted, up))
    core.handle(ReplicaTold(0.0, name, others))


def test_of_the_replicas_at_a_station_the_one_with_least_to_do_gets_the_request(site):
    core = site("deadline-queue")
    for name, others in (("a", 2), ("b", 1)):
        put(core, name, others=others)
    put(core, "c", wanted=False)
    put(core, "d", up=False)
    assert ask(core, CAMERA) == Send(-1, "b")
    put(core, "b", others=5)
    assert ask(core, CAMERA) == Send(-1, "a")
    assert ask(core, PLATES) == Send(-1, "plates@cloud")


def test_requests_that_are_under_way_count_until_they_return(site):
    core = site("closest")
    put(core, "a")
    core.handle(RequestArrived(1.0, -5, CAMERA, 2.0, 100.0))
    assert core.replicas["a"].mine == 1 and core.view().busy[0, 1, CAMERA] == 1
    core.handle(ReplicaTold(1.0, "a", 3))
    assert core.replicas["a"].others == 2 and core.view().waiting[0, 1, CAMERA] == 2
    assert core.handle(RequestReturned(1.5, -5, "answered", 0.1)) == []
    core.handle(RequestArrived(1.5, -6, CAMERA, 1.6, 100.0))
    core.handle(RequestReturned(1.7, -6, "answered", 0.1))
    assert (core.ended["in_time"][CAMERA], core.ended["late"][CAMERA], core.arrived[CAMERA]) == (1, 1, 2)
    core.handle(ReplicaForgotten(2.0, "a"))
    assert "a" not in core.replicas


def test_a_request_whose_replica_is_lost_goes_to_another(site):
    core = site("closest")
    put(core, "a")
    assert core.handle(RequestArrived(1.0, -5, CAMERA, 3.0, 100.0)) == [Send(-5, "a")]
    assert core.handle(RequestReturned(1.1, -5, "lost")) == [Send(-5, "camera@cloud")]
    put(core, "b")
    assert core.handle(RequestReturned(1.2, -5, "lost")) == [Send(-5, "b")]
    (given_up,) = core.handle(RequestReturned(1.3, -5, "lost"))
    assert isinstance(given_up, Drop) and not given_up.late and "3 replicas were lost" in given_up.reason
    assert core.ended["dropped"][CAMERA] == 1
    assert core.said == {"sent": 1, "resent": 2, "kept": 0, "refused": 0, "given_up": 1}


def test_without_time_or_replicas_a_request_is_refused_and_why_is_said(site):
    core = site()
    refused = ask(core, CAMERA, left_s=0.1)
    assert refused.late and "cannot end in time: takes at least 0.155 s" in refused.reason
    put(core, "a")
    assert ask(core, CAMERA, left_s=0.1) == Send(-1, "a")
    for replica in core.replicas.values():
        replica.up = False
    refused = ask(core, CAMERA)
    assert not refused.late and "no replica of 'camera' is up" in refused.reason


def test_a_policy_may_hold_a_request_and_one_that_fails_is_replaced_by_the_cloud(site):
    core = site()
    put(core, "a")
    policy, guard = core.adviser.policy, core.adviser.guard
    policy.decide = lambda view: np.full(view.site.shape, HOLD)
    assert ask(core, CAMERA) == Wait(-1, 5.0 + core.services.spec.slot_s)
    policy.decide = lambda view: 1 / 0
    assert {ask(core, CAMERA) for _ in range(3)} == {Send(-1, "camera@cloud")}
    assert guard.faults == {"raised ZeroDivisionError": 3} and not guard.new
    policy.decide = lambda view: np.full(view.site.shape, 4)  # nobody there
    assert ask(core, CAMERA) == Send(-1, "camera@cloud") and "cannot serve" in guard.fault
    core.replicas["camera@cloud"].up = False
    assert ask(core, CAMERA) == Send(-1, "a")


def test_a_second_policy_is_asked_the_same_and_only_compared(site):
    core = site("closest")
    put(core, "a")
    core.watch_with(policies.load("requests", "cloud-only", live=True))
    for service in (CAMERA, CAMERA, PLATES):
        before = ask(core, service)
        assert before.replica == ("a" if service == CAMERA else "plates@cloud")
    found = core.shadow.report()
    assert found["policy"] == "cloud-only" and found["decisions"] == 3 and found["alike"] == 1
    assert found["chosen"] == {"cloud": 3} and found["faults"] == {}
    core.watch_with(None)
    assert core.shadow is None


def test_measured_times_move_the_estimates(site):
    core = site("cloud-only")
    for number in range(-60, -10):
        core.handle(RequestArrived(0.0, number, CAMERA, 9.0, 0.0))
        core.replicas["camera@cloud"].mine += 1  # somebody else's: not a time of service
        core.handle(RequestReturned(0.5, number, "answered", 0.1))
        core.replicas["camera@cloud"].mine -= 1
    assert core.view().cloud_delay_s[0] == pytest.approx(0.4, rel=1e-3)
    put(core, "a")
    core.adviser.policy.decide = lambda view: np.full(view.site.shape, 1)
    for number in range(-10, 0):
        core.handle(RequestArrived(0.0, number, CAMERA, 9.0, 0.0))
        core.handle(RequestReturned(0.3, number, "answered", 0.25))
    assert core.service_s[CAMERA] == pytest.approx(0.25, rel=0.1)
    assert core.service_s[PLATES] == pytest.approx(0.03)


@pytest.mark.parametrize("name", policies.names("requests", live=True))
def test_every_request_policy_decides_on_live_services(name):
    rehearse(services_of(scenario()), policies.load("requests", name, live=True))


def test_a_policy_that_is_told_all_rates_does_not_run_live():
    with pytest.raises(PolicyError, match="simulation only"):
        policies.load("requests", "gsp-ss", live=True)


@pytest.mark.parametrize("name", policies.names("orchestrate", live=True))
def test_every_replica_policy_fits_live_services_or_says_why_not(name, tmp_path):
    replicas, _, _ = controller(tmp_path)
    services = replicas.plane.services
    policy = policies.load("orchestrate", name, live=True)
    try:
        policy.reset(services.system, Key(0))
    except PolicyError as error:
        assert "train" in str(error)
        return
    replicas.plane.listen(0.0)
    assert len(policy.decide(replicas.plane.cores["orchestrate"].view(0.0))) == 1


def test_workers_in_the_cloud_hold_their_part_beside_replicas(tmp_path):
    replicas, store, _ = controller(tmp_path)
    plane = replicas.plane
    for pass_ in range(2):
        plane.listen(float(pass_))
        plane.validate()
        held = {each.owner: each.node for each in plane.ledger.reservations}
        assert {f"{name}@cloud" for name in ("camera", "plates", "sorting")} <= held.keys()
        assert plane.ledger.free("cloud").cpu_cores == 8.0 - sum(
            plane.ledger.of(f"{name}@cloud").resources.cpu_cores for name in ("camera", "plates", "sorting")
        )
        assert held["camera@west-0#0"] == "west-0"
    store.close()
