"""The parts of the streaming runtime that need no processes: payloads, frames on sockets, kernel state."""

import contextlib
import socket
import threading
import time

import numpy as np
import pytest
from hypothesis import given, strategies as st

from edgewise.errors import ScenarioError
from edgewise.model.pipelines import Network
from edgewise.runtime.pipelines.session import open_backend
from edgewise.runtime.pipelines.task import CHUNK, Meter, TokenBucket, accept, listen, receive, send
from edgewise.runtime.testbeds import Flow, nodes_on
from edgewise.runtime.testbeds.netns import WIRE, NodeState, changes, device_commands
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


def test_changes_lead_from_one_state_to_the_other_and_none_when_equal():
    want = NodeState()
    want.add_hop(20_001, "10.0.0.1", "10.0.0.2", False, "10.1.0.1", "l0")
    want.add_shape(20_001, "10.0.0.1", "10.0.0.2", "l0", 1e6)
    assert want.classes["l0", 20_001] == pytest.approx(1e6 * WIRE, rel=1e-3)
    ip, tc = changes(NodeState(), want)
    assert ip == [
        "route replace 10.0.0.2/32 via 10.1.0.1 dev l0 table 20001",
        "rule add from 10.0.0.1 to 10.0.0.2 ipproto tcp dport 20001 lookup 20001 pref 1000",
    ]
    assert tc[0].startswith("class replace dev l0 parent 1:1 classid 1:4e21 htb prio 1 rate 1046000bit")
    assert tc[1].endswith(
        "match ip src 10.0.0.1/32 match ip dst 10.0.0.2/32 match ip dport 20001 0xffff flowid 1:4e21"
    )
    assert changes(want, want) == ([], [])
    ip, tc = changes(want, NodeState())
    assert [line.split()[:2] for line in ip] == [["rule", "del"], ["route", "del"]]
    assert [line.split()[:2] for line in tc] == [["filter", "del"], ["class", "del"]]
    faster = NodeState(dict(want.classes), want.filters, want.rules, want.routes)
    faster.classes["l0", 20_001] *= 2
    ip, tc = changes(want, faster)
    assert ip == [] and len(tc) == 1 and "2092000bit" in tc[0]
    whole = [text for text in device_commands("l0", 1e6) if "classid 1:1 " in text]
    assert len(whole) == 1 and "rate 1045580bit ceil 1045580bit" in whole[0]


def test_acknowledgements_go_back_by_source_port():
    state = NodeState()
    state.add_hop(20_001, "10.0.0.1", "10.0.0.2", True, "10.1.0.0", "l0")
    assert state.rules == {(20_001, "10.0.0.2", "10.0.0.1", "sport")}
    assert state.routes == {(20_001, "10.0.0.1"): ("10.1.0.0", "l0")}


def test_paths_that_lead_nowhere_are_refused():
    assert nodes_on(line(), Flow(1, 0, 2, (0, 1), 1.0)) == [0, 1, 2]
    with pytest.raises(ValueError, match="link 1 does not continue"):
        nodes_on(line(), Flow(1, 0, 2, (1,), 1.0))
    with pytest.raises(ValueError, match="ends at node 1, not at 2"):
        nodes_on(line(), Flow(1, 0, 2, (0,), 1.0))


def test_the_local_backend_counts_changes_and_stops_cut_flows():
    bed = open_backend("local", line())
    flows = [Flow(5, 0, 2, (0, 1), 3e5), Flow(6, 0, 1, (0,), 4e5)]
    assert bed.apply(flows) == 2 and bed.apply(flows) == 0 and bed.apply(flows[:1]) == 1
    assert bed.sender_rate_bps(5) == 3e5
    bed.set_link(1, up=False)
    assert bed.sender_rate_bps(5) == 0.0
    bed.set_link(1, up=True)
    assert bed.sender_rate_bps(5) == 3e5
    with pytest.raises(ScenarioError, match="backend 'nets': is not known; did you mean 'netns'"):
        open_backend("nets", line())
