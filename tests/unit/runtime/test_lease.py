"""One of several controllers leads: a paused one is followed by another, and changes nothing any more."""

import copy
from types import SimpleNamespace

import pytest

pytest.importorskip("lightkube", reason="needs the extra kubernetes")

import httpx2
from lightkube import ApiError

from edgewise.runtime import clock
from edgewise.runtime.backends.kubernetes import lease
from edgewise.runtime.backends.kubernetes.kept import KeptState, Superseded
from edgewise.runtime.backends.kubernetes.lease import BEGIN_S, HELD_S, Leading

OWNER = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "edgewise", "uid": "0-1"}


def refused(code):
    said = {"code": code, "message": "no", "status": "Failure", "reason": "", "details": None}
    request = httpx2.Request("PUT", "http://api")
    return ApiError(request=request, response=httpx2.Response(code, json=said, request=request))


class ApiServer:
    """Objects of one name each; a write that names an older version is refused, as one of what is there."""

    namespace = "space"

    def __init__(self):
        self.objects, self.version, self.lose_answer = {}, 0, False

    def get(self, kind, name):
        if (kind, name) not in self.objects:
            raise refused(404)
        return copy.deepcopy(self.objects[kind, name])

    def create(self, what):
        if (type(what), what.metadata.name) in self.objects:
            raise refused(409)
        return self._put(what)

    def replace(self, what):
        if self.get(type(what), what.metadata.name).metadata.resourceVersion != what.metadata.resourceVersion:
            raise refused(409)
        return self._put(what)

    def _put(self, what):
        self.version += 1
        made = copy.deepcopy(what)
        made.metadata.resourceVersion = str(self.version)
        self.objects[type(what), what.metadata.name] = made
        if self.lose_answer:
            self.lose_answer = False
            raise ConnectionError("lost")
        return copy.deepcopy(made)


@pytest.fixture
def time_s(monkeypatch):
    now = SimpleNamespace(s=100.0)
    monkeypatch.setattr(clock, "monotonic_s", lambda: now.s)
    return now


@pytest.fixture
def server():
    return ApiServer()


@pytest.fixture
def two(server):
    return [Leading(server, OWNER, who) for who in ("one", "other")]


def write(leading):
    leading.check(httpx2.Request("POST", "http://api/apis/apps/v1/namespaces/space/deployments"))


def test_one_leads_and_another_does_once_that_one_is_silent(two, time_s):
    one, other = two
    assert one.take() and not other.take()
    for _ in range(10):
        time_s.s += HELD_S / 2
        assert one.take() and not other.take()
    time_s.s += HELD_S + 1
    assert other.take() and not one.take()


def test_who_was_paused_changes_nothing_from_then_on_even_before_it_hears_of_another(two, time_s):
    one, other = two
    assert one.take() and not other.take()
    write(one)
    time_s.s += HELD_S + 1  # it stands still
    for request in ("GET", "http://api/pods"), ("PUT", "http://api/apis/x/leases/edgewise"):
        one.check(httpx2.Request(*request))
    with pytest.raises(ConnectionError, match="the lease is over"):
        write(one)
    assert other.take() and not one.take()
    with pytest.raises(ConnectionError, match="the lease is over"):
        write(one)
    write(other)


def test_whoever_was_away_and_followed_by_nobody_goes_on(two, time_s):
    one, _ = two
    assert one.take()
    time_s.s += 10 * HELD_S
    assert one.take()
    write(one)


def test_of_two_who_take_it_at_once_one_has_it(server, two, time_s, monkeypatch):
    one, other = two
    assert one.take() and not other.take()
    third = Leading(server, OWNER, "third")
    assert not third.take()
    time_s.s += HELD_S + 1
    get = server.get

    def late(*of):
        monkeypatch.setattr(server, "get", get)
        found = get(*of)
        assert other.take()  # after the third has read it, and before it writes
        return found

    monkeypatch.setattr(server, "get", late)
    assert not third.take()


def test_one_that_begins_has_longer_and_one_that_ends_lets_go_at_once(two, time_s):
    one, other = two
    assert one.take(BEGIN_S) and not other.take()
    time_s.s += BEGIN_S - 1
    assert not other.take()
    one.release()
    assert other.take()
    one.release()  # not its own any more
    assert other.take()


def test_a_controller_that_is_not_the_leader_ends(two, time_s, monkeypatch):
    ended = []
    monkeypatch.setattr(lease.os, "_exit", ended.append)
    monkeypatch.setattr(lease.threading.Thread, "start", lambda self: None)
    monkeypatch.setattr(lease.CALLS, "guard", None)
    one, other = two
    one.keep()
    other.keep()
    assert ended == [lease.SUPERSEDED]


def test_a_state_is_kept_by_one_controller_alone():
    server = ApiServer()
    first = KeptState(server, OWNER)
    assert first.text is None
    first.write("a")
    second = KeptState(server, OWNER)
    assert second.text == "a"
    second.write("b")
    with pytest.raises(Superseded, match="another controller keeps the state"):
        first.write("c")
    assert KeptState(server, OWNER).text == "b"


def test_a_state_whose_answer_was_lost_is_our_own():
    server = ApiServer()
    kept = KeptState(server, OWNER)
    kept.write("a")
    server.lose_answer = True
    with pytest.raises(ConnectionError):
        kept.write("b")
    kept.write("b")
    kept.write("c")
    assert KeptState(server, OWNER).text == "c"


@pytest.mark.parametrize("why", [httpx2.ConnectError("refused"), refused(503)])
def test_whoever_waits_outlives_an_api_server_that_is_away(server, time_s, monkeypatch, why):
    answers, waited, get = [why, why], [], server.get
    with monkeypatch.context() as played:
        played.setattr(lease.threading, "Event", lambda: SimpleNamespace(wait=waited.append))
        leading = Leading(server, OWNER, "other")

    def away(kind, name):
        if answers:
            raise answers.pop()
        return get(kind, name)

    monkeypatch.setattr(server, "get", away)
    leading.wait()
    assert waited == [lease.RENEW_S, lease.RENEW_S] and server.version == 1


def test_whoever_may_not_lead_says_so_at_once(server, two, monkeypatch):
    def get(kind, name):
        raise refused(403)

    monkeypatch.setattr(server, "get", get)
    with pytest.raises(ApiError):
        two[0].wait()
