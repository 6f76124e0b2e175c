"""`up --on namespaces`: a network namespace for each site and node, joined by links as the scenario says.

    site ──e   p0──┐                              ┌──p5   e── node
    site ──e   p1──┤  a0▶b0, a1▶b1, … : a link    ├──p6   e── node
                   └──────────── hub ─────────────┘
                                 out ── this machine: controller, clients, page

All meet in one namespace, the hub. A directed link of the scenario is a pair of devices there, held to its
rate by HTB: whoever takes it waits in one queue. A rule for each site, node and link of the route between
them leads packets through; what has no route, and this machine, passes unshaped. How long a way takes without
load is not the kernel's: gateways let it pass, as where nothing is shaped (`gateway.forwarding.Ways`).

Links between nodes that run over no cable are links of the hub, too, one for both directions. Flows of
pipelines take them, and cables, on paths and at rates that the plan says (`testbeds.flows`).

Everything is named after the system's folder, so a controller that starts again finds it, and `remove` leaves
nothing behind. Nobody else has a way in: what comes to the hub from this machine must be of its own address.
"""

import contextlib
import ctypes
import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from edgewise.arrays import Ints
from edgewise.errors import RunError, ScenarioError
from edgewise.model.pipelines import Network
from edgewise.model.topology import Topology
from edgewise.model.ways import Routes
from edgewise.runtime.testbeds import Flow, nodes_on
from edgewise.runtime.testbeds.flows import HubState, ShapedFlow, changes, read, wanted
from edgewise.runtime.testbeds.hub_links import hub_links
from edgewise.runtime.testbeds.kernel import (
    FORWARD,
    PACKET_BYTES,
    Kernel,
    end_space,
    queue_commands,
    run,
    unavailable,
)

SPACES = "spaces"  # a setting of the store: `Space` of each site and node, on namespaces
HUB = "hub"
NEW_NETWORK = 0x40000000  # CLONE_NEWNET
PREFIX, ROOT_PREFIX = "edgewise-s", "ew-s"
BLOCKS = range(64, 127)  # second number of addresses 10.x.y.z, one for each system of this machine
MOST_PLACES, PER_GROUP = 200, 250
FIRST_TABLE = 100  # of the links' routes
MOST_BYTES = 64 * 2**20  # that wait for a link without a bound
PORTS = range(20_000, 30_000)  # of flows


@dataclass(frozen=True, slots=True)
class Space:
    """Where the processes of a site or node live.

    Attributes:
        space: name of the namespace.
        host: address, from all others and from this machine.
    """

    space: str
    host: str

    @property
    def number(self) -> int:
        """Of the place in its system."""
        return int(self.space.rpartition("-")[2])

    @property
    def device(self) -> str:
        """By which it comes to the hub."""
        return f"p{self.number}"

    @property
    def hub(self) -> str:
        """The namespace of the hub that joins it to others."""
        return f"{self.space.rpartition('-')[0]}-{HUB}"


class Spaces:
    """The namespaces of the system of a folder.

    Args:
        folder: its state.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        tag = hashlib.sha256(str(self.folder).encode()).hexdigest()[:8]
        self._prefix, self._root = f"{PREFIX}{tag}-", f"{ROOT_PREFIX}{tag}"
        self._hub = f"{self._prefix}{HUB}"

    def make(self, topology: Topology, known: Mapping[str, Space]) -> dict[str, Space]:
        """Bring about what a topology needs; what is there stays, and places keep their addresses.

        Args:
            known: what was made before, by place.
        Returns:
            the same of all sites and nodes, by name.
        Raises:
            ScenarioError: more places than this is made for.
            RunError: no root, no iproute2, or the kernel lacks something; the message says what.
        """
        places, here = self.plan(topology, known), set(_spaces(self._prefix))
        if self._hub not in here:
            self._make_hub(_block(places))
        for place in places.values():
            if place.space not in here:
                self._join(place)
        self._lay(topology, places)
        return places

    def plan(self, topology: Topology, known: Mapping[str, Space]) -> dict[str, Space]:
        """What `make` would return or raise; nothing is made."""
        names = [*(each.name for each in topology.sites), *(each.name for each in topology.nodes)]
        if len(names) > MOST_PLACES:
            raise ScenarioError(
                f"clusters: {len(names)} sites and nodes; --on namespaces takes {MOST_PLACES}"
            )
        if why_not := unavailable():
            raise RunError(why_not)
        known = known if self._hub in _spaces(self._prefix) else {}
        return self._named(names, _block(known) if known else _free_block(), known)

    def remove(self) -> list[str]:
        """End what runs in the namespaces, and remove them with all that joins them; their names."""
        found = _spaces(self._prefix)
        for space in found:
            try:
                end_space(space)
            except RunError:  # `up` and `down` may both be at it
                if space in _spaces(self._prefix):
                    raise
        with contextlib.suppress(RunError):  # Linux takes it with the hub, but later, by a thread of its own
            run(["ip", "link", "del", self._root])
        return found

    def _named(self, names: list[str], block: int, known: Mapping[str, Space]) -> dict[str, Space]:
        taken = {each.number for each in known.values()}
        free = (number for number in range(PER_GROUP**2) if number not in taken)
        found = {}
        for name in names:
            if name in known:
                found[name] = known[name]
                continue
            number = next(free)
            host = f"10.{block}.{number // PER_GROUP}.{number % PER_GROUP + 1}"
            found[name] = Space(f"{self._prefix}{number}", host)
        return found

    def _make_hub(self, block: int) -> None:
        with contextlib.suppress(RunError):  # of a hub that somebody removed
            run(["ip", "link", "del", self._root])
        run(["ip", "netns", "add", self._hub])
        _join_ends(f"{self._root} netns 1", f"out netns {self._hub}", 0xFFFF)
        mine = f"10.{block}.255.2"
        run(["ip", "link", "set", "dev", self._root, "alias", str(self.folder)[:255]])
        run(["ip", "addr", "add", f"{mine}/32", "dev", self._root])
        run(["ip", "route", "add", f"10.{block}.0.0/16", "dev", self._root, "src", mine])
        hub = ["link set lo up", f"route add {mine}/32 dev out"]
        hub += [f"rule add from {mine} iif out lookup main pref 1", "rule add iif out blackhole pref 2"]
        Kernel(self._hub).write(hub, [])
        run(["ip", "netns", "exec", self._hub, "sh", "-c", FORWARD])

    def _join(self, place: Space) -> None:
        """A namespace, and its way to the hub and back."""
        run(["ip", "netns", "add", place.space])
        _join_ends(f"e netns {place.space}", f"{place.device} netns {self._hub}", place.number)
        inside = [
            "link set lo up",
            f"addr add {place.host}/32 dev e",
            f"route add default dev e src {place.host}",
        ]
        Kernel(place.space).write(inside, [])
        Kernel(self._hub).write([f"route add {place.host}/32 dev {place.device}"], [])

    def _lay(self, topology: Topology, places: Mapping[str, Space]) -> None:
        """All links at their rates, and rules that lead over them; those of a former topology go."""
        links = hub_links(topology)
        hub, laid = Kernel(self._hub), self._laid()
        for link in range(laid, len(links.rate_bps)):
            _join_ends(f"a{link} netns {self._hub}", f"b{link} netns {self._hub}", 0x8000 + link)
            hub.write([f"route add default dev a{link} table {FIRST_TABLE + link}"], [])
        rules = [f"rule del pref {FIRST_TABLE}"] * self._ruled()
        rules += [f"rule add {each}" for each in _rules(topology, links.routes, places)]
        shapes: list[str] = []
        for link, (rate_bps, room) in enumerate(zip(links.rate_bps, links.buffer_bytes, strict=True)):
            most = int(room) if math.isfinite(room) else MOST_BYTES
            shapes += queue_commands(f"a{link}", rate_bps, most, new=link >= laid)
        hub.write(rules, shapes)

    def _laid(self) -> int:
        """How many links there are."""
        devices = json.loads(run(["ip", "-n", self._hub, "-j", "link"]) or "[]")
        return sum(row["ifname"].startswith("a") for row in devices)

    def _ruled(self) -> int:
        """How many rules lead over them."""
        rules = json.loads(run(["ip", "-n", self._hub, "-j", "rule"]) or "[]")
        return sum(row.get("priority") == FIRST_TABLE for row in rules)


def left_behind() -> list[Path]:
    """Folders of systems whose namespaces are there."""
    devices = json.loads(run(["ip", "-j", "link"]) or "[]")
    return [
        Path(row["ifalias"])
        for row in devices
        if row["ifname"].startswith(ROOT_PREFIX) and row.get("ifalias")
    ]


def enter(space: str) -> None:
    """From now on this process, which has one thread yet, is in a namespace.

    Raises:
        RunError: it is not there.
    """
    try:
        with open(f"/run/netns/{space}") as file:
            library = ctypes.CDLL(None, use_errno=True)
            if library.setns(file.fileno(), NEW_NETWORK):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    except OSError as error:
        raise RunError(f"namespace {space}: cannot be entered: {error}; edgewise down, then up") from error


class SpaceTestbed:
    """Nodes are the namespaces of a system, joined by its hub; see `Testbed`.

    What the kernel holds is read once: nobody else changes what it holds for flows, but who lays the links
    of another scenario, for which there is another test bed.

    Args:
        topology: as the namespaces were made for it.
        spaces: of each node, by name.

    Attributes:
        held: what the kernel holds for flows, as it was read and changed.
    """

    name = "namespaces"
    shapes = True

    def __init__(self, network: Network, topology: Topology, spaces: Mapping[str, Space]) -> None:
        self.network = network
        self._spaces = [spaces[name] for name in network.names]
        links = hub_links(topology)
        names = [(network.names[a], network.names[b]) for a, b in network.ends.tolist()]
        self._over = [(links.between[ends], links.between[ends[::-1]]) for ends in names]
        self._rates_bps = {
            link: links.rate_bps[link] for both in self._over for over in both for link in over
        }
        self._hub = self._spaces[0].hub
        self._flows: Sequence[Flow] = ()
        self._down: set[int] = set()
        self._next = os.getpid()  # a former controller's tasks may not have ended yet
        self.held = self.read_held()
        self.apply(())

    def read_held(self) -> HubState:
        """What the hub's kernel holds for flows now."""
        return read(self._hub, self._rates_bps)

    def address(self, node: int) -> str:
        """Of its namespace."""
        return self._spaces[node].host

    def port(self) -> int:
        """The next one that no flow has."""
        taken = {flow.port for flow in self._flows}
        while True:
            self._next += 1
            port = PORTS[self._next % len(PORTS)]
            if port not in taken:
                return port

    def command(self, node: int, argv: Sequence[str]) -> list[str]:
        """Run in the node's namespace."""
        return ["ip", "netns", "exec", self._spaces[node].space, *argv]

    def apply(self, flows: Sequence[Flow]) -> int:
        """Compare what the hub's kernel holds with what these flows need, and change what differs."""
        want = wanted(map(self._shaped, flows), self._rates_bps, FIRST_TABLE)
        ip, tc = changes(self.held, want)
        try:
            Kernel(self._hub).write(ip, tc)
        except RunError:
            self.held = self.read_held()  # some of it was done
            raise
        self._flows, self.held = tuple(flows), want
        return len(ip) + len(tc)

    def set_link(self, link: int, up: bool) -> None:
        """Packets of flows whose path takes a link that is down are dropped; others on its cables pass."""
        (self._down.discard if up else self._down.add)(link)
        self.apply(self._flows)

    def link_bytes(self) -> Ints:
        """Bytes that the first cable of each link has carried from either end, whosever they are."""
        rows = json.loads(run(["ip", "-n", self._hub, "-s", "-j", "link"]))
        sent = {row["ifname"]: int(row["stats64"]["tx"]["bytes"]) for row in rows}
        firsts = [{over[0] for over in both} for both in self._over]
        return np.array([sum(sent[f"a{link}"] for link in first) for first in firsts], dtype=np.int64)

    def close(self) -> None:
        """No flow is left; the namespaces are the system's."""
        with contextlib.suppress(RunError):  # they may have gone before
            self.apply(())

    def _shaped(self, flow: Flow) -> ShapedFlow:
        """A flow, over links of the hub."""
        nodes, links = nodes_on(self.network, flow), list[int]()
        for (node, after), link in zip(pairwise(nodes), flow.path, strict=True):
            there = self.network.ends[link].tolist() == [node, after]
            links += self._over[link][0 if there else 1]
        source = self._spaces[flow.source]
        cut = not self._down.isdisjoint(flow.path)
        hosts = source.host, self._spaces[flow.target].host
        return ShapedFlow(flow.port, *hosts, tuple(links), source.device, flow.rate_bps, cut)


def as_settings(places: Mapping[str, Space]) -> dict[str, dict[str, str]]:
    """JSON values of what `from_settings` reads."""
    return {name: asdict(place) for name, place in places.items()}


def from_settings(found: Mapping[str, Mapping[str, str]]) -> dict[str, Space]:
    """Places as they were written down."""
    return {name: Space(**row) for name, row in found.items()}


def _spaces(prefix: str) -> list[str]:
    names = [line.split()[0] for line in run(["ip", "netns", "list"]).splitlines() if line.strip()]
    return [name for name in names if name.startswith(prefix)]


def _block(places: Mapping[str, Space]) -> int:
    """The second number of their addresses."""
    return int(next(iter(places.values())).host.split(".")[1])


def _free_block() -> int:
    """The first that no route of this machine is about."""
    routes = json.loads(run(["ip", "-j", "route"]) or "[]")
    taken = {str(row.get("dst", "")).split("/")[0].rpartition(".0.0")[0] for row in routes}
    for block in BLOCKS:
        if f"10.{block}" not in taken:
            return block
    raise RunError(
        f"--on namespaces: {len(BLOCKS)} systems run here already; edgewise clean removes dead ones"
    )


def _join_ends(one: str, other: str, number: int) -> None:
    """A pair of devices that needs nobody's address: both ends have the same."""
    address = f"address 02:00:00:00:{number // 256:02x}:{number % 256:02x}"
    ends = [each.split(" netns ") for each in (one, other)]
    first, second = (
        f"name {name} {address} netns {space}" if space != "1" else f"name {name} {address}"
        for name, space in ends
    )
    run(["ip", "link", "add", *first.split(), "type", "veth", "peer", *second.split()])
    for name, space in ends:
        where = [] if space == "1" else ["-n", space]
        how = ["mtu", str(PACKET_BYTES), "arp", "off", "gso_max_segs", "1", "up"]
        run(["ip", *where, "link", "set", "dev", name, *how])


def _rules(topology: Topology, routes: Routes, places: Mapping[str, Space]) -> Iterator[str]:
    """`from A to B iif DEVICE lookup TABLE`, in the order of the links of each way there and back."""
    nodes = {cluster.name: cluster.nodes for cluster in topology.clusters}
    for number, way in enumerate(topology.ways):
        for node in nodes[way.cluster]:
            ends = places[way.site], places[node.name]
            for (a, b), route in ((ends, number), (ends[::-1], len(topology.ways) + number)):
                device = a.device
                for link in routes.link[route].tolist():
                    if link >= 0:
                        table = FIRST_TABLE + link
                        yield f"from {a.host} to {b.host} iif {device} lookup {table} pref {FIRST_TABLE}"
                        device = f"b{link}"
