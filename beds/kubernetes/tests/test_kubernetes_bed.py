"""The Kubernetes bed: what a cluster does in it, the faults that it offers, and that nothing of it stays."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import suppress

import pytest

from beds.kubernetes import Cluster, groups
from beds.kubernetes.cluster import is_ready
from beds.kubernetes.images import BUSYBOX
from beds.kubernetes.network import CONTROL_SIDE
from beds.processes import REPOSITORY, BedError

SERVE = (
    "mkdir -p /www && hostname > /www/index.html && dd if=/dev/zero of=/www/large bs=1M count=2"
    " && httpd -f -p 8080 -h /www"
)


def container(command: str) -> dict:
    resources = {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}}
    return {
        "name": "c", "image": BUSYBOX, "imagePullPolicy": "Never", "command": ["sh", "-c", command],
        "resources": resources,
    }  # fmt: skip


def pod(name: str, node: str | None = None, command: str = SERVE, **spec: object) -> dict:
    where = {"nodeName": node} if node else {}
    inside = container(command)
    if command is SERVE:
        inside["readinessProbe"] = {"tcpSocket": {"port": 8080}, "periodSeconds": 1}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [inside], **where, **spec},
    }  # fmt: skip


def running(cluster: Cluster, *names: str) -> dict[str, str]:
    """Wait until pods are ready; their addresses."""

    def ready() -> bool:
        found = [cluster.get("pod", name) for name in names]
        return all(is_ready(each) for each in found)

    cluster.wait(ready, 60, f"pods {names}")
    return {name: cluster.get("pod", name)["status"]["podIP"] for name in names}


def fetch(cluster: Cluster, of: str, address: str, path: str = "", seconds: int = 3) -> str | None:
    """What a pod gets from another; None where it gets nothing."""
    with suppress(BedError):
        ask = ["timeout", seconds, "wget", "-q", "-O-", f"http://{address}:8080/{path}"]
        return cluster.kubectl("exec", of, "--", *ask).strip()
    return None


def took_s(cluster: Cluster, of: str, address: str, path: str) -> float:
    """How long a pod takes for a download, by its own clock."""
    line = f"time wget -q -O /dev/null http://{address}:8080/{path}"
    said = cluster.kubectl("exec", of, "--", "sh", "-c", f"({line}) 2>&1")
    minutes, seconds = said.split("real")[1].split()[:2]
    return 60 * float(minutes.rstrip("m")) + float(seconds.rstrip("s"))


@pytest.fixture(scope="module")
def pods(cluster: Cluster) -> dict[str, str]:
    """Addresses of a pod at each node: a at n1 and b at n2 (west), c at n3 (east)."""
    names = {"a": "n1", "b": "n2", "c": "n3"}
    cluster.apply(*(pod(name, node) for name, node in names.items()))
    return running(cluster, *names)


def test_pods_reach_each_other_across_nodes(cluster, pods):
    assert [fetch(cluster, "a", pods[name]) for name in "bc"] == ["b", "c"]
    assert {n["metadata"]["labels"]["topology.kubernetes.io/zone"] for n in cluster.list("node")} == {
        "west",
        "east",
    }


def test_a_service_balances_over_its_endpoints(cluster, pods):
    cluster.kubectl("label", "pod", "b", "c", "of=web")
    cluster.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
                   "spec": {"selector": {"of": "web"}, "ports": [{"port": 8080}]}})  # fmt: skip
    address = cluster.get("service", "web")["spec"]["clusterIP"]
    seen: set[str | None] = set()
    cluster.wait(lambda: seen.add(fetch(cluster, "a", address)) or seen >= {"b", "c"}, 30, "both endpoints")
    slices = cluster.list("endpointslice", "-l", "kubernetes.io/service-name=web")
    assert sum(len(each["endpoints"]) for each in slices) == 2


def test_a_job_is_suspended_and_goes_on(cluster):
    if cluster.minor < 22:
        pytest.skip(f"Kubernetes {cluster.version} suspends no jobs, 1.22 and later do")
    inside = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "containers": [container("sleep 1000")],
    }
    spec = {"suspend": False, "template": {"spec": inside}}
    cluster.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "work"}, "spec": spec})

    def active() -> int:
        return cluster.get("job", "work")["status"].get("active", 0)

    cluster.wait(lambda: active() == 1, 30, "the job's pod")
    cluster.kubectl("patch", "job", "work", "-p", '{"spec": {"suspend": true}}')
    cluster.wait(lambda: not cluster.list("pod", "-l", "job-name=work"), 30, "the job's pod to go")
    cluster.kubectl("patch", "job", "work", "-p", '{"spec": {"suspend": false}}')
    cluster.wait(lambda: active() == 1, 30, "the job's pod to come back")
    cluster.kubectl("delete", "job", "work")


def test_a_pod_is_resized_in_place(cluster, pods):
    if cluster.minor < 33:
        pytest.skip(f"Kubernetes {cluster.version} resizes no running pods, 1.33 and later do")
    change = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "70m"}}}]}}
    cluster.kubectl("patch", "pod", "c", "--subresource", "resize", "-p", json.dumps(change))

    def given() -> tuple[str, int]:
        status = cluster.get("pod", "c")["status"]["containerStatuses"][0]
        return status.get("resources", {}).get("requests", {}).get("cpu", ""), status["restartCount"]

    cluster.wait(lambda: given() == ("70m", 0), 60, "the pod's new size, without a restart")


def test_a_drained_node_gives_its_pods_away(cluster):
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "d"}}, "template": {
        "metadata": {"labels": {"app": "d"}}, "spec": {
            "terminationGracePeriodSeconds": 0, "containers": [container("sleep 1000")],
            "nodeSelector": {"topology.kubernetes.io/zone": "west"}}}}  # fmt: skip
    cluster.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec})

    def nodes() -> list[str]:
        found = cluster.list("pod", "-l", "app=d", "--field-selector", "status.phase=Running")
        return [each["spec"]["nodeName"] for each in found if "deletionTimestamp" not in each["metadata"]]

    cluster.wait(lambda: len(nodes()) == 2, 30, "two pods")
    cluster.kubectl("cordon", "n2")
    cluster.kubectl(
        "drain", "n2", "--ignore-daemonsets", "--force", "--pod-selector", "app=d", "--timeout", "60s"
    )
    cluster.wait(lambda: nodes() == ["n1", "n1"], 60, "both pods at the other node")
    cluster.kubectl("uncordon", "n2")
    cluster.kubectl("delete", "deployment", "d", "--wait=false")


def test_links_have_rates_and_delays(cluster, pods):
    quick_s = took_s(cluster, "a", pods["c"], "index.html")
    cluster.link("west", "east", delay_s=0.1)
    slow_s = took_s(cluster, "a", pods["c"], "index.html")
    # Two round trips of 0.2 s, to connect and to ask, by a clock of 10 ms.
    assert 0.35 < slow_s - quick_s < 1.0
    assert took_s(cluster, "a", pods["b"], "index.html") < 0.2  # within a site nothing changed
    cluster.link("west", "east", rate_bps=8e6)
    assert 2 * 2**20 * 8 / 8e6 * 0.9 < took_s(cluster, "a", pods["c"], "large") < 3.5
    cluster.link("west", "east")
    assert took_s(cluster, "a", pods["c"], "large") < 0.5


def test_traffic_between_sites_is_cut_and_comes_back(cluster, pods):
    with cluster.cut("west", "east"):
        assert fetch(cluster, "a", pods["c"], seconds=1) is None
        assert fetch(cluster, "a", pods["b"]) == "b"
    assert fetch(cluster, "a", pods["c"]) == "c"


def test_a_node_that_is_cut_off_from_the_control_plane_is_not_ready(cluster, pods):
    with cluster.cut("n3", "control"):
        cluster.wait(lambda: "n3" not in cluster.ready(), 60, "n3 to be NotReady")
        assert fetch(cluster, "a", pods["c"]) == "c"  # its pods go on
    cluster.wait(lambda: "n3" in cluster.ready(), 60, "n3 to be Ready")


def test_without_the_api_server_pods_go_on(cluster, pods):
    with cluster.api_server_away():
        with pytest.raises(BedError):
            cluster.kubectl("get", "nodes", "--request-timeout=2s")
        with urllib.request.urlopen(f"http://{pods['c']}:8080/", timeout=3) as answer:
            assert answer.read().strip() == b"c"
    cluster.wait(lambda: len(cluster.ready()) == 3, 60, "all nodes to be Ready")


def test_a_frozen_node_keeps_its_pods_and_answers_nothing(cluster, pods):
    before = cluster.get("pod", "c")["metadata"]["uid"]
    with cluster.frozen("n3"):
        assert fetch(cluster, "a", pods["c"], seconds=1) is None
        cluster.wait(lambda: "n3" not in cluster.ready(), 60, "n3 to be NotReady")
    cluster.wait(lambda: "n3" in cluster.ready(), 60, "n3 to be Ready")
    assert fetch(cluster, "a", pods["c"]) == "c" and cluster.get("pod", "c")["metadata"]["uid"] == before


def test_a_lost_node_is_noticed_and_comes_back(cluster, pods):
    with cluster.lost("n2"):
        assert not groups.processes("n2") and fetch(cluster, "a", pods["b"], seconds=1) is None
        cluster.wait(lambda: "n2" not in cluster.ready(), 60, "n2 to be NotReady")
    cluster.wait(lambda: "n2" in cluster.ready(), 60, "n2 to be Ready")
    pods["b"] = running(cluster, "b")["b"]  # it has another address now
    assert fetch(cluster, "a", pods["b"]) == "b"


def test_clients_verify_the_server_and_servers_know_their_clients(cluster):
    with pytest.raises(urllib.error.URLError, match="certificate verify failed"):
        urllib.request.urlopen(f"https://{CONTROL_SIDE}:6443/readyz", timeout=5)
    trust = ssl.create_default_context(cafile=str(cluster.control.authority.certificate))
    for token, status in (("wrong", 401), (cluster.control.tokens["alice"], 403)):
        request = urllib.request.Request(f"https://{CONTROL_SIDE}:6443/api/v1/nodes")
        request.add_header("authorization", f"Bearer {token}")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=5, context=trust)
        assert refused.value.code == status
    tokens = cluster.work / "control/tokens.csv"
    assert tokens.stat().st_mode & 0o077 == 0 and cluster.kubeconfig.stat().st_mode & 0o077 == 0


def test_what_kubectl_learns_of_a_cluster_ends_with_it(cluster):
    cluster.kubectl("api-resources")
    assert (cluster.work / "kubectl/discovery").is_dir()  # of another release, it would mislead the next


def test_users_have_the_rights_they_are_given(cluster):
    cluster.kubectl("create", "namespace", "of-alice")
    cluster.kubectl("create", "rolebinding", "own", "--clusterrole=edit", "--user=alice", "-n", "of-alice")

    def may(user: str, verb: str, what: str, *where: str) -> bool:
        with suppress(BedError):  # kubectl ends with status 1 for no
            return cluster.kubectl("auth", "can-i", verb, what, *where, user=user).strip() == "yes"
        return False

    assert may("alice", "create", "deployments.apps", "-n", "of-alice")
    assert not may("alice", "create", "deployments.apps") and not may("alice", "list", "nodes")
    assert not may("bob", "get", "pods", "-n", "of-alice")


def test_simulated_nodes_take_pods_by_the_hundred(cluster):
    names = cluster.simulate(20)
    tolerates = [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}]
    cluster.apply(*(pod(f"s{i}", tolerations=tolerates, nodeSelector={"type": "kwok"}) for i in range(100)))
    phase = ("--field-selector", "status.phase=Running")
    on_fake = lambda: [p for p in cluster.list("pod", *phase) if p["spec"]["nodeName"].startswith("fake-")]  # noqa: E731
    cluster.wait(lambda: len(on_fake()) == 100, 60, "a hundred simulated pods")
    assert {each["spec"]["nodeName"] for each in on_fake()} <= set(names)
    cluster.kubectl("delete", "node", *names)


def test_two_beds_never_run_at_once(cluster):
    with pytest.raises(BedError, match="runs already"), Cluster(nodes=1):
        pass
    done = subprocess.run([sys.executable, "-m", "beds.kubernetes", "up", "--nodes", "1"],
                          cwd=REPOSITORY, capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 1 and "runs already" in done.stderr and "pytest" in done.stderr
    assert len(cluster.ready() & set(cluster.nodes)) == 3  # the one that runs is unharmed
