"""The chart on a cluster: installed, asked, upgraded and rolled back under load, killed, and gone again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from beds.kubernetes import Cluster
from beds.kubernetes.images import Image
from beds.kubernetes.tests.released import (  # noqa: F401
    OF_CLUSTER,
    OF_RELEASE,
    SCENARIO,
    SPACE,
    Asking,
    Helm,
    a_client,
    answers_again,
    image,
    leads,
    lines,
    made,
    names,
    releasing,
    since,
    space,
    told_why,
    workers,
)
from beds.processes import REPOSITORY

RIGHTS = REPOSITORY / "deploy/rights.txt"


@pytest.fixture
def helm(cluster: Cluster, space: None, image: Image, tmp_path: Path) -> Iterator[Helm]:  # noqa: F811
    with releasing(cluster, image, tmp_path) as do:
        yield do


@pytest.fixture
def asking(cluster: Cluster, space: None, image: Image) -> Iterator[Asking]:  # noqa: F811
    with a_client(cluster, image) as seen:
        yield seen


def test_installed_asked_changed_and_taken_back_under_load(cluster, helm, asking, tmp_path):
    before = names(cluster, OF_RELEASE), names(cluster, OF_CLUSTER)
    began_s = time.monotonic()
    helm("install", "--wait", "--timeout", "600s")
    print(f"ready after {time.monotonic() - began_s:.1f} s")
    answers_again(cluster, asking)
    print(f"first answers after {time.monotonic() - began_s:.1f} s")
    first = workers(cluster)
    assert {each["settings"]["node"] for each in first.values()} == {"n1", "n2"}
    of_gateways = cluster.list("pod", "-n", SPACE, "-l", "app.kubernetes.io/component=gateway")
    assert {each["spec"]["nodeName"] for each in of_gateways} <= {"n1", "n2"}, "not at its site"
    assert "Phase:          Succeeded" in helm("test", "--timeout", "200s")

    account = f"system:serviceaccount:{SPACE}:edgewise"
    rights = cluster.kubectl("auth", "can-i", "--list", f"--as={account}", "-n", SPACE)
    assert lines(rights) == RIGHTS.read_text().splitlines()

    changed = SCENARIO.replace("capacity_qps: 100", "capacity_qps: 90")
    for what, text, capacity in (("upgrade", changed, 90), ("rollback", SCENARIO, 100)):
        (tmp_path / "scenario.yaml").write_text(text)
        began, gateways = time.time(), set(made(cluster, "gateway"))
        helm(what, "--wait", "--timeout", "600s")
        ended = lambda: not set(made(cluster, "gateway")) & gateways  # noqa: B023, E731
        told_why(cluster, ended, 120, "the former gateway to end")
        answers_again(cluster, asking)
        assert {each["settings"]["capacity_qps"] for each in workers(cluster).values()} == {capacity}
        away, _, lost = since(began, what, asking)
        assert lost == 0, "what was accepted was not answered"
        assert away == 0, "nobody took a query"

    helm("uninstall", "--wait", "--timeout", "120s")
    mine = {"Pod/client"}
    cluster.wait(lambda: names(cluster, OF_RELEASE) - mine <= before[0], 120, "all to be gone")
    assert names(cluster, OF_CLUSTER) == before[1]
    cluster.wait(lambda: not made(cluster, "gateway") | workers(cluster), 120, "what it made to be gone")


def test_another_controller_leads_when_one_is_deleted_and_nobody_notices(cluster, helm, asking):
    """Two gateways share the Service here, so that either of them is asked."""
    helm("install", "--set", "gatewayProcesses=2", "--wait", "--timeout", "600s")
    answers_again(cluster, asking)
    first, what_runs = leads(cluster), {**workers(cluster), **made(cluster, "gateway")}
    began = time.time()
    cluster.kubectl("delete", "pod", first, "-n", SPACE, "--grace-period=0", "--force")
    leads(cluster, other_than=first)
    print(f"leader deleted: another one leads, with all that is wanted, after {time.time() - began:.1f} s")
    answers_again(cluster, asking)
    assert since(began, "leader deleted", asking) == (0, 0, 0)

    assert {**workers(cluster), **made(cluster, "gateway")} == what_runs, "something was started anew"
    assert len(made(cluster, "gateway")) == 2
