"""Another program holds the store: an event loop goes on with what needs no store, and nothing is lost."""

import asyncio
import json
import sqlite3
import time
from contextlib import closing, contextmanager, suppress

import pytest
from live_system import dense_world
from test_http import echo

from edgewise import policies
from edgewise.runtime import http
from edgewise.runtime.gateway.admin import with_admin
from edgewise.runtime.gateway.gateway import Gateway
from edgewise.runtime.gateway.needs import Book
from edgewise.runtime.gateway.session import Session
from edgewise.runtime.process.entry import QUERY_WAIT_S
from edgewise.runtime.store.database import WAIT_S, StoreError
from edgewise.runtime.store.steady import SteadyStore
from waiting import becomes, wait_until

pytestmark = pytest.mark.live
NEEDS = {"task": "score", "rate_qps": 1e4, "size_bytes": 100, "deadline_s": 5}


@contextmanager
def held(file):
    """As another program holds it that writes."""
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


async def opened(client):
    return await client.request("POST", "/v1/streams", body=json.dumps(NEEDS).encode())


async def asked(client, stream):
    began_s = time.monotonic()
    answer = await client.request("POST", "/v2/models/score/infer", {"edgewise-stream": stream}, b"{}")
    assert answer.status == 200
    return time.monotonic() - began_s


def test_queries_go_on_while_a_stream_cannot_be_opened(tmp_path):
    async def go():
        store = SteadyStore(tmp_path / "state.sqlite", QUERY_WAIT_S)
        began_s = time.monotonic()
        policy = policies.load("dispatch", "closest")
        session = Session(dense_world(capacity_qps=1e6), policy, 0, lambda: time.monotonic() - began_s)
        worker = await http.serve(echo)
        clients = [http.Client(worker.host, worker.port) for _ in range(2)]
        gateway = Gateway(session, clients, ["dense"] * 2, book=Book(store, "gateway-0"))
        front = await http.serve(with_admin(gateway), at_once=True)
        client = http.Client(front.host, front.port)
        first, second = [json.loads((await opened(client)).body)["stream"] for _ in range(2)]
        with held(store.file):
            waiting = [asyncio.create_task(opened(client)) for _ in range(20)]
            until_s, took_s = time.monotonic() + 1.0, []
            while time.monotonic() < until_s:
                took_s.append(await asked(client, str(first)))
                store.settle()
            assert len(took_s) > 10 and max(took_s) < 0.5 * WAIT_S
            assert not any(each.done() for each in waiting)
            closed = await client.request("DELETE", f"/v1/streams/{second}")
            assert closed.status == 200 and not store.trouble
        assert {(await each).status for each in waiting} <= {201, 409}

        def written_down():  # what was closed meanwhile, too
            store.settle()
            open_now = len(session.core.bindings) + len(session.core.refused)
            return len(store.records.open_streams("gateway-0")) == open_now

        await becomes(written_down)
        await asyncio.gather(front.close(), worker.close())
        store.close()

    asyncio.run(go())


@pytest.mark.parametrize("kind", [SteadyStore])
def test_a_controllers_loop_waits_once_for_all_that_is_written(tmp_path, kind):
    kept = kind(tmp_path / "state.sqlite")
    kept.run("CREATE TABLE found (x)")
    with held(kept.file):
        began_s = time.monotonic()
        for _ in range(20):
            with pytest.raises(StoreError, match="held by another program") as caught:
                kept.run("INSERT INTO found VALUES (1)")
            assert caught.value.held
        assert time.monotonic() - began_s < 0.5 * WAIT_S

    def written():  # it does not look at once
        with suppress(StoreError):
            return kept.run("INSERT INTO found VALUES (1)") or True

    wait_until(written, limit_s=WAIT_S)
    assert kept.rows("SELECT COUNT(*) FROM found") == [(1,)]
    kept.close()
