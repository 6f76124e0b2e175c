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


def ask_raw(port, first, *headers, body=b""):
    """(status, body) of the answer to a request whose every line is given."""
    lines = [first, *headers, f"content-length: {len(body)}", "connection: close", "", ""]
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
        sock.sendall("\r\n".join(lines).encode() + body)
        while data := sock.recv(65536):
            received += data
    ((status, _, said),) = answers(received)
    return status, said.decode()


def listens(port):
    """Whether somebody takes connections there by now."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=20).close()
    except ConnectionRefusedError:
        return False
    return True


def reset(writer):
    """Hang up with a reset: after a mere FIN the answer may still be wanted."""
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.close()
