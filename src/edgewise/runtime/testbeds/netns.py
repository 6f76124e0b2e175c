"""`netns`: every node a network namespace, every link a veth pair held to its bandwidth by HTB at both ends.

Node i has the address 10.77.x.y, link l joins 10.78.x.y / 31. What is no flow of a plan goes the shortest
way. Namespaces are called edgewise-PID-NODE: `clean` removes those whose maker is dead, with all that is in
them (processes, links, rules, queues), so nothing stays behind after `kill -9`.
"""

import contextlib
import json
import os
import re
import signal
from collections.abc import Sequence

import numpy as np

from edgewise.arrays import Ints
from edgewise.errors import RunError, ScenarioError
from edgewise.model.network import Network
from edgewise.runtime.testbeds import Flow, nodes_on
from edgewise.runtime.testbeds.shaping import Kernel, NodeState, changes, device_commands, run

PREFIX = "edgewise-"
PORTS = range(20_000, 30_000)
MOST_NODES = 200
FORWARD = (
    "echo 1 > /proc/sys/net/ipv4/ip_forward; "
    "for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done"
)


def unavailable() -> str | None:
    """Why this backend cannot work here; None when it can."""
    if os.geteuid() != 0:
        return f"the netns backend needs root, and you are user {os.geteuid()}; use sudo, or --backend local"
    probe = f"{PREFIX}{os.getpid()}-probe"
    try:
        run(["ip", "netns", "add", probe])
        try:
            run(["ip", "-n", probe, "link", "add", "name", "a", "type", "veth", "peer", "name", "b"])
            run(["tc", "-n", probe, "-batch", "-"], "\n".join(device_commands("a", 1e6)) + "\n")
        finally:
            run(["ip", "netns", "del", probe])
    except RunError as error:
        return f"the netns backend cannot work here: {error}"
    return None


def clean(everything: bool = False) -> list[str]:
    """Remove namespaces whose maker is dead (or all of ours), and end what runs in them; their names."""
    removed = []
    for line in run(["ip", "netns", "list"]).splitlines():
        name = line.split()[0]
        match = re.match(rf"{PREFIX}(\d+)-", name)
        if match and (everything or not os.path.exists(f"/proc/{match[1]}")):
            _remove(name)
            removed.append(name)
    return removed


def _remove(namespace: str) -> None:
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
                _remove(space)

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
