"""Ports that another program has: said before a system starts, and not in a log."""

from __future__ import annotations

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
    from edgewise.runtime.backends import alive_handle  # needs the extra `live`

    for row in rows:
        if row.process.kind != "gateway" or (row.handle and alive_handle(row.handle)):
            continue
        settings = row.process.settings
        _check(settings["host"], row.process.port, row.process.name, "--port")
        if settings["grpc_port"] is not None:
            _check(settings["host"], settings["grpc_port"], f"gRPC of {row.process.name}", "--grpc-port")


def _check(host: str, port: int, whose: str, option: str) -> None:
    from edgewise.runtime.controller.rolling import taken

    if (why := taken(port, host)) is not None:
        raise RunError(f"port {port}, for {whose}: {why}; use another {option}")
