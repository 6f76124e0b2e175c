"""What tests on raw connections share."""

import asyncio
import socket
import struct

LOOPS = [asyncio.new_event_loop]
try:
    import uvloop

    LOOPS.append(uvloop.new_event_loop)
except ImportError:
    pass


def answers(received):
    """Split a byte stream into (status, headers, body)."""
    found = []
    while received:
        head, _, rest = received.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        size = int(headers.get("content-length", 0))
        found.append((int(first.split()[1]), headers, rest[:size]))
        received = rest[size:]
    return found


def reset(writer):
    """Hang up with a reset: after a mere FIN the answer may still be wanted."""
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.close()
