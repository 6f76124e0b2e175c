"""What runs inside the process of a policy that does not ship: `… -m edgewise.runtime.apart.child CHANNEL`.

It answers one question after the other until nobody asks any more. It has nothing of who asks but this
channel, a standard input that says nothing and is closed when its parent ends, and a standard error that is
logged there; what the policy prints goes there, too.
"""

import fcntl
import os
import select
import socket
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

import numpy as np

from edgewise import policies
from edgewise.core import hooks
from edgewise.core.guard import begin
from edgewise.core.keyed import Key
from edgewise.core.one_world import batched
from edgewise.core.orchestrate import new_view
from edgewise.errors import PolicyError
from edgewise.runtime.apart import messages
from edgewise.runtime.apart.messages import ANSWERED, RAISED

SEEN_ALONE = (
    "requests",
    "orchestrate",
    "defer",
)  # decided for one world after the other, see `core.one_world`
OWN = ("reset", "renew")  # answered by `Inside`
# Who lets a policy decide once on something small; those of services decide on what they begin with.
REHEARSALS = {
    "dispatch": "edgewise.runtime.gateway.session",
    "split": "edgewise.runtime.gateway.split",
    "place": "edgewise.runtime.controller.pipelines",
    "defer": "edgewise.runtime.controller.jobs",
}


class Inside:
    """A policy, and what may be asked of it: its own methods, and those of `OWN`."""

    def __init__(self, decision: str, name: str) -> None:
        made = policies.load(decision, name, live=True)
        self.decision, self.policy = decision, batched(made) if decision in SEEN_ALONE else made

    def about(self) -> dict[str, Any]:
        """What who asks needs to know of it."""
        max_age_s = self.policy.max_age_s if isinstance(self.policy, hooks.Ages) else None
        return {"name": self.policy.name, "max_age_s": max_age_s, "has": hooks.held(self.policy)}

    def reset(self, world: Any, key: Key) -> None:
        """Decide once, so that all is compiled before it counts, then begin."""
        messages.begin_with(world)
        with suppress(Exception):  # what is wrong is said when it is asked
            self._rehearse(world, key)
        begin(self.policy, world, key)

    def _rehearse(self, world: Any, key: Key) -> None:
        if self.decision in REHEARSALS:
            import_module(REHEARSALS[self.decision]).rehearse(self.policy, world)
            return
        begin(self.policy, world, key)
        view = new_view(world, 1, np.zeros(1, dtype=np.uint64))
        view.head[0, 0] = view.head_service[0, 0] = 0
        self.policy.decide(view)

    def renew(self, rates_qps: Any) -> bool:
        """Take its plan for other rates; False where there is none."""
        made = self.policy.renewed(rates_qps)
        self.policy = made or self.policy
        return made is not None

    def asked(self, method: str, given: tuple[Any, ...]) -> Any:
        """The answer to a question."""
        whose = self if method in OWN else self.policy
        return getattr(whose, method)(*given)


def serve(channel: socket.socket, decision: str, name: str) -> None:
    """Say what the policy is, then answer until nobody asks any more."""
    try:
        inside = Inside(decision, name)
    except PolicyError as error:
        return messages.send(channel, _raised(error))
    said = messages.answer(ANSWERED, inside.about())
    while True:
        messages.send(channel, said)
        asked = messages.receive(channel)
        try:
            said = messages.answer(ANSWERED, inside.asked(*messages.read_question(asked)))
        except (Exception, SystemExit) as error:  # foreign code
            said = _raised(error)


def _raised(error: BaseException) -> bytes:
    return messages.answer(RAISED, (type(error).__name__, str(error)))


def end_with_parent() -> None:
    """Have the kernel end this process once its standard input is closed, whatever the policy does then.

    A thread that waits for it would not do: a policy may be in compiled code, which lets no thread run.
    """
    fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([0], [], [], 0.0)[0]:  # it was closed before
        os._exit(0)


def main(descriptor: str, decision: str, name: str) -> NoReturn:
    """Be the child."""
    end_with_parent()
    with suppress(EOFError, ConnectionError):
        serve(socket.socket(fileno=int(descriptor)), decision, name)
    os._exit(0)  # not held up by threads that the policy has left


if __name__ == "__main__":
    main(*sys.argv[1:])
