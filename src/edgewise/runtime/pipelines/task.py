"""One task as a process: frames in, the user's function, frames out.

A thread reads each input and a thread writes each output, each with room for one frame, so that transfer and
computation overlap and a full flow stops the task. Standard input brings a line with the `TaskSetting`, then
"go", then new rates; its end ends the process. Standard output takes a line of JSON about every
quarter of a second: frames, time of the function, bytes of each flow. In a pod both are one connection.

Frames go over sockets with four bytes of length before the payload, and small buffers, so that a slow reader
is felt. Where nothing else holds a flow to its rate, its sender does.
"""

import hmac
import itertools
import json
import os
import queue
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypedDict

from edgewise.runtime import clock
from edgewise.workloads.payloads import NOTHING, decode, encode
from edgewise.workloads.task_code import load_code

PERIOD_S = 0.25
CATCH_UP_S = 0.05  # by which a task may make up for a processor that was not free at once
LOST = "lost its neighbour"  # what those say whose neighbour failed
HEADER = struct.Struct("!I")
LARGEST = 1 << 30  # bytes of a frame
BUFFER = 32768  # of sockets; the kernel doubles it
CHUNK = 8192
GREETING_S = 5.0  # a stranger may say nothing for so long
BURST_S = 0.1  # of tokens; at least one chunk. A sender that had to wait for a processor catches up


class TokenBucket:
    """Paces a sender where nothing else shapes the flow; `set_rate` may come from another thread.

    Args:
        rate_bps: bits per second; infinite: no pacing; 0: nothing passes.
    """

    def __init__(self, rate_bps: float) -> None:
        self._changed = threading.Condition()
        self._rate_bps, self._tokens, self._at_s = rate_bps, 0.0, clock.monotonic_s()

    def set_rate(self, rate_bps: float) -> None:
        """A new rate from now on."""
        with self._changed:
            self._refill()
            self._rate_bps = rate_bps
            self._changed.notify_all()

    def take(self, bits: float) -> None:
        """Wait until so many bits may pass."""
        with self._changed:
            while True:
                self._refill()
                if self._tokens >= bits:
                    self._tokens -= bits
                    return
                missing = bits - self._tokens
                self._changed.wait(missing / self._rate_bps if self._rate_bps > 0 else None)

    def _refill(self) -> None:
        now_s = clock.monotonic_s()
        most = max(8.0 * CHUNK, self._rate_bps * BURST_S)
        self._tokens = min(most, self._tokens + self._rate_bps * (now_s - self._at_s))
        self._at_s = now_s


class Meter:
    """Payload bytes of one flow so far."""

    count_bytes = 0


def listen(address: str, port: int) -> socket.socket:
    """A listening socket whose connections have small buffers."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
    sock.bind((address, port))
    sock.listen(1)
    return sock


def connect(source: str, address: str, port: int, timeout_s: float = 10.0) -> socket.socket:
    """A connection from one address to another, tried until it stands.

    Raises:
        OSError: it does not stand in time.
    """
    until_s = clock.monotonic_s() + timeout_s
    while True:
        try:
            sock = socket.create_connection((address, port), timeout_s, (source, 0))
            break
        except OSError:
            if clock.monotonic_s() >= until_s:
                raise
            time.sleep(0.05)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.settimeout(None)
    return sock


def accept(listener: socket.socket, secret: bytes) -> socket.socket:
    """The connection of our own sender; whoever does not know the secret is hung up on."""
    while True:
        sock, _ = listener.accept()
        sock.settimeout(GREETING_S)
        try:
            shown = _exactly(sock, len(secret), Meter())
        except OSError:
            shown = None
        if shown is not None and hmac.compare_digest(shown, secret):
            sock.settimeout(None)
            return sock
        sock.close()


def send(sock: socket.socket, payload: bytes, bucket: TokenBucket | None = None) -> None:
    """Send one frame; returns when the socket has taken all of it."""
    data = memoryview(HEADER.pack(len(payload)) + payload)
    for at in range(0, len(data), CHUNK):
        chunk = data[at : at + CHUNK]
        if bucket is not None:
            bucket.take(8.0 * len(chunk))
        sock.sendall(chunk)


def receive(sock: socket.socket, meter: Meter) -> bytes | None:
    """One frame; None when the other side has closed.

    Raises:
        ValueError: the length is absurd, so the sender is none of ours.
    """
    head = _exactly(sock, HEADER.size, Meter())
    if head is None:
        return None
    (size,) = HEADER.unpack(head)
    if size > LARGEST:
        raise ValueError(f"a frame of {size} bytes; the most is {LARGEST}")
    return _exactly(sock, size, meter)


def _exactly(sock: socket.socket, size: int, meter: Meter) -> bytes | None:
    data = bytearray(size)
    view, have = memoryview(data), 0
    while have < size:
        got = sock.recv_into(view[have:], min(size - have, 65536))
        if got == 0:
            return None
        have += got
        meter.count_bytes += got
    return bytes(data)


class FlowTarget(TypedDict):
    """Where an output goes.

    Attributes:
        rate_bps: None where the backend shapes.
        size_bytes: what a stand-in sends there for each frame; None: what the function returns.
    """

    address: str
    port: int
    rate_bps: float | None
    size_bytes: int | None


class TaskSetting(TypedDict):
    """What a task process must know.

    Attributes:
        code, function: the user's file and function; both None for the source, and for a stand-in, which
            takes its time and sends so many bytes.
        frames: of the source: files that it sends in turn, again and again.
        address: of this node.
        inputs: ports to listen on, in the order of the predecessors.
        outputs: flows out.
        least_s: a frame takes at least so long here, which makes a fast machine act as a slow node.
        secret: that senders of frames show first; tasks of one session know it, and nobody else.
    """

    code: str | None
    function: str | None
    frames: list[str]
    address: str
    inputs: list[int]
    outputs: list[FlowTarget]
    least_s: float
    secret: str


class TaskProcess:
    """The process of one task; `run` never returns."""

    def __init__(self, setting: TaskSetting) -> None:
        self.setting = setting
        self.done, self.busy_s = 0, 0.0
        self._pace_s, self._paced = 0.0, threading.Condition()  # least time between frames
        self.into = [queue.Queue[bytes](1) for _ in setting["inputs"]]
        self.out = [queue.Queue[bytes](1) for _ in setting["outputs"]]
        self.received = [Meter() for _ in setting["inputs"]]
        self.buckets = [
            None if out["rate_bps"] is None else TokenBucket(out["rate_bps"]) for out in setting["outputs"]
        ]

    def run(self) -> None:
        """Listen, say so, wait for "go", connect, and work."""
        listeners = [listen(self.setting["address"], port) for port in self.setting["inputs"]]
        code, name = self.setting["code"], self.setting["function"]
        function = None if code is None or name is None else getattr(load_code(code), name)
        _say({"ready": True})
        if sys.stdin.readline().strip() != "go":
            return
        for i, listener in enumerate(listeners):
            _thread(self._read, i, listener)
        for i in range(len(self.out)):
            _thread(self._write, i)
        _thread(self._obey)
        _thread(self._report)
        self._work(function)

    def _work(self, function: Callable[[Any], Any] | None) -> None:
        frames = itertools.cycle([b"b" + Path(name).read_bytes() for name in self.setting["frames"]])
        sizes = [out["size_bytes"] for out in self.setting["outputs"]]
        stand_ins = [None if size is None else b"b" + bytes(size) for size in sizes]
        least_s, finish_s = self.setting["least_s"], 0.0
        while True:
            given = [q.get() for q in self.into]
            began_s = clock.monotonic_s()
            if function is None:  # the source, or a stand-in
                output = next(frames, b"")
            elif NOTHING not in given:
                output = _call(function, [decode(data) for data in given])
            else:
                output = NOTHING
            now_s = clock.monotonic_s()
            self.busy_s += max(now_s - began_s, least_s)
            finish_s = self._rest(max(finish_s, began_s - CATCH_UP_S), least_s)
            self.done += 1
            for q, made in zip(self.out, stand_ins, strict=True):
                q.put(output if made is None else made)

    def _rest(self, since_s: float, least_s: float) -> float:
        """Wait until a frame ends on the node that this one stands for; the pace may change meanwhile."""
        with self._paced:
            while (left_s := since_s + max(least_s, self._pace_s) - clock.monotonic_s()) > 0.0:
                self._paced.wait(min(left_s, threading.TIMEOUT_MAX))
            return since_s + max(least_s, self._pace_s)

    def _read(self, i: int, listener: Any) -> None:
        sock = accept(listener, self.setting["secret"].encode())
        while (data := receive(sock, self.received[i])) is not None:
            self.into[i].put(data)

    def _write(self, i: int) -> None:
        to = self.setting["outputs"][i]
        sock = connect(self.setting["address"], to["address"], to["port"])
        sock.sendall(self.setting["secret"].encode())
        while True:
            send(sock, self.out[i].get(), self.buckets[i])

    def _obey(self) -> None:
        """New rates by port, or a new pace, one mapping a line, until the manager is gone."""
        for line in sys.stdin:
            rates = json.loads(line)
            with self._paced:
                self._pace_s = rates.pop("pace_s", self._pace_s)
                self._paced.notify_all()
            for out, bucket in zip(self.setting["outputs"], self.buckets, strict=True):
                if bucket is not None and str(out["port"]) in rates:
                    bucket.set_rate(float(rates[str(out["port"])]))
        os._exit(0)

    def _report(self) -> None:
        while True:
            time.sleep(PERIOD_S)
            passed = zip(self.setting["inputs"], self.received, strict=True)
            came = {str(port): meter.count_bytes for port, meter in passed}
            _say({"at_s": clock.monotonic_s(), "frames": self.done, "busy_s": self.busy_s, **came})


def _thread(run: Callable[..., None], *args: Any) -> None:
    def guarded() -> None:
        try:
            run(*args)
        except (ConnectionError, TimeoutError) as error:
            _fail(f"{LOST}: {error}")
        except Exception as error:
            _fail(f"{type(error).__name__}: {error}")

    threading.Thread(target=guarded, daemon=True).start()


def _call(function: Callable[[Any], Any], inputs: Sequence[Any]) -> bytes:
    result = function(inputs[0] if len(inputs) == 1 else inputs)
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], bool)):
        raise TypeError(f"returned {str(result)[:60]!r}; a task returns True, output (False drops the frame)")
    return encode(result[1]) if result[0] else NOTHING


def _fail(text: str) -> None:
    _say({"error": text})
    os._exit(1)


def _say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


def in_pod(port: int, token: str) -> None:
    """Be the task of the first who connects and shows a token: its connection is the standard streams.

    Whoever else connects, as one that only looks whether this is up, is hung up on.
    """
    # The first process of a container hears of its end only if it asks for it.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    with listen("", port) as listener:
        sock = accept(listener, token.encode())
    for stream in (sys.stdin, sys.stdout):
        os.dup2(sock.fileno(), stream.fileno())
    main()


def main() -> None:
    """The process: one line of setting, then the work."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    try:
        TaskProcess(json.loads(sys.stdin.readline())).run()
    except Exception as error:
        _fail(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
