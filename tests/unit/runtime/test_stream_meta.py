"""The database of a test bed: what is written comes back, also to another process and after a restart."""

import json
import subprocess
import sys

import numpy as np
import pytest

from edgewise.errors import RunError
from edgewise.model.pipelines import Pipeline
from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.runtime.pipelines.live import LivePipeline
from edgewise.runtime.pipelines.meta import (
    FlowStatus,
    LinkStatus,
    MetaStore,
    NodeStatus,
    TaskStatus,
)
from edgewise.runtime.states import ENDED, RUNNING


def live(tmp_path, name="count"):
    graph = TaskGraph(name, (Task("a", 1e9, 2e8), Task("b", 3e9, 1e8)), (Edge("a", "b", 500.0),))
    pipeline = Pipeline(name, graph, "cam", 6e6, duration_s=1e9)
    return LivePipeline(
        pipeline, str(tmp_path / "job.py"), {"a": "first", "b": "second"}, (str(tmp_path / "frame"),)
    )


def test_jobs_come_back_as_they_were_until_they_end(tmp_path):
    file = tmp_path / "state" / "streams.db"
    store = MetaStore(file)
    first, second = store.add(live(tmp_path)), store.add(live(tmp_path, "other"))
    store.set_state(second, RUNNING)
    store.close()
    store = MetaStore(file)
    assert store.unfinished() == [(first, live(tmp_path)), (second, live(tmp_path, "other"))]
    store.set_state(first, ENDED)
    assert [number for number, _ in store.unfinished()] == [second]
    assert [(row.name, row.state) for row in store.pipelines()] == [("count", ENDED), ("other", RUNNING)]
    store.end_all()
    assert store.unfinished() == []
    assert store.add(live(tmp_path)) > second  # numbers are not used again


def test_what_monitors_see_replaces_what_they_saw(tmp_path):
    store = MetaStore(tmp_path / "streams.db")
    with pytest.raises(RunError, match="knows no node"):
        store.network()
    nodes = [NodeStatus(name, speed, 2e9, 1e9, 1, 0.5, 10.0) for name, speed in (("cam", 1e9), ("hub", 4e9))]
    link = LinkStatus("cam", "hub", 8e6, True, 5e6, 10.0)
    store.put([NodeStatus("old", 1.0, 1.0, 1.0, 0, 0.0, 1.0)])
    store.put([*nodes, link], forget=[NodeStatus, LinkStatus])
    assert store.seen(NodeStatus) == nodes and store.seen(LinkStatus) == [link]
    store.put([link._replace(up=False)])
    assert [row.up for row in store.seen(LinkStatus)] == [False]
    network = store.network()
    assert network.names == ("cam", "hub") and network.speed_ops.tolist() == [1e9, 4e9]
    assert network.ends.tolist() == [[0, 1]] and (network.bandwidth_bps == np.array([8e6])).all()
    task = TaskStatus(1, "a", "hub", 40, 0.25, 10.0)
    flow = FlowStatus(1, "source->a", "cam-hub", 8e6, 5e6, 10.0)
    store.put([task, flow])
    store.put([task._replace(frames=80)], forget=[FlowStatus])
    assert store.seen(TaskStatus, 1) == [task._replace(frames=80)] and store.seen(FlowStatus, 1) == []


def test_another_process_reads_while_this_one_writes(tmp_path):
    store = MetaStore(tmp_path / "streams.db")
    store.add(live(tmp_path))
    store._db.execute("BEGIN IMMEDIATE")  # a writer in the midst of it
    script = (
        "import json, sys, pathlib\n"
        "from edgewise.runtime.pipelines.meta import MetaStore\n"
        "print(json.dumps(MetaStore(pathlib.Path(sys.argv[1])).pipelines()))\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", script, str(store.file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    store._db.execute("ROLLBACK")
    assert [row[1:3] for row in json.loads(said)] == [["count", "waiting"]]


def test_a_file_that_is_no_database_is_refused(tmp_path):
    (tmp_path / "streams.db").write_text("not a database, but long enough to be looked at as one " * 20)
    with pytest.raises(RunError, match="use another --state folder"):
        MetaStore(tmp_path / "streams.db")
