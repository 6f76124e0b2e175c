"""A small HTTP/1.1 server and client on asyncio and httptools: the only place with HTTP sockets.

Frameworks cost more per request than a whole dispatch decision, so the hot path has none.
Sizes and times are bounded; bad input is answered, never raised.
"""

from edgewise.runtime.http.client import Client
from edgewise.runtime.http.messages import (
    BODIES_BYTES,
    LOCALHOST,
    MAX_BODY_BYTES,
    QUERIES,
    Bodies,
    Handler,
    HttpRequest,
    Limits,
    Response,
    as_json,
    failure,
)
from edgewise.runtime.http.security import (
    OPERATOR,
    AccessGuard,
    bearer,
    check_token,
    is_loopback,
    one_token,
    protect,
    tls_client,
    tls_server,
    tls_to,
)
from edgewise.runtime.http.server import Server, serve

__all__ = [
    "BODIES_BYTES",
    "LOCALHOST",
    "MAX_BODY_BYTES",
    "OPERATOR",
    "QUERIES",
    "AccessGuard",
    "Bodies",
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
    "one_token",
    "protect",
    "serve",
    "tls_client",
    "tls_server",
    "tls_to",
]
