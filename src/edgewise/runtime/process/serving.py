"""Workers and gateways as processes: where they listen, who may ask, and how they end.

SIGTERM and SIGINT drain: nothing new is taken, what was accepted is finished, then the process ends.
"""

import asyncio
import contextlib
import errno
import gc
import importlib.util
import logging
import signal
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgewise.errors import ScenarioError
from edgewise.runtime import http
from edgewise.runtime.gateway.admin import with_admin
from edgewise.runtime.gateway.gateway import Gateway
from edgewise.runtime.gateway.siblings import Siblings
from edgewise.runtime.watch.probe import Probe
from edgewise.runtime.watch.starving import Lag
from edgewise.runtime.worker.pieces import PieceWorker
from edgewise.runtime.worker.worker import LiveWorker

log = logging.getLogger("edgewise.serving")
TOLD = (signal.SIGTERM, signal.SIGINT)
OFTEN = 700, 10, 10  # Python's own: objects made before it searches for garbage


@dataclass(frozen=True, slots=True)
class Listen:
    """Where a process listens and who may ask.

    Attributes:
        host: this machine only, unless said otherwise.
        port, grpc_port: 0 takes a free one; no gRPC when `grpc_port` is None.
        token: bearer token that clients must show, or a line "NAME TOKEN" for each; None lets everyone in.
        operators: tokens, one of which /v1/admin needs; none: nobody may ask there.
        certificate, key: PEM files; both or neither.
        names: that clients call this machine by, besides localhost and addresses in numbers.
        open: other machines may ask without a token.
        bodies_bytes: of requests that are held at once.
        shared: processes of the same gateway listen there, too.
    """

    host: str = http.LOCALHOST
    port: int = 0
    grpc_port: int | None = None
    token: str | None = field(default=None, repr=False)
    operators: tuple[str, ...] = field(default=(), repr=False)
    certificate: Path | None = None
    key: Path | None = None
    names: tuple[str, ...] = ()
    open: bool = False
    bodies_bytes: float = http.BODIES_BYTES
    shared: bool = False

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ScenarioError("tls: give both certificate and key, or neither")
        for token in (*self.tokens, *self.operators):
            http.check_token(token)
        if not (self.token or self.open or http.is_loopback(self.host)):
            raise ScenarioError(
                f"host {self.host}: other machines can ask there; give a token for clients (--token-file), "
                "or say that everyone may (--open)"
            )

    @property
    def tokens(self) -> tuple[str, ...]:
        """The lines of `token`."""
        return tuple(self.token.splitlines()) if self.token else ()

    @property
    def pair(self) -> tuple[Path, Path] | None:
        """Certificate and key; None without TLS."""
        return (self.certificate, self.key) if self.certificate and self.key else None


@dataclass(frozen=True, slots=True)
class Listening:
    """The servers of one process; `grpc` is None where it was not asked for."""

    http: http.Server
    grpc: Any  # `GrpcServer`, of an extra

    async def close(self, grace_s: float = 5.0) -> None:
        """Close them."""
        await asyncio.gather(*(server.close(grace_s) for server in (self.http, self.grpc) if server))


async def listen(
    handler: http.Handler,
    where: Listen,
    at_once: bool = False,
    before: Callable[[http.Handler], http.Handler] = lambda guarded: guarded,
) -> Listening:
    """Serve a handler over HTTP, and over gRPC when asked for; `at_once` as in `http.serve`.

    Args:
        before: what stands before the guarded handler.
    Raises:
        ScenarioError: the address is taken, a TLS file is wrong, or gRPC is not installed.
    """
    names = tuple(name.lower() for name in (where.host, *where.names))
    guard = http.AccessGuard(where.tokens, where.operators, names)
    guarded, bodies = before(http.protect(handler, guard)), http.Bodies(where.bodies_bytes)
    try:
        tls = http.tls_server(*where.pair) if where.pair else None
        server = await http.serve(
            guarded, where.host, where.port, tls=tls, at_once=at_once, bodies=bodies, shared=where.shared
        )
    except OSError as error:
        taken = "another program has the port; end it, or use another one"
        why = taken if error.errno == errno.EADDRINUSE else error
        raise ScenarioError(f"cannot listen on {where.host}:{where.port}: {why}") from error
    if where.grpc_port is None:
        return Listening(server, None)
    if importlib.util.find_spec("grpc") is None:
        raise ScenarioError("grpc_port: gRPC is not installed: pip install 'edgewise[live]'")
    from edgewise.runtime.protocol.grpc_server import serve_grpc  # an extra

    grpc = await serve_grpc(
        guarded, where.host, where.grpc_port, tls=where.pair, bodies=bodies, shared=where.shared
    )
    return Listening(server, grpc)


async def run_worker(
    worker: LiveWorker | PieceWorker, where: Listen, ready: Callable[[Listening], None] | None = None
) -> None:
    """Serve a worker until the process is told to end; `ready` hears where it listens."""
    listening = await listen(worker.handle, where, at_once=True)
    served = worker.whole if isinstance(worker, PieceWorker) else worker
    lag = asyncio.create_task(Lag(served.model.name, served.metrics.registry).keep())
    _tell(listening)
    if ready is not None:
        ready(listening)
    await _until_told(lag)
    lag.cancel()
    await worker.drain()
    await listening.close()
    worker.tracing.close()


async def run_gateway(
    gateway: Gateway,
    where: Listen,
    telemetry_period_s: float = 1.0,
    also: Coroutine[Any, Any, None] | None = None,
    siblings: Siblings | None = None,
    front: Listen | None = None,
) -> None:
    """Serve a gateway and its administration, and do `also`, until the process is told to end.

    Args:
        siblings, front: with whom it shares a port, and which.
    """
    handler, shared = with_admin(gateway), list[Listening]()
    if siblings is None or front is None:
        listening = await listen(handler, where, at_once=True)
    else:
        listening = await listen(handler, where, at_once=True, before=siblings.taking)
        shared.append(await listen(siblings.handle, front, at_once=True))
    lag = Lag(gateway.name or "gateway", gateway.metrics.registry)
    work = [gateway.keep_time(telemetry_period_s), gateway.watch(), lag.keep(), *([also] if also else [])]
    chores = [asyncio.create_task(each) for each in work]
    for each in (listening, *shared):
        _tell(each)
    await _until_told(*chores)
    # A shared port is left at once: what comes from now on comes to a sibling.
    await asyncio.gather(gateway.drain(), *(each.close() for each in shared))
    for chore in chores:
        chore.cancel()
    await listening.close()
    if siblings is not None:
        siblings.close()
    for target in gateway.upstreams:
        target.client.close()
    if gateway.services is not None:
        gateway.services.close()
    if gateway.granting is not None:
        gateway.granting.close()
    gateway.tracing.close()


async def run_probe(probe: Probe, where: Listen) -> None:
    """Measure and say what was measured, until the process is told to end."""
    listening = await listen(probe.handle, where)
    _tell(listening)
    measuring = asyncio.create_task(probe.keep())
    await _until_told(measuring)
    measuring.cancel()
    await listening.close(0.0)
    probe.close()


async def run_trial(gateway: Gateway, where: Listen) -> None:
    """Answer as a gateway that drains, so that whoever asks sees that it can begin."""
    listening = await listen(gateway.handle, where)
    await _until_told()
    await listening.close(0.0)


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on uvloop where there is one.

    Commands let Python search for garbage seldom; who serves for months keeps little of it.
    """
    gc.set_threshold(*OFTEN)
    if importlib.util.find_spec("uvloop") is None:
        asyncio.run(main)
        return
    import uvloop  # not on every system

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


def _tell(listening: Listening) -> None:
    port = listening.grpc.port if listening.grpc else None
    log.info("listening", extra={"url": listening.http.url, "grpc_port": port})


def when_told(act: Callable[[], None]) -> None:
    """Call `act` on SIGTERM and SIGINT, also when one came while this process was starting."""
    with contextlib.suppress(NotImplementedError):  # no signal handlers on this system
        for number in TOLD:
            asyncio.get_running_loop().add_signal_handler(number, act)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, TOLD)


async def _until_told(*chores: Awaitable[None]) -> None:
    """Wait for SIGTERM or SIGINT, or for a chore to fail."""
    told = asyncio.Event()
    when_told(told.set)
    tasks = [asyncio.ensure_future(told.wait()), *map(asyncio.ensure_future, chores)]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
