"""Clients with names: whose a stream is, and what numbers tell."""

import asyncio
import json

import pytest
from live_system import dense_world
from test_http import echo

from edgewise import policies
from edgewise.cli.standalone import read_tokens
from edgewise.errors import EdgewiseError
from edgewise.runtime import http
from edgewise.runtime.gateway.admin import with_admin
from edgewise.runtime.gateway.gateway import Gateway
from edgewise.runtime.gateway.needs import Book
from edgewise.runtime.gateway.session import Session
from edgewise.runtime.process.serving import Listen, listen
from edgewise.runtime.store import Store
from edgewise.runtime.store.records import stream_number

pytestmark = pytest.mark.live
NEEDS = {"task": "score", "rate_qps": 10, "size_bytes": 100, "deadline_s": 5}
HEADERS = {"edgewise-rate-qps": "10", "edgewise-deadline-s": "5"}


def with_gateway(scenario, token, store=None):
    async def go():
        session = Session(dense_world(), policies.load("dispatch", "closest"), 0, lambda: 0.0)
        worker = await http.serve(echo)
        clients = [http.Client(worker.host, worker.port) for _ in range(2)]
        book = Book() if store is None else Book(store, "gateway-0")
        gateway = Gateway(session, clients, ["dense"] * 2, book=book)
        gateway.restore()
        front = await listen(with_admin(gateway), Listen(token=token, operators=("boss",)), at_once=True)

        async def ask(shown, method, path, body=b"", **headers):
            client = http.Client.of_url(front.http.url, shown)
            answer = await client.request(method, path, headers, body)
            client.close()
            return answer.status, json.loads(answer.body)

        try:
            await asyncio.wait_for(scenario(ask), 20)
        finally:
            await asyncio.gather(front.close(), worker.close())

    asyncio.run(go())


async def opened(ask, shown):
    status, answer = await ask(shown, "POST", "/v1/streams", json.dumps(NEEDS).encode())
    assert status == 201
    return answer["stream"]


def test_a_stream_of_a_client_with_a_name_is_that_clients_alone(tmp_path):
    store, mine = Store(tmp_path / "state.sqlite"), []

    async def use(ask, stream, anna, ben):
        path, query = f"/v1/streams/{stream}", {"edgewise-stream": str(stream)}
        for method in ("GET", "PUT"):
            assert (await ask("b" * 20, method, path))[0] == ben
        assert (await ask("b" * 20, "POST", "/v2/models/score/infer", b"{}", **query))[0] == ben
        assert (await ask("a" * 20, "POST", "/v2/models/score/infer", b"{}", **query))[0] == anna
        assert [row["stream"] for row in (await ask("a" * 20, "GET", "/v1/streams"))[1]] == [stream]
        assert (await ask("b" * 20, "GET", "/v1/streams"))[1] == []
        assert [row["stream"] for row in (await ask("boss", "GET", "/v1/streams"))[1]] == [stream]

    async def first(ask):
        mine.append(await opened(ask, "a" * 20))
        await use(ask, mine[0], 200, 404)
        assert (await ask("b" * 20, "DELETE", f"/v1/streams/{mine[0]}"))[0] == 404

    async def again(ask):  # another process: the store knows whose it is
        await use(ask, mine[0], 200, 404)
        assert (await ask("boss", "DELETE", f"/v1/streams/{mine[0]}"))[0] == 200

    token = f"anna {'a' * 20}\nben {'b' * 20}"
    with_gateway(first, token, store)
    with_gateway(again, token, store)
    store.close()


def test_who_has_no_name_uses_a_number_that_nobody_can_guess():
    async def scenario(ask):
        numbers = [await opened(ask, "c" * 20) for _ in range(5)]
        assert all(0 < number < 2**53 for number in numbers)
        assert min(abs(a - b) for a in numbers for b in numbers if a != b) > 1_000
        path = "/v2/models/score/infer"
        assert (await ask("c" * 20, "POST", path, b"{}", **{"edgewise-stream": str(numbers[0])}))[0] == 200
        assert (await ask("c" * 20, "POST", path, b"{}", **{"edgewise-stream": str(numbers[0] + 1)}))[
            0
        ] == 404

    with_gateway(scenario, "c" * 20)
    assert len({stream_number() for _ in range(1_000)}) == 1_000


def test_queries_that_state_their_needs_share_a_stream_as_before():
    async def scenario(ask):
        for shown in ("a" * 20, "b" * 20):
            assert (await ask(shown, "POST", "/v2/models/score/infer", b"{}", **HEADERS))[0] == 200
        assert len((await ask("boss", "GET", "/v1/streams"))[1]) == 1

    with_gateway(scenario, f"anna {'a' * 20}\nben {'b' * 20}")


@pytest.mark.parametrize(
    ("peer", "client"),
    [
        ("10.0.0.1", "10.0.0.1"), ("::ffff:10.0.0.1", "10.0.0.1"), ("fe80::1%eth0", "fe80::/64"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"), ("", ""), ("no address", ""),
    ],
)  # fmt: skip
def test_addresses_of_one_network_of_version_6_are_one_client(peer, client):
    assert http.messages.address_of(peer) == client


def test_a_token_file_has_one_token_or_a_name_with_each(tmp_path):
    file = tmp_path / "tokens"
    file.write_text("secret\n")
    assert read_tokens(file) == "secret"
    file.write_text("anna  one\n\nben two\n")
    assert read_tokens(file) == "anna one\nben two" and http.one_token(read_tokens(file)) == "one"
    for text, why in (
        ("", "names that differ"), ("anna one\nanna two", "names that differ"),
        ("anna one\nben one", "tokens that differ"), ("anna one\ntwo", "line 2"), ("a b c", "line 1"),
    ):  # fmt: skip
        file.write_text(text)
        with pytest.raises(EdgewiseError, match=why):
            read_tokens(file)
