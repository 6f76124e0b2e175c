"""TCP ports of this machine: which of them somebody listens at."""

import secrets
import socket
from collections.abc import Container, Iterator
from pathlib import Path

from edgewise.runtime.http.messages import LOCALHOST

GIVEN = Path("/proc/sys/net/ipv4/ip_local_port_range")  # of Linux
LEAST, MOST = 16_384, 30_000  # above those of well-known servers, below those of Kubernetes' nodes
TRIES = 64


def taken(port: int, host: str = LOCALHOST) -> str | None:
    """Why nobody can listen at a port now; None where it is free."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.strerror or str(error)
    return None


def free_port(planned: Container[int] = ()) -> int:
    """A port that nobody listens on now.

    Args:
        planned: ports at which somebody is to listen who does not yet.
    """
    return next(port for port in candidates() if port not in planned and taken(port) is None)


def candidates() -> Iterator[int]:
    """Ports to try, in chance's order: first those that the system gives nobody who connects or asks for any.

    Another one is often somebody's connection by the time at which who got it listens.
    """
    apart = range(LEAST, min(MOST, _first_given()))
    yield from secrets.SystemRandom().sample(apart, min(TRIES, len(apart)))
    while True:
        with socket.socket() as probe:
            probe.bind((LOCALHOST, 0))
            port = int(probe.getsockname()[1])
        yield port


def _first_given() -> int:
    """The least port that the system gives who connects; LEAST where it does not say."""
    try:
        return int(GIVEN.read_text().split()[0])
    except OSError:
        return LEAST
