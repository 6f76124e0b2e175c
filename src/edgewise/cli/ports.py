"""Ports that another program has: said before a system starts, and not in a log."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgewise.errors import RunError

if TYPE_CHECKING:
    from edgewise.runtime.store import Running


def check_ports(rows: Sequence[Running]) -> None:
    """Say that another program has a gateway's port; a gateway of a system that is taken over has its own.

    Raises:
        RunError: it has.
    """
    from edgewise.runtime.backends.local import alive_handle  # needs the extra `live`

    for row in rows:
        if row.process.kind != "gateway" or (row.handle and alive_handle(row.handle)):
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", row.process.port))
            except OSError as error:
                raise RunError(
                    f"port {row.process.port}, for {row.process.name}: {error.strerror}; use another --port"
                ) from None
