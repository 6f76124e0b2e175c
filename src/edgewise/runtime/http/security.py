"""Who may ask: bearer tokens, and TLS from certificate files."""

from __future__ import annotations

import hmac
import ssl
from pathlib import Path

from edgewise.errors import ScenarioError
from edgewise.runtime.http.messages import Handler, Request, Response, failure

OPEN_PATHS = ("/v2/health/live", "/v2/health/ready")


def protect(handler: Handler, token: str | None, admin_token: str | None = None) -> Handler:
    """Let only requests with `Authorization: Bearer <token>` through; health stays open.

    Args:
        handler: what to protect.
        token: what clients must show; None lets everyone in.
        admin_token: what changes below /v1/admin need; `token` when None.
    """
    if token is None and admin_token is None:
        return handler

    async def checked(request: Request) -> Response:
        if request.path in OPEN_PATHS:
            return await handler(request)
        admin = request.parts[:2] == ["v1", "admin"]
        accepted = [t for t in ((admin_token or token,) if admin else (token, admin_token)) if t]
        shown = request.headers.get("authorization", "")
        open_to_all = token is None and not admin
        if open_to_all or any(_equal(shown, f"Bearer {t}") for t in accepted):
            return await handler(request)
        response = failure(401, "authorization: a valid bearer token is needed")
        response.headers["www-authenticate"] = "Bearer"
        return response

    return checked


def check_token(token: str | None) -> None:
    """See that a token can be shown in a header.

    Raises:
        ScenarioError: it cannot.
    """
    if token is not None and not (token.isascii() and token.isprintable() and token.strip() == token != ""):
        raise ScenarioError("token: must be visible ASCII characters, for it is sent in a header")


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


def _equal(shown: str, wanted: str) -> bool:
    return hmac.compare_digest(shown.encode(), wanted.encode())
