"""`GET /` of a controller: a page that is served to everyone, and holds nothing."""

import asyncio
import re

from edgewise.runtime import http
from edgewise.runtime.controller.controller import Controller
from edgewise.runtime.controller.home import HOME, home
from edgewise.runtime.http.messages import HttpRequest
from edgewise.runtime.http.security import AccessGuard


def request(path, method="GET", **headers):
    return HttpRequest(method, path, {"host": "127.0.0.1:9000", **headers}, b"")


def test_the_page_is_answered_without_any_state():
    controller = Controller.__new__(Controller)  # nothing of it is asked
    answer = asyncio.run(controller.handle(request("/")))
    assert answer.status == 200 and answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.body.decode() == HOME


def test_it_is_open_and_what_it_asks_for_is_not():
    guard = AccessGuard(clients=("secret",), operators=("boss",))
    assert guard.refusal(request("/")) is None
    refused = guard.refusal(request("/v1/status"))
    assert refused is not None and refused.status == 401
    assert guard.refusal(request("/v1/status", authorization="Bearer boss")) is None
    strange = guard.refusal(HttpRequest("GET", "/", {"host": "evil.example"}, b""))
    assert strange is not None and strange.status == 403  # a name that leads here by DNS


def test_the_page_loads_nothing_from_elsewhere_and_writes_no_markup():
    assert re.findall(r"(?:src|href|action)=|https?://|innerHTML|localStorage|cookie", HOME) == []
    policy = home().headers["content-security-policy"]
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy
    assert isinstance(home(), http.Response)
