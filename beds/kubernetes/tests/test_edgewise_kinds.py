"""All five kinds of work on a cluster: they are answered, keep records, and what is deleted comes back.

The scenario is `campus-small` cut to the bed: its nodes are three of two cores, and `campus-small` has eight,
of up to 32.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("edgewise.report.records", reason="needs edgewise: pip install -e .")

from beds.kubernetes import Cluster
from beds.kubernetes.tests.test_edgewise_up import SPACE, command, given, there, up  # noqa: F401
from edgewise.report.records import RecordedRun, read_run

SEED = 3
KINDS = {"streams", "services", "graphs", "pipelines", "jobs"}
SCENARIO = """
name: campus-bed
duration_s: 40
window_s: 10
telemetry: {period_s: 1, lag_s: 0.1, servers: true}
sharing: fifo
catalog: {use: detection}
clusters:
  - name: hall
    tier: 0
    nodes:
      - {name: n1, resources: {cpu_cores: 1.7, memory_bytes: 2GB}, speed_ops: 1.0e11}
      - {name: n2, resources: {cpu_cores: 1.7, memory_bytes: 2GB}, speed_ops: 1.0e11}
  - name: cloud
    tier: 1
    nodes: [{name: n3, resources: {cpu_cores: 1.7, memory_bytes: 2GB}}]
sites: [{name: at-hall, cluster: hall, access_delay_s: 1ms, uplink_bps: 200Mbps}]
links:
  - {site: at-hall, cluster: hall, delay_s: 0.5ms, over: lan}
  - {site: at-hall, cluster: cloud, delay_s: 25ms, over: wan}
  - {name: lan, bandwidth_bps: 1Gbps}
  - {name: wan, bandwidth_bps: 200Mbps}
  - {between: [hall, hall], bandwidth_bps: 1Gbps, shared: both}
  - {between: [n1, n2], bandwidth_bps: 200Mbps, shared: both}
workers:
  - {variant: mobilenet-ssd-cpu1, node: n1}
  - {variant: tiny-yolov2-cpu1, node: n3}
streams:
  applications:
    - {name: visitors, task: detection, rate_qps: 2, size_bytes: 30kB, deadline_s: 1, length_s: [10, 20],
       min_accuracy: 20}
  arrivals: {clients_per_min: 12}
policies: {requests: greedy, orchestrate: none}
services:
  cloud: cloud
  frame_s: 10
  slot_s: 10ms
  cores_held: life
  offered: [{variant: tiny-yolov2-cpu1, deadline_s: 2, answer_bytes: 287.3kB, initial: 1}]
  requests: {rate_qps: 2, service_s: 49.5ms, slack: [20, 40], payload_bytes: 50kB}
graphs:
  - {name: inception, network: inception-v1, rate_qps: 0.5, cpu_cores: 0.3, memory_bytes: 200MB}
pipelines:
  - name: camera
    source: n1
    input_bytes: 10000
    length_s: 15
    tasks:  # no two of them have room on one node
      - {name: detect, downstream: [count], memory_bytes: 1GB, work_ops: 5.0e+9, output_bytes: 1000}
      - {name: count, memory_bytes: 1GB, work_ops: 1.0e+8, output_bytes: 0}
jobs:
  slot_s: 1
  submitted:
    - {name: index, cores: 0.3, memory_bytes: 100MB, duration_s: 60, latest_s: 60}
    - {name: backup, cores: 0.3, memory_bytes: 100MB, duration_s: 60, latest_s: 60, when_evicted: restart}
"""


def said(folder: Path, *arguments: str) -> str:
    return subprocess.check_output(command(*arguments, "--state", "live"), cwd=folder, text=True)


@pytest.fixture(scope="module")
def folder(cluster: Cluster, given, tmp_path_factory) -> Iterator[Path]:  # noqa: F811
    """Of a system that is up."""
    made = tmp_path_factory.mktemp("kinds")
    with up(made, given, SCENARIO):
        try:
            cluster.wait(lambda: "up after" in (made / "up.log").read_text(), 600, "all that is to be up")
        except Exception:
            print((made / "up.log").read_text()[-3000:])
            print(cluster.kubectl("get", "pods", "-n", SPACE, "-o", "wide"))
            raise
        yield made
    assert [there(cluster, kind) for kind in ("deployment", "secret", "poddisruptionbudget")] == [[], [], []]


def tasks(cluster: Cluster) -> dict[str, tuple[str, str]]:
    """Node and pod of each task that runs."""
    found = cluster.list("pod", "-n", SPACE, "-l", "app.kubernetes.io/component=task")
    return {
        each["metadata"]["annotations"]["edgewise/process"]: (
            each["spec"].get("nodeName", ""), each["metadata"]["name"],
        )
        for each in found
    }  # fmt: skip


def test_all_kinds_are_answered_and_leave_records(cluster, folder):
    brings = subprocess.Popen(
        command("load", "--state", "live", "--seed", str(SEED), "--json"), cwd=folder, text=True,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        cluster.wait(lambda: len(tasks(cluster)) == 3, 300, "the pods of the pipeline")
        nodes = {name: node for name, (node, _) in tasks(cluster).items()}
        assert nodes["pipeline-1-source"] == "n1"
        assert {nodes["pipeline-1-task-detect"], nodes["pipeline-1-task-count"]} == {"n1", "n2"}
        answer, _ = brings.communicate(timeout=900)
    finally:
        brings.kill()
    figures = json.loads(answer)["figures"]
    print(json.dumps(figures, indent=1))
    assert set(figures) == KINDS
    assert all(counts["ok"] > 0 for counts in figures.values())
    assert figures["pipelines"] == {"came": 1, "ok": 1, "failed": 0, "refused": 0, "left": 0}
    assert figures["jobs"] == {"came": 2, "ok": 2, "failed": 0, "refused": 0, "left": 0}
    for kind in ("streams", "services", "graphs"):
        came, ok = figures[kind]["came"], figures[kind]["ok"]
        assert ok >= 0.5 * came, f"{kind}: {ok} of {came} in time"
    (camera,) = json.loads(said(folder, "pipelines", "--json"))
    assert camera["frames"] > 0 and camera["state"] == "done"
    cluster.wait(lambda: tasks(cluster) == {}, 60, "its pods to be gone")
    report = json.loads(subprocess.check_output(command("report", "live", "--json"), cwd=folder, text=True))
    kept = kinds((folder / report["report"]).parent)
    assert set(kept) == KINDS
    assert kept["pipelines"].items.to_pylist()[0]["frames"] == pytest.approx(camera["frames"])
    as_simulated(folder, kept)


def kinds(run: Path) -> dict[str, RecordedRun]:
    """What is kept of a run, by kind of work."""
    first = read_run(run)
    return {each.kind: each for each in (first, *first.beside)}


def as_simulated(folder: Path, kept: dict[str, RecordedRun]) -> None:
    """What the cluster did beside what the simulation of the same seed says, by kind of work."""
    said = ("simulate", "cameras.yaml", "--seeds", str(SEED), "--out", "simulated", "--json")
    subprocess.run(command(*said), cwd=folder, check=True, capture_output=True)
    simulated = kinds(folder / "simulated")
    rows = {kind: (kept[kind].summary[0], simulated[kind].summary[0]) for kind in sorted(KINDS)}
    for kind, (live, wanted) in rows.items():
        shown = {name: (value, wanted.get(name)) for name, value in live.items() if isinstance(value, float)}
        print(f"{kind}, live and simulated: {shown}")
    # A live run waits for its jobs; the simulation ends with the scenario, before they have.
    for kind, count in (("streams", "queries"), ("services", "arrived"), ("graphs", "queries")):
        live, wanted = rows[kind]
        assert live[count] == wanted[count], f"{kind}: other work came"
    for kind in ("streams", "services"):  # the machine may be busy; bounds that are asked for are elsewhere
        live, wanted = rows[kind]
        assert live["success"] == pytest.approx(wanted["success"], abs=0.15), kind


def test_whoever_deletes_the_pod_of_a_task_has_its_pipeline_back(cluster, folder):
    brings = subprocess.Popen(command("load", "--state", "live", "--seed", "4", "--json"), cwd=folder)
    try:

        def camera() -> dict:
            return max(json.loads(said(folder, "pipelines", "--json")), key=lambda each: each["id"])

        cluster.wait(lambda: camera()["id"] == 2 and camera()["frames"] > 0, 300, "frames")
        pods = lambda: {pod for _, pod in tasks(cluster).values()}  # noqa: E731
        before = pods()
        count = tasks(cluster)["pipeline-2-task-count"][1]
        cluster.kubectl("delete", "pod", count, "-n", SPACE, "--grace-period=0", "--force")
        cluster.wait(lambda: len(pods()) == 3 and not pods() & before, 300, "other pods, of all of them")
        done = camera()["frames"]  # of the first pods, which may say some after one is deleted
        cluster.wait(lambda: camera()["frames"] > done + 5, 300, "more frames")
        assert not pods() & before
    finally:
        brings.kill()
