"""Frames on sockets: four bytes of length, then the payload. Small buffers, so that a slow reader is felt."""

from __future__ import annotations

import hmac
import socket
import struct
import threading
import time

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
        self._rate_bps, self._tokens, self._at_s = rate_bps, 0.0, time.monotonic()

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
        now_s = time.monotonic()
        most = max(8.0 * CHUNK, self._rate_bps * BURST_S)
        self._tokens = min(most, self._tokens + self._rate_bps * (now_s - self._at_s))
        self._at_s = now_s


class Meter:
    """Payload bytes of one flow so far, and how long its sender was held up."""

    def __init__(self) -> None:
        self.count_bytes = 0
        self.held_s = 0.0


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
    until_s = time.monotonic() + timeout_s
    while True:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            sock.bind((source, 0))
            sock.settimeout(timeout_s)
            sock.connect((address, port))
            sock.settimeout(None)
            return sock
        except OSError:
            sock.close()
            if time.monotonic() >= until_s:
                raise
            time.sleep(0.05)


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


def send(sock: socket.socket, payload: bytes, meter: Meter, bucket: TokenBucket | None = None) -> None:
    """Send one frame; returns when the socket has taken all of it."""
    data = memoryview(HEADER.pack(len(payload)) + payload)
    began_s = time.monotonic()
    if bucket is None:
        sock.sendall(data)
    else:
        for at in range(0, len(data), CHUNK):
            chunk = data[at : at + CHUNK]
            bucket.take(8.0 * len(chunk))
            sock.sendall(chunk)
    meter.held_s += time.monotonic() - began_s
    meter.count_bytes += len(payload)


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
