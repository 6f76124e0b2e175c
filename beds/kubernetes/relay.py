"""Delays packets in user space: python -m beds.kubernetes.relay NODE CONTROL DEVICE.

Packets that the node's kernel routes into `tun0` are written, after the delay of their destination, to a
device in the control plane's namespace, whose kernel forwards them. Delays come as lines of JSON on standard
input: {"2": 0.02} is 20 ms for what goes to node 2.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import json
import os
import selectors
import struct
import sys
import time

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
CLONE_NEWNET = 0x40000000
MOST_WAITING = 20_000  # packets; beyond it they are dropped, as a router does


def tun(namespace: str, device: str) -> int:
    """A TUN device in a network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{namespace}") as where:
        if libc.setns(where.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
    opened = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(opened, TUNSETIFF, struct.pack("16sH", device.encode(), IFF_TUN | IFF_NO_PI))
    return opened


def node_of(packet: bytes) -> int | None:
    """Number of the node that an IPv4 packet goes to: of 10.198.0.(10+i), or of pods in 10.199.i.0/24."""
    if len(packet) < 20 or packet[0] >> 4 != 4:
        return None
    return packet[18] if packet[17] == 199 else packet[19] - 10


def main(node: str, control: str, device: str) -> None:
    """Relay until standard input ends."""
    source, target = tun(node, "tun0"), tun(control, device)
    ready = selectors.DefaultSelector()
    ready.register(source, selectors.EVENT_READ)
    ready.register(sys.stdin.fileno(), selectors.EVENT_READ)
    delays_s: dict[int, float] = {}
    waiting: list[tuple[float, int, bytes]] = []
    number, commands = 0, b""
    while True:
        pause_s = max(waiting[0][0] - time.monotonic(), 0.0) if waiting else None
        for key, _ in ready.select(pause_s):
            if key.fd == source:
                for packet in arrived(source):
                    number += 1
                    if len(waiting) < MOST_WAITING:
                        due_s = time.monotonic() + delays_s.get(node_of(packet) or 0, 0.0)
                        heapq.heappush(waiting, (due_s, number, packet))
                continue
            said = os.read(key.fd, 65536)
            if not said:
                return
            *lines, commands = (commands + said).split(b"\n")
            for line in lines:
                delays_s = {int(to): delay_s for to, delay_s in json.loads(line).items()}
        while waiting and waiting[0][0] <= time.monotonic():
            try:
                os.write(target, heapq.heappop(waiting)[2])
            except OSError:  # the device is down or its queue is full: a packet is lost, as on a wire
                continue


def arrived(source: int, most: int = 64) -> list[bytes]:
    """Packets that are there now."""
    found: list[bytes] = []
    while len(found) < most:
        try:
            found.append(os.read(source, 65536))
        except BlockingIOError:
            break
    return found


if __name__ == "__main__":
    main(*sys.argv[1:4])
