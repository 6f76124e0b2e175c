"""Who may ask: bearer tokens, which names a server answers to, and TLS from certificate files.

A page in a browser can send requests to this machine. It cannot show a token; where none is needed it is
told apart by its `Origin`, and by a `Host` that is no name of the server (a name made to point here).
"""

import hmac
import ipaddress
import re
import ssl
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from edgewise.errors import ScenarioError
from edgewise.runtime.http.messages import QUERIES, Handler, HttpRequest, Response, failure

HEALTH = ("/v2/health/live", "/v2/health/ready")
OPEN_PATHS = (*HEALTH, "/openapi.json", "/")  # the last is a page without anything private
OPERATOR = "*"  # as a client
HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([\w.-]+))(?::\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class AccessGuard:
    """Who may ask a server what. Health and /openapi.json are for everyone.

    Attributes:
        clients: "TOKEN" or "NAME TOKEN", one of which a request must show; none: everyone may ask. Whoever
            shows a token with a name is the client of that name, others are told apart by their addresses.
        operators: tokens, one of which /v1/admin needs; none: nobody may ask there.
        names: of the server, besides localhost and addresses in numbers.
    """

    clients: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def refusal(self, request: HttpRequest) -> Response | None:
        """The answer to a request that may not be made; None to one that may, whose client is known then."""
        path, headers = request.path, request.headers
        if path in HEALTH:
            return None
        host = headers.get("host")
        if host is not None and not _is_ours(host, self.names):
            return failure(403, f"host: {host[:80]!r} is no name of this server; start it with --server-name")
        if "origin" in headers and headers["origin"].partition("://")[2] != host:
            return failure(403, "origin: requests of web pages are not answered")
        if path in OPEN_PATHS or (not self.clients and path.startswith(QUERIES)):
            return None
        shown = _shown(headers)
        if _found(shown, self.operators) is not None:
            request.client = OPERATOR
            return None
        admin = not path.startswith(QUERIES) and request.parts[:2] == ["v1", "admin"]
        if admin and not self.operators:
            return failure(403, "administration: is closed; start this with an operator's token")
        name = None if admin else _found(shown, self.clients)
        if name is not None or not (admin or self.clients):
            request.client = f"@{name}" if name else request.client
            return None
        whose = "the operator's" if admin else "a valid"
        response = failure(401, f"authorization: {whose} bearer token is needed")
        response.headers["www-authenticate"] = "Bearer"
        return response


def protect(handler: Handler, guard: AccessGuard) -> Handler:
    """Let only requests through that `guard` does not refuse."""

    async def refused(answer: Response) -> Response:
        return answer

    def checked(request: HttpRequest) -> Awaitable[Response]:
        answer = guard.refusal(request)
        return handler(request) if answer is None else refused(answer)

    return checked


def check_token(token: str | None) -> None:
    """See that a token can be shown in a header.

    Raises:
        ScenarioError: it cannot.
    """
    if token is not None and not (token.isascii() and token.isprintable() and token.strip() == token != ""):
        raise ScenarioError("token: must be visible ASCII characters, for it is sent in a header")


def bearer(token: str | None) -> dict[str, str]:
    """The headers that show a token; none where there is none."""
    return {"authorization": f"Bearer {token}"} if token else {}


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def tls_server(certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS for a server from PEM files.

    Raises:
        ScenarioError: a file is missing or does not fit.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ScenarioError(f"tls certificate {certificate}, key {key}: cannot be used: {error}") from error
    return context


def tls_client(authority: Path | None = None) -> ssl.SSLContext:
    """TLS for a client; `authority` is a PEM file to trust instead of the system's.

    Raises:
        ScenarioError: the file is missing or holds no certificate.
    """
    try:
        return ssl.create_default_context(cafile=str(authority) if authority else None)
    except (OSError, ssl.SSLError) as error:
        raise ScenarioError(f"tls authority {authority}: cannot be used: {error}") from error


def tls_to(certificate: Path) -> ssl.SSLContext:
    """TLS to the one server that has this very certificate, whatever address it is reached by.

    Raises:
        ScenarioError: the file is missing or holds no certificate.
    """
    context = tls_client(certificate)
    context.check_hostname = False  # it may be for another name than the one it has on this machine
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    return context


@lru_cache(1024)
def _is_ours(host: str, names: tuple[str, ...]) -> bool:
    """Whether a `Host` header is a name of the server, or an address: no name server can redirect that."""
    found = HOST.fullmatch(host.lower())
    if found is None:
        return False
    name = found[1] or found[2]
    return name in ("localhost", *names) or _address(name) is not None


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _shown(headers: Mapping[str, str]) -> bytes:
    """The bearer token of a request, b"" without one."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip().encode() if scheme.lower() == "bearer" else b""


def _found(shown: bytes, lines: tuple[str, ...]) -> str | None:
    """The name that goes with a token, "" where none does; None where it is none of these.

    A comparison takes the same time wherever the two differ.
    """
    found = [name for name, token in _named(lines) if hmac.compare_digest(shown, token)]
    return found[0] if found else None


@lru_cache(64)
def _named(lines: tuple[str, ...]) -> tuple[tuple[str, bytes], ...]:
    pairs = (line.rpartition(" ") for line in lines)
    return tuple((name, token.encode()) for name, _, token in pairs)


def one_token(lines: str | None) -> str | None:
    """The first token of a text with a line for each."""
    return lines.splitlines()[0].rpartition(" ")[2] if lines else None
