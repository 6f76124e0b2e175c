"""Budgets of decisions in a running system: whoever takes longer is not waited for, and that is recorded."""

import asyncio
import csv
import time

import pytest
from running_system import open_stream, started
from test_live_services import request

from command_line import edgewise
from edgewise.config import load_scenario
from edgewise.runtime.clients.reaching import ask, operator
from edgewise.runtime.watch.faults import INSTEAD
from waiting import IN_FILES, becomes

pytestmark = pytest.mark.live
BUDGETS_S = {"dispatch": 0.1, "requests": 0.2, "orchestrate": 0.15, "defer": 0.25}
SLEEPERS = f"""
{IN_FILES}
from pathlib import Path
from edgewise import policies

def sleeping(decision, name):
    class Sleeps(type(policies.load(decision, name))):
        def decide(self, *asked):
            if Path(__file__).with_name("sleepy").exists():
                takes(1.0)
            return super().decide(*asked)
    return Sleeps

class Dispatch(sleeping("dispatch", "closest")): pass
class Requests(sleeping("requests", "greedy")): pass
class Replicas(sleeping("orchestrate", "none")): pass
class Jobs(sleeping("defer", "sjf")): pass

def raising(decision, name):
    class Raises(type(policies.load(decision, name))):
        def decide(self, *asked):
            return 1 / 0
    return Raises

class NoDispatch(raising("dispatch", "closest")): pass
class NoRequests(raising("requests", "greedy")): pass
class NoReplicas(raising("orchestrate", "none")): pass
class NoJobs(raising("defer", "sjf")): pass
"""
SLEEPS = {"dispatch": "Dispatch", "requests": "Requests", "orchestrate": "Replicas", "defer": "Jobs"}


@pytest.fixture(scope="module")
def system(tmp_path_factory):
    changes = {f"live.budgets_s.{decision}": budget_s for decision, budget_s in BUDGETS_S.items()}
    scenario = load_scenario("kais-live", {"services.frame_s": 0.5} | changes)
    folder = tmp_path_factory.mktemp("budgets")
    (folder / "own.py").write_text(SLEEPERS)
    given = {decision: f"{folder / 'own.py'}:{name}" for decision, name in SLEEPS.items()}
    with started(folder, scenario, gateways=1, given=given) as made:
        yield made


def test_a_policy_that_raises_is_refused_and_the_one_before_decides(system):
    async def run():
        before = await system.get("/v1/policies")
        for decision, name in SLEEPS.items():
            done = await system.switch(f"/v1/policies/{decision}", f"{system.folder / 'own.py'}:No{name}")
            assert done["state"] == "failed" and "cannot decide: ZeroDivisionError: division" in done["error"]
            assert "\n" not in done["error"]
        assert await system.get("/v1/policies") == before

    asyncio.run(run())


def test_whoever_takes_longer_is_not_waited_for_and_that_is_recorded(system):
    async def run():
        assert not system.store.faults.since()
        (system.folder / "sleepy").touch()
        client = system.gateway()
        status, opened = await open_stream(client, task="detection", rate_qps=1)
        assert status == 201 and opened["worker"] == "camera@cloud"
        answers = [await request(client) for _ in range(5)]
        assert {answer.status for answer in answers} == {200}
        assert {answer.headers["edgewise-worker"] for answer in answers} == {"camera@cloud"}
        wish = {"key": "a", "command": ["/bin/true"], "folder": "/", "duration_s": 5, "cores": 0.1}
        job = await system.get("/v1/admin/jobs", "POST", wish)

        async def recorded():
            return {row.decision for row in system.store.faults.since() if row.waited_s} >= SLEEPS.keys()

        async def done():
            return (await system.get(f"/v1/admin/jobs/{job['id']}"))["state"] == "done"

        await becomes(done)
        await becomes(recorded)
        controller = operator(system.store)
        pages = [(await ask(each, "GET", "/metrics")).body.decode() for each in (client, controller)]
        client.close()
        controller.close()
        return "".join(pages)

    page = asyncio.run(run())
    for decision, budget_s in BUDGETS_S.items():
        found = [row for row in system.store.faults.since() if row.decision == decision and row.waited_s]
        assert {(row.waited_s, row.instead, row.times) for row in found} == {(budget_s, INSTEAD[decision], 1)}
        assert all(abs(time.time() - row.at_s) < 60 and "no answer within" in row.why for row in found)
        assert f'edgewise_policy_faults_total{{decision="{decision}",why="no answer in time"}}' in page
    said = asked(system, "status")
    for decision in BUDGETS_S:
        assert f"{decision}: " in said and INSTEAD[decision] in said
    assert "no answer within 0.25 s" in asked(system, "policy", "show", "defer")
    assert "policies failed" in asked(system, "record", str(system.folder / "recorded"))
    with (system.folder / "recorded" / "faults.csv").open() as file:
        assert {row["decision"] for row in csv.DictReader(file)} == BUDGETS_S.keys()


def asked(system, *command):
    return edgewise(*command, "--state", ".", folder=system.folder)
