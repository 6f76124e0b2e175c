"""The HTTP server and client on raw sockets: order, bounds, odd but legal requests, hostile ones."""

import asyncio
import gzip
import json
import time

import pytest
from connections import LOOPS, answers, reset

from edgewise.errors import ScenarioError
from edgewise.runtime import http
from edgewise.runtime.http.messages import Later
from waiting import becomes, pace

pytestmark = pytest.mark.live


async def echo(request):
    if request.path == "/slow":
        await pace(0.2)
    if request.path == "/later":
        await soon()
    if request.path == "/raise":
        raise RuntimeError("broken handler")
    if request.path == "/header":
        return http.Response(200, b"", {"x-name": "grün → 緑\r\nx-injected: 1", "x-plain": "grün"})
    if request.path == "/big":
        return http.Response(200, b"z" * 30_000_000)
    return http.as_json(
        {
            "method": request.method,
            "path": request.path,
            "size": len(request.body),
            "headers": request.headers,
        }
    )


async def soon():
    """Wait twice, and for a task's kind of wait in between."""
    for _ in range(2):
        answer = Later()
        asyncio.get_running_loop().call_later(0.02, answer.set_result, None)
        await answer
        await pace(0.001)


def with_server(scenario, **limits):
    async def go(at_once):
        server = await http.serve(echo, limits=http.Limits(**limits), at_once=at_once)
        try:
            await asyncio.wait_for(scenario(server), 20)
        finally:
            await server.close(grace_s=0.1)

    for new_loop, at_once in zip(LOOPS, (False, True), strict=False):
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(go(at_once))


async def talk(server, *chunks, pause_s=0.0):
    """Send chunks and read until the server closes, or nothing more comes for a while."""
    reader, writer = await asyncio.open_connection(server.host, server.port)
    for chunk in chunks:
        writer.write(chunk)
        await pace(pause_s)
    received, closed = b"", False
    try:
        while True:
            data = await asyncio.wait_for(reader.read(65536), 0.4 if received else 10.0)
            if not data:
                closed = True
                break
            received += data
    except TimeoutError:
        pass
    writer.close()
    return received, closed


def test_pipelined_requests_keep_their_own_method_and_order():
    async def scenario(server):
        data = (
            b"POST /a HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc"
            b"GET /slow HTTP/1.1\r\n\r\n"
            b"GET /later HTTP/1.1\r\n\r\n"
            b"PUT /c HTTP/1.1\r\ncontent-length: 1\r\n\r\nx"
            b"DELETE /d HTTP/1.1\r\nconnection: close\r\n\r\n"
            b"GET /never HTTP/1.1\r\n\r\n"
        )
        received, closed = await talk(server, data)
        seen = [json.loads(body) for _, _, body in answers(received)]
        assert [(a["method"], a["path"], a["size"]) for a in seen] == [
            ("POST", "/a", 3), ("GET", "/slow", 0), ("GET", "/later", 0), ("PUT", "/c", 1),
            ("DELETE", "/d", 0),
        ]  # fmt: skip
        assert closed

    with_server(scenario)


@pytest.mark.parametrize(
    ("request_text", "closes"),
    [
        (b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n", True),
        (b"GET / HTTP/1.1\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\n\r\n", True),
        (b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n", False),
    ],
)
def test_connections_close_when_the_client_says_so(request_text, closes):
    async def scenario(server):
        received, closed = await talk(server, request_text)
        ((status, headers, _),) = answers(received)
        assert status == 200 and closed == closes
        assert (headers.get("connection") == "close") == closes

    with_server(scenario)


def test_a_client_that_sends_many_requests_at_once_leaves_others_their_turn():
    async def go():
        seen = []

        async def note(request):
            seen.append(request.path)
            return http.Response()

        server = await http.serve(note, at_once=True)
        pairs = [await asyncio.open_connection(server.host, server.port) for _ in range(2)]
        for (_, writer), path, times in zip(pairs, ("many", "one"), (300, 1), strict=True):
            writer.write(f"GET /{path} HTTP/1.1\r\n\r\n".encode() * times)
        await becomes(lambda: len(seen) >= 301)
        for _, writer in pairs:
            writer.close()
        await server.close()
        assert seen.index("/one") < 150

    for new_loop in LOOPS:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(asyncio.wait_for(go(), 20))


@pytest.mark.parametrize("pause", [lambda: asyncio.Event().wait(), Later])
@pytest.mark.parametrize("at_once", [False, True])
def test_a_handler_ends_when_its_client_hangs_up(at_once, pause):
    async def go():
        begun, ended = asyncio.Event(), asyncio.Event()

        async def wait(request):
            begun.set()
            try:
                await pause()
            except asyncio.CancelledError:
                await pace(0.001)  # tidying up may wait, too
                ended.set()
                raise

        server = await http.serve(wait, at_once=at_once)
        _, writer = await asyncio.open_connection(server.host, server.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await begun.wait()
        reset(writer)
        await asyncio.wait_for(ended.wait(), 20)
        await server.close()

    for new_loop in LOOPS:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(go())


def test_upgrade_is_ignored_and_the_connection_goes_on():
    async def scenario(server):
        upgrade = b"connection: upgrade\r\nupgrade: h2c\r\n"
        data = (
            b"GET /a HTTP/1.1\r\n" + upgrade + b"\r\n"
            b"POST /b HTTP/1.1\r\n" + upgrade + b"content-length: 2\r\n\r\nhi"
            b"GET /c HTTP/1.1\r\nconnection: close\r\n\r\n"
        )
        received, _ = await talk(server, data)
        seen = [json.loads(body) for _, _, body in answers(received)]
        assert [(a["path"], a["size"]) for a in seen] == [("/a", 0), ("/b", 2), ("/c", 0)]

    with_server(scenario)


def test_header_values_cannot_break_or_split_an_answer():
    async def scenario(server):
        ((status, headers, _),) = answers((await talk(server, b"GET /header HTTP/1.1\r\n\r\n"))[0])
        assert status == 200 and "x-injected" not in headers
        assert headers["x-plain"] == "grün" and "%E7%B7%91%0D%0Ax-injected" in headers["x-name"]
        data = b"GET / HTTP/1.1\r\nx-odd: \xff\xfe\x80\r\nx-two: 1\r\nx-two: 2\r\n\r\n"
        ((status, _, body),) = answers((await talk(server, data))[0])
        assert status == 200 and json.loads(body)["headers"]["x-two"] == "1, 2"

    with_server(scenario)


def test_client_does_not_let_headers_or_paths_split_a_request():
    async def scenario(server):
        client = http.Client(server.host, server.port)
        answer = await client.request("GET", "/", {"x-a": "1\r\nx-b: 2"})
        assert "x-b" not in json.loads(answer.body)["headers"]
        for method, path, headers in (
            ("GET", "/a b", {}),
            ("GET", "/\r\n", {}),
            ("G T", "/", {}),
            ("GET", "/", {"a\r\nb": "1"}),
        ):
            with pytest.raises(ValueError, match="not"):
                await client.request(method, path, headers)
        client.close()

    with_server(scenario)


def test_head_has_the_length_and_no_body():
    async def scenario(server):
        received, _ = await talk(
            server, b"HEAD /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\nconnection: close\r\n\r\n"
        )
        head, _, rest = received.partition(b"\r\n\r\n")
        assert int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]) > 0
        assert rest.startswith(b"HTTP/1.1 200") and b'"/b"' in rest

    with_server(scenario)


def test_chunked_bodies_and_trailers():
    async def scenario(server):
        head = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
        data = head + b"3\r\nabc\r\n2\r\nde\r\n0\r\nx-late: 1\r\n\r\n"
        ((status, _, body),) = answers((await talk(server, data))[0])
        assert status == 200 and json.loads(body)["size"] == 5
        assert "x-late" not in json.loads(body)["headers"]

    with_server(scenario)


def test_expect_continue_is_answered_before_the_body():
    async def scenario(server):
        reader, writer = await asyncio.open_connection(server.host, server.port)
        writer.write(b"POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 100")
        assert await reader.readline() == b"\r\n"
        writer.write(b"ok")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()
        received, closed = await talk(server, b"POST / HTTP/1.1\r\nexpect: tea\r\ncontent-length: 2\r\n\r\n")
        assert answers(received)[0][0] == 417 and closed

    with_server(scenario)


HOSTILE = [
    (b"garbage\r\n\r\n", 400),
    (b"\x16\x03\x01\x02\x00\x01\x00", 400),
    (b"GET / HTTP/9.9\r\n\r\n", 400),
    (b"CONNECT a:1 HTTP/1.1\r\n\r\n", 405),
    (b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\ncontent-length: 5, 6\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\ncontent-length: 99999999999999999999999\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\ncontent-length: 101\r\n\r\n", 413),
    (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n65\r\n" + b"x" * 101, 413),
    (b"POST / HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nx: " + b"y" * 5000, 431),
    (b"GET /" + b"y" * 5000, 431),
    (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 1000, 431),
]


@pytest.mark.parametrize(("data", "status"), HOSTILE)
def test_hostile_requests_are_answered_and_cut_off(data, status):
    async def scenario(server):
        received, closed = await talk(server, data[:5], data[5:], pause_s=0.02)
        assert [a[0] for a in answers(received)] == [status] and closed
        assert answers((await talk(server, b"GET / HTTP/1.1\r\n\r\n"))[0])[0][0] == 200

    with_server(scenario, body_bytes=100, header_bytes=4000)


def test_slow_and_idle_clients_are_sent_away():
    async def scenario(server):
        received, closed = await talk(server, b"GET / HTTP/1.1\r\nx: ", b"y", b"y", pause_s=0.15)
        assert [a[0] for a in answers(received)] == [408] and closed
        reader, writer = await asyncio.open_connection(server.host, server.port)
        assert await reader.read() == b""  # nothing was asked: closed without a word
        writer.close()
        # A slow handler is not a slow client.
        assert answers((await talk(server, b"GET /slow HTTP/1.1\r\n\r\n"))[0])[0][0] == 200

    with_server(scenario, request_s=0.15, idle_s=0.3)


def test_a_client_that_never_reads_is_cut_off():
    async def scenario(server):
        reader, writer = await asyncio.open_connection(server.host, server.port, limit=1024)
        writer.write(b"GET /big HTTP/1.1\r\n\r\n" * 3)
        await becomes(lambda: server.connections)
        await becomes(lambda: not server.connections)
        writer.close()

    with_server(scenario, request_s=0.2)


def test_too_many_connections_are_answered_503():
    async def scenario(server):
        kept = [await asyncio.open_connection(server.host, server.port) for _ in range(2)]
        await becomes(lambda: len(server.connections) >= 2)
        received, closed = await talk(server)
        assert answers(received)[0][0] == 503 and closed
        for _, writer in kept:
            writer.close()

    with_server(scenario, connections=2)


def test_a_half_closed_client_gets_its_answer():
    async def scenario(server):
        reader, writer = await asyncio.open_connection(server.host, server.port)
        writer.write(b"GET /slow HTTP/1.1\r\n\r\n")
        writer.write_eof()
        assert answers(await reader.read())[0][0] == 200
        writer.close()

    with_server(scenario)


def test_handler_errors_are_500_and_the_server_goes_on():
    async def scenario(server):
        client = http.Client(server.host, server.port)
        assert (await client.request("GET", "/raise")).status == 500
        assert (await client.request("GET", "/")).status == 200
        client.close()

    with_server(scenario)


def test_client_replaces_a_connection_the_server_closed():
    async def scenario(server):
        client = http.Client(server.host, server.port)
        for _ in range(3):
            assert (await client.request("GET", "/")).status == 200
            for connection in list(server.connections):
                connection.transport.close()
        client.close()

    with_server(scenario)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi", b"hi"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", b"ab"),
        (b"not http at all", None),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort", None),
    ],
)
def test_client_reads_what_servers_send(raw, expected):
    async def go():
        async def answer(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(raw)
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        client = http.Client(*server.sockets[0].getsockname())
        if expected is None:
            with pytest.raises(ConnectionError):
                await client.request("GET", "/")
        else:
            assert (await client.request("GET", "/")).body == expected
        server.close()

    asyncio.run(go())


def test_client_does_not_take_a_second_answer_for_the_next_request():
    async def go():
        asked = 0

        async def twice(reader, writer):
            nonlocal asked
            while await reader.readline():
                while (await reader.readline()).strip():
                    pass
                asked += 1
                answer = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n%d" % asked
                writer.write(answer + b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx")

        server = await asyncio.start_server(twice, "127.0.0.1", 0)
        client = http.Client(*server.sockets[0].getsockname())
        bodies = [(await client.request("GET", "/", timeout_s=5)).body for _ in range(3)]
        assert bodies == [b"1", b"2", b"3"]
        client.close()
        server.close()

    asyncio.run(go())


def test_client_gives_up_after_its_time():
    async def scenario(server):
        client = http.Client(server.host, server.port)
        with pytest.raises(TimeoutError):
            await client.request("GET", "/slow", timeout_s=0.02)
        assert (await client.request("GET", "/")).status == 200

    with_server(scenario)


@pytest.mark.parametrize("url", ["ftp://a", "localhost:80", "http://", "http://a?b=1"])
def test_urls_are_checked(url):
    with pytest.raises(ValueError, match="url"):
        http.Client.of_url(url)


def test_tokens_guard_everything_but_health():
    async def go():
        handler = http.protect(echo, http.AccessGuard(("secret",), ("boss",)))
        server = await http.serve(handler)

        async def status(path, token=None):
            headers = {"authorization": f"Bearer {token}"} if token else {}
            return (await http.Client(server.host, server.port).request("GET", path, headers)).status

        assert await status("/v2/health/live") == 200
        assert await status("/v2/models/m") == 401
        assert await status("/v2/models/m", "wrong") == 401
        assert await status("/v2/models/m", "grün") == 401
        assert await status("/v2/models/m", "secret") == 200
        assert await status("/v1/admin/policies/dispatch", "secret") == 401
        assert await status("/v1/%61dmin/policy", "secret") == 401
        assert await status("/v1/admin/policies/dispatch", "boss") == 200
        await server.close()

    asyncio.run(go())


def test_tls_files_are_checked(tmp_path):
    with pytest.raises(ScenarioError, match="tls certificate"):
        http.tls_server(tmp_path / "no.pem", tmp_path / "no.key")
    with pytest.raises(ScenarioError, match="tls authority"):
        http.tls_client(tmp_path / "no.pem")


def post(size, stated=None):
    return f"POST / HTTP/1.1\r\ncontent-length: {stated or size}\r\n\r\n".encode() + b"x" * size


def test_bodies_of_all_connections_have_one_bound_and_leave_their_room():
    async def scenario(server):
        async def opened(data):
            reader, writer = await asyncio.open_connection(server.host, server.port)
            writer.write(data)
            return reader, writer

        async def status(data):
            reader, writer = await opened(data)
            line = await reader.readline()
            writer.close()
            return int(line.split()[1])

        silent = [await opened(post(300_000, stated=900_000)) for _ in range(3)]
        while await status(post(200_000)) == 200:
            pass  # the three have not all arrived
        assert await status(post(200_000)) == 503
        assert await status(post(50_000)) == 200  # what fits is served
        silent[0][1].close()
        while await status(post(200_000)) == 503:
            pass  # its end has not been noticed
        for _ in range(20):  # what was answered is held no longer
            assert await status(post(200_000)) == 200
        assert (await silent[1][0].readline()).split()[1] == b"408"

    with_server(scenario, bodies_bytes=1_000_000, silent_s=0.5)


def test_a_body_that_grows_when_it_is_decoded_counts_as_it_is_then():
    async def scenario(server):
        client = http.Client(server.host, server.port)
        packed = gzip.compress(b"x" * 900_000)
        answer = await client.request("POST", "/", {"content-encoding": "gzip"}, packed)
        assert answer.status == 503 and "retry-after" in answer.headers
        packed = gzip.compress(b"x" * 90_000)
        for _ in range(20):
            assert (await client.request("POST", "/", {"content-encoding": "gzip"}, packed)).status == 200

    with_server(scenario, bodies_bytes=500_000)


def test_a_request_that_falls_silent_is_given_up():
    async def scenario(server):
        received, closed = await talk(server, b"POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\nabc")
        assert received.startswith(b"HTTP/1.1 408") and b"no byte" in received and closed

    with_server(scenario, silent_s=0.2)


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEaReR "])
def test_the_scheme_of_a_token_is_read_in_any_case(scheme):
    guard = http.AccessGuard(("secret",), ("boss",))

    def refused(path, token):
        return guard.refusal(http.HttpRequest("GET", path, {"authorization": f"{scheme} {token}"}, b""))

    assert refused("/v2/models/m", "secret") is None and refused("/v1/admin/workers", "boss") is None
    assert refused("/v2/models/m", "Secret").status == 401


@pytest.mark.parametrize("at_once", [True, False])
def test_an_answer_that_is_sent_later_holds_no_body_and_no_other_connection(at_once):
    async def scenario():
        async def handler(request):
            return http.Response(200, b"x", after_s=0.3 if request.path == "/later" else 0.0)

        server = await http.serve(handler, limits=http.Limits(bodies_bytes=1000), at_once=at_once)
        one, other = (http.Client(server.host, server.port) for _ in range(2))
        began_s, told_s = time.monotonic(), []

        async def ask(client, path):
            assert (await client.request("POST", path, body=bytes(900))).status == 200
            told_s.append(time.monotonic() - began_s)

        asking = asyncio.create_task(ask(one, "/later"))
        while server.bodies.held_bytes or not any(each.busy for each in server.connections):
            await asyncio.sleep(0)
        await ask(other, "/")  # there is room for its body
        assert not asking.done()
        await asking
        assert told_s[-1] >= 0.3
        asking = asyncio.create_task(ask(one, "/later"))
        while not any(each.busy for each in server.connections):
            await asyncio.sleep(0)
        asking.cancel()  # who hangs up is not waited for
        await becomes(lambda: len(server.connections) <= 1)
        other.close()
        await server.close()

    asyncio.run(asyncio.wait_for(scenario(), 20))
