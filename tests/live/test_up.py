"""`edgewise up` and the commands that steer it, as a user types them."""

import asyncio
import json
import re
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from connections import ask_raw, listens
from running_system import infer, small_scenario
from typer.testing import CliRunner

from command_line import edgewise
from edgewise.cli import app
from edgewise.cli.controller import DEFAULT
from edgewise.config import dump_scenario, load_scenario
from edgewise.runtime import http
from edgewise.runtime.controller.plan import DATABASE, prepare
from edgewise.runtime.store import Store
from edgewise.workloads.generate import read_streams_csv
from waiting import wait_until

pytestmark = pytest.mark.live
ROOT = Path(__file__).parents[2]
MINE = """
from edgewise import ScorePolicy

class Mine(ScorePolicy):
    def score(self, view, item):
        return view.impedance_s
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    folder = tmp_path_factory.mktemp("up")
    (folder / "small.yaml").write_text(dump_scenario(small_scenario(workers=2, capacity_qps=100)))
    system = subprocess.Popen(
        [sys.executable, "-m", "edgewise", "up", "small.yaml", "--port", "0"],
        cwd=folder, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    said = [system.stdout.readline() for _ in range(3)]
    url = re.search(r"gateway-0: (\S+)", said[0]).group(1)
    wait_until(lambda: edgewise("status", folder=folder, code=None))  # its controller answers
    wait_until(lambda: len(re.findall(r"\brunning\b", edgewise("workers", folder=folder))) == 2)
    assert answers(url)
    yield folder, url
    system.send_signal(signal.SIGINT)
    system.wait(30)


def answers(url):
    async def ask():
        try:
            return (await http.Client.of_url(url).request("GET", "/v2/models/score/ready")).status == 200
        except ConnectionError:
            return False

    return asyncio.run(ask())


def test_the_client_of_the_tutorial_gets_its_answer(up):
    folder, url = up
    page = (ROOT / "docs/tutorials/live-system.md").read_text()
    client = re.search(r"```python\n(# client.py.*?)```", page, re.S).group(1)
    assert len([line for line in client.splitlines() if line]) <= 11
    code = client.replace("http://localhost:8000", url)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "echo-cpu@" in done.stdout and "[1.0, 2.0, 3.0]" in done.stdout


def test_traffic_is_recorded_and_replayed_in_simulation_and_live(up):
    folder, url = up

    async def use():
        client = http.Client.of_url(url)
        for k in range(3):
            needs = {"task": "score", "application": f"app-{k % 2}", "rate_qps": 20 + k, "size_bytes": 100,
                     "deadline_s": 1.0}  # fmt: skip
            opened = await client.request("POST", "/v1/streams", body=json.dumps(needs).encode())
            stream = json.loads(opened.body)["stream"]
            for _ in range(5):
                assert (await infer(client, stream)).status == 200
            await client.request("DELETE", f"/v1/streams/{stream}")
        odd = [
            {"task": "no-such-task"},
            {"deadline_s": 0.0},
            {"application": "app in\na kitchen", "priority": -3},
        ]
        for changes in odd:
            needs = {"task": "score", "rate_qps": 5, "size_bytes": 0, "deadline_s": 1.0} | changes
            opened = await client.request("POST", "/v1/streams", body=json.dumps(needs).encode())
            assert opened.status in (201, 409)
            if opened.status == 201:
                await client.request("DELETE", f"/v1/streams/{json.loads(opened.body)['stream']}")

    edgewise("shadow", "set", "closest", folder=folder)
    asyncio.run(use())
    report = edgewise("shadow", "show", folder=folder)
    assert re.search(r"items: other\s+4\b", report) and "near-node" in report, report
    assert "2 of tasks or sites that it has not are left out" in edgewise("record", "recorded", folder=folder)
    scenario = load_scenario(folder / "recorded/scenario.yaml")
    trace = read_streams_csv(folder / "recorded/streams.csv", scenario)
    mine = [s for s in trace if s.application in ("app-0", "app-1")]
    assert [s.rate_qps for s in mine] == [20, 21, 22] and [s.application for s in mine][:2] == [
        "app-0",
        "app-1",
    ]
    assert [(s.application, s.priority) for s in trace if s.size_bytes == 1.0] == [("app-in-a-kitchen", -3)]
    simulated = edgewise("replay", "recorded", "--policies", "closest,farthest", "--out", "x", folder=folder)
    assert "closest" in simulated and "farthest" in simulated and (folder / "x/report.html").is_file()
    live = edgewise("replay", "recorded", "--live", folder=folder)
    summary = json.loads((folder / "x/summary.json").read_text())
    (expected,) = (str(row["queries"]) for row in summary if row["policy"] == "closest")
    assert re.search(rf"closest\s.*\s{expected}\s", simulated)
    queries, ok, _, rejected = re.search(r"live\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)", live).groups()
    assert (queries, rejected) == (expected, "0")  # as many queries live as simulated
    assert int(ok) > 0


def test_what_was_closed_long_ago_is_forgotten_while_the_system_runs(up):
    folder, _ = up
    store = Store(folder / DEFAULT / DATABASE)
    numbers = [store.records.open_stream("gateway-0", {"task": "old"}, None) for _ in range(5)]
    for number in numbers:
        store.records.close_stream(number, None, {})
    long_ago = time.time() - 31 * 86400.0
    marks = ",".join("?" * len(numbers))
    store.run(f"UPDATE stream SET closed_s = ? WHERE id IN ({marks})", (long_ago, *numbers))
    wait_until(lambda: not {row["stream"] for row in store.records.streams()} & set(numbers))
    store.close()


def test_commands_steer_the_system(up):
    folder, url = up
    assert "dispatch: closest in gateway-0" in edgewise("policy", "set", "closest", folder=folder)
    assert re.search(r"dispatch +closest\s", edgewise("status", folder=folder))
    message = edgewise("policy", "set", "nonsense", folder=folder, code=2)
    assert "nonsense" in message and "least-impedance" in message
    assert "near-node" in edgewise("workers", folder=folder)
    near = "echo-cpu@near-node"
    edgewise("drain", near, folder=folder)
    wait_until(lambda: re.search(rf"{near}\s+worker\s+stopped", edgewise("status", folder=folder)))
    edgewise("resume", near, folder=folder)
    wait_until(lambda: re.search(rf"{near}\s+worker\s+running", edgewise("status", folder=folder)))
    assert "no worker" in edgewise("drain", "nobody", folder=folder, code=2)
    assert "app-0" in edgewise("streams", "--all", folder=folder)


CHANGES = (
    ("POST /v1/down", b""),
    ("PUT /v1/policies/dispatch", b'{"policy": "closest"}'),
    ("PUT /v1/shadows/dispatch", b'{"policy": "closest"}'),
    ("PUT /v1/workers/echo-cpu@near-node", b'{"wanted": false}'),
    ("PUT /v1/policies/requests", b'{"policy": "closest"}'),
    ("PUT /v1/policies/orchestrate", b'{"policy": "closest"}'),
    ("POST /v1/admin/jobs", b'{"key": "x", "command": ["id"], "folder": "/", "duration_s": 1}'),
    ("DELETE /v1/admin/jobs/1", b""),
    ("PUT /v1/policies/defer", b'{"policy": "sjf"}'),
)
FORM = "content-type: application/x-www-form-urlencoded"


@pytest.mark.parametrize(("line", "body"), CHANGES)
def test_whoever_has_not_the_operators_token_changes_nothing(up, line, body):
    store = Store(up[0] / DEFAULT / DATABASE)
    port, token = store.get("controller")["port"], store.secret("operator")
    store.close()
    first = f"{line} HTTP/1.1"
    shown, local = f"authorization: Bearer {token}", f"host: localhost:{port}"
    assert ask_raw(port, first, local, body=body)[0] == 401
    assert ask_raw(port, first, local, f"authorization: Bearer {token[:-1]}", body=body)[0] == 401
    assert ask_raw(port, first, local, FORM, "origin: null", body=body)[0] == 403
    assert ask_raw(port, first, local, shown, "origin: https://evil.example", body=body)[0] == 403
    assert ask_raw(port, first, "host: evil.example", shown, body=body)[0] == 403
    assert ask_raw(port, first.replace("/v1/", "//v1/"), local, body=body)[0] == 401


def test_reading_needs_a_token_where_it_tells_of_others(up):
    store = Store(up[0] / DEFAULT / DATABASE)
    port = store.get("controller")["port"]
    workers = [r.process.port for r in store.processes("worker")]
    gateway = next(r.process.port for r in store.processes("gateway"))
    parts, operator = store.secret("parts"), store.secret("operator")
    store.close()

    def status(port, path, *headers, method="GET", body=b""):
        return ask_raw(port, f"{method} {path} HTTP/1.1", "host: localhost", *headers, body=body)[0]

    for each in (port, gateway, *workers):
        wait_until(lambda each=each: listens(each))  # a worker that has been resumed may be starting
        assert status(each, "/v2/health/live") == status(each, "/openapi.json") == 200
    assert {status(port, path) for path in ("/v1/status", "/v1/streams", "/v1/admin/jobs")} == {401}
    assert status(gateway, "/v1/streams") == 200  # no token was wanted of clients
    for path in ("/v1/admin/workers", "/v1/%61dmin/workers", "//v1//admin/workers", "/v1/admin"):
        assert status(gateway, path) in (401, 404)
    assert status(gateway, "/v1/admin/workers") == 401
    assert status(gateway, "/v1/admin/workers", f"authorization: Bearer {operator}") == 200
    for worker in workers:
        query = {"method": "POST", "body": b'{"inputs": []}'}
        assert status(worker, "/v2/models/echo-cpu/infer", **query) == 401
        assert status(worker, "/v1/reservations/me", method="PUT", body=b'{"streams": {}}') == 401
        assert status(worker, "/metrics") == status(worker, "/v2") == 401
        assert status(worker, "/v2/models/echo-cpu/infer", f"authorization: Bearer {parts}", **query) == 400
        assert status(worker, "/metrics", f"authorization: Bearer {operator}") == 200
    assert edgewise("token", folder=up[0]) == f"{operator}\n"


def test_pages_in_a_browser_open_no_streams(up):
    _, url = up
    port = int(url.rpartition(":")[2])
    needs = json.dumps({"task": "score", "rate_qps": 1, "size_bytes": 100, "deadline_s": 1}).encode()
    first = "POST /v1/streams HTTP/1.1"
    for headers in (
        ("host: evil.example",),  # a name that was made to point here
        (f"host: evil.example:{port}", f"origin: http://evil.example:{port}"),
        (f"host: localhost:{port}", "origin: https://evil.example", FORM),
        (f"host: localhost:{port}", "origin: null", FORM),
        (f"host: localhost:{port}", "host: evil.example"),
        ("host: evil.example@localhost",),
        ("host: [::1",),
    ):
        assert ask_raw(port, first, *headers, body=needs)[0] in (400, 403), headers
    for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}", "LOCALHOST"):
        assert ask_raw(port, first, f"host: {host}", FORM, body=needs)[0] == 201, host  # as curl -d sends it


def test_up_again_changes_the_running_system(up):
    folder, _ = up
    (folder / "token").write_text("x\n")
    message = edgewise("up", "small.yaml", "--port", "0", "--token-file", "token", folder=folder, code=2)
    assert "token" in message and "edgewise down" in message
    (folder / "mine.py").write_text(MINE)
    again = "up", "small.yaml", "--port", "0", "--seed", "1"
    (folder / "broken.py").write_text(MINE.replace("class Mine", "1 / 0\n\n\nclass Mine"))
    said = edgewise(*again, "--policy", "broken.py:Mine", folder=folder, code=2)
    assert "ZeroDivisionError" in said
    with closing(Store(folder / DEFAULT / DATABASE)) as store:  # before anything was changed
        assert {running.process.settings["seed"] for running in store.processes()} == {0}
        assert not any(running.outdated for running in store.processes())
    assert "up after" in edgewise(*again, "--policy", "mine.py:Mine", "--policy", "defer=sjf", folder=folder)
    shown = edgewise("policy", "show", folder=folder)
    assert re.search(rf"dispatch +{folder}/mine.py:Mine\s", shown) and re.search(r"defer +sjf\s", shown)
    assert "closest" in edgewise("policy", "set", "closest", folder=folder)

    def replaced():
        said = edgewise("status", folder=folder)
        rows = re.findall(r"\S+ +(?:worker|gateway) +(.+?) +(\d+) +http", said)
        return len(rows) == 3 and all(state == "running" and int(times) > 0 for state, times in rows)

    wait_until(replaced)


def test_without_a_system_there_is_one_line_of_help(tmp_path):
    for command in (("status",), ("drain", "x")):
        assert "edgewise up" in edgewise(*command, folder=tmp_path, code=2)
    assert "--state" in edgewise("record", "y", folder=tmp_path, code=2)
    Store(tmp_path / DEFAULT / DATABASE).close()  # where the first start was cut off
    assert "edgewise up" in edgewise("status", folder=tmp_path, code=2)
    (tmp_path / "token").write_text("grün")
    assert "token" in edgewise("up", "tiny", "--token-file", "token", folder=tmp_path, code=2)
    assert "path" in edgewise("up", "tiny", "--token-file", "none", folder=tmp_path, code=2)
    prepare(tmp_path / DEFAULT, small_scenario()).close()  # no bytes of a shell are too odd for a name
    assert "cannot be reached" in edgewise(
        "drain", b"\xff".decode(errors="surrogateescape"), folder=tmp_path, code=2
    )
    message = edgewise("gateway", "tiny", "--worker", "x", folder=tmp_path, code=2)
    assert "NAME=URL" in message


@pytest.mark.parametrize(
    "command",
    ["up", "down", "status", "token", "streams", "workers", "drain", "resume", "worker", "gateway",
     "dev openapi", "record", "replay", "load", "demo", "policy set", "shadow set", "shadow show"],
)  # fmt: skip
def test_help_has_an_example(command):
    shown = CliRunner().invoke(app, [*command.split(), "--help"])
    assert shown.exit_code == 0 and f"edgewise {command}" in shown.stdout


def test_openapi_of_each_interface(tmp_path):
    for which, path in (
        ("gateway", "/v1/streams"),
        ("worker", "/v2"),
        ("controller", "/v1/shadows/{decision}"),
    ):
        assert path in json.loads(edgewise("openapi", which, folder=tmp_path))["paths"]
    assert "controller" in edgewise("openapi", "x", folder=tmp_path, code=2)
