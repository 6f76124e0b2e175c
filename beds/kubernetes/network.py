"""Network namespaces of the bed: the control plane's is a switch between nodes; links have rates and delays.

    host 10.198.254.1 ── 10.198.254.2 control plane
                         10.198.0.1 ── bridge ── node i: 10.198.0.(10+i), its pods: 10.199.i.0/24

Rates are token buckets (HTB) where traffic leaves its node. There is no netem on many machines, so a delay
is a relay in user space: packets for a delayed peer are routed into a TUN device and appear, later, in the
control plane's namespace, which forwards them. Losses are rules of the receiver that drop packets by chance.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from beds.kubernetes.build import run
from beds.processes import REPOSITORY, BedError, end, start, wait

CONTROL = "edgewise-bed"
HOST_SIDE, CONTROL_SIDE = "10.198.254.1", "10.198.254.2"
API_ADDRESS = "10.198.0.1"
SERVICES, API_SERVICE = "10.197.0.0/16", "10.197.0.1"
PODS = "10.199.0.0/16"
UNLIMITED = "10gbit"


def ip(*arguments: object) -> None:
    """Run ip."""
    run(["ip", *map(str, arguments)])


def inside(namespace: str) -> list[str]:
    """What makes a command run in a network namespace; `ip netns exec` would hide the control groups."""
    return ["nsenter", f"--net=/run/netns/{namespace}"]


def make_control() -> None:
    """The control plane's namespace: a bridge for nodes, and a way to the host."""
    ip("netns", "add", CONTROL)
    ip("link", "add", CONTROL, "type", "veth", "peer", "name", "host", "netns", CONTROL)
    ip("addr", "add", f"{HOST_SIDE}/30", "dev", CONTROL)
    ip("link", "set", CONTROL, "up")
    for each in ("lo", "host"):
        ip("-n", CONTROL, "link", "set", each, "up")
    ip("-n", CONTROL, "addr", "add", f"{CONTROL_SIDE}/30", "dev", "host")
    ip("-n", CONTROL, "link", "add", "br0", "type", "bridge")
    ip("-n", CONTROL, "addr", "add", f"{API_ADDRESS}/24", "dev", "br0")
    ip("-n", CONTROL, "link", "set", "br0", "up")
    for network in ("10.198.0.0/24", PODS):
        ip("route", "add", network, "via", CONTROL_SIDE)
    _forwards(CONTROL)


def _forwards(namespace: str) -> None:
    settings = ["net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0"]
    run([*inside(namespace), "sysctl", "-qw", *settings])


@dataclass
class Interface:
    """A node's place in the network.

    Attributes:
        number: from 1; its addresses follow from it.
        log: of its relay.
    """

    number: int
    log: Path
    delays_s: dict[int, float] = field(default_factory=dict)
    rates_bps: dict[int, float] = field(default_factory=dict)
    losses: dict[int, float] = field(default_factory=dict)
    _relay: subprocess.Popen[bytes] | None = None

    @property
    def namespace(self) -> str:
        """Its network namespace."""
        return f"{CONTROL}-n{self.number}"

    @property
    def address(self) -> str:
        """Its own address."""
        return address_of(self.number)

    @property
    def pods(self) -> str:
        """Addresses of its pods."""
        return pods_of(self.number)

    def make(self) -> None:
        """Make the namespace and its link to the switch."""
        ip("netns", "add", self.namespace)
        ip("link", "add", f"v{self.number}", "netns", CONTROL, "type", "veth", "peer", "name", "eth0",
           "netns", self.namespace)  # fmt: skip
        ip("-n", self.namespace, "link", "set", "lo", "up")
        ip("-n", self.namespace, "addr", "add", f"{self.address}/24", "dev", "eth0")
        ip("-n", CONTROL, "link", "set", f"v{self.number}", "master", "br0")
        self.plug(True)
        ip("-n", CONTROL, "route", "add", self.pods, "via", self.address)
        _forwards(self.namespace)

    def plug(self, into: bool) -> None:
        """Plug the node's cable in, or pull it."""
        ip("-n", CONTROL, "link", "set", f"v{self.number}", "up" if into else "down")
        ip("-n", self.namespace, "link", "set", "eth0", "up")
        with suppress(BedError):  # it is there still unless the link was down
            ip("-n", self.namespace, "route", "add", "default", "via", API_ADDRESS)

    def shape(self, to: int, rate_bps: float | None, delay_s: float) -> None:
        """Set rate and delay of what leaves this node for another."""
        for table, value in ((self.delays_s, delay_s), (self.rates_bps, rate_bps)):
            if value:
                table[to] = value
            else:
                table.pop(to, None)
        self._delay(to)
        for device in ("eth0", "tun0") if self._relay is not None else ("eth0",):
            self._limit(device)

    def _delay(self, to: int) -> None:
        if self.delays_s and self._relay is None:
            self._start_relay()
        if self._relay is None:
            return
        assert self._relay.stdin is not None
        self._relay.stdin.write(json.dumps(self.delays_s).encode() + b"\n")
        self._relay.stdin.flush()
        for network in (f"{address_of(to)}/32", pods_of(to)):
            verb = "replace" if to in self.delays_s else "del"
            with suppress(BedError):  # to delete what was never there is no harm
                ip("-n", self.namespace, "route", verb, network, "dev", "tun0", *self._from_us(verb))

    def _from_us(self, verb: str) -> tuple[str, ...]:
        return ("src", self.address) if verb == "replace" else ()

    def _start_relay(self) -> None:
        command = [sys.executable, "-m", "beds.kubernetes.relay", self.namespace, CONTROL, f"t{self.number}"]
        self._relay = start(command, self.log, cwd=REPOSITORY, stdin=subprocess.PIPE)

        def there() -> bool:
            return not subprocess.run(
                ["ip", "-n", CONTROL, "link", "show", f"t{self.number}"], capture_output=True
            ).returncode

        wait("the relay", there, 10, self.log)
        ip("-n", self.namespace, "link", "set", "tun0", "up")
        ip("-n", CONTROL, "link", "set", f"t{self.number}", "up")

    def _limit(self, device: str) -> None:
        tc = ["tc", "-n", self.namespace]
        subprocess.run([*tc, "qdisc", "del", "dev", device, "root"], capture_output=True, check=False)
        if not self.rates_bps:
            return
        run([*tc, "qdisc", "add", "dev", device, "root", "handle", "1:", "htb", "default", "1"])
        run([*tc, "class", "add", "dev", device, "parent", "1:", "classid", "1:1", "htb", "rate", UNLIMITED])
        for to, rate_bps in self.rates_bps.items():
            rate = f"{round(rate_bps)}bit"
            own = ["classid", f"1:{10 + to}", "htb", "rate", rate, "ceil", rate]
            run([*tc, "class", "add", "dev", device, "parent", "1:", *own])
            for network in (f"{address_of(to)}/32", pods_of(to)):
                match = ["u32", "match", "ip", "dst", network, "flowid", f"1:{10 + to}"]
                run([*tc, "filter", "add", "dev", device, "parent", "1:", "protocol", "ip", *match])

    def refuse(self, source: str, refuses: bool) -> None:
        """Drop what comes from some addresses, or stop doing so."""
        self._drop(["-s", source], refuses)

    def lose(self, sender: int, loss: float) -> None:
        """Drop a share of what comes from another node, each packet by chance; 0 drops none."""
        for share, drops in ((self.losses.pop(sender, 0.0), False), (loss, True)):
            chance = ["-m", "statistic", "--mode", "random", "--probability", f"{share:.9f}"]
            for source in (address_of(sender), pods_of(sender)) if share else ():
                self._drop(["-s", source, *chance], drops)
        if loss:
            self.losses[sender] = loss

    def _drop(self, match: list[str], drops: bool) -> None:
        for chain in ("INPUT", "FORWARD"):
            rule = [chain, *match, "-j", "DROP"]
            iptables = [*inside(self.namespace), "iptables", "-w"]
            if drops:
                run([*iptables, "-I", rule[0], "1", *rule[1:]])
            else:
                subprocess.run([*iptables, "-D", *rule], capture_output=True, check=False)

    def close(self) -> None:
        """End its relay; the namespace goes with the bed."""
        if self._relay is not None:
            end(self._relay)
            self._relay = None


def address_of(number: int) -> str:
    """Address of a node."""
    return f"10.198.0.{10 + number}"


def pods_of(number: int) -> str:
    """Addresses of the pods of a node."""
    return f"10.199.{number}.0/24"
