"""A gateway's side of reservations: what its core binds, the worker confirms, or it decides anew.

Between binding and confirmation queries may flow: a reservation is a promise about load, not a lock.
"""

import asyncio
import json
import logging
import math
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import quote

from edgewise.core.grants import Ask, GiveBack, Leases
from edgewise.runtime.gateway.forwarding import UNKNOWN, Upstream
from edgewise.runtime.gateway.session import Session

log = logging.getLogger("edgewise.granting")


class Granting:
    """Keeps the workers' ledgers in line with the core's.

    Args:
        session: bindings.
        upstreams: the workers; the gateway's own list.
        name: of the gateway, unique among those that share workers.
        lost: told about a worker that cannot be reached.
    """

    def __init__(
        self, session: Session, upstreams: list[Upstream], name: str, lost: Callable[[int], None]
    ) -> None:
        self.session, self.upstreams, self.name, self._lost = session, upstreams, name, lost
        self._leases = Leases(session.core.bindings)
        self._without: set[int] = set()  # workers whose server knows no reservations
        self._tasks: set[asyncio.Task[None]] = set()

    async def settle(self, stream_id: int) -> None:
        """Have a stream's binding confirmed; a worker with no room left is left for another."""
        for _ in range(len(self.upstreams) + 1):
            todo = self._leases.settle(stream_id)
            for worker in [each.worker for each in todo if isinstance(each, GiveBack)]:
                await self._ask(worker, "DELETE", f"/{stream_id}", None)
            asked = [each.worker for each in todo if isinstance(each, Ask)]
            if not asked:
                return
            load = {"load_qps": self.session.share_qps(stream_id, asked[0])}
            status, answer = await self._ask(asked[0], "PUT", f"/{stream_id}", load)
            if self._leases.answered(stream_id, asked[0], granted=status != 409):
                log.info("not granted", extra={"stream": stream_id, "worker": asked[0]})
                self.session.reserved_elsewhere(asked[0], float(answer.get("others_qps", 0.0)))
                self.session.decide_anew(stream_id)

    def settling(self, stream_id: int) -> asyncio.Task[None]:
        """See `settle`; it goes on when nobody waits for it any more."""
        return self._later(self.settle(stream_id))

    def settle_all(self) -> None:
        """Settle every stream that moved, in the background."""
        for stream_id in self._leases.unsettled:
            self._later(self.settle(stream_id))

    def moved(self, worker: int) -> None:
        """Another server stands for a worker: it may know reservations."""
        self._without.discard(worker)

    async def renew(self) -> None:
        """Tell every worker all that is bound to it, and hear what others have there."""
        await asyncio.gather(*(self._renew(worker) for worker in range(len(self.upstreams))))

    async def _renew(self, worker: int) -> None:
        if worker in self._without or not self.upstreams[worker].up:
            return
        bound = self._leases.bound_to(worker)
        loads = {str(s): self.session.share_qps(s, worker) for s in bound}
        has = {"streams": loads, "requests_qps": float(self.session.requests_qps[worker])}
        status, answer = await self._ask(worker, "PUT", "", has)
        if status != 200 or "refused" not in answer:
            return
        self.session.reserved_elsewhere(worker, float(answer["others_qps"]))
        refused = {int(number) for number in answer["refused"]}
        for stream_id in [s for s in bound if self.session.bound_to(s) == worker]:
            if self._leases.answered(stream_id, worker, granted=stream_id not in refused):
                self.session.decide_anew(stream_id)
                self._later(self.settle(stream_id))

    async def _ask(self, worker: int, method: str, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        """Status and JSON of an answer; status 0 when there was none, 200 without reservations."""
        if worker in self._without:
            return 200, {}
        data = b"" if body is None else json.dumps(body).encode()
        try:
            answer = await self.upstreams[worker].client.request(
                method, f"/v1/reservations/{quote(self.name, safe='')}{path}", body=data, timeout_s=2.0
            )
            found = json.loads(answer.body)
        except ConnectionError:
            self._lost(worker)
            return 0, {}
        except (TimeoutError, ValueError):
            return 0, {}
        if answer.status in UNKNOWN or (answer.status in (200, 409) and not _is_ours(found)):
            self._without.add(worker)
            return 200, {}
        return answer.status, found if isinstance(found, dict) else {}

    def _later(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _is_ours(found: Any) -> bool:
    """Whether an answer is about reservations; another server may say anything to a path it does not know."""
    if not isinstance(found, dict):
        return False
    others_qps, refused = found.get("others_qps"), found.get("refused", [])
    return (
        isinstance(others_qps, int | float)
        and 0.0 <= others_qps < math.inf
        and isinstance(refused, list)
        and all(isinstance(number, str) and number.isdecimal() for number in refused)
    )
