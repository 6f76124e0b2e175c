"""Which pod of somebody else is whose worker, and what the ledger of nodes makes of it; without a cluster."""

import queue
from contextlib import closing
from dataclasses import replace

import pytest

pytest.importorskip("lightkube", reason="needs the extra kubernetes")

from lightkube.resources.core_v1 import Node, Pod

from edgewise.config import dump_scenario, load_scenario
from edgewise.errors import ScenarioError
from edgewise.model.parsing import parse_scenario
from edgewise.model.served import ServedBy
from edgewise.runtime.backends.kubernetes import Pods, backend
from edgewise.runtime.backends.kubernetes.nodes import ClusterNodes
from edgewise.runtime.backends.kubernetes.taken import TakenPods
from edgewise.runtime.backends.system import KUBERNETES
from edgewise.runtime.controller.plan import prepare
from edgewise.runtime.store import Process
from waiting import wait_until

LABELS = {"app": "detector"}


def pod(name, node="n1", address="10.0.0.1", ready=True, ends=False, minute=0, **more):
    """A pod as an API server gives it."""
    meta = {"name": name, "namespace": "models", "labels": LABELS, "resourceVersion": "1"}
    meta["creationTimestamp"] = f"2026-11-27T20:{minute:02}:00Z"
    status = {"podIP": address, "conditions": [{"type": "Ready", "status": str(ready)}]}
    ending = {"deletionTimestamp": meta["creationTimestamp"]} if ends else {}
    asks = {"requests": {"cpu": "1500m", "memory": "1G"}}
    spec = {"nodeName": node, "containers": [{"name": "c", "resources": asks}]}
    return Pod.from_dict({"metadata": meta | ending, "spec": spec, "status": status} | more)


class Listed(list):
    resourceVersion = "1"


class FakeClient:
    """An API server with a few pods, and what becomes of them."""

    namespace = "edgewise"

    def __init__(self, *pods):
        self.news, self.asked, self.pods = queue.SimpleQueue(), [], pods

    def list(self, kind, **which):
        node = {"metadata": {"name": "n1"}, "spec": {}, "status": {
            "allocatable": {"cpu": "4", "memory": "8G"}, "conditions": [{"type": "Ready", "status": "True"}],
        }}  # fmt: skip
        return Listed([Node.from_dict(node)] if kind is Node else self.pods)

    def watch(self, kind, **which):
        self.asked.append(which)
        while (what := self.news.get()) is not None:
            yield what


def worker(name="w", node="n1", nodes=("n1", "n2"), **changes):
    served_by = {"labels": LABELS, "namespace": "models", "port": 8080, "url": None, "nodes": list(nodes)}
    needs = {"cpu_cores": 1.0, "memory_bytes": 1e9}
    return Process(name, "worker", 5, {"node": node, "needs": needs, "served_by": served_by | changes})


@pytest.fixture
def seeing():
    """Makes pods that are watched, and knows when a change was seen."""
    made = []

    def of(*pods):
        client = FakeClient(*pods)
        taken = TakenPods(client)
        made.append((client, taken))
        return client, taken

    yield of
    for client, taken in made:
        taken.close()
        client.news.put(None)


def address(taken, process, handle):
    return taken.look(process, handle).url


def test_a_pod_of_its_labels_is_a_workers_and_nobody_elses(seeing):
    client, taken = seeing(pod("one"), pod("two", node="n2", address="10.0.0.2"))
    first, second = worker("a"), worker("b")
    handles = [taken.start(each) for each in (first, second)]
    wait_until(lambda: address(taken, first, handles[0]) == "http://10.0.0.1:8080")
    wait_until(lambda: address(taken, second, handles[1]) == "http://10.0.0.2:8080")
    assert taken.look(first, handles[0]).ready
    third = worker("c")
    seen = taken.look(third, taken.start(third))
    assert (seen.url, seen.ready) == ("http://127.0.0.1:5", False)
    wait_until(lambda: client.asked)
    assert client.asked[0]["labels"] == LABELS and client.asked[0]["namespace"] == "models"


def test_only_pods_on_nodes_of_its_cluster_count_and_best_its_own(seeing):
    far, last = pod("far", node="n9", address="10.0.0.9"), pod("last", node="n3", address="10.0.0.3")
    client, taken = seeing(far, pod("near", node="n2", address="10.0.0.2"), pod("own", minute=1), last)
    there, process, nowhere = worker("there", nodes=["n3"]), worker(), worker("nowhere", nodes=["n4"])
    wait_until(lambda: taken.look(there, "taken/1").ready)
    assert address(taken, process, "taken/2") == "http://10.0.0.1:8080"
    assert not taken.look(nowhere, "taken/3").ready


def test_a_pod_that_goes_is_a_lost_worker_until_there_is_another(seeing):
    client, taken = seeing(pod("one"))
    process = worker()
    handle = taken.start(process)
    wait_until(lambda: taken.look(process, handle).ready)
    client.news.put(("MODIFIED", pod("one", ends=True)))
    wait_until(lambda: taken.look(process, handle).url == "http://127.0.0.1:5")
    assert taken.alive(handle) and taken.held() == {}
    client.news.put(("DELETED", pod("one")))
    client.news.put(("ADDED", pod("two", address="fd00::7")))
    wait_until(lambda: taken.look(process, handle).url == "http://[fd00::7]:8080")


def test_it_stays_where_it_is_unless_that_one_is_not_ready_and_another_is(seeing):
    client, taken = seeing(pod("one", minute=1))
    process = worker()
    handle = taken.start(process)
    wait_until(lambda: taken.look(process, handle).ready)
    client.news.put(("ADDED", pod("older", address="10.0.0.3", minute=0)))
    client.news.put(("MODIFIED", pod("one", address="10.0.0.1", ready=True, minute=1)))
    other = worker("b")
    wait_until(lambda: taken.look(other, taken.start(other)).ready)
    assert address(taken, process, handle) == "http://10.0.0.1:8080"
    client.news.put(("MODIFIED", pod("one", ready=False, minute=1)))
    wait_until(lambda: taken.look(process, handle).ready is False)
    assert address(taken, process, handle) == "http://10.0.0.1:8080"  # the other one is somebody's
    client.news.put(("ADDED", pod("free", address="10.0.0.4", minute=3)))
    wait_until(lambda: address(taken, process, handle) == "http://10.0.0.4:8080")


def test_a_controller_that_begins_leaves_each_server_where_it_was(seeing):
    client, taken = seeing(pod("older", minute=0), pod("one", address="10.0.0.5", minute=1))
    before = replace(worker(), address="http://10.0.0.5:8080")
    seen = [taken.look(before, "taken/1")]
    wait_until(lambda: seen.append(taken.look(before, "taken/1")) or seen[-1].ready)
    assert {each.url for each in seen} == {before.address}


def test_what_is_let_go_is_free_for_another_and_its_end_means_nothing_to_it(seeing):
    client, taken = seeing(pod("one"))
    process, other = worker("a"), worker("b")
    handle, successor = taken.start(process), taken.start(process)
    wait_until(lambda: taken.look(process, handle).ready)
    assert taken.look(process, successor).ready
    taken.stop(handle)
    assert not taken.alive(handle) and taken.alive(successor)
    assert taken.look(process, handle).ready is False and taken.look(process, successor).ready
    mine = taken.start(other)
    assert not taken.look(other, mine).ready
    taken.stop(successor)
    assert taken.look(other, mine).ready


def test_the_ledger_counts_of_a_pod_only_what_it_asks_for_beyond_its_worker(seeing):
    client, taken = seeing(pod("one"))
    process, nodes = worker(), ClusterNodes(FakeClient(pod("one")), "ours", taken.held)
    assert nodes.seen()["n1"].others.cpu_cores == 1.5
    handle = taken.start(process)
    wait_until(lambda: taken.look(process, handle).ready)
    assert nodes.seen()["n1"].others.as_tuple()[:2] == (0.5, 0.0)
    taken.stop(handle)
    assert nodes.seen()["n1"].others.cpu_cores == 1.5


def test_the_backend_makes_no_object_for_it(monkeypatch):
    client = FakeClient(pod("one"))
    for watched in ("watched_deployments", "watched_pods"):
        monkeypatch.setattr(backend, watched, lambda *_: Nothing())
    made = backend.KubernetesBackend(client, Pods("ours", "image:1", "http://nowhere"), None, watching=False)
    process = worker()
    handle = made.start(process)
    wait_until(lambda: made.look(process, handle).ready)
    assert made.alive(handle)
    made.stop(handle, force=True)
    assert not made.alive(handle) and made.look(process, handle).ready is False
    client.news.put(None)


class Nothing:
    def begin(self, watching):
        pass


ROOM = {"cpu_cores": 4}
SCENARIO = {
    "name": "two-sites", "duration_s": 60,
    "catalog": {
        "models": [{"name": "echo", "task": "score", "accuracy": 50}],
        "variants": [{
            "name": "echo-cpu", "model": "echo", "resources": {"cpu_cores": 1}, "largest_bytes": 1000,
            "profile": {"fixed_s": 0.003, "source": "made up"}, "capacity_qps": 50,
        }],
    },
    "clusters": [
        {"name": name, "tier": 0, "nodes": [{"name": f"{name}-{k}", "resources": ROOM} for k in (0, 1)]}
        for name in ("west", "east", "cloud")
    ],
    "sites": [{"name": f"at-{name}", "cluster": name, "uplink_bps": 1e9} for name in ("west", "east")],
    "links": [{"site": "*", "cluster": "*", "delay_s": 0.001}],
    "workers": [
        {"variant": "echo-cpu", "cluster": name, "served_by": {"selector": LABELS, "model": "theirs"}}
        for name in ("east", "cloud")
    ],
    "streams": {
        "applications": [{"name": "any", "task": "score", "rate_qps": 10, "size_bytes": 100, "deadline_s": 5,
                          "length_s": 60}],
        "arrivals": {"clients_per_min": 1},
    },
}  # fmt: skip


def test_the_gateway_of_its_site_grants_a_servers_rate_and_the_first_where_there_is_none(tmp_path):
    there = KUBERNETES, {"image": "image:1", "owner": None}
    with closing(prepare(tmp_path, parse_scenario(SCENARIO, "two-sites"), backend=there)) as store:
        rows = {row.process.name: row.process.settings for row in store.processes()}
    east, cloud = rows["echo-cpu@east-0"], rows["echo-cpu@cloud-0"]
    assert rows[east["granted_by"]]["site"] == "at-east" and cloud["granted_by"] == "gateway-0"
    assert east["served_by"]["nodes"] == ["east-0", "east-1"] and east["model"] == "theirs"
    assert east["served_by"]["labels"] == LABELS and east["needs"]["cpu_cores"] == 1.0


@pytest.mark.parametrize(
    ("served_by", "changes", "words"),
    [
        ({}, {}, "needs either 'selector' or 'url'; give exactly one of them"),
        ({"selector": LABELS, "url": "http://there:1"}, {}, "give exactly one of them"),
        ({"selector": {}}, {}, "are all pods there are; name a label"),
        ({"url": "there:80"}, {}, "served_by.url"),
        ({"url": "http://there:80", "namespace": "models"}, {}, "leave it or url out"),
        ({"url": "http://there:80"}, {"count": 2}, "one address is one worker"),
        ({"selector": LABELS}, {"most": 2}, "leave least and most out"),
        ({"selector": LABELS, "port": 0}, {}, "integer >= 1"),
    ],
)
def test_what_cannot_be_names_the_value_and_the_fix(served_by, changes, words):
    workers = [{"variant": "echo-cpu", "cluster": "east", "served_by": served_by} | changes]
    with pytest.raises(ScenarioError, match=r"workers\[0\]") as said:
        parse_scenario(SCENARIO | {"workers": workers}, "two-sites")
    assert words in str(said.value)


def test_a_scenario_with_them_comes_back_equal(tmp_path):
    scenario = parse_scenario(SCENARIO, "two-sites")
    (tmp_path / "again.yaml").write_text(dump_scenario(scenario))
    again = load_scenario(tmp_path / "again.yaml")
    assert again == scenario
    assert {w.served_by for w in again.topology.workers} == {ServedBy((("app", "detector"),), model="theirs")}


def test_pods_are_refused_where_there_is_no_cluster(tmp_path):
    with pytest.raises(
        ScenarioError, match="served_by pods of a cluster; use --on kubernetes, or give a url"
    ):
        prepare(tmp_path, parse_scenario(SCENARIO, "two-sites"))
