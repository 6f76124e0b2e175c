"""`campus-small` made short, live: all five kinds of work on one ledger of nodes, and one of them fails."""

import asyncio
import json
import os
import signal
import threading
from pathlib import Path

import pytest

from waiting import wait_until

pytest.importorskip("httptools", reason="the extra `live` is not installed")

from running_system import System

from edgewise import api
from edgewise.config import load_scenario
from edgewise.report.records import read_run
from edgewise.run.live import saved
from edgewise.run.result import report_beside
from edgewise.runtime.clients.all_work import bring
from edgewise.runtime.clients.recording import BROUGHT, record
from edgewise.workloads.services import simulated_services

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc"),
]
DOWN_S, UP_S, DURATION_S = 10.0, 15.0, 20.0
SCRIPT = """
from pathlib import Path

from edgewise.core.orchestrate import AddReplica, RemoveReplica, commands_of

class Script:
    name, decision, batched = "script", "orchestrate", True

    def reset(self, world, key):
        self.added = None

    def decide(self, view):
        said = Path(__file__).parent / "replica"
        wanted = int(said.read_text()) if said.exists() else None
        if wanted == self.added:
            return commands_of([[]])
        changes = [AddReplica(wanted, 0) if self.added is None else RemoveReplica(self.added, 0)]
        self.added = wanted
        return commands_of([changes])
"""
CHANGES = {
    "duration_s": DURATION_S,
    "window_s": 4,
    "services.frame_s": 1,
    "services.requests.rate_qps": 8,
    "services.offered": [{"variant": "tiny-yolov2-cpu1", "deadline_s": 1.0, "initial": 1}],
    "services.requests.slack": [10, 20],
    "streams.arrivals": {"clients_per_min": 12},
    "workers": [
        {"variant": "mobilenet-ssd-cpu1", "cluster": "hall", "count": 2},
        {"variant": "mobilenet-ssd-cpu2", "cluster": "cloud"},
        {"variant": "yolov3-cpu2", "cluster": "cloud"},
        {"variant": "tiny-yolov2-cpu1", "cluster": "cloud"},
    ],
    "clusters.cloud.nodes": [
        {"name": "cloud", "count": 2, "resources": {"cpu_cores": 4, "memory_bytes": "64GB"}}
    ],
    "graphs.inception.rate_qps": 1.5,
    "links.6": {"between": ["hall-0", "hall-1"], "over": "lan-at-hall"},
    "pipelines": [
        {"name": "camera", "source": "hall-1", "input_bytes": 10_000, "length_s": 14, "tasks": [
            {"name": "detect", "downstream": ["count"], "memory_bytes": 1e8, "work_ops": 1e9,
             "output_bytes": 1000},
            {"name": "count", "memory_bytes": 1e8, "work_ops": 1e8, "output_bytes": 0},
        ]},
    ],
    "jobs": {
        "slot_s": 1,
        "submitted": [  # the nodes of the hall have 5 cores beside their servers, the others 4: it fills one
            {"name": "large", "cores": 5, "memory_bytes": "100MB", "duration_s": 8, "latest_s": 8},
            {"name": "small", "cores": 1, "memory_bytes": "100MB", "duration_s": 6, "latest_s": 10},
            {"name": "again", "cores": 1, "memory_bytes": "100MB", "duration_s": 6, "latest_s": 10,
             "when_evicted": "restart"},
        ],
    },
    "timeline": [
        {"at_s": DOWN_S, "node": "hall-1", "up": False},
        {"at_s": UP_S, "node": "hall-1", "up": True},
    ],
}  # fmt: skip
CHOSEN = {
    "dispatch": "closest", "requests": "greedy", "split": "whole-least-loaded", "place": "tp",
    "defer": "fifo",
}  # fmt: skip


@pytest.fixture(scope="module")
def system(tmp_path_factory):
    folder = tmp_path_factory.mktemp("all")
    (folder / "script.py").write_text(SCRIPT)
    orchestrate = f"{folder / 'script.py'}:Script"
    made = System(
        folder / "state", load_scenario("campus-small", CHANGES), given={**CHOSEN, "orchestrate": orchestrate}
    )
    made.start()
    asyncio.run(made.ready())
    yield made
    made.stop()


def seen(system, path):
    return asyncio.run(system.get(path))


def node(system, name):
    return next(row for row in seen(system, "/v1/nodes") if row["node"] == name)


def pipelines(system):
    return seen(system, "/v1/admin/pipelines")


def owners(row, decision):
    return [each["owner"] for each in row["holders"] if each["decision"] == decision]


@pytest.fixture(scope="module")
def figures(system):
    """What clients got of all kinds, while one job was pushed out and a node failed and came back."""
    brought = []
    clients = threading.Thread(target=lambda: brought.append(bring(system.folder, seed=3)))
    clients.start()

    def jobs():
        return {row["cores"]: row for row in seen(system, "/v1/admin/jobs")}

    large = wait_until(lambda: (row := jobs().get(5.0)) and row["state"] == "running" and row)
    names = list(seen(system, "/v1/status")["orchestration"]["services"][0]["nodes"])
    replica = system.folder.parent / "replica.new"
    replica.write_text(str(names.index(large["node"])))
    replica = replica.rename(system.folder.parent / "replica")
    wait_until(lambda: jobs()[5.0]["state"] == "suspended")  # the replica that comes pushes it out
    holders = owners(node(system, large["node"]), "orchestrate")
    assert any(owner.startswith("tiny-yolov2-cpu1@") for owner in holders)
    replica.unlink()  # it goes, and the job goes on

    down = wait_until(lambda: (row := node(system, "hall-1")) and not row["up"] and row)
    assert not owners(down, "place") and not any(down["held"].values())
    (camera,) = wait_until(lambda: [row for row in pipelines(system) if row["state"] == "waiting"])
    assert camera["frames"] > 0  # it ran, and stands still, for its source is on this node
    states = {row["name"]: row["state"] for row in seen(system, "/v1/status")["processes"]}
    assert states["inception@hall-1"] == "node down"
    wait_until(lambda: node(system, "hall-1")["up"])
    wait_until(lambda: seen(system, "/v1/workers") and _state(system, "inception@hall-1") == "running")

    clients.join(90)
    assert brought, "the clients failed"
    figures = brought[0].figures
    assert set(figures) == {"streams", "services", "pipelines", "graphs", "jobs"}
    return figures


def test_all_kinds_share_nodes_one_fails_and_nothing_is_lost(system, figures, tmp_path):
    rows = {row["decision"]: row["policy"] for row in seen(system, "/v1/policies")}
    assert {decision: rows[decision] for decision in CHOSEN} == CHOSEN
    assert rows["orchestrate"].endswith("script.py:Script")
    for work, counts in figures.items():
        assert counts["ok"] > 0, (work, figures)
    scenario = load_scenario("campus-small", CHANGES)
    assert figures["services"]["came"] == int(simulated_services(scenario).draw([3]).count[0])
    assert pipelines(system)[0]["moves"] >= 1
    assert figures["pipelines"] == {"came": 1, "ok": 1, "failed": 0, "refused": 0, "left": 0}
    became = [(row["state"], row["why"], row["ran_s"]) for row in seen(system, "/v1/admin/jobs")]
    assert [state for state, *_ in became] == ["done"] * 3, became
    assert figures["jobs"] == {"came": 3, "ok": 3, "failed": 0, "refused": 0, "left": 0}
    assert (
        figures["graphs"]["failed"] == figures["graphs"]["refused"] == 0
    )  # what a server lost ran elsewhere

    made = record(system.folder, tmp_path / "recorded")
    assert (
        made.came["requests"] == figures["services"]["came"]
        and made.came["queries"] >= figures["graphs"]["came"]
    )
    assert (made.came["pipelines"], made.came["jobs"]) == (1, 3) and made.came["streams"] > 0
    recorded = load_scenario(tmp_path / "recorded" / "scenario.yaml")
    assert set(recorded.spec.holds) == set(figures)
    assert [(change.node, change.up) for change in recorded.timeline] == [("hall-1", False), ("hall-1", True)]
    again = api.replay(tmp_path / "recorded", fixed={"dispatch": "closest", "defer": "fifo"})
    assert {again.work, *again.beside} == set(recorded.spec.holds)
    assert len(again.beside["services"].items["outcome"]) == made.came["requests"]


def columns(run):
    return {
        each.kind: (each.items.schema, each.windows.schema, [row.keys() for row in each.summary])
        for each in (run, *run.beside)
    }


def test_its_records_are_those_of_a_simulation(system, figures, tmp_path):
    """One report of both."""
    assert json.loads((system.folder / BROUGHT).read_text())["figures"] == figures
    live = read_run(saved(system.folder, tmp_path / "live"))
    simulated = api.simulate(load_scenario("campus-small", CHANGES), {**CHOSEN}, [3]).save(
        tmp_path / "simulated"
    )
    beside = read_run(simulated)
    assert columns(live) == columns(beside)
    assert {name: each.schema for name, each in live.use.items()} == {
        name: each.schema for name, each in beside.use.items()
    }
    kinds = {each.kind: each for each in (live, *live.beside)}
    assert set(kinds) == set(figures)

    (streams,) = kinds["streams"].summary
    counts = figures["streams"]
    assert streams["queries"] == counts["ok"] + counts["failed"]  # who is refused sends none
    in_time = counts["ok"] / streams["queries"]  # to clients, whose own way to the gateway counts as well
    assert in_time <= streams["success"] <= in_time + 0.1
    windows = kinds["streams"].windows
    assert sum(windows["queries"].to_pylist()) == streams["queries"]
    refused = [row["reason"] for row in kinds["streams"].items.to_pylist() if row["worker"] is None]
    assert len(refused) == sum(windows["streams_refused"].to_pylist())
    assert set(refused) <= {"every suitable worker is at capacity"}
    (services,) = kinds["services"].summary
    assert services["arrived"] == figures["services"]["came"]
    assert services["in_time"] == pytest.approx(figures["services"]["ok"], abs=1)
    assert services["forwarded_bytes"] + services["local_bytes"] > 0
    (graphs,) = kinds["graphs"].summary
    assert graphs["queries"] == figures["graphs"]["came"] and 0.0 < graphs["mean_s"] < 5.0
    assert graphs["link_load"] is None
    (pipeline,) = kinds["pipelines"].items.to_pylist()
    assert pipeline["pipeline"] == "camera" and pipeline["frames"] > 0 and pipeline["migrations"] >= 1
    (jobs,) = kinds["jobs"].summary
    assert (jobs["jobs"], jobs["started"], jobs["ended"]) == (3, 3, 3) and jobs["moves"] >= 1

    holds = live.use["holds"].to_pylist()
    assert {"streams", "services", "graphs", "pipelines", "jobs", "gone", "total"} <= {
        row["work"] for row in holds
    }
    (gone,) = [row for row in holds if row["work"] == "gone"]
    assert gone["place"] == "hall-1" and gone["end_s"] - gone["start_s"] == pytest.approx(
        UP_S - DOWN_S, abs=2.0
    )
    ends_s = {row["place"]: row["end_s"] for row in holds if row["work"] == "total"}
    assert all(0.0 <= row["start_s"] < row["end_s"] <= ends_s[row["place"]] for row in holds)
    assert live.use["delays"].num_rows

    busy = live.use["workers"].to_pylist()
    for work in ("streams", "graphs"):
        named = [
            {row["worker"] for row in rows if row["work"] == work}
            for rows in (busy, beside.use["workers"].to_pylist())
        ]
        assert named[0] == named[1]
    assert all(0.0 <= row["busy_s"] <= row["there_s"] for row in busy)
    worked_s = {
        work: sum(row["busy_s"] for row in busy if row["work"] == work)
        for work in ("streams", "services", "graphs")
    }
    assert min(worked_s.values()) > 0.0
    own_s = (
        0.0495 * figures["services"]["ok"]
    )  # workers of the cloud, which are for streams, serve requests, too
    assert own_s * 0.9 < worked_s["services"] + worked_s["streams"]
    links = live.use["links"].to_pylist()
    assert {row["link"] for row in links} == set(beside.use["links"]["link"].to_pylist())
    totals = [
        {row["place"] for row in rows if row["work"] == "total" and row["bps"]}
        for rows in (holds, beside.use["holds"].to_pylist())
    ]
    assert totals[0] == totals[1] and "hall-1 – hall-2" in totals[0]  # hall-0's is a cable of messages
    up_bits = sum(
        row["sent_bits"] for row in links if row["link"].startswith("lan-") and row["link"].endswith(":up")
    )
    sizes = sum(row["queries"] * row["size_bytes"] for row in kinds["streams"].items.to_pylist())
    assert up_bits > 8.0 * (sizes + services["forwarded_bytes"] + services["local_bytes"]) * 0.9

    drawn = [{each.stem for each in (folder / "figures").iterdir()} for folder in (live.folder, simulated)]
    assert all({"time-line-of-nodes", "services-late", "jobs-gantt"} <= each for each in drawn)
    page = report_beside(live.folder, simulated, tmp_path / "both.html").read_text()
    assert "live" in page and "simulated" in page


def _state(system, name):
    return {row["name"]: row["state"] for row in seen(system, "/v1/status")["processes"]}[name]


def test_down_ends_all_of_it(system):
    controller = system.pid("controller")
    children = [p for p in Path("/proc").glob("[0-9]*") if _parent(p) in (controller, system.nursery.pid)]
    assert children
    system.nursery.send_signal(signal.SIGTERM)
    system.nursery.wait(30)
    left = [p.name for p in children if _parent(p) is not None and os.path.exists(p / "exe")]
    assert not left, left


def _parent(process):
    try:
        text = (process / "stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[1])
