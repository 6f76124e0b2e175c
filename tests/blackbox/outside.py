"""A live system as somebody sees it who knows its command line, its HTTP interface and processes."""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Event, Thread
from urllib.parse import urlsplit
from uuid import uuid4

import psutil

from waiting import wait_until

EDGEWISE = shutil.which("edgewise", path=str(Path(sys.executable).parent)) or "edgewise"
MARK = "EDGEWISE_BLACKBOX"  # in the environment of all that a system starts
PATIENCE_S = 60.0
AGAIN = {502, 503}  # by the retry rule: send the query again; every other answer is final

YARD = """
name: yard
description: One of each kind of work, on two nodes of a hall and a cloud.
duration_s: 600
window_s: 5
telemetry: {period_s: 1, lag_s: 0.1, servers: true}
catalog:
  models:
    - {name: eye, task: detection, accuracy: 40}
    - {name: ear, task: hearing, accuracy: 40}
  variants:
    - &variant
      name: eye-cpu
      model: eye
      resources: {cpu_cores: 1, memory_bytes: 100MB}
      profile: {fixed_s: 5ms, source: made up}
      capacity_qps: 100
      largest_bytes: 20kB
    - {<<: *variant, name: ear-cpu, model: ear}
clusters:
  - name: hall
    tier: 0
    nodes: [{name: hall, count: 2, resources: {cpu_cores: 6, memory_bytes: 2GB}, speed_ops: 1.0e11}]
  - {name: cloud, tier: 1, nodes: [{name: cloud, resources: {cpu_cores: 8, memory_bytes: 4GB}}]}
sites:
  - {name: at-hall, cluster: hall, access_delay_s: 0.1ms, uplink_bps: 1Gbps}
  - {name: at-gate, cluster: hall, access_delay_s: 0.1ms, uplink_bps: 1Gbps}
links:
  - {site: "*", cluster: hall, delay_s: 0.5ms, bandwidth_bps: 1Gbps}
  - {site: "*", cluster: cloud, delay_s: 2ms, bandwidth_bps: 1Gbps}
  - {between: [hall, hall], bandwidth_bps: 1Gbps, shared: both}
workers:
  - {variant: eye-cpu, cluster: hall, count: 2}
  - {variant: ear-cpu, cluster: cloud}
streams:
  applications:
    - {name: any, task: detection, rate_qps: 5, size_bytes: 1kB, deadline_s: 5, length_s: 60}
  arrivals: {clients_per_min: 1}
policies: {requests: greedy, orchestrate: none}
services:
  cloud: cloud
  frame_s: 2
  slot_s: 10ms
  cores_held: life
  offered: [{variant: ear-cpu, deadline_s: 5, answer_bytes: 1kB, initial: 2}]
  requests: {rate_qps: 1, service_s: 5ms, slack: [10, 20], payload_bytes: 1kB}
graphs:
  - {name: inception, network: inception-v1, rate_qps: 0.1, cpu_cores: 1, memory_bytes: 200MB}
pipelines:
  - name: camera
    source: hall-1
    input_bytes: 10000
    length_s: 300
    tasks:
      - {name: detect, downstream: [count], memory_bytes: 100MB, work_ops: 1.0e9, output_bytes: 1000}
      - {name: count, memory_bytes: 100MB, work_ops: 1.0e8, output_bytes: 0}
jobs:
  slot_s: 1
  submitted: [{name: small, cores: 1, memory_bytes: 100MB, duration_s: 6, latest_s: 60}]
"""
POLICIES = {
    "dispatch": "closest",
    "split": "whole-least-loaded",
    "place": "tp",
    "defer": "sjf",
}  # no defaults
CAMERA = {
    "name": "camera", "source": "hall-1", "input_bytes": 10_000, "frames": None, "duration_s": 300,
    "arrival_s": 0,
    "graph": {
        "name": "camera",
        "tasks": [{"name": "detect", "work_ops": 1e9, "memory_bytes": 1e8},
                  {"name": "count", "work_ops": 1e8, "memory_bytes": 1e8}],
        "edges": [{"source": "detect", "target": "count", "size_bytes": 1000, "tensor": ""}],
    },
}  # fmt: skip
NEEDS = {"task": "detection", "rate_qps": 5, "size_bytes": 1000, "deadline_s": 20}


def edgewise(*arguments, folder, code=0, **options):
    """What a command of edgewise prints, of which nobody may ever see a traceback; `code` None takes any."""
    done = subprocess.run([EDGEWISE, *arguments], cwd=folder, env=environment(), text=True,
                          capture_output=True, timeout=120, **options)  # fmt: skip
    said = done.stdout + done.stderr
    assert "Traceback" not in said, said
    assert done.returncode == code or code is None, (done.returncode, said)
    return said


def environment(mark=""):
    """As it is, without a token of ours; consoles are wide."""
    kept = {name: value for name, value in os.environ.items() if name != "EDGEWISE_TOKEN"}
    return {**kept, "COLUMNS": "200", MARK: mark}


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict
    body: bytes

    def json(self):
        return json.loads(self.body)


def ask(url, method, path, body=None, token=None, headers=None, patience_s=30.0):
    """One request on a connection of its own; `body` is bytes or becomes JSON.

    Raises:
        OSError or HTTPException: nobody answers, or not to the end.
    """
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=patience_s)
    try:
        return ask_on(connection, method, path, body, token, headers)
    finally:
        connection.close()


def ask_on(connection, method, path, body=None, token=None, headers=None):
    """One request on a connection that stays."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    shown = {"authorization": f"Bearer {token}"} if token else {}
    connection.request(method, path, data, {**shown, **(headers or {})})
    answer = connection.getresponse()
    return Answer(answer.status, dict(answer.getheaders()), answer.read())


def ask_until_answered(url, method, path, body=None, token=None, headers=None):
    """As a client does that follows the retry rule: what breaks, and 502 and 503, is sent again."""
    until_s = time.monotonic() + PATIENCE_S

    def final():
        with suppress(OSError, http.client.HTTPException):
            answer = ask(url, method, path, body, token, headers)
            return answer if answer.status not in AGAIN or time.monotonic() > until_s else None

    return wait_until(final, f"{method} {path}: nobody answers", 1.5 * PATIENCE_S)


@cache
def zeros(url, task, token=None):
    """Headers and body of a query of zeros, with binary tensors, as the model's own description says."""
    described = ask_until_answered(url, "GET", f"/v2/models/{task}", token=token).json()
    tensors, data = [], b""
    for each in described.get("inputs") or [{"name": "x", "datatype": "FP32", "shape": [1, 4]}]:
        shape = [size if size > 0 else 1 for size in each["shape"]]
        count = 4
        for size in shape:
            count *= size
        tensors.append({"name": each["name"], "shape": shape, "datatype": "FP32",
                        "parameters": {"binary_data_size": count}})  # fmt: skip
        data += bytes(count)
    head = json.dumps({"inputs": tensors}).encode()
    return {"inference-header-content-length": str(len(head))}, head + data


class Live:
    """`edgewise up` of a scenario in a folder of its own, and what it started."""

    def __init__(self, folder, scenario=YARD, options=(), state="state", token=None):
        self.folder, self.state, self.token = folder, folder / state, token
        self.mark, self.operator = uuid4().hex, ""
        (folder / "scenario.yaml").write_text(scenario)
        self.command = ["up", "scenario.yaml", "--state", str(self.state), "--port", "0", *options]
        self.gateways, self.controller, self.terminal = [], "", None

    def up(self, *more):
        """Start it, and wait until it says that all serve."""
        said = self.folder / "terminal"
        with said.open("wb") as written:
            self.terminal = subprocess.Popen(
                [EDGEWISE, *self.command, *more], cwd=self.folder, env=environment(self.mark),
                stdin=subprocess.DEVNULL, stdout=written, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        wait_until(
            lambda: "up after" in said.read_text() or self.terminal.poll() is not None, said.read_text, 240
        )
        text = said.read_text()
        assert self.terminal.poll() is None, text
        self.gateways = re.findall(r"^gateway-\d+: (http://\S+)", text, re.M)
        self.controller = re.search(r"controller: (http://[^\s;]+)", text)[1]
        self.operator = edgewise("token", "--state", str(self.state), folder=self.folder).strip()
        return text

    # asking

    def get(self, path):
        """From the controller, as the operator; its successor answers where it died."""
        answer = ask_until_answered(self.controller, "GET", path, token=self.operator)
        assert answer.status == 200, (path, answer)
        return answer.json()

    def steer(self, method, path, body=None):
        return ask(self.controller, method, path, body, self.operator)

    def row(self, name):
        return next(row for row in self.get("/v1/status")["processes"] if row["name"] == name)

    def names(self, kind):
        return [row["name"] for row in self.get("/v1/status")["processes"] if row["kind"] == kind]

    def open_stream(self, gateway=0, **changes):
        answer = ask(self.gateways[gateway], "POST", "/v1/streams", NEEDS | changes, self.token)
        return answer.status, answer.json()

    def close_stream(self, opened, gateway=0):
        path = f"/v1/streams/{opened['stream']}"
        return ask_until_answered(
            self.gateways[gateway], "DELETE", path, None, self.token, key_of(opened)
        ).status

    def infer(self, opened, gateway=0, task="detection", **headers):
        """A query of a stream that was opened; `opened` is the answer to its opening."""
        described, body = zeros(self.gateways[gateway], task, self.token)
        sent = {**described, "edgewise-stream": str(opened["stream"]), **key_of(opened), **headers}
        return ask(self.gateways[gateway], "POST", f"/v2/models/{task}/infer", body, self.token, sent)

    def submit(self, command, **changes):
        """The answer to a job of a minute, submitted over HTTP."""
        now_s = time.time()
        wish = {"key": uuid4().hex, "command": command, "folder": str(self.folder), "cores": 1,
                "memory_bytes": 1e6, "duration_s": 60, "earliest_s": now_s, "latest_s": now_s + 600,
                "priority": 0, "when_evicted": "pause"}  # fmt: skip
        return self.steer("POST", "/v1/admin/jobs", wish | changes)

    def submit_for_later(self):
        """A job that waits for an hour."""
        later_s = time.time() + 3600
        return self.submit(["true"], earliest_s=later_s, latest_s=later_s + 600)

    def run_pipeline(self):
        live = {"pipeline": CAMERA, "code": None, "functions": {}, "frames": []}
        return self.steer("POST", "/v1/admin/pipelines", {"key": uuid4().hex, "live": live})

    def job(self, number):
        return self.get(f"/v1/admin/jobs/{number}")

    def pipeline(self, number):
        return next(row for row in self.get("/v1/admin/pipelines") if row["id"] == number)

    # processes

    def processes(self):
        """Everything it started that lives, by the mark in its environment."""
        return [each for each in psutil.process_iter() if _mark(each) == self.mark and _lives(each)]

    def pid(self, url):
        """The process that listens at an address."""
        port = urlsplit(url).port
        found = [each.pid for each in psutil.net_connections("tcp")
                 if each.status == psutil.CONN_LISTEN and each.laddr.port == port and each.pid]  # fmt: skip
        return found[0] if found else None

    def addresses(self):
        return [*(row["url"] for row in self.get("/v1/status")["processes"]), self.controller]

    # its end

    def down(self):
        """`edgewise down`, after which nothing is left: no process, no open port; and `up` has ended well."""
        addresses = self.addresses()
        said = edgewise("down", "--state", str(self.state), folder=self.folder)
        assert self.terminal.wait(PATIENCE_S) == 0
        wait_until(lambda: not self.processes(), lambda: [each.cmdline() for each in self.processes()], 10)
        for url in addresses:
            parts = urlsplit(url)
            with socket.socket() as probe:
                assert probe.connect_ex((parts.hostname, parts.port)) != 0, f"{url} still listens"
        return said

    def kill_all(self):
        """Whatever is left of it, for the next test."""
        while left := self.processes():
            for each in left:
                with suppress(psutil.NoSuchProcess):
                    each.kill()
            psutil.wait_procs(left, 10)
            if self.terminal is not None:
                self.terminal.poll()


def key_of(opened):
    """The header with the key of a stream, where its opening gave one."""
    return {"edgewise-stream-key": opened["key"]} if "key" in opened else {}


def _mark(process):
    try:
        return process.environ().get(MARK)
    except (psutil.Error, OSError):
        return None


def _lives(process):
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


@contextmanager
def running(folder, *options, **settings):
    """A system that serves; nothing of it outlives the test."""
    given = [f"--policy={decision}={name}" for decision, name in POLICIES.items()]
    live = Live(folder, options=(*given, *options), **settings)
    try:
        live.up()
        yield live
    finally:
        live.kill_all()


def kill_9(number):
    os.kill(number, signal.SIGKILL)


# clients that go on asking


@dataclass
class Seen:
    """What clients saw, by name: the status of each query, in turn."""

    statuses: dict = field(default_factory=dict)

    def more(self, count=3):
        """Wait until every client has had so many answers more."""
        wanted = {name: len(found) + count for name, found in self.statuses.items()}
        wait_until(lambda: all(len(self.statuses[name]) >= least for name, least in wanted.items()))

    def kinds(self):
        return {name: set(found) for name, found in self.statuses.items()}


@contextmanager
def clients_of(live):
    """A client of each kind at each gateway, who sends one query after the other, by the retry rule."""
    seen, end, threads, streams = Seen(), Event(), [], []
    stated = {"edgewise-deadline-s": "20", "edgewise-rate-qps": "20"}
    for number, url in enumerate(live.gateways):
        status, opened = live.open_stream(number, rate_qps=20)
        assert status == 201, opened
        streams.append(opened)
        of = {"edgewise-stream": str(opened["stream"]), **key_of(opened)}
        for task, more in {"detection": of, "ear-cpu": stated, "inception": stated}.items():
            described, body = zeros(url, task, live.token)
            found = seen.statuses.setdefault(f"{task} at {number}", [])
            arguments = (url, task, body, {**described, **more}, live.token, found, end)
            threads.append(Thread(target=_go_on_asking, args=arguments))
    for thread in threads:
        thread.start()
    try:
        seen.more(1)
        yield seen
        seen.more()
    finally:
        end.set()
        for thread in threads:
            thread.join(PATIENCE_S)
        for number, opened in enumerate(streams):
            live.close_stream(opened, number)


def _go_on_asking(url, task, body, headers, token, found, end):
    while not end.wait(0.1):
        found.append(ask_until_answered(url, "POST", f"/v2/models/{task}/infer", body, token, headers).status)
