"""What takes long is accepted at once, and whoever asked for it can ask how far it is.

    PUT …                  202, `location: BASE/{id}`, and the operation as JSON
    GET BASE               the last operations, oldest first
    GET BASE/{id}          one: waiting → compiling → switching → done, or failed and why

Operations of one process run one after the other, in the order in which they came.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from edgewise.errors import EdgewiseError, ProtocolError
from edgewise.runtime import http
from edgewise.runtime.http.messages import not_allowed

log = logging.getLogger("edgewise.operations")
WAITING, COMPILING, SWITCHING, DONE, FAILED = "waiting", "compiling", "switching", "done", "failed"
ENDED = (DONE, FAILED)
KEPT = 100  # operations that can be asked for
MOST_WAITING = 16


@dataclass(slots=True)
class Step:
    """How far something is.

    Attributes:
        state: see the module.
        since_s: Unix time when it came into this state.
        error: why it failed, None otherwise.
    """

    state: str = WAITING
    since_s: float = field(default_factory=time.time)
    error: str | None = None

    def enter(self, state: str, error: str | None = None) -> None:
        """Come into a state; the same state again changes nothing."""
        if (state, error) != (self.state, self.error):
            self.state, self.since_s, self.error = state, time.time(), error


@dataclass(slots=True)
class Operation(Step):
    """The switch of a policy.

    Attributes:
        id: unique in its process, and over restarts of a controller.
        what: "policies" or "shadows".
        decision: of `policies.RUNNING`.
        policy: which is to be used.
        accepted_s: Unix time.
        gateways: how far each gateway is; empty at a gateway itself.
    """

    id: int = 0
    what: str = ""
    decision: str = ""
    policy: str = ""
    accepted_s: float = field(default_factory=time.time)
    gateways: dict[str, Step] = field(default_factory=dict)

    def report(self) -> dict[str, Any]:
        """As JSON values."""
        steps = [{"gateway": name, **asdict(step)} for name, step in self.gateways.items()]
        return asdict(self) | {"gateways": steps}


Work = Callable[[Operation], Awaitable[None]]


class Operations:
    """The operations of one process.

    Args:
        base: path below which they can be asked for.
        last_id: of the process before this one.
        ended: is told of each that is done or has failed.
    """

    def __init__(
        self, base: str, last_id: int = 0, ended: Callable[[Operation], None] = lambda operation: None
    ) -> None:
        self._base, self._last_id, self._ended = base, last_id, ended
        self._kept: dict[int, Operation] = {}
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(
        self, what: str, decision: str, policy: str, work: Work, number: int | None = None
    ) -> Operation:
        """Accept an operation; `work` runs when those before it have ended.

        Args:
            number: of one that is taken up again; a new one when None.
        Raises:
            ProtocolError: too many wait; status 429.
        """
        if len(self._tasks) > MOST_WAITING:
            raise ProtocolError(f"{MOST_WAITING} switches wait; let them end first", status=429)
        self._last_id = max(self._last_id + 1, number or 0)
        made = Operation(
            id=self._last_id if number is None else number, what=what, decision=decision, policy=policy
        )
        self._kept[made.id] = made
        if len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]
        task = asyncio.create_task(self._run(made, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return made

    async def _run(self, operation: Operation, work: Work) -> None:
        more = {"of": operation.decision, "policy": operation.policy, "operation": operation.id}
        async with self._turn:
            try:
                await work(operation)
            except Exception as error:  # whatever somebody's policy raises: whoever waits must hear of it
                known = isinstance(error, EdgewiseError)
                operation.enter(FAILED, str(error) if known else f"{type(error).__name__}: {error}")
                log.error("not switched", extra=more | {"why": operation.error}, exc_info=not known)
            else:
                operation.enter(DONE)
                log.info("switched", extra=more)
        self._ended(operation)

    def accepted(self, operation: Operation) -> http.Response:
        """The answer to whoever asked for it."""
        answer = http.as_json(operation.report(), 202)
        answer.headers["location"] = f"{self._base}/{operation.id}"
        return answer

    def answer(self, request: http.HttpRequest, rest: list[str]) -> http.Response:
        """Answer a request for the operations, or for one.

        Raises:
            ProtocolError: it is not known, or no longer; status 404.
        """
        if request.method != "GET" or len(rest) > 1:
            return not_allowed(f"{request.path} takes GET", "GET")
        if not rest:
            return http.as_json([each.report() for each in self._kept.values()])
        number = int(rest[0]) if rest[0].isascii() and rest[0].isdigit() and len(rest[0]) < 19 else -1
        if number not in self._kept:
            raise ProtocolError(f"no operation {rest[0][:80]!r}; the last {KEPT} are kept", status=404)
        return http.as_json(self._kept[number].report())


def check_name(name: str, have: list[str]) -> None:
    """Refuse a name that a client made up; files are for those who write the scenario.

    Raises:
        ProtocolError: it is none of `have`.
    """
    if name not in have:
        raise ProtocolError(f"policy: {name[:80]!r} is none of {', '.join(have)}")
