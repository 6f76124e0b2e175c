"""The parts of the streaming runtime that need no processes: payloads, frames on sockets, kernel state."""

import contextlib
import socket
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from edgewise.model.pipelines import Network
from edgewise.runtime.pipelines.task import CHUNK, Meter, TokenBucket, accept, listen, receive, send
from edgewise.runtime.testbeds import Flow, LocalTestbed, nodes_on
from edgewise.runtime.testbeds.flows import HubState, ShapedFlow, changes, wanted
from edgewise.runtime.testbeds.kernel import LEAST_BPS, WIRE, queue_commands
from edgewise.workloads.payloads import decode, encode


def line():
    return Network(("a", "b", "c"), np.ones(3), np.ones(3), np.array([[0, 1], [1, 2]]), np.full(2, 1e6))


@given(
    st.one_of(
        st.binary(),
        st.text(),
        st.lists(st.integers()),
        st.dictionaries(st.text(), st.floats(allow_nan=False)),
    )
)
def test_what_is_encoded_comes_back(value):
    assert decode(encode(value)) == value


def test_arrays_come_back_and_objects_are_refused():
    image = np.arange(12, dtype=np.uint8).reshape(3, 4)
    assert (decode(encode(image)) == image).all()
    back = decode(encode({"image": image, "scale": np.float32(2)}))
    assert (back["image"] == image).all() and back["scale"] == 2
    with pytest.raises(TypeError, match="type set cannot be sent; return bytes"):
        encode({1, 2})
    with pytest.raises(ValueError, match="unknown kind"):
        decode(b"?")
    with pytest.raises(ValueError, match="allow_pickle"):
        decode(encode({"a": np.array([{}, None], dtype=object)}))


def test_only_those_who_know_the_secret_send_frames():
    listener, taken = listen("127.0.0.1", 0), []
    thread = threading.Thread(target=lambda: taken.append(accept(listener, b"s" * 32)))
    thread.start()
    for said in (b"s" * 31 + b"x", b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n", b""):
        with socket.create_connection(listener.getsockname(), timeout=20) as stranger:
            stranger.sendall(said)
            if not said:
                stranger.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):  # hung up on before all was read
                assert stranger.recv(1) == b""
    with socket.create_connection(listener.getsockname(), timeout=20) as ours:
        ours.sendall(b"s" * 32)
        send(ours, b"frame")
        thread.join(20)
        assert receive(taken[0], Meter()) == b"frame"
    taken[0].close()
    listener.close()


def test_frames_cross_a_socket_whole_and_are_counted():
    one, other = socket.socketpair()
    frames = [bytes(0), b"x" * 10, bytes(200_000)]
    got = Meter()
    thread = threading.Thread(target=lambda: [send(one, frame) for frame in frames] and one.close())
    thread.start()
    assert [receive(other, got) for _ in frames] == frames
    assert receive(other, got) is None
    thread.join()
    assert got.count_bytes == 200_010
    other.close()


def test_a_bucket_lets_through_what_its_rate_allows():
    bucket, chunks = TokenBucket(4e6), 40
    began_s = time.monotonic()
    for _ in range(chunks):
        bucket.take(8.0 * CHUNK)
    passed_s = time.monotonic() - began_s
    assert passed_s >= 0.9 * (chunks - 2) * 8 * CHUNK / 4e6  # it may start with its burst
    bucket.set_rate(0.0)
    waiting = threading.Thread(target=bucket.take, args=(8.0 * CHUNK * 4,), daemon=True)
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    bucket.set_rate(1e9)
    waiting.join(10.0)


FLOW = ShapedFlow(20_001, "10.0.0.1", "10.0.0.2", (3, 0), "p7", 1e6, cut=False)
RATES_BPS = {0: 4e6, 3: 1e6}


def test_changes_lead_from_one_state_to_the_other_and_none_when_equal():
    empty, want = wanted([], RATES_BPS, 100), wanted([FLOW], RATES_BPS, 100)
    assert want.classes[3, 20_001] == pytest.approx(1e6 * WIRE, rel=1e-3)
    ip, tc = changes(HubState(), want)
    assert ip == [
        "rule add from 10.0.0.1 to 10.0.0.2 iif b3 ipproto tcp dport 20001 lookup 100 pref 50",
        "rule add from 10.0.0.1 to 10.0.0.2 iif p7 ipproto tcp dport 20001 lookup 103 pref 50",
    ]
    assert tc[0].startswith("class replace dev a0 parent 1: classid 1:4e21 htb prio 0 rate 1007000bit")
    assert tc[-1].endswith(
        "match ip src 10.0.0.1/32 match ip dst 10.0.0.2/32 match ip dport 20001 0xffff flowid 1:4e21"
    )
    assert changes(want, want) == ([], [])
    ip, tc = changes(want, empty)
    assert [line.split()[:2] for line in ip] == [["rule", "del"], ["rule", "del"]]
    assert [line.split()[:2] for line in tc[2:]] == [["filter", "del"]] * 2 + [["class", "del"]] * 2
    faster = HubState(dict(want.classes), want.filters, want.rules, want.rest_bps)
    faster.classes[0, 20_001] *= 2
    ip, tc = changes(want, faster)
    assert ip == [] and len(tc) == 1 and "2014000bit" in tc[0]
    whole = [text for text in queue_commands("a0", 1e6, 3000, new=False) if "classid 1:1 " in text]
    assert len(whole) == 1 and "rate 1007375bit ceil 1007375bit" in whole[0]


def test_messages_have_what_flows_leave_of_a_link_and_never_nothing():
    before, after = wanted([], RATES_BPS, 100).rest_bps, wanted([FLOW], RATES_BPS, 100).rest_bps
    assert after[0] == before[0] - 1_007_000 and after[3] == LEAST_BPS


def test_packets_of_a_flow_whose_path_is_cut_go_nowhere():
    cut = wanted([replace(FLOW, cut=True)], RATES_BPS, 100)
    assert {rule[-1] for rule in cut.rules} == {"blackhole"} and len(cut.rules) == 2


def test_paths_that_lead_nowhere_are_refused():
    assert nodes_on(line(), Flow(1, 0, 2, (0, 1), 1.0)) == [0, 1, 2]
    with pytest.raises(ValueError, match="link 1 does not continue"):
        nodes_on(line(), Flow(1, 0, 2, (1,), 1.0))
    with pytest.raises(ValueError, match="ends at node 1, not at 2"):
        nodes_on(line(), Flow(1, 0, 2, (0,), 1.0))


def test_the_local_backend_counts_changes_and_stops_cut_flows():
    bed = LocalTestbed(line())
    flows = [Flow(5, 0, 2, (0, 1), 3e5), Flow(6, 0, 1, (0,), 4e5)]
    assert bed.apply(flows) == 2 and bed.apply(flows) == 0 and bed.apply(flows[:1]) == 1
    assert bed.sender_rate_bps(5) == 3e5
    bed.set_link(1, up=False)
    assert bed.sender_rate_bps(5) == 0.0
    bed.set_link(1, up=True)
    assert bed.sender_rate_bps(5) == 3e5
