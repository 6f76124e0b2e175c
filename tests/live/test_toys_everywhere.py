"""The policies of the examples, one of each decision, by file.py:Class: in simulation and live."""

import asyncio
import json
import re
from contextlib import chdir
from pathlib import Path

import pytest
from running_system import open_stream, started
from typer.testing import CliRunner

from edgewise import policies
from edgewise.cli import app
from edgewise.config import load_scenario
from waiting import becomes

EXAMPLES = Path(__file__).parents[2] / "examples"
SHORT = "kais-demo --set duration_s=500"
LINES = {  # by decision: the file, a scenario made short, and a shipped policy to compare with
    "dispatch": ("mine.py", "tiny --policies dispatch={}", "closest"),
    "requests": ("requests.py", f"{SHORT} --policy orchestrate=none --policies requests={{}}", "greedy"),
    "orchestrate": ("replicas.py", f"{SHORT} --policies orchestrate={{}}", "none"),
    "split": ("splits.py", "split-inception --set duration_s=1 --policies split={}", "whole-least-loaded"),
    "place": ("pipelines.py", "recognition --policies place={}", "tp"),
    "defer": ("jobs.py", "deferrable --policies defer={}", "fifo"),
}


@pytest.fixture(scope="module")
def toys(tmp_path_factory):
    """The policy of each decision, as one names it."""
    folder = tmp_path_factory.mktemp("toys")
    where = {file: next(EXAMPLES.glob(f"*/{file}")) for file, *_ in LINES.values()}
    codes = {file: path.read_text(encoding="utf-8") for file, path in where.items()}
    for name, code in codes.items():
        (folder / name).write_text(code)
    names = {name: re.search(r"^class (\w+)", code, re.M)[1] for name, code in codes.items()}
    return {decision: f"{folder / file}:{names[file]}" for decision, (file, *_) in LINES.items()}


@pytest.mark.parametrize("decision", LINES)
def test_each_is_compared_with_a_shipped_one(decision, toys, tmp_path):
    _, line, rival = LINES[decision]
    command = f"compare {line.format(toys[decision])},{rival} --seeds 0:2 --json --out {tmp_path}"
    with chdir(tmp_path):
        done = CliRunner().invoke(app, command.split())
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["policies"] == [toys[decision].rpartition(":")[2], rival]
    assert found["comparison"][0]["verdict"]


@pytest.mark.live
def test_a_running_system_decides_by_them_from_its_start_and_takes_them_again(toys, tmp_path):
    given = {each: toys[each] for each in policies.DECISIONS if each not in ("split", "place")}

    async def decides(system):
        rows = await system.get("/v1/policies")
        assert {row["decision"]: row["policy"] for row in rows} == given
        return [row["fault"] for row in rows]

    async def scenario(system):
        client = system.gateway()
        status, found = await open_stream(client, task="detection", deadline_s=30.0)
        assert status == 201, found
        headers = {"content-type": "application/json", "edgewise-deadline-s": "30"}
        body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 1, 1, 1]}]}
        for model, more in (("plates", {}), ("detection", {"edgewise-stream": str(found["stream"])})):
            asked = f"/v2/models/{model}/infer", headers | more, json.dumps(body).encode()
            answer = await client.request("POST", *asked, timeout_s=60)
            assert answer.status == 200, answer.body
        client.close()
        job = {"key": "one", "command": ["true"], "folder": "/", "duration_s": 5.0}
        number = (await system.get("/v1/admin/jobs", "POST", job))["id"]

        async def done():
            return (await system.get(f"/v1/admin/jobs/{number}"))["state"] == "done"

        await becomes(done)
        assert await decides(system) == [None] * len(given)
        for decision, name in given.items():
            done = await system.switch(f"/v1/policies/{decision}", name)
            assert done["state"] == "done", done
        assert await decides(system) == [None] * len(given)
        broken = toys["defer"].replace(":", ":No")
        assert "no class" in (await system.switch("/v1/policies/defer", broken))["error"]
        assert (
            "no file" in (await system.get("/v1/policies/defer", "PUT", {"policy": "jobs.py:Mine"}))["error"]
        )
        assert await decides(system) == [None] * len(given)

    made = load_scenario("kais-live", {"services.frame_s": 0.5})
    with started(tmp_path / "state", made, given=given, gateways=1) as system:
        asyncio.run(asyncio.wait_for(scenario(system), 120))
