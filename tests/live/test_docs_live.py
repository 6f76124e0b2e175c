"""Commands of the documentation that need a live system, in the order of pages, against one that is up."""

import json
import os
import re
import shlex
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from test_all_work import CHANGES
from test_damaged_store import DAMAGES
from test_tracing import Collector

from command_line import edgewise
from docs_commands import RECORDED, ROOT, blocks, needs_a_system
from edgewise.config import dump_scenario, load_scenario
from edgewise.runtime.controller.plan import DATABASE
from edgewise.runtime.store.database import copy_of
from edgewise.runtime.testbeds import kernel
from edgewise.runtime.testbeds.spaces import left_behind
from waiting import wait_until

pytestmark = pytest.mark.live
LONG_S = 60.0
STEERED = ("tutorials/live-system.md", "deferrable.md")
ENDS = (
    "up",
    "down",
    "load",
    "record",
    "worker",
    "gateway",
    "demo",
    "replay",
)  # what begins or ends a system, or brings work


def commands_of(*pages):
    """What these pages show that needs a live system, in order."""
    shown = [(block.page, command) for block in blocks() for command in block.commands]
    return [command for page, command in shown if page in pages and needs_a_system(command)]


STEERING = [command for command in commands_of(*STEERED) if command.split()[0] not in ENDS]
LASTING = [command for command in commands_of("tutorials/live-system.md") if command.split()[0] in ENDS]
BY_HAND = {
    "access.md": "tests/live/test_access_docs.py",
    "kubernetes.md": "beds/kubernetes/tests/test_edgewise_up.py",
    "pipelines.md": "tests/live/test_docs_runs.py",
    "split.md": "tests/live/test_docs_runs.py",
}
CAMPUS = commands_of("tutorials/campus-live.md")
RUN = {*STEERING, *LASTING, *commands_of("orchestration.md", "tutorials/campus-live.md", *BY_HAND)}


@contextmanager
def system(folder, command):
    """What is up while this lasts, and what it said by then; it has ended afterwards, without a fault."""
    log = folder / "up.log"
    with log.open("w") as out:
        started = subprocess.Popen(
            [sys.executable, "-m", "edgewise", *shlex.split(command), "--port", "0"], cwd=folder, stdout=out
        )
    wait_until(lambda: "up after" in log.read_text() or started.poll() is not None, log.read_text, 2 * LONG_S)
    assert started.poll() is None, log.read_text()
    try:
        yield started, log.read_text()
    finally:
        edgewise("down", folder=folder, code=None)
        assert started.wait(LONG_S) == 0


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    """What the tutorial starts, with the files that the pages speak of."""
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "train.py").write_text("import signal\nsignal.pause()\n")
    (folder / "index.sh").write_text("#!/bin/sh\nexec sleep 600\n")
    (folder / "index.sh").chmod(0o755)
    with system(folder, "up tiny") as (_, said):
        yield folder, said


def test_the_token_is_for_clients_of_your_own(up):
    """As the page on access says, with curl."""
    page = (ROOT / "docs/access.md").read_text("utf-8")
    (shell,) = re.findall(r"^```sh\n((?:(?!```).)*edgewise token.*?)^```", page, re.DOTALL | re.MULTILINE)
    folder, said = up
    port = re.search(r"gateway-0: http://127.0.0.1:(\d+)", said)[1]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-c", shell.replace(":8000", f":{port}")], cwd=folder, env=os.environ | {"PATH": path},
        capture_output=True, text=True, timeout=LONG_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "small-cpu@near-node" in done.stdout and (folder / "operator").stat().st_mode & 0o077 == 0


def test_what_the_pages_say_steers_a_system_that_is_up(up):
    folder, _ = up
    assert len(STEERING) >= 18 and {line.split()[0] for line in STEERING} >= {
        "status",
        "policy",
        "submit",
        "job",
    }
    for page in STEERED:
        assert any(block.page == page and set(block.commands) & set(STEERING) for block in blocks())
    for command in STEERING:
        said = edgewise(*shlex.split(command), folder=folder)
        assert said.strip() or command.startswith("job output"), command
    assert "closest" in edgewise("policy", "show", folder=folder)
    assert "cancelled" in edgewise("jobs", "--all", folder=folder)


def test_services_take_requests_as_their_page_says(tmp_path):
    first, load, *rest = commands_of("orchestration.md")
    assert (first, load.split()[0]) == ("up kais-live", "load") and len(rest) == 5
    with system(tmp_path, first):
        words = shlex.split(load.replace("--seconds 20", "--seconds 2"))
        became = json.loads(edgewise(*words, "--json", folder=tmp_path))["became"]
        assert sum(became.values()) > 60 and became.get("in time", 0) > 0, (
            became
        )  # before the first frame is over
        for command in rest:
            assert edgewise(*shlex.split(command), folder=tmp_path).strip(), command
        assert "none" in edgewise("policy", "show", "orchestrate", folder=tmp_path)
        assert "greedy" in edgewise("policy", "show", "requests", folder=tmp_path)


def lasting(start):
    """The one command of the tutorial that begins so."""
    (command,) = {each for each in LASTING if each.startswith(start)}
    return command


def test_the_tutorial_changes_a_system_that_is_up(up):
    folder, said = up
    before = ports(said)
    change = lasting("up tiny --set")
    changed = subprocess.run(
        [sys.executable, "-m", "edgewise", *shlex.split(change), "--port", "0"], cwd=folder,
        capture_output=True, text=True, timeout=2 * LONG_S,
    )  # fmt: skip
    assert changed.returncode == 0 and ports(changed.stdout) == before, changed
    kept = (folder / "runs/live/scenario.yaml").read_text()
    assert load_scenario(folder / "runs/live/scenario.yaml").spec.telemetry.period_s == 0.5, kept


def ports(said):
    """Of each gateway, as `up` says them."""
    found = dict(re.findall(r"(gateway-\d+): http://127.0.0.1:(\d+)", said))
    assert found, said
    return found


def test_the_tutorial_goes_on_from_the_copy_of_a_damaged_store(tmp_path):
    with system(tmp_path, "up tiny"):
        file = tmp_path / "runs/live" / DATABASE
        wait_until(copy_of(file).exists, limit_s=LONG_S)
    DAMAGES["other pages"](file)
    assert "--restore" in edgewise("up", "tiny", "--port", "0", folder=tmp_path, code=2)
    with system(tmp_path, lasting("up tiny --restore")) as (_, said):
        assert "is restored" in said
    assert list(file.parent.glob(f"{DATABASE}.damaged-*"))


def test_the_tutorial_sends_spans_and_its_recording_is_replayed_live(tmp_path):
    """With another port of the collector, and five seconds of its scenario."""
    (tmp_path / "short.yaml").write_text(dump_scenario(load_scenario("tiny", {"duration_s": 5})))
    collector = Collector()
    command = lasting("up tiny --otlp").replace("http://localhost:4318", collector.url)
    with system(tmp_path, command.replace("tiny", "short.yaml")):
        edgewise("load", folder=tmp_path)
        edgewise(*shlex.split(lasting("record")), folder=tmp_path)
        said = edgewise(*shlex.split(lasting(f"{RECORDED} --live")), folder=tmp_path)
        assert re.search(r"closest|least-harm", said), said
        simulated = edgewise(*shlex.split(lasting(f"{RECORDED} --policies closest")), folder=tmp_path)
        assert "closest" in simulated and "least-impedance" in simulated
    assert {span.name for _, span in collector.spans} >= {"infer", "decide", "forward", "queue", "run"}


def test_all_five_kinds_of_work_are_brought_recorded_and_replayed(tmp_path):
    """The page's commands in their order, on its scenario made short."""
    (tmp_path / "short.yaml").write_text(dump_scenario(load_scenario("campus-small", CHANGES)))
    shown = CAMPUS[:6]
    first, load, record, down, report, replay = shown
    assert [each.split()[0] for each in shown] == ["up", "load", "record", "down", "report", "replay"]
    with system(tmp_path, first.replace("campus-small", "short.yaml")) as (started, _):
        figures = edgewise(*shlex.split(load), folder=tmp_path)
        works = ("streams", "services", "graphs", "pipelines", "jobs")
        for work in works:
            came, ok = map(int, re.search(rf"{work}\s+(\d+)\s+(\d+)", figures).groups())
            assert came >= ok > 0, (work, figures)
        assert "1 pipelines, 3 jobs" in edgewise(*shlex.split(record), folder=tmp_path)
        edgewise(*shlex.split(down), folder=tmp_path)
        assert started.wait(LONG_S) == 0
    assert edgewise(*shlex.split(report), folder=tmp_path).strip() == "runs/live/records/report.html"
    assert (tmp_path / "runs/live/records/jobs-items.parquet").is_file()
    said = edgewise(*shlex.split(replay), folder=tmp_path)
    assert "live, by its clients" in said and all(work in said for work in works)
    for other in ("orchestrate=none,autoscaler", "defer=fifo,horizon"):  # of the tutorial
        said = edgewise(*shlex.split(lasting(f"{RECORDED} --policies {other}")), folder=tmp_path)
        assert all(name in said for name in other.partition("=")[2].split(",")), said


@pytest.mark.skipif(kernel.unavailable() is not None, reason=str(kernel.unavailable()))
def test_all_five_kinds_of_work_run_on_namespaces(tmp_path):
    (tmp_path / "short.yaml").write_text(dump_scenario(load_scenario("campus-small", CHANGES)))
    first, load, down = CAMPUS[6:]
    with system(tmp_path, first.replace("campus-small", "short.yaml")) as (started, said):
        assert "wait for each other" not in said and re.search(r"gateway-0: http://10\.\d+\.0\.1:", said)
        figures = edgewise(*shlex.split(load), folder=tmp_path)
        for work in ("streams", "services", "graphs", "pipelines", "jobs"):
            came, ok = map(int, re.search(rf"{work}\s+(\d+)\s+(\d+)", figures).groups())
            assert came >= ok > 0, (work, figures)
        edgewise(*shlex.split(down), folder=tmp_path)
        assert started.wait(LONG_S) == 0
    assert tmp_path / "runs/live" not in left_behind()


def test_every_live_command_is_run():
    shown = {command for block in blocks() for command in block.commands if needs_a_system(command)}
    assert shown - RUN == set() and len(shown) >= 40
    assert {command.split()[0] for command in LASTING} == {"up", "down", "record", "replay"}
    assert [path for path in BY_HAND.values() if not (ROOT / path).exists()] == []
