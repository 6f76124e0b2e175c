"""`netns`: every node a network namespace, every link a veth pair held to its bandwidth by HTB at both ends.

Node i has the address 10.77.x.y, link l joins 10.78.x.y / 31. What is no flow of a plan goes the shortest
way. Namespaces are called edgewise-PID-NODE: `clean` removes those whose maker is dead, with all that is in
them (processes, links, rules, queues), so nothing stays behind after `kill -9`.

The network manager of one node: what traffic control and policy routing should say, and making it so.

A flow is matched by source and destination address and port (ENTS section IV). On every node of its path

    an HTB class on the way out holds it to its rate, a u32 filter brings its packets there,
    a rule `from S to D dport P lookup P` and a route in table P lead it on,
    a rule `from D to S sport P lookup P` leads its acknowledgements back the same way.

Everything is keyed by the port, so what the kernel holds says by itself which flows there are: `changes`
compares it with the wanted state, and applying a state twice changes nothing the second time.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from edgewise.arrays import Ints
from edgewise.errors import RunError, ScenarioError
from edgewise.model.pipelines import Network
from edgewise.runtime.testbeds import Flow, nodes_on

WIRE = 1514.0 / 1448.0  # bytes of a full Ethernet frame / TCP payload in it (IPv4, timestamps)
OTHER_SHARE, LEAST_BPS = 0.02, 8_000  # for what is no flow: acknowledgements, first of all
BURST_BYTES = 3028  # two packets
PREFERENCE = 1000  # of the rules: before the main table
REST = "fffe"  # class of what is no flow


@dataclass(slots=True)
class NodeState:
    """What one node's kernel holds, or should hold, for flows.

    Attributes:
        classes: (device, port) → rate in bit/s on the wire.
        filters: (device, port) that a filter brings to its class.
        rules: (port, from, to, "dport" or "sport").
        routes: (port, destination) → (next hop, device).
    """

    classes: dict[tuple[str, int], int] = field(default_factory=dict)
    filters: dict[tuple[str, int], tuple[str, str]] = field(default_factory=dict)
    rules: set[tuple[int, str, str, str]] = field(default_factory=set)
    routes: dict[tuple[int, str], tuple[str, str]] = field(default_factory=dict)

    def add_hop(self, port: int, source: str, target: str, back: bool, via: str, device: str) -> None:
        """A rule and a route that lead a flow (`back`: its acknowledgements) from here to the next hop."""
        a, b, field_ = (target, source, "sport") if back else (source, target, "dport")
        self.rules.add((port, a, b, field_))
        self.routes[port, b] = (via, device)

    def add_shape(self, port: int, source: str, target: str, device: str, rate_bps: float) -> None:
        """A class and a filter for a flow on its way out."""
        self.classes[device, port] = 1000 * max(round(rate_bps * WIRE / 1000), 1)  # tc shows whole kbit/s
        self.filters[device, port] = (source, target)


def device_commands(device: str, bandwidth_bps: float) -> list[str]:
    """tc commands that hold a device to its link's bandwidth and make room for flows."""
    whole = int(bandwidth_bps * WIRE)
    other = max(int(OTHER_SHARE * whole), LEAST_BPS)
    return [
        f"qdisc replace dev {device} root handle 1: htb default {REST}",
        f"class replace dev {device} parent 1: classid 1:1 htb {_rates(whole, whole)}",
        f"class replace dev {device} parent 1:1 classid 1:{REST} htb prio 0 {_rates(other, whole)}",
    ]


def queue_commands(device: str, bandwidth_bps: float, room_bytes: int, new: bool) -> list[str]:
    """tc commands that hold all that leaves by a device to a bandwidth, in one queue of so many bytes."""
    whole = int(bandwidth_bps * WIRE)
    root = [f"qdisc add dev {device} root handle 1: htb default 1"] if new else []
    return [
        *root,
        f"class replace dev {device} parent 1: classid 1:1 htb {_rates(whole, whole)}",
        f"qdisc replace dev {device} parent 1:1 handle 2: bfifo limit {room_bytes}",
    ]


def _rates(rate: int, ceil: int) -> str:
    return f"rate {rate}bit ceil {ceil}bit burst {BURST_BYTES} cburst {BURST_BYTES} quantum 1514"


def changes(have: NodeState, want: NodeState) -> tuple[list[str], list[str]]:
    """`ip` and `tc` commands from one state to the other; what is new comes before what goes."""
    ip = [
        f"route replace {to}/32 via {via} dev {device} table {port}"
        for (port, to), (via, device) in sorted(want.routes.items())
        if have.routes.get((port, to)) != (via, device)
    ]
    ip += [f"rule add {_rule(rule)}" for rule in sorted(want.rules - have.rules)]
    ip += [f"rule del {_rule(rule)}" for rule in sorted(have.rules - want.rules)]
    ip += [f"route del {to}/32 table {port}" for port, to in sorted(have.routes.keys() - want.routes.keys())]
    tc = [
        f"class replace dev {device} parent 1:1 classid 1:{port:x} htb prio 1 {_rates(rate, rate)}"
        for (device, port), rate in sorted(want.classes.items())
        if have.classes.get((device, port)) != rate
    ]
    tc += [
        f"filter add dev {device} parent 1: protocol ip prio {port} u32 match ip src {source}/32 "
        f"match ip dst {target}/32 match ip dport {port} 0xffff flowid 1:{port:x}"
        for (device, port), (source, target) in sorted(want.filters.items())
        if (device, port) not in have.filters
    ]
    tc += [
        f"filter del dev {device} parent 1: prio {port}"
        for device, port in sorted(have.filters.keys() - want.filters.keys())
    ]
    tc += [
        f"class del dev {device} classid 1:{port:x}"
        for device, port in sorted(have.classes.keys() - want.classes.keys())
    ]
    return ip, tc


def _rule(rule: tuple[int, str, str, str]) -> str:
    port, a, b, field_ = rule
    return f"from {a} to {b} ipproto tcp {field_} {port} lookup {port} pref {PREFERENCE}"


class Kernel:
    """The kernel of one network namespace, asked and told through `ip` and `tc`.

    Args:
        namespace: its name.
    """

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace

    def read(self, devices: Iterable[str]) -> NodeState:
        """What it holds for flows now."""
        state = NodeState()
        for device in devices:
            state.classes |= {
                (device, int(minor, 16)): _bits(rate)
                for minor, rate in re.findall(
                    r"^class htb 1:(\w+) parent 1:1 .*?rate (\S+)", self._tc("class", device), re.M
                )
                if minor != REST
            }
            found = re.findall(r"pref (\d+) u32 .*?flowid", self._tc("filter", device))
            state.filters |= {(device, int(port)): ("", "") for port in found}
        for rule in json.loads(run(["ip", "-n", self.namespace, "-j", "rule"]) or "[]"):
            if rule.get("priority") == PREFERENCE:
                field_ = "dport" if "dport" in rule else "sport"
                state.rules.add((int(rule["table"]), rule["src"], rule["dst"], field_))
        for route in json.loads(
            run(["ip", "-n", self.namespace, "-j", "route", "show", "table", "all"]) or "[]"
        ):
            if str(route.get("table", "")).isdigit():
                state.routes[int(route["table"]), route["dst"]] = (route.get("gateway", ""), route["dev"])
        return state

    def write(self, ip: Sequence[str], tc: Sequence[str]) -> None:
        """Carry out commands.

        Raises:
            RunError: one fails; the message is the kernel's.
        """
        for tool, commands in (("ip", ip), ("tc", tc)):
            if commands:
                run([tool, "-n", self.namespace, "-batch", "-"], "\n".join(commands) + "\n")

    def _tc(self, what: str, device: str) -> str:
        more = ["parent", "1:"] if what == "filter" else []
        return run(["tc", "-n", self.namespace, what, "show", "dev", device, *more])


def _bits(text: str) -> int:
    number, unit = re.fullmatch(r"([\d.]+)([KMG]?)bit", text).groups()  # type: ignore[union-attr]
    return round(float(number) * {"": 1, "K": 1e3, "M": 1e6, "G": 1e9}[unit])


def run(argv: Sequence[str], text: str | None = None) -> str:
    """Output of a command.

    Raises:
        RunError: it fails or does not exist.
    """
    try:
        done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        raise RunError(f"{argv[0]}: no such command; install iproute2, or use --backend local") from None
    except subprocess.TimeoutExpired:
        raise RunError(f"{' '.join(argv)}: no answer within a minute") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[0]
        raise RunError(f"{' '.join(argv)}: {said}")
    return done.stdout


PREFIX = "edgewise-"
PORTS = range(20_000, 30_000)
MOST_NODES = 200
FORWARD = (
    "echo 1 > /proc/sys/net/ipv4/ip_forward; "
    "for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done"
)


def unavailable(instead: str = "--backend local") -> str | None:
    """Why namespaces cannot be made here, and what can be said instead; None when they can."""
    if os.geteuid() != 0:
        return f"namespaces need root, and you are user {os.geteuid()}; use sudo, or {instead}"
    probe = f"{PREFIX}{os.getpid()}-probe"
    try:
        run(["ip", "netns", "add", probe])
        try:
            run(["ip", "-n", probe, "link", "add", "name", "a", "type", "veth", "peer", "name", "b"])
            run(["tc", "-n", probe, "-batch", "-"], "\n".join(device_commands("a", 1e6)) + "\n")
        finally:
            run(["ip", "netns", "del", probe])
    except RunError as error:
        return f"namespaces cannot be made here: {error}"
    return None


def clean(everything: bool = False) -> list[str]:
    """Remove namespaces whose maker is dead (or all of ours), and end what runs in them; their names."""
    removed = []
    for line in run(["ip", "netns", "list"]).splitlines():
        name = line.split()[0]
        match = re.match(rf"{PREFIX}(\d+)-", name)
        if match and (everything or not os.path.exists(f"/proc/{match[1]}")):
            end_space(name)
            removed.append(name)
    return removed


def end_space(namespace: str) -> None:
    """Kill what runs in a namespace, and remove it."""
    for pid in run(["ip", "netns", "pids", namespace]).split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    run(["ip", "netns", "del", namespace])


class NetnsTestbed:
    """Nodes and links of a network as namespaces and veth pairs; see `Testbed`.

    Raises:
        RunError: no root, no iproute2, or the kernel lacks something; the message says what.
        ScenarioError: more nodes than it is made for.
    """

    name = "netns"
    shapes = True

    def __init__(self, network: Network) -> None:
        if len(network.names) > MOST_NODES:
            raise ScenarioError(f"network: {len(network.names)} nodes; the netns backend takes {MOST_NODES}")
        why_not = unavailable()
        if why_not:
            raise RunError(why_not)
        clean()
        self.network = network
        self._spaces = [f"{PREFIX}{os.getpid()}-{i}" for i in range(len(network.names))]
        self._down: set[int] = set()
        self._next_port = PORTS.start
        try:
            self._make()
        except RunError:
            self.close()
            raise

    def address(self, node: int) -> str:
        """10.77.x.y"""
        return f"10.77.{node // 250}.{node % 250 + 1}"

    def port(self) -> int:
        """The next port; none is used twice."""
        self._next_port += 1
        if self._next_port not in PORTS:
            raise RunError(f"more than {len(PORTS)} flows in one test bed; start it anew")
        return self._next_port

    def command(self, node: int, argv: Sequence[str]) -> list[str]:
        """Run in the node's namespace."""
        return ["ip", "netns", "exec", self._spaces[node], *argv]

    def apply(self, flows: Sequence[Flow]) -> int:
        """Compare what each kernel holds with what these flows need, and change what differs."""
        wanted = [NodeState() for _ in self._spaces]
        for flow in flows:
            self._want(wanted, flow)
        count = 0
        for node, space in enumerate(self._spaces):
            kernel = Kernel(space)
            ip, tc = changes(kernel.read(self._devices(node)), wanted[node])
            kernel.write(ip, tc)
            count += len(ip) + len(tc)
        return count

    def set_link(self, link: int, up: bool) -> None:
        """Take both ends down or up; default routes avoid what is down."""
        (self._down.discard if up else self._down.add)(link)
        for node in self.network.ends[link].tolist():
            run(["ip", "-n", self._spaces[node], "link", "set", f"l{link}", "up" if up else "down"])
        self._default_routes()

    def link_bytes(self) -> Ints:
        """(L, 2) bytes sent by the interfaces at the first and second end of each link."""
        sent = np.zeros((len(self.network.bandwidth_bps), 2), dtype=np.int64)
        for node, space in enumerate(self._spaces):
            for row in json.loads(run(["ip", "-n", space, "-s", "-j", "link"])):
                if row["ifname"] != "lo":
                    link = int(row["ifname"][1:])
                    sent[link, int(self.network.ends[link, 1] == node)] = row["stats64"]["tx"]["bytes"]
        return sent

    def close(self) -> None:
        """Remove every namespace of this process."""
        have = {line.split()[0] for line in run(["ip", "netns", "list"]).splitlines()}
        for space in self._spaces:
            if space in have:
                end_space(space)

    def _make(self) -> None:
        ends = self.network.ends.tolist()
        run(["ip", "-batch", "-"], "".join(f"netns add {space}\n" for space in self._spaces))
        pairs = [
            f"link add l{i} netns {self._spaces[a]} type veth peer name l{i} netns {self._spaces[b]}\n"
            for i, (a, b) in enumerate(ends)
        ]
        run(["ip", "-batch", "-"], "".join(pairs))
        for node, space in enumerate(self._spaces):
            devices = [(i, ends[i].index(node)) for i in self._links(node)]
            commands = ["link set lo up", f"addr add {self.address(node)}/32 dev lo"]
            commands += [f"addr add {_link_address(i, end)}/31 dev l{i}" for i, end in devices]
            commands += [f"link set l{i} gso_max_segs 1 up" for i, _ in devices]  # shape packets, not bursts
            bps = self.network.bandwidth_bps
            shapes = [line for i, _ in devices for line in device_commands(f"l{i}", float(bps[i]))]
            Kernel(space).write(commands, shapes)
            run(["ip", "netns", "exec", space, "sh", "-c", FORWARD])
        self._default_routes()

    def _links(self, node: int) -> list[int]:
        return np.flatnonzero((self.network.ends == node).any(axis=1)).tolist()

    def _devices(self, node: int) -> list[str]:
        return [f"l{link}" for link in self._links(node)]

    def _want(self, wanted: list[NodeState], flow: Flow) -> None:
        if not flow.path:
            return
        source, target = self.address(flow.source), self.address(flow.target)
        nodes = nodes_on(self.network, flow)
        for node, after, link in zip(nodes, nodes[1:], flow.path, strict=False):
            end = self.network.ends[link].tolist().index(after)
            device = f"l{link}"
            wanted[node].add_hop(flow.port, source, target, False, _link_address(link, end), device)
            wanted[after].add_hop(flow.port, source, target, True, _link_address(link, 1 - end), device)
            wanted[node].add_shape(flow.port, source, target, device, flow.rate_bps)

    def _default_routes(self) -> None:
        """What is no flow goes the way of the fewest links that are up."""
        import networkx as nx  # type: ignore[import-untyped]  # slow to import

        up = nx.Graph()
        for link, (one, other) in enumerate(self.network.ends.tolist()):
            if link not in self._down:
                up.add_edge(one, other, link=link)
        for node in up:
            commands = []
            for other, way in nx.single_source_shortest_path(up, node).items():
                if other != node:
                    link = up.edges[node, way[1]]["link"]
                    via = _link_address(link, self.network.ends[link].tolist().index(way[1]))
                    commands.append(f"route replace {self.address(other)}/32 via {via} dev l{link}")
            Kernel(self._spaces[node]).write(commands, [])


def _link_address(link: int, end: int) -> str:
    at = 2 * link + end
    return f"10.78.{at // 256}.{at % 256}"
