"""The chart's release while things break: clients ask on, and what breaks is mended by nobody's hand."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from beds.kubernetes import Cluster
from beds.kubernetes.cluster import is_ready
from beds.kubernetes.images import PYTHON, Image
from beds.kubernetes.tests.released import (  # noqa: F401
    SPACE,
    Asking,
    a_client,
    answers_again,
    image,
    leader,
    leads,
    made,
    releasing,
    since,
    space,
    workers,
)
from beds.kubernetes.tests.test_edgewise_jobs import complete, job

AWAY_S, SEED, ACTS = 60.0, 11, 16
# The controller is no first process of its container, so it can be stopped from inside.
TELL = """
import os, pathlib, signal
for file in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    words = file.read_bytes().split(b"\\0")
    if b"up" in words and b"--on=kubernetes" in words:
        os.kill(int(file.parent.name), signal.{what})
"""


@pytest.fixture(scope="module")
def asking(cluster: Cluster, space: None, image: Image, tmp_path_factory) -> Iterator[Asking]:  # noqa: F811
    """Of a release that answers."""
    with releasing(cluster, image, tmp_path_factory.mktemp("faults")) as helm:
        helm("install", "--wait", "--timeout", "600s")
        with a_client(cluster, image) as seen:
            answers_again(cluster, seen)
            yield seen


def lasts(within_s: float, cluster: Cluster) -> None:
    """Let a fault last."""
    until_s = time.monotonic() + within_s
    cluster.wait(lambda: time.monotonic() > until_s, within_s + 10.0)


def pods(cluster: Cluster, kind: str, ready: bool = True) -> dict[str, str]:
    """The node of each pod of a kind, of those that are ready."""
    found = cluster.list("pod", "-n", SPACE, "-l", f"app.kubernetes.io/component={kind}")
    found = [each for each in found if is_ready(each) or not ready]
    return {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in found}


def all_there(cluster: Cluster) -> bool:
    """Whether both workers, a gateway and both controllers are ready."""
    return [len(pods(cluster, kind)) for kind in ("worker", "gateway", "controller")] == [2, 1, 2]


def tell(cluster: Cluster, pod: str, what: str) -> None:
    command = ["exec", pod, "-n", SPACE, "-c", "edgewise", "--", PYTHON, "-c", TELL.format(what=what)]
    cluster.kubectl(*command)


def test_gateways_answer_on_while_the_api_server_is_away(cluster, asking):
    leads(cluster)
    cluster.wait(lambda: all_there(cluster), 120, "all pods")
    before, began = {**workers(cluster), **made(cluster, "gateway")}, time.time()
    with cluster.api_server_away():
        lasts(AWAY_S, cluster)
    answers_again(cluster, asking)
    assert since(began, f"API server away for {AWAY_S:g} s", asking) == (0, 0, 0)
    leads(cluster)
    assert {**workers(cluster), **made(cluster, "gateway")} == before, "something was started anew"


def test_a_leader_that_is_paused_and_goes_on_changes_nothing(cluster, asking):
    first, before, began = leads(cluster), {**workers(cluster), **made(cluster, "gateway")}, time.time()
    tell(cluster, first, "SIGSTOP")
    second = leads(cluster, other_than=first)
    print(f"leader paused: another one leads after {time.time() - began:.1f} s")
    tell(cluster, first, "SIGCONT")
    answers_again(cluster, asking)
    assert leader(cluster) == second
    assert {**workers(cluster), **made(cluster, "gateway")} == before, "something was started anew"
    assert since(began, "leader paused and resumed", asking) == (0, 0, 0)


def test_a_link_that_is_cut_costs_no_query(cluster, asking):
    (gateway,) = pods(cluster, "gateway").values()
    other = next(node for node in ("n1", "n2") if node != gateway)
    began = time.time()
    with cluster.cut(gateway, other):
        lasts(20.0, cluster)
    answers_again(cluster, asking)
    _, _, lost = since(began, f"link from {gateway} to {other} cut for 20 s", asking)
    assert lost == 0
    cluster.wait(lambda: all_there(cluster), 120, "all pods")


def test_a_node_that_is_lost_takes_only_what_was_inside(cluster, asking):
    (gateway,) = pods(cluster, "gateway").values()
    lost_node = next(node for node in ("n1", "n2") if node != gateway)
    began = time.time()
    with cluster.lost(lost_node):
        cluster.wait(lambda: lost_node not in cluster.ready(), 120, "the node to be noticed")
        print(f"{lost_node} lost: noticed after {time.time() - began:.1f} s")
        answers_again(cluster, asking)
        elsewhere = {
            pod for pod, node in pods(cluster, "controller", ready=False).items() if node != lost_node
        }
        cluster.wait(lambda: leader(cluster) in elsewhere, 180, "a controller of another node to lead")
        print(f"{lost_node} lost: a controller leads after {time.time() - began:.1f} s")
    back = time.time()
    cluster.wait(lambda: all_there(cluster), 300, "all pods")
    print(f"{lost_node} is back: all pods are ready after {time.time() - back:.1f} s")
    answers_again(cluster, asking)
    away, _, lost = since(began, "node lost", asking)
    assert away == 0
    assert lost <= 1, "the client asks one query at a time, and the gateway was elsewhere"


def test_whoever_deletes_and_cordons_at_random_has_all_of_it_back(cluster, asking):
    for number in range(3):
        made_of = job(f"work-{number}", "sleep", str(4 + number), cpu="100m")
        made_of["metadata"]["namespace"] = SPACE
        cluster.apply(made_of)
    chance, began, done = random.Random(SEED), time.time(), []
    for _ in range(ACTS):
        kind = chance.choice(("worker", "gateway", "controller", "cordon"))
        if kind == "cordon":
            node, verb = chance.choice(("n1", "n2")), chance.choice(("cordon", "uncordon"))
            cluster.kubectl(verb, node)
            done.append(f"{verb} {node}")
        elif there := sorted(pods(cluster, kind)):
            how = chance.choice(((), ("--grace-period=0", "--force")))
            cluster.kubectl("delete", "pod", chance.choice(there), "-n", SPACE, "--wait=false", *how)
            done.append(f"{kind}{' by force' if how else ''}")
        lasts(chance.uniform(0.0, 8.0), cluster)
    for node in ("n1", "n2"):
        cluster.kubectl("uncordon", node)
    last = time.time()
    cluster.wait(lambda: all_there(cluster), 300, "all pods")
    leads(cluster)
    print(f"{', '.join(done)}: all pods are ready {time.time() - last:.1f} s after the last")
    answers_again(cluster, asking)
    _, _, lost = since(began, "deleted and cordoned", asking)
    assert lost <= done.count("gateway by force") + done.count("worker by force"), "more than was inside"
    for number in range(3):
        cluster.wait(lambda n=number: complete(cluster.get("job", f"work-{n}", SPACE)), 120, "every job")
        assert cluster.get("job", f"work-{number}", SPACE)["status"]["succeeded"] == 1
    assert {each["settings"]["node"] for each in workers(cluster).values()} == {"n1", "n2"}
