"""A gateway's side of reservations: what its core binds, the worker confirms, or the core decides anew.

Between binding and confirmation queries may flow: a reservation is a promise about load, not a lock.

A server that somebody else runs knows no reservations. One gateway, that of its site, grants its rate in the
server's place, to itself and to whoever asks it (`/v1/admin/reservations`). While that one is away, what is
bound there stays and nothing new comes: two gateways that each took what is free would book it twice.
"""

import asyncio
import json
import logging
import math
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any
from urllib.parse import quote

from edgewise.core.grants import RENEW_S, Ask, GiveBack, Leases
from edgewise.errors import ProtocolError
from edgewise.runtime import http
from edgewise.runtime.clock import next_period
from edgewise.runtime.gateway.forwarding import UNKNOWN, Upstream
from edgewise.runtime.gateway.session import Session
from edgewise.runtime.store import Process
from edgewise.runtime.worker.reservations import Reservations

log = logging.getLogger("edgewise.gateway")
Said = tuple[int, dict[str, Any]]  # status and JSON of an answer


class Granting:
    """Keeps the workers' ledgers in line with the core's.

    Args:
        session: bindings.
        upstreams: the workers; the gateway's own list.
        name: of the gateway, unique among those that share workers.
        lost: told about a worker that cannot be reached.
        granted_by: names of the gateways that grant in the place of workers, which know no reservations.
    """

    def __init__(
        self,
        session: Session,
        upstreams: list[Upstream],
        name: str,
        lost: Callable[[int], None],
        granted_by: Mapping[int, str],
    ) -> None:
        self.session, self.upstreams, self.name, self._lost = session, upstreams, name, lost
        capacity_qps = session.world.capacity_qps
        self._here = {w: Reservations(float(capacity_qps[w])) for w, by in granted_by.items() if by == name}
        self._granted_by = {w: by for w, by in granted_by.items() if by != name}
        self._gateways: dict[str, http.Client] = {}  # that grant, by name
        self._leases = Leases(session.core)
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

    def over(self, stream_id: int) -> bool:
        """See `Leases.over`."""
        return self._leases.over(stream_id)

    def closed(self, stream_id: int) -> None:
        """See `Leases.closed`."""
        self._leases.closed(stream_id)

    def settle_all(self) -> None:
        """Settle every stream that moved, in the background."""
        for stream_id in self._leases.unsettled:
            self._later(self.settle(stream_id))

    def moved(self, worker: int) -> None:
        """Another server stands for a worker: it may know reservations."""
        self._without.discard(worker)

    def follow(self, gateways: Iterable[Process], client_to: Callable[[Process], http.Client]) -> None:
        """Take over where the gateways are that grant in the place of workers, of all gateways."""
        for process in gateways:
            if process.name not in self._granted_by.values():
                continue
            known = self._gateways.get(process.name)
            if known is None or known.url != process.url:
                self._gateways[process.name] = client_to(process)
                if known is not None:
                    known.close()

    def answer(self, worker: str, request: http.HttpRequest, rest: list[str]) -> http.Response:
        """What a gateway hears that asks for the rate of a worker that is granted here, see `Reservations`.

        Raises:
            ProtocolError: it is not; status 404. Or the request's body is wrong.
        """
        names = self.session.world.worker_names
        book = self._here.get(names.index(worker)) if worker in names else None
        if book is None:
            raise ProtocolError(
                f"reservations: {worker[:80]!r} is granted by no gateway, or by another", status=404
            )
        return book.handle(request, rest)

    def close(self) -> None:
        """Close the connections to gateways."""
        for client in self._gateways.values():
            client.close()

    async def keep(self) -> None:
        """Renew as often as leases need it, until cancelled."""
        while True:
            await next_period(self.session.clock, RENEW_S)
            await self.renew()

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
        if status == 409:  # who grants it is away
            self.session.reserved_elsewhere(worker, float(answer["others_qps"]))
        if status != 200 or "refused" not in answer:
            return
        self.session.reserved_elsewhere(worker, float(answer["others_qps"]))
        refused = {int(number) for number in answer["refused"]}
        for stream_id in [s for s in bound if self.session.bound_to(s) == worker]:
            if self._leases.answered(stream_id, worker, granted=stream_id not in refused):
                self.session.decide_anew(stream_id)
                self._later(self.settle(stream_id))

    async def _ask(self, worker: int, method: str, path: str, body: Any) -> Said:
        """What whoever grants a worker's rate answers; status 0 when nothing, 200 without reservations.

        Args:
            path: empty, or / and a stream.
        """
        data = b"" if body is None else json.dumps(body).encode()
        if (book := self._here.get(worker)) is not None:
            answer = book.handle(http.HttpRequest(method, path, {}, data), [self.name, *path.split("/")[1:]])
            return answer.status, json.loads(answer.body)
        if worker in self._granted_by:
            return await self._ask_gateway(worker, method, path, data)
        return await self._ask_worker(worker, method, path, data)

    async def _ask_gateway(self, worker: int, method: str, path: str, data: bytes) -> Said:
        """The answer of the gateway that grants a worker's rate; where it gives none, all of it is taken."""
        world = self.session.world
        full = 409, {"others_qps": float(world.capacity_qps[worker])}
        if (client := self._gateways.get(self._granted_by[worker])) is None:
            return full
        base = f"/v1/admin/reservations/{quote(world.worker_names[worker], safe='')}"
        asked = f"{base}/{quote(self.name, safe='')}{path}"
        try:
            answer = await client.request(method, asked, body=data, timeout_s=RENEW_S)
            found = json.loads(answer.body)
        except (ConnectionError, TimeoutError, ValueError):
            return full
        return (answer.status, found) if answer.status in (200, 409) and _is_ours(found) else full

    async def _ask_worker(self, worker: int, method: str, path: str, data: bytes) -> Said:
        """The answer of a worker."""
        if worker in self._without:
            return 200, {}
        try:
            answer = await self.upstreams[worker].client.request(
                method, f"/v1/reservations/{quote(self.name, safe='')}{path}", body=data, timeout_s=RENEW_S
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
