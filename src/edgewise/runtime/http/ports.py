"""TCP ports of this machine: which of them somebody listens at."""

import socket
from collections.abc import Container

from edgewise.runtime.http.messages import LOCALHOST


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
    while True:
        with socket.socket() as probe:
            probe.bind((LOCALHOST, 0))
            port = int(probe.getsockname()[1])
        if port not in planned:
            return port
