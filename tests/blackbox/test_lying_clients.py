"""Clients who lie, and who are refused thousands of times: they are policed, and others are not hurt."""

import http.client
import json
import socket
import time
from contextlib import ExitStack
from urllib.parse import urlsplit

import psutil
import pytest
from outside import NEEDS, ask, ask_on, edgewise, key_of, running, zeros

pytestmark = pytest.mark.live
MIB = 1 << 20


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    with running(tmp_path_factory.mktemp("lies")) as made:
        yield made


@pytest.fixture
def honest(live):
    """A stream that keeps what it said: it is served before and after, and no process has died meanwhile."""
    status, opened = live.open_stream(rate_qps=50)
    assert status == 201
    assert live.infer(opened).status == 200
    yield opened
    assert live.infer(opened).status == 200
    rows = live.get("/v1/status")["processes"]
    assert all((row["state"], row["restarts"]) == ("running", 0) for row in rows), rows
    live.close_stream(opened)


def connection_to(url):
    parts = urlsplit(url)
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)


def socket_to(url):
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port), timeout=60)


def resident_bytes(live):
    return psutil.Process(live.pid(live.gateways[0])).memory_info().rss


def test_five_thousand_refused_streams_cost_little_and_others_are_served(live, honest):
    connection, greedy = connection_to(live.gateways[0]), NEEDS | {"rate_qps": 1000}

    def refuse(count):
        for _ in range(count):
            answer = ask_on(connection, "POST", "/v1/streams", greedy)
            assert answer.status == 409 and answer.json()["final"], answer

    refuse(500)
    before = resident_bytes(live)
    for _ in range(9):
        refuse(500)
        assert live.infer(honest).status == 200
        assert live.get("/v1/status")["processes"]
    connection.close()
    grown = resident_bytes(live) - before
    assert grown < 4500 * 4096, f"{grown / 4500:.0f} bytes for each refused stream"
    assert "streams" in edgewise("status", "--state", "state", folder=live.folder)


def test_who_sends_more_than_declared_gets_what_was_declared(live, honest):
    status, liar = live.open_stream(rate_qps=5)
    assert status == 201
    described, body = zeros(live.gateways[0], "detection")
    headers = {**described, "edgewise-stream": str(liar["stream"]), **key_of(liar)}
    connection, began_s, statuses = connection_to(live.gateways[0]), time.monotonic(), []
    for number in range(300):
        answer = ask_on(connection, "POST", "/v2/models/detection/infer", body, headers=headers)
        statuses.append(answer.status)
        if answer.status == 429:
            assert answer.json()["retry_after_s"] > 0
        if number % 30 == 0:
            assert live.infer(honest).status == 200
    took_s = time.monotonic() - began_s
    connection.close()
    live.close_stream(liar)
    assert set(statuses) == {200, 429}
    assert (
        20 <= statuses.count(200) <= 20 + 1.1 * 5 * took_s + 1
    )  # 20 at once, then a tenth more than declared


def test_who_sends_larger_queries_than_declared_hurts_nobody(live, honest):
    status, liar = live.open_stream(size_bytes=10)
    assert status == 201
    for size in (20_000, MIB, 8 * MIB):
        head = json.dumps({"inputs": [{"name": "x", "shape": [1, size // 4], "datatype": "FP32",
                                       "parameters": {"binary_data_size": size}}]}).encode()  # fmt: skip
        headers = {"inference-header-content-length": str(len(head)), "edgewise-stream": str(liar["stream"]),
                   **key_of(liar)}  # fmt: skip
        answer = ask(
            live.gateways[0], "POST", "/v2/models/detection/infer", head + bytes(size), headers=headers
        )
        assert answer.status in {200, 400, 409, 413, 429, 504}, (size, answer.status)
        assert live.infer(honest).status == 200
    live.close_stream(liar)


def begin_body(opened, length):
    opened.sendall(f"POST /v2/models/detection/infer HTTP/1.1\r\nhost: localhost\r\n"
                   f"content-length: {length}\r\n\r\n".encode())  # fmt: skip


def test_bodies_that_do_not_end_hold_nobody_up(live, honest):
    with ExitStack() as stack:
        for _ in range(100):
            opened = stack.enter_context(socket_to(live.gateways[0]))
            begin_body(opened, 10_000_000)
            opened.sendall(b"x" * 1000)
        for _ in range(10):
            assert live.infer(honest).status == 200
            assert live.open_stream(1, rate_qps=0.1)[0] == 201


def test_bodies_without_bound_are_refused(live, honest):
    with socket_to(live.gateways[0]) as opened:
        begin_body(opened, 1 << 40)
        assert opened.recv(1000).split(b" ")[1] == b"413"
    before = resident_bytes(live)
    with socket_to(live.gateways[0]) as opened:
        opened.sendall(b"POST /v1/streams HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n")
        chunk, began_s = b"100000\r\n" + bytes(MIB) + b"\r\n", time.monotonic()
        with pytest.raises(OSError):  # it hangs up, a second after its answer
            while time.monotonic() - began_s < 20.0:
                opened.sendall(chunk)
    assert resident_bytes(live) - before < 128 * MIB


def test_a_body_that_falls_silent_is_given_up(live, honest):
    with socket_to(live.gateways[0]) as opened:
        begin_body(opened, 1000)
        opened.settimeout(15)
        assert opened.recv(1000).split(b" ")[1] == b"408"


def test_bodies_in_flight_are_bounded_together(live, honest):
    before, answered = resident_bytes(live), []
    with ExitStack() as stack:
        for _ in range(10):
            opened = stack.enter_context(socket_to(live.gateways[0]))
            begin_body(opened, 60_000_001)
            try:
                opened.sendall(bytes(60_000_000))
            except OSError:
                answered.append(opened)  # refused before its end
        assert live.infer(honest).status == 200
        assert resident_bytes(live) - before < 400e6


def test_nobody_can_guess_the_stream_of_another(live, honest):
    theirs = live.open_stream(rate_qps=0.1)[1]
    number = int(honest["stream"])
    guesses = {number + step for step in (-2, -1, 1, 2)} | set(range(20))
    for guess in guesses:
        answer = ask(live.gateways[0], "DELETE", f"/v1/streams/{guess}")
        assert answer.status in {401, 403, 404}, answer
        assert live.infer({"stream": guess}).status in {401, 403, 404}
    assert live.infer(theirs).status == 200


@pytest.mark.parametrize(
    "stream", ["-1", "999999", "9" * 30, "1e3", "abc", "", " ", "0x1", "1;2", "1,2", "NaN", "../0", "\xb2"]
)
def test_streams_that_are_none_are_refused(live, honest, stream):
    described, body = zeros(live.gateways[0], "detection")
    headers = {**described, "edgewise-stream": stream}
    answer = ask(live.gateways[0], "POST", "/v2/models/detection/infer", body, headers=headers)
    assert answer.status in {400, 404} and answer.json()["error"], answer


def tensor(**changes):
    return {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]} | changes]}


WRONG = {
    "no JSON": b"{", "no object": [], "nothing": {}, "no inputs": {"inputs": []},
    "inputs of another kind": {"inputs": {"x": 1}}, "too few": tensor(data=[1, 2, 3]),
    "too many": tensor(data=[1] * 5), "negative": tensor(shape=[-1, 4]), "words": tensor(data=["a"] * 4),
    "another datatype": tensor(datatype="FP31"), "datatype that is none": tensor(datatype=None),
    "shape that is none": tensor(shape=None), "shape of words": tensor(shape=["a"]),
    "shape past memory": tensor(shape=[1 << 40, 1 << 40]), "shape of 1e300": tensor(shape=[1e300]),
    "no name": tensor(name=None), "another name twice": {"inputs": tensor()["inputs"] * 2},
    "deep": b"[" * 100_000, "no text": b"\xff\xfe",
    "whole numbers past 64 bits": tensor(datatype="INT64", data=[1 << 70] * 4),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_tensors_are_refused(live, honest, wrong):
    headers = {"edgewise-stream": str(honest["stream"]), **key_of(honest)}
    answer = ask(live.gateways[0], "POST", "/v2/models/detection/infer", WRONG[wrong], headers=headers)
    assert answer.status in {400, 413} and answer.json()["error"], answer


@pytest.mark.parametrize("length", ["-1", "0", "999999", "x", "1e3", "9" * 40])
def test_wrong_lengths_of_the_binary_part_are_refused(live, honest, length):
    described, body = zeros(live.gateways[0], "detection")
    headers = {**described, "edgewise-stream": str(honest["stream"]), **key_of(honest)}
    headers["inference-header-content-length"] = length
    answer = ask(live.gateways[0], "POST", "/v2/models/detection/infer", body, headers=headers)
    assert answer.status == 400 and answer.json()["error"], answer


@pytest.mark.parametrize("name", ["rate_qps", "size_bytes", "deadline_s", "min_accuracy"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, 1e309, "1", None, [], True, 1 << 70])
def test_needs_that_cannot_be_are_refused(live, name, value):
    answer = ask(live.gateways[0], "POST", "/v1/streams", NEEDS | {name: value})
    assert answer.status in {400, 409} and answer.json()["error"], (name, value, answer)


def test_down_ends_it(live):
    live.down()
