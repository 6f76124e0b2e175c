"""The controller beside gateways that answer, and refuse: it goes on, or ends so that its successor does."""

import asyncio
import json
import os

import pytest
from running_system import small_scenario

from edgewise.runtime import http
from edgewise.runtime.backends.local import LocalBackend
from edgewise.runtime.controller import controller as module
from edgewise.runtime.controller.controller import Controller
from edgewise.runtime.controller.plan import Emulation, prepare
from edgewise.runtime.controller.reconcile import reconcile
from edgewise.runtime.controller.rolling import read_change, write_change
from edgewise.runtime.process.machine import handle_of
from edgewise.runtime.process.serving import Listen
from edgewise.runtime.states import DONE
from edgewise.runtime.store.steady import SteadyStore
from waiting import becomes

pytestmark = pytest.mark.live


refused = []


async def refuse(request):
    refused.append(request.path)
    return http.failure(503, "too many connections")


def with_full_gateway(folder, scenario):
    """A controller whose only gateway refuses whatever it is asked, and whose workers are outdated."""

    async def go():
        server = await http.serve(refuse)
        store = prepare(folder, small_scenario(), gateways=1, where=Listen(port=server.port))
        for running in store.processes():
            store.started(running.process.name, handle_of(os.getpid()), 0)
        write_change(store, read_change(store).in_state(DONE))
        prepare(
            folder, small_scenario(), gateways=1, where=Listen(port=server.port), emulation=Emulation(seed=1)
        ).close()
        controller = Controller(SteadyStore(store.file), LocalBackend(folder))
        try:
            await asyncio.wait_for(scenario(controller), 150)
        finally:
            await server.close(0.1)
            store.close()

    asyncio.run(go())


@pytest.mark.parametrize(
    "path", ["/v1/streams", "/v1/workers", "/v1/gateways", "/v1/status", "/v1/shadows/dispatch"]
)
def test_what_a_gateway_refuses_to_say_is_left_out(tmp_path, path):
    async def scenario(controller):
        answer = await controller.handle(http.HttpRequest("GET", path, {}, b""))
        assert answer.status == 200 and b"too many" not in answer.body

    with_full_gateway(tmp_path, scenario)


def test_a_policy_that_a_gateway_does_not_take_is_taken_back(tmp_path):
    async def scenario(controller):
        controller.switching.patience_s = 0.3
        answer = await controller.handle(
            http.HttpRequest("PUT", "/v1/policies/dispatch", {}, b'{"policy": "closest"}')
        )
        assert answer.status == 202
        asked = http.HttpRequest("GET", answer.headers["location"], {}, b"")

        async def failed():
            found = json.loads((await controller.handle(asked)).body)
            assert found["state"] in ("waiting", "compiling", "switching", "failed")
            return found if found["state"] == "failed" else None

        found = await becomes(failed)
        assert "gateway-0: no answer within 0.3 s" in found["error"]
        assert "least-harm decides as before" in found["error"]
        assert [row["state"] for row in found["gateways"]] == ["failed"]
        assert controller.store.policy("dispatch") == "least-harm"

    with_full_gateway(tmp_path, scenario)


def test_nothing_is_replaced_while_a_gateway_does_not_serve(tmp_path):
    async def scenario(controller):
        controller.processes.backend.stop = lambda *args, **more: pytest.fail("a process was told to end")
        rolling = asyncio.create_task(reconcile([controller.passes()["change"]]))
        before = len(refused)
        await becomes(lambda: len(refused) > before + 5)  # it asks again and again whether it serves
        assert not rolling.done() and controller.rolling.under_way
        assert not any(controller.store.successor(r.process.name)[1] for r in controller.store.processes())
        rolling.cancel()

    with_full_gateway(tmp_path, scenario)


def test_a_controller_that_lost_a_part_of_itself_ends_for_its_successor(tmp_path):
    async def fail():
        raise ZeroDivisionError("a bug")

    async def go():
        store = prepare(tmp_path, small_scenario())
        store.want([])
        controller = Controller(SteadyStore(store.file), LocalBackend(tmp_path))
        controller.check = fail
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(module.run_parts(controller), 20)
        store.close()

    asyncio.run(go())
