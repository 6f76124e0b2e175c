"""The HTTP/1.1 server: it listens, and gives up on connections whose clients are too slow."""

import asyncio
import contextlib
import ssl

from edgewise.runtime import clock
from edgewise.runtime.http.connection import ClientConnection, OfServer
from edgewise.runtime.http.messages import LIMITS, LOCALHOST, Bodies, Handler, Limits, coded


class Server:
    """A running server.

    Attributes:
        host, port: where it listens.
        url: base address.
        connections: that are open.
        bodies: that are held.
    """

    def __init__(self, server: asyncio.Server, shared: OfServer, host: str, secure: bool) -> None:
        self._server, self._limits, self.host = server, shared.limits, host
        self.port: int = server.sockets[0].getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{'https' if secure else 'http'}://{shown}:{self.port}"
        self.connections, self.bodies = shared.open, shared.bodies
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep())

    async def close(self, grace_s: float = 5.0) -> None:
        """Stop listening, let answers that are owed go out for `grace_s`, then close all connections."""
        self._server.close()
        self._sweeper.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                while any(connection.busy for connection in self.connections):
                    await asyncio.sleep(0.005)
        for connection in list(self.connections):
            connection.finish()
        await asyncio.sleep(0)

    async def _sweep(self) -> None:
        limits = self._limits
        period_s = min(1.0, limits.request_s / 4, limits.silent_s / 4, limits.idle_s / 4)
        while True:
            await asyncio.sleep(period_s)
            now_s = clock.monotonic_s()
            for connection in list(self.connections):
                connection.expire(now_s)


async def serve(
    handler: Handler,
    host: str = LOCALHOST,
    port: int = 0,
    limits: Limits = LIMITS,
    tls: ssl.SSLContext | None = None,
    at_once: bool = False,
    bodies: Bodies | None = None,
    shared: bool = False,
) -> Server:
    """Listen and answer with `handler`; port 0 takes a free one.

    Args:
        shared: other processes of this user that say so may listen there, too; each connection goes to one.
        bodies: that other servers hold, too; None: as `limits` says.
        at_once: run the handler up to where it waits before others get a turn. A task for it costs as much
            as reading the request, and it needs one only then. What asks for the present task, such as
            `asyncio.timeout`, must come later.
    """
    bodies = bodies or Bodies(limits.bodies_bytes)
    common = OfServer(coded(handler, limits.body_bytes, bodies), limits, at_once, bodies)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: ClientConnection(common), host, port, ssl=tls, backlog=1024, reuse_port=shared or None
    )
    return Server(server, common, host, tls is not None)
