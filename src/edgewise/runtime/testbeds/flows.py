"""What the hub of a system's namespaces holds for flows of pipelines, and the commands that change it.

A flow is known by the port of the task that receives it. On the links of its path it has

    an HTB class of its rate, and a u32 filter that brings its packets there,
    a rule for each link that leads its packets over it, in the order of the path,
    a rule that drops them, where a link of the path is down.

What flows reserve of a link is not the messages' any more: their class has the rest. Acknowledgements pass
unshaped, as simulated flows have none. Everything is keyed by the port, so what the kernel holds says by
itself which flows there are, and a state that is applied twice changes nothing the second time.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from edgewise.runtime.testbeds.kernel import LEAST_BPS, WIRE, Kernel, htb, run

PREFERENCE = 50  # of rules of flows: before those of messages
MESSAGES = 1  # minor number of the class of what is no flow
BLACKHOLE = "blackhole"


@dataclass(frozen=True, slots=True)
class ShapedFlow:
    """A flow as the hub has it.

    Attributes:
        port: of the task that receives it.
        source, target: addresses.
        links: of the hub, in the order of its path.
        device: by which it comes to the hub.
        rate_bps: payload bits per second.
        cut: a link of its path is down.
    """

    port: int
    source: str
    target: str
    links: tuple[int, ...]
    device: str
    rate_bps: float
    cut: bool


@dataclass(slots=True)
class HubState:
    """What the hub's kernel holds, or should hold, for flows.

    Attributes:
        classes: (link, port) → rate on the wire, in bit/s.
        filters: (link, port) → source and target of what they bring to its class.
        rules: (port, source, target, device, what to do).
        rest_bps: link → what messages have of it, on the wire.
    """

    classes: dict[tuple[int, int], int] = field(default_factory=dict)
    filters: dict[tuple[int, int], tuple[str, str]] = field(default_factory=dict)
    rules: set[tuple[int, str, str, str, str]] = field(default_factory=set)
    rest_bps: dict[int, int] = field(default_factory=dict)


def wanted(flows: Iterable[ShapedFlow], rates_bps: Mapping[int, float], first_table: int) -> HubState:
    """What the hub should hold.

    Args:
        rates_bps: of each link, without what a frame has around its payload.
        first_table: number of the routes of link 0.
    """
    state = HubState(rest_bps={link: wire_bps(bps) for link, bps in rates_bps.items()})
    for flow in flows:
        device = flow.device
        for link in flow.links:
            todo = BLACKHOLE if flow.cut else f"lookup {first_table + link}"
            state.rules.add((flow.port, flow.source, flow.target, device, todo))
            state.classes[link, flow.port] = bps = wire_bps(flow.rate_bps)
            state.filters[link, flow.port] = flow.source, flow.target
            state.rest_bps[link] = max(state.rest_bps[link] - bps, LEAST_BPS)
            device = f"b{link}"
    return state


def wire_bps(payload_bps: float) -> int:
    """The rate of a class: tc shows whole kbit/s."""
    return 1000 * max(round(payload_bps * WIRE / 1000), 1)


def changes(have: HubState, want: HubState) -> tuple[list[str], list[str]]:
    """`ip` and `tc` commands from one state to the other; what is new comes before what goes."""
    ip = [f"rule add {_rule(rule)}" for rule in sorted(want.rules - have.rules)]
    ip += [f"rule del {_rule(rule)}" for rule in sorted(have.rules - want.rules)]
    tc = [
        f"class replace dev a{link} parent 1: classid 1:{port:x} htb prio 0 {htb(rate)}"
        for (link, port), rate in sorted(want.classes.items())
        if have.classes.get((link, port)) != rate
    ]
    tc += [
        f"class replace dev a{link} parent 1: classid 1:{MESSAGES} htb prio 1 {htb(rate)}"
        for link, rate in sorted(want.rest_bps.items())
        if have.rest_bps.get(link) != rate
    ]
    tc += [
        f"filter add dev a{link} parent 1: protocol ip prio {port} u32 match ip src {source}/32 "
        f"match ip dst {target}/32 match ip dport {port} 0xffff flowid 1:{port:x}"
        for (link, port), (source, target) in sorted(want.filters.items())
        if (link, port) not in have.filters
    ]
    tc += [
        f"filter del dev a{link} parent 1: prio {port}"
        for link, port in sorted(have.filters.keys() - want.filters.keys())
    ]
    tc += [
        f"class del dev a{link} classid 1:{port:x}"
        for link, port in sorted(have.classes.keys() - want.classes.keys())
    ]
    return ip, tc


def read(hub: str, links: Iterable[int]) -> HubState:
    """What the kernel of a hub holds for flows now."""
    state, kernel = HubState(), Kernel(hub)
    for link in links:
        for minor, rate in re.findall(r"^class htb 1:(\w+) .*?rate (\S+)", kernel.classes(f"a{link}"), re.M):
            if int(minor, 16) == MESSAGES:
                state.rest_bps[link] = bits(rate)
            else:
                state.classes[link, int(minor, 16)] = bits(rate)
        found = re.findall(r"pref (\d+) u32 .*?flowid", kernel.filters(f"a{link}"))
        state.filters |= {(link, int(port)): ("", "") for port in found}
    for row in json.loads(run(["ip", "-n", hub, "-j", "rule"]) or "[]"):
        if row.get("priority") == PREFERENCE:
            todo = f"lookup {row['table']}" if "table" in row else BLACKHOLE
            state.rules.add((int(row["dport"]), row["src"], row["dst"], row["iif"], todo))
    return state


def bits(text: str) -> int:
    """A rate as tc shows it."""
    number, unit = re.fullmatch(r"([\d.]+)([KMG]?)bit", text).groups()  # type: ignore[union-attr]
    return round(float(number) * {"": 1, "K": 1e3, "M": 1e6, "G": 1e9}[unit])


def _rule(rule: tuple[int, str, str, str, str]) -> str:
    port, source, target, device, todo = rule
    return f"from {source} to {target} iif {device} ipproto tcp dport {port} {todo} pref {PREFERENCE}"
