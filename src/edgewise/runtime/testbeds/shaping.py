"""The network manager of one node: what traffic control and policy routing should say, and making it so.

A flow is matched by source and destination address and port (ENTS section IV). On every node of its path

    an HTB class on the way out holds it to its rate, a u32 filter brings its packets there,
    a rule `from S to D dport P lookup P` and a route in table P lead it on,
    a rule `from D to S sport P lookup P` leads its acknowledgements back the same way.

Everything is keyed by the port, so what the kernel holds says by itself which flows there are: `changes`
compares it with the wanted state, and applying a state twice changes nothing the second time.
"""

import json
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from edgewise.errors import RunError

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
