"""Tasks of pipelines as pods: what runs in them are real processes; the cluster is played."""

import json
import os
import socket
import subprocess
import sys

import pytest

from waiting import wait_until

pytest.importorskip("lightkube", reason="needs the extra kubernetes")
pytest.importorskip("httptools", reason="the extra `live` is not installed")

from test_pipeline_recovery import frames, live, scenario, states, until

from edgewise.runtime.backends.contract import Answering
from edgewise.runtime.backends.kubernetes import PodPlace, Pods
from edgewise.runtime.backends.kubernetes.manifest import by_digest, deployment
from edgewise.runtime.backends.kubernetes.models import ModelServer
from edgewise.runtime.backends.kubernetes.tasks import ClusterTasks
from edgewise.runtime.controller.live_plane import LivePlane
from edgewise.runtime.controller.pipelines import LivePipelines
from edgewise.runtime.controller.plan import DATABASE, prepare
from edgewise.runtime.http.ports import free_port
from edgewise.runtime.process.pod import MODELS_FOLDER, MODELS_URL, PROCESS, TASK
from edgewise.runtime.store import Process, Store

pytestmark = pytest.mark.live
TOKEN = "a-token-of-parts"
RUN = """
import os, sys
from pathlib import Path
from edgewise.runtime.process.pod import main
main(os.environ, *map(Path, sys.argv[1:]))
"""
CODE = """
def double(given):
    return True, given + given

def count(given):
    return True, len(given)

job = [double, count]
"""
LIMIT_S = 60.0


class PlayedPods:
    """A cluster of one machine: each start is a process of what a pod runs, at a port of its own."""

    def __init__(self, folder, models):
        self.folder, self.url = folder, models
        (folder / "tokens").mkdir()
        (folder / "tokens" / "parts").write_text(TOKEN)
        self.runs, self.at, self.left = {}, {}, []

    def start(self, process):
        spec = deployment(process, str(len(self.runs)), Pods("s", "i", self.url), PodPlace(None, 0.0, 0.0))
        inside = spec["spec"]["template"]["spec"]["containers"][0]
        given = {each["name"]: each["value"] for each in inside["env"]}
        told, handle, port = json.loads(given[PROCESS]), spec["metadata"]["name"], free_port()
        (models := self.folder / handle).mkdir()
        said = os.environ | {PROCESS: json.dumps(told | {"port": port}), MODELS_URL: given[MODELS_URL]}
        command = [sys.executable, "-c", RUN, str(self.folder / "tokens"), str(models)]
        self.runs[handle], self.at[handle] = subprocess.Popen(command, env=said), (port, models)
        return handle

    def alive(self, handle):
        return handle in self.runs and self.runs[handle].poll() is None

    def stop(self, handle, force=False):
        if handle in self.left:
            self.left.remove(handle)
        elif self.alive(handle):
            (self.runs[handle].kill if force else self.runs[handle].terminate)()

    def look(self, process, handle):
        port, _ = self.at[handle]
        with socket.socket() as probe:  # as a kubelet asks, it looks and hangs up
            there = probe.connect_ex(("127.0.0.1", port)) == 0
        return Answering(f"http://127.0.0.1:{port}", there and self.alive(handle))

    def there(self, kind):
        return list(self.left) if kind == TASK else []


class Here(ClusterTasks):
    """A pod's folder is its root; all pods share this one's."""

    def path(self, file):
        name = super().path(file).removeprefix(f"{MODELS_FOLDER}/")
        return str(next(folder / name for _, folder in self._pods.at.values() if (folder / name).is_file()))


@pytest.fixture
def pods(tmp_path):
    server = ModelServer("127.0.0.1", 0, TOKEN)
    made = PlayedPods(tmp_path, f"http://127.0.0.1:{server.port}")
    made.give = server.add
    yield made
    for each in made.runs.values():
        each.kill()
        each.wait()
    server.close()


@pytest.fixture
def kept(tmp_path, pods):
    prepare(tmp_path / "live", scenario()).close()
    made = LivePipelines(LivePlane(Store(tmp_path / "live" / DATABASE)), Here(pods, pods.give, TOKEN))
    yield made
    made.close()
    made.store.close()


def test_whoever_deletes_the_pod_of_a_task_has_its_pipeline_back(kept, pods):
    number = kept.book.submit("a", live()).id
    until(kept, lambda: states(kept) == ["running"] and frames(kept, number) > 0)
    (first,) = [handle for handle in pods.runs if "task-first" in handle]
    before, done = list(pods.runs), frames(kept, number)
    pods.runs[first].kill()
    until(kept, lambda: states(kept) == ["waiting"])
    assert "its connection has ended" in kept.book.get(number).why
    until(kept, lambda: states(kept) == ["running"] and frames(kept, number) > done)
    assert len(pods.runs) == 2 * len(before) and not any(map(pods.alive, before))
    kept.book.cancel(number)
    until(kept, lambda: states(kept) == ["cancelled"] and not any(map(pods.alive, pods.runs)))


def test_code_and_frames_come_by_their_digests(kept, pods, tmp_path):
    (code := tmp_path / "job.py").write_text(CODE)
    (frame := tmp_path / "frame.txt").write_bytes(b"12345")
    made = live(code=str(code), first="double", second="count")
    made = type(made)(made.pipeline, made.code, made.functions, (str(frame),))
    number = kept.book.submit("a", made).id
    until(kept, lambda: states(kept) == ["running"] and frames(kept, number) > 2)
    told = {
        handle: sorted(each.suffix for each in models.iterdir()) for handle, (_, models) in pods.at.items()
    }
    assert sorted(told.values()) == [[".py"], [".py"], [".txt"]]


def test_what_a_killed_controller_has_left_is_ended_first(pods):
    pods.left = ["pipeline-1-source-0a"]
    ClusterTasks(pods, pods.give, TOKEN)
    assert pods.left == []


def test_a_task_asks_for_memory_alone_and_sees_no_token_of_operators():
    needs = {"cpu_cores": 0.0, "memory_bytes": 5e7}
    process = Process("pipeline-1-source", TASK, 8100, {"node": "n1", "needs": needs, "files": {}})
    assert by_digest(process.settings, None) == process.settings
    pod = deployment(process, "0a", Pods("s", "i", "u"), PodPlace("n1", 0.0, 5e7))["spec"]["template"]["spec"]
    (inside,) = pod["containers"]
    assert inside["resources"]["requests"] == {"cpu": "0m", "memory": "50000000"}
    (tokens,) = [each["secret"] for each in pod["volumes"] if each["name"] == "tokens"]
    assert [each["key"] for each in tokens["items"]] == ["parts"]
    assert {"livenessProbe", "readinessProbe", "lifecycle"}.isdisjoint(inside)


def test_a_stranger_does_not_become_the_controller_of_a_task(pods):
    handle = pods.start(Process("pipeline-1-source", TASK, 1, {"files": {}}))
    wait_until(lambda: pods.look(None, handle).ready, limit_s=LIMIT_S)
    with socket.create_connection(("127.0.0.1", pods.at[handle][0]), LIMIT_S) as stranger:
        stranger.sendall(b"x" * len(TOKEN))
        assert stranger.recv(1) == b""
    assert pods.alive(handle)
