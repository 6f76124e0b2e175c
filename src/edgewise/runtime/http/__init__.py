"""A small HTTP/1.1 server and client on asyncio and httptools: the only place with HTTP sockets.

Frameworks cost more per request than a whole dispatch decision, so the hot path has none.
Sizes and times are bounded; bad input is answered, never raised.
"""

from edgewise.runtime.http.client import Client
from edgewise.runtime.http.messages import (
    LOCALHOST,
    MAX_BODY_BYTES,
    Handler,
    HttpRequest,
    Response,
    as_json,
    failure,
)
from edgewise.runtime.http.security import (
    AccessGuard,
    bearer,
    check_token,
    is_loopback,
    protect,
    tls_client,
    tls_server,
    tls_to,
)
from edgewise.runtime.http.server import Limits, Server, serve

__all__ = [
    "LOCALHOST",
    "MAX_BODY_BYTES",
    "AccessGuard",
    "Client",
    "Handler",
    "HttpRequest",
    "Limits",
    "Response",
    "Server",
    "as_json",
    "bearer",
    "check_token",
    "failure",
    "is_loopback",
    "protect",
    "serve",
    "tls_client",
    "tls_server",
    "tls_to",
]
