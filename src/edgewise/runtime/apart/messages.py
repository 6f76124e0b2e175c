"""Messages between who asks a policy and the process of its own in which it decides: a length, then a pickle.

Arrays are pickled by protocol 5, so those that are read-only stay so. The world that a policy began with is
sent once. Who asks believes nothing: an answer has at most `MOST_BYTES`, and holds arrays and the decisions
of `core`, nothing else; so no answer runs code or fills memory here.
"""

import io
import pickle
import socket
from typing import Any

from edgewise.errors import PolicyError
from edgewise.runtime import clock

MOST_BYTES = 2**24  # of an answer
AT_ONCE_BYTES = 2**16
LENGTH = 8  # bytes
ANSWERED, RAISED = "answered", "raised"
NUMPY = {"_frombuffer", "_reconstruct", "scalar", "ndarray", "dtype", "recarray", "record"}
BUILTINS = {"bytearray", "complex", "frozenset", "range", "set", "slice"}
OURS = ("edgewise.core.", "edgewise.model.")
_world: list[Any] = []  # that the policy of this process began with


class TooLong(Exception):
    """A message that was not read; no other can be read after it."""


class _Question(pickle.Pickler):
    """Names the world in place of sending it again."""

    def __init__(self, file: io.BytesIO, world: Any) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._world = world

    def reducer_override(self, value: Any) -> Any:
        return (known_world, ()) if value is self._world else NotImplemented


class _Answer(pickle.Unpickler):
    """Reads arrays and decisions, nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        found = None
        if (module.startswith("numpy") and name in NUMPY) or (module == "builtins" and name in BUILTINS):
            found = super().find_class(module, name)
        elif module.startswith(OURS) and isinstance(kind := super().find_class(module, name), type):
            found = kind
        if found is None:
            raise PolicyError(f"answers with a {module}.{name}; give arrays, and decisions of edgewise.core")
        return found


def known_world() -> Any:
    """What the policy of this process began with."""
    return _world[0]


def begin_with(world: Any) -> None:
    """Questions to come are about this world."""
    _world[:] = [world]


def question(method: str, given: tuple[Any, ...], world: Any = None) -> bytes:
    """A message to a policy; `world` is known there."""
    file = io.BytesIO()
    file.write(bytes(LENGTH))
    _Question(file, world).dump((method, given))
    return _with_length(file)


def read_question(message: memoryview) -> tuple[str, tuple[Any, ...]]:
    """A method, and what it is given."""
    found: tuple[str, tuple[Any, ...]] = pickle.loads(message)  # of who started this process
    return found


def answer(kind: str, said: Any) -> bytes:
    """A message from a policy: what it answered, or name and text of what it raised."""
    file = io.BytesIO()
    file.write(bytes(LENGTH))
    pickle.dump((kind, said), file, pickle.HIGHEST_PROTOCOL)
    return _with_length(file)


def read_answer(message: memoryview) -> tuple[str, Any]:
    """What an answer says.

    Raises:
        PolicyError: it holds something else than answers do.
    """
    try:
        kind, said = _Answer(io.BytesIO(message)).load()
        return str(kind), said
    except PolicyError:
        raise
    except Exception as error:  # foreign bytes: pickle raises whatever it likes
        raise PolicyError(f"its answer cannot be read: {type(error).__name__}: {error}") from error


def receive(channel: socket.socket, until_s: float | None = None, most: int | None = None) -> memoryview:
    """The next message.

    Args:
        until_s: of the monotonic clock; None: however long it takes.
        most: bytes that it may have.
    Raises:
        TimeoutError: it is not there in time.
        EOFError: the other side has ended.
        TooLong: it is longer than it may be.
    """
    held = _some(channel, AT_ONCE_BYTES, until_s)
    while len(held) < LENGTH:
        held += _some(channel, AT_ONCE_BYTES, until_s)
    length = int.from_bytes(held[:LENGTH], "little")
    if most is not None and length > most:
        raise TooLong(f"its answer has {length} bytes, of at most {most}")
    if len(held) == LENGTH + length:
        return memoryview(held)[LENGTH:]
    whole = bytearray(length)
    at = len(held) - LENGTH
    whole[:at] = held[LENGTH:]
    rest = memoryview(whole)
    while at < length:
        _wait(channel, until_s)
        count = channel.recv_into(rest[at:])
        if not count:
            raise EOFError
        at += count
    return rest


def send(channel: socket.socket, message: bytes, until_s: float | None = None) -> None:
    """Send a message.

    Raises:
        TimeoutError: the other side does not read it in time.
        OSError: it has ended.
    """
    _wait(channel, until_s)
    channel.sendall(message)  # its time-out is for all of it


def _some(channel: socket.socket, most: int, until_s: float | None) -> bytes:
    _wait(channel, until_s)
    found = channel.recv(most)
    if not found:
        raise EOFError
    return found


def _wait(channel: socket.socket, until_s: float | None) -> None:
    if until_s is not None:
        channel.settimeout(max(until_s - clock.monotonic_s(), 1e-6))


def _with_length(file: io.BytesIO) -> bytes:
    message = file.getbuffer()
    message[:LENGTH] = (len(message) - LENGTH).to_bytes(LENGTH, "little")
    return file.getvalue()
