"""One process of a policy: started, asked, killed. What keeps it there is `policy`."""

import builtins
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from typing import IO, Any

from edgewise import errors
from edgewise.core.guard import Ended
from edgewise.errors import PolicyError
from edgewise.runtime import clock
from edgewise.runtime.apart import messages

log = logging.getLogger("edgewise.policies")
CHILD = "edgewise.runtime.apart.child"
MOST_LINE, MOST_LINES, LINES_S = 1000, 50, 10.0  # of what it writes, so many lines in so long are logged
LEFT_S = 1.0  # that the system may take to say how a process ended


class PolicyProcess:
    """A process in which a policy decides.

    It inherits one end of a channel, nothing else that is open here, and ends when this process does.

    Args:
        decision: of `policies.DECISIONS`.
        name: of the policy.
    """

    def __init__(self, decision: str, name: str) -> None:
        self._channel, there = socket.socketpair()
        with there:
            given = str(there.fileno()), decision, name
            self._process = subprocess.Popen(
                [sys.executable, "-m", CHILD, *given], pass_fds=(there.fileno(),), start_new_session=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
        assert self._process.stdout is not None
        who = {"decision": decision, "policy": name, "pid": self._process.pid}
        threading.Thread(
            target=_log, args=(self._process.stdout, who), daemon=True, name="policy says"
        ).start()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def ask(self, question: bytes | None, within_s: float) -> Any:
        """The answer to a question; None: what it says of itself when it has started.

        Raises:
            TimeoutError: there is none in time, and it is killed.
            Ended: it has ended, or is killed for an answer that is too long.
            PolicyError: its answer cannot be read.
            Exception: what the policy raises.
        """
        until_s = clock.monotonic_s() + within_s
        try:
            if question is not None:
                messages.send(self._channel, question, until_s)
            found = messages.receive(self._channel, until_s, messages.MOST_BYTES)
        except TimeoutError:
            self.kill()
            raise TimeoutError(f"no answer within {within_s:g} s; its process was killed") from None
        except messages.TooLong as error:
            self.kill()
            raise Ended(f"{error}; its process was killed") from None
        except (EOFError, OSError):
            raise Ended(f"its process ended: {self.how()}") from None
        kind, said = messages.read_answer(found)
        if kind == messages.ANSWERED:
            return said
        raise _raised(*said)

    def wait(self) -> None:
        """Wait for its end."""
        self._process.wait()

    def how(self) -> str:
        """How it ended."""
        try:
            status = self._process.wait(LEFT_S)
        except subprocess.TimeoutExpired:
            return "it closed its channel"
        return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"

    def kill(self) -> None:
        """End it, whatever it does, and what it has started."""
        if self._process.returncode is None:  # else its number may be another's
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """Leave it: it ends if it has not."""
        with suppress(OSError):  # not closed: who waits there would wait for whatever gets its number next
            self._channel.shutdown(socket.SHUT_RDWR)
        if self._process.stdin is not None:
            self._process.stdin.close()


def _raised(name: str, text: str) -> Exception:
    """What a policy raised over there."""
    kind = getattr(errors, name, None) or getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, TimeoutError):
        with suppress(Exception):  # a kind that is not made of a text
            return kind(text)
    return PolicyError(f"{name}: {text}")


def _log(said: IO[bytes], who: dict[str, Any]) -> None:
    """Log what a policy writes, until it has ended."""
    lines, since_s = 0, clock.monotonic_s()
    with said:
        while line := said.readline(MOST_LINE):
            if clock.monotonic_s() - since_s > LINES_S:
                lines, since_s = 0, clock.monotonic_s()
            lines += 1
            if lines <= MOST_LINES:
                log.warning("policy wrote", extra=who | {"line": line.decode(errors="replace").rstrip()})
            elif lines == MOST_LINES + 1:
                log.warning("policy writes more than is kept", extra=who)
