"""Messages over links that Linux shapes, between namespaces, come when the simulated net says so."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from itertools import pairwise

import numpy as np
import pytest

from edgewise.model.ways import Routes, levels
from edgewise.runtime.testbeds.kernel import unavailable
from edgewise.sim.links import advance
from edgewise.sim.links.net import FIFO, new_net, with_room
from waiting import IN_FILES

WHY_NOT = unavailable() if shutil.which("tc") else "no iproute2 here"
pytestmark = [pytest.mark.live, pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))]

RATE_BPS = (8e6, 5e6)  # of the cable from a to b, and of the one from b to c
ROUTES = ((0,), (0, 1))
PAYLOAD_BYTES, HEADERS_BYTES = 1200, 42  # UDP, IP and Ethernet; the shaper counts them all
MESSAGES, LOAD = 250, 0.7
PORT = 20_999

# Packets of a message leave at once; the kernel's clock says when the last one came.
SENDER = f"""{IN_FILES}
import json, socket, sys, time
plan = json.load(sys.stdin)
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.setsockopt(socket.SOL_SOCKET, 32, 1 << 24)  # SO_SNDBUFFORCE
begun, sent = time.monotonic() + 0.2, []
for number, (at_s, packets, address) in enumerate(plan["messages"]):
    while (left_s := begun + at_s - time.monotonic()) > 0:
        takes(min(left_s, 0.001))
    sent.append(time.time())
    for packet in range(packets):
        last = packet == packets - 1
        out.sendto(json.dumps([number, last]).encode().ljust(plan["bytes"]), (address, plan["port"]))
print(json.dumps(sent))
"""
RECEIVER = """
import json, socket, struct, sys
inbox, wanted, came = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), int(sys.argv[2]), {}
inbox.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)  # SO_RCVBUFFORCE
inbox.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS
inbox.bind(("0.0.0.0", int(sys.argv[1])))
inbox.settimeout(20.0)
print("ready", flush=True)
while len(came) < wanted:
    packet, (stamp, *_), _, _ = inbox.recvmsg(2048, 64)
    number, last = json.loads(packet)
    if last:
        seconds, nanoseconds = struct.unpack("ll", stamp[2])
        came[number] = seconds + nanoseconds / 1e9
print(json.dumps(came))
"""


@pytest.fixture
def spaces():
    """Three namespaces in a row; both links are held to their rates where they are sent on."""
    names = [f"edgewise-{os.getpid()}-{each}" for each in "abc"]
    with ExitStack() as stack:
        for name in names:
            run("ip", "netns", "add", name)
            stack.callback(run, "ip", "netns", "del", name)
        for k, (one, other) in enumerate(pairwise(names)):
            run("ip", "-n", one, "link", "add", f"to{k}", "type", "veth", "peer", f"from{k}", "netns", other)
            for end, (space, device) in enumerate(((one, f"to{k}"), (other, f"from{k}"))):
                run("ip", "-n", space, "addr", "add", f"10.99.{k}.{end + 1}/24", "dev", device)
                run("ip", "-n", space, "link", "set", device, "up")
            shaped = ("rate", f"{RATE_BPS[k]:.0f}", "burst", "1600", "limit", "100mb")
            run("tc", "-n", one, "qdisc", "add", "dev", f"to{k}", "root", "tbf", *shaped)
        run("ip", "-n", names[0], "route", "add", "10.99.1.0/24", "via", "10.99.0.2")
        run("ip", "netns", "exec", names[1], "sysctl", "-qw", "net.ipv4.ip_forward=1")
        yield names


def run(*command):
    """Run a command that must succeed."""
    subprocess.run(command, check=True, capture_output=True)


def test_messages_on_shaped_cables_come_when_the_net_says(spaces):
    draw = np.random.default_rng(5)
    packets, route = draw.integers(5, 21, MESSAGES), draw.integers(0, 2, MESSAGES)
    bits = packets * (PAYLOAD_BYTES + HEADERS_BYTES) * 8.0
    leaves_s = np.cumsum(draw.exponential(bits.mean() / RATE_BPS[0] / LOAD, MESSAGES))
    addresses = ("10.99.0.2", "10.99.1.2")
    plan = [[at_s, int(n), addresses[r]] for at_s, n, r in zip(leaves_s, packets, route, strict=True)]
    with ExitStack() as stack:
        inboxes = [
            stack.enter_context(started(spaces[1 + r], RECEIVER, str(PORT), str((route == r).sum())))
            for r in range(2)
        ]
        assert [inbox.stdout.readline() for inbox in inboxes] == ["ready\n"] * 2
        sender = stack.enter_context(started(spaces[0], SENDER))
        told, _ = sender.communicate(
            json.dumps({"messages": plan, "bytes": PAYLOAD_BYTES, "port": PORT}), timeout=30
        )
        sent_s = np.array(json.loads(told))
        found = {int(n): at_s for each in inboxes for n, at_s in json.loads(each.communicate()[0]).items()}
    came_s = np.array([found[n] for n in range(MESSAGES)])
    simulated_s = there(route, sent_s - sent_s[0], bits)
    delay_s, wanted_s = came_s - sent_s, simulated_s - (sent_s - sent_s[0])
    assert wanted_s.max() > 3.0 * (bits / RATE_BPS[0]).mean()  # they did wait for each other
    packet_s = (PAYLOAD_BYTES + HEADERS_BYTES) * 8.0 / min(RATE_BPS)
    # Packets of a message go on before its last one has come, and the shaper lets one packet pass at once.
    assert np.median(np.abs(delay_s - wanted_s)) < 1.5 * packet_s
    assert delay_s.mean() == pytest.approx(wanted_s.mean(), rel=0.07)


def started(space, code, *arguments):
    """Python in a namespace."""
    command = ["ip", "netns", "exec", space, sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def there(route, leaves_s, bits):
    """When each message is there, first come first served."""
    link = np.array([[*each, *[-1] * (2 - len(each))] for each in ROUTES])
    routes = Routes(("ab", "bc"), np.array(RATE_BPS), np.full(2, np.inf), link, np.zeros(link.shape))
    net = new_net(routes, np.full(len(ROUTES), 1e12), levels(2, link), FIFO, 1)
    net = with_room(net, MESSAGES)
    advance.send(net, 0, np.arange(MESSAGES), route, leaves_s, np.zeros(MESSAGES), bits)
    who, at_s, _ = advance.carry(net, np.inf)
    return at_s[np.argsort(who)]
