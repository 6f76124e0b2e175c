"""The kernel of a network namespace, asked and told through `ip` and `tc`: links are held to rates by HTB."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence

from edgewise.errors import RunError

# Large packets: the kernel's work for each is a third of what a message of many costs this machine.
PACKET_BYTES, HEADERS_BYTES, ETHERNET_BYTES = 9000, 52, 14  # IPv4 and TCP with timestamps
FRAME_BYTES = PACKET_BYTES + ETHERNET_BYTES
WIRE = FRAME_BYTES / (PACKET_BYTES - HEADERS_BYTES)  # bytes of a full frame / TCP payload in it
LEAST_BPS = 8_000  # for what is no flow
BURST_BYTES = 2 * FRAME_BYTES
PREFIX = "edgewise-"
FORWARD = (
    "echo 1 > /proc/sys/net/ipv4/ip_forward; "
    "for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done"
)


def queue_commands(device: str, bandwidth_bps: float, room_bytes: int, new: bool) -> list[str]:
    """tc commands that hold all that leaves by a device to a bandwidth, in one queue of so many bytes."""
    whole = int(bandwidth_bps * WIRE)
    root = [f"qdisc add dev {device} root handle 1: htb default 1"] if new else []
    return [
        *root,
        f"class replace dev {device} parent 1: classid 1:1 htb {htb(whole)}",
        f"qdisc replace dev {device} parent 1:1 handle 2: bfifo limit {room_bytes}",
    ]


def htb(rate: int) -> str:
    """Parameters of a class that is held to a rate."""
    return f"rate {rate}bit ceil {rate}bit burst {BURST_BYTES} cburst {BURST_BYTES} quantum {FRAME_BYTES}"


class Kernel:
    """The kernel of one network namespace, asked and told through `ip` and `tc`.

    Args:
        namespace: its name.
    """

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace

    def write(self, ip: Sequence[str], tc: Sequence[str]) -> None:
        """Carry out commands.

        Raises:
            RunError: one fails; the message is the kernel's.
        """
        for tool, commands in (("ip", ip), ("tc", tc)):
            if commands:
                run([tool, "-n", self.namespace, "-batch", "-"], "\n".join(commands) + "\n")

    def classes(self, device: str) -> str:
        """Its classes, as tc shows them."""
        return self._tc("class", device)

    def filters(self, device: str) -> str:
        """Its filters, as tc shows them."""
        return self._tc("filter", device)

    def _tc(self, what: str, device: str) -> str:
        more = ["parent", "1:"] if what == "filter" else []
        return run(["tc", "-n", self.namespace, what, "show", "dev", device, *more])


def run(argv: Sequence[str], text: str | None = None) -> str:
    """Output of a command.

    Raises:
        RunError: it fails or does not exist.
    """
    try:
        done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        raise RunError(f"{argv[0]}: no such command; install iproute2, or use --on local") from None
    except subprocess.TimeoutExpired:
        raise RunError(f"{' '.join(argv)}: no answer within a minute") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[0]
        raise RunError(f"{' '.join(argv)}: {said}")
    return done.stdout


def unavailable() -> str | None:
    """Why namespaces cannot be made here; None when they can."""
    if os.geteuid() != 0:
        return f"namespaces need root, and you are user {os.geteuid()}; use sudo, or --on local"
    probe = f"{PREFIX}{os.getpid()}-probe"
    try:
        run(["ip", "netns", "add", probe])
        try:
            run(["ip", "-n", probe, "link", "add", "name", "a", "type", "veth", "peer", "name", "b"])
            run(
                ["tc", "-n", probe, "-batch", "-"],
                "\n".join(queue_commands("a", 1e6, BURST_BYTES, new=True)) + "\n",
            )
        finally:
            run(["ip", "netns", "del", probe])
    except RunError as error:
        return f"namespaces cannot be made here: {error}"
    return None


def end_space(namespace: str) -> None:
    """Kill what runs in a namespace, and remove it."""
    for pid in run(["ip", "netns", "pids", namespace]).split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    run(["ip", "netns", "del", namespace])
