"""A gateway on another machine: its copy of the store, what it hands in, and who is away meanwhile."""

from contextlib import closing
from dataclasses import replace
from http.client import HTTPConnection

import pytest

pytest.importorskip("lightkube", reason="needs the extra kubernetes")

from edgewise.errors import RunError
from edgewise.runtime.backends.kubernetes.gateways import AboutGateways
from edgewise.runtime.backends.kubernetes.models import ModelServer
from edgewise.runtime.process.handing import Handing
from edgewise.runtime.store import DATABASE, LATEST_CHANGE, POLICIES, SCENARIO, Process, Store
from edgewise.runtime.store.faults import Fault
from edgewise.runtime.store.handed import CopiedStore, for_gateway, take_in
from edgewise.runtime.store.jobs import Wish
from edgewise.runtime.store.kept import put_back, to_keep
from edgewise.runtime.store.records import Request, Window

NEEDS = {"task": "score", "rate_qps": 10.0}
REQUEST = Request(1.0, "gate", "score", 5.0, 100.0, "n1", 2.0, "in_time")
WINDOW = Window(
    0.0, "gateway-0", 1.0, "closest", {"score": [1, 1, 0, 1, 0, 0]}, {}, [("w", 0.5, 0.0, 0.1)], {}
)
FAULT = Fault(1.0, 2.0, "gateway-0", "dispatch", "slow", False, "late", "too slow", 0.0, 3, "least-harm")
SHOWS = "t"


@pytest.fixture
def controller(tmp_path):
    """The store of a controller, with a worker that runs and a gateway."""
    folder = tmp_path / "controller"
    with closing(Store(folder / DATABASE)) as store:
        (folder / SCENARIO).write_text("name: cameras\n")
        store.put(POLICIES, {"dispatch": "closest"})
        store.put("token", "clients")
        store.put(LATEST_CHANGE, {"state": "under way"})
        for whose in ("parts", "operator"):
            store.secret(whose)
        store.want([Process("w", "worker", 9000, {"model": "m"}), Process("gateway-0", "gateway", 8000)])
        store.started("w", "deployment/w-1", 0)
        store.answers_at("deployment/w-1", "http://10.0.0.1:9000")
        yield store


@pytest.fixture
def copy(tmp_path):
    with closing(CopiedStore(tmp_path / "copy" / DATABASE)) as store:
        yield store


def hand_in(copy, controller):
    """Once, as over HTTP."""
    rows = copy.handed.waiting()
    take_in(controller, "gateway-0", copy.life(), rows)
    streams = [row[0] for _, kind, row in rows if kind == "stream"]
    return rows, lambda: copy.handed.done([number for number, *_ in rows], streams)


def test_a_copy_reads_as_the_store_does(controller, copy):
    copy.take(for_gateway(controller, "gateway-0", 0.0), first=True)
    assert copy.processes() == controller.processes()
    assert copy.policy("dispatch") == "closest" and copy.get("token") == "clients"
    assert copy.secret("parts") == controller.secret("parts")
    controller.set_policy("dispatch", "least-harm")
    controller.answers_at("deployment/w-1", "http://10.0.0.2:9000")
    controller.started("gateway-0", None, 0)
    copy.take(for_gateway(controller, "gateway-0", 0.0), first=False)
    assert copy.policy("dispatch") == "least-harm" and copy.processes() == controller.processes()


def test_what_a_gateway_writes_is_handed_in_once_whatever_answer_is_lost(controller, copy):
    number = copy.records.open_stream("gateway-0", NEEDS, ("score",), "client")
    copy.records.bind({number: "w"})
    copy.records.note_outcomes({number: {"ok": 3}})
    copy.records.note_requests([REQUEST])
    copy.records.note_answers([("score", 2, 200)])
    copy.records.note_windows([WINDOW])
    copy.faults.note([FAULT])
    copy.put("moved gateway-0", {"w": ["http://10.0.0.9:1", "m", None]})
    for _ in range(2):  # the answer is lost: it is handed in again
        rows, done = hand_in(copy, controller)
    done()
    assert len(rows) == 6 and copy.handed.waiting() == []
    (stream,) = controller.records.open_streams("gateway-0")
    assert (stream.id, stream.worker, stream.outcome) == (number, "w", {"ok": 3})
    assert controller.records.requests() == [REQUEST] and controller.faults.since() == [FAULT]
    assert controller.records.answer_bytes() == {"score": 100.0}
    assert [
        each._replace(worked=[tuple(row) for row in each.worked]) for each in controller.records.windows()
    ] == [WINDOW]
    assert controller.moved("gateway-0") == copy.moved("gateway-0") != {}
    copy.records.note_answers([("score", 1, 100)])
    copy.records.close_stream(number, "w", {"ok": 4})
    hand_in(copy, controller)[1]()
    assert controller.records.answer_bytes() == {"score": 100.0} and controller.records.streams_open() == 0
    assert copy.rows("SELECT COUNT(*) FROM stream") == [(0,)]  # what is over is the controller's to know


def test_what_changes_while_it_is_handed_in_is_handed_in_again(controller, copy):
    number = copy.records.open_stream("gateway-0", NEEDS, None)
    _, done = hand_in(copy, controller)
    copy.records.bind({number: "w"})
    done()
    hand_in(copy, controller)[1]()
    assert controller.records.open_streams("gateway-0")[0].worker == "w"


def test_streams_outlive_their_gateways_copy_and_the_controllers_store(controller, copy, tmp_path):
    copy.take(for_gateway(controller, "gateway-0", 0.0), first=True)
    number = copy.records.open_stream("gateway-0", NEEDS, None)
    hand_in(copy, controller)[1]()
    with closing(CopiedStore(tmp_path / "beside" / DATABASE)) as beside:
        before = beside.adopted()
        beside.take(for_gateway(controller, "gateway-0", 0.0), first=True)
        assert [each.id for each in beside.records.open_streams("gateway-0")] == [number]
        assert beside.adopted() == before + 1
        beside.take(for_gateway(controller, "gateway-0", 0.0), first=False)
        assert beside.adopted() == before + 1
    with closing(Store(tmp_path / "later" / DATABASE)) as later:
        copy.take(for_gateway(later, "gateway-0", 0.0), first=False)
        hand_in(copy, later)[1]()
        assert [each.id for each in later.records.open_streams("gateway-0")] == [number]


def test_the_next_controller_begins_with_what_is_kept(controller, tmp_path):
    controller.put("controller_handle", "1 2")
    controller.put("taken in gateway-0", {"life": 3})
    wish = Wish("night", ("true",), "/", 1.0, 0.0, 60.0, 0.0, 1e9, 0)
    jobs = [controller.jobs.submit(replace(wish, key=key)) for key in ("night", "day", "last")]
    for job in (jobs[0], jobs[2]):
        controller.run("UPDATE job SET state = 'done', ended_s = 1.0 WHERE id = ?", (job.id,))
    text = to_keep(controller)
    assert to_keep(controller) == text
    put_back(tmp_path / "next", text)
    with closing(Store(tmp_path / "next" / DATABASE)) as after:
        assert after.processes() == controller.processes()
        assert after.secret("operator") == controller.secret("operator")
        assert after.get("controller_handle") is None and after.get("taken in gateway-0") is None
        assert to_keep(after) == text
        assert [job.key for job in after.jobs.listed()] == ["day", "last"]
        assert after.jobs.submit(replace(wish, key="next")).id == jobs[2].id + 1


@pytest.fixture
def answering(controller):
    """What pods ask, as the controller answers."""
    server = ModelServer("127.0.0.1", 0, SHOWS, AboutGateways(controller.file.parent))
    yield server, f"http://127.0.0.1:{server.port}"
    server.close()


def test_a_gateway_goes_on_while_its_controller_is_away(controller, answering, tmp_path):
    (server, url), folder = answering, tmp_path / "copy"
    handing = Handing(url, SHOWS, "gateway-0", folder)
    handing.begin(0.0)
    with closing(CopiedStore(folder / DATABASE)) as copy:
        assert copy.processes() == controller.processes()
        assert (folder / SCENARIO).read_text() == "name: cameras\n"
        number = copy.records.open_stream("gateway-0", NEEDS, None)
        assert handing.step() and controller.records.open_streams("gateway-0")[0].id == number
        server.close()
        handing.disconnect()
        copy.records.bind({number: "w"})
        assert not handing.step() and not handing.step()
        Handing(url, SHOWS, "gateway-0", folder).begin(0.0)  # its container starts anew
        back = ModelServer("127.0.0.1", server.port, SHOWS, AboutGateways(controller.file.parent))
        try:
            assert handing.step()
        finally:
            back.close()
        assert controller.records.open_streams("gateway-0")[0].worker == "w"


def test_a_gateway_without_a_copy_waits_for_its_controller_and_says_so(answering, tmp_path):
    server, url = answering
    with pytest.raises(RunError, match=r"gateway-0: the controller at http.* does not answer"):
        Handing(url, "other", "gateway-0", tmp_path / "copy").begin(0.0)
    server.close()


def test_the_controllers_pod_is_ready_once_no_change_is_under_way(controller):
    about = AboutGateways(controller.file.parent)
    assert not about.ready()
    controller.put(LATEST_CHANGE, {"state": "done"})
    assert about.ready()


@pytest.mark.parametrize(
    ("path", "body"), [("/gateways/g", b"[]"), ("/gateways/g?life=l", b"{"), ("/gateways/g?life=l", b"[1]")]
)
def test_what_cannot_be_taken_in_is_refused(controller, path, body):
    assert AboutGateways(controller.file.parent).taken_in(path, body) == 400
    assert AboutGateways(controller.file.parent).said("/gateways/g?since=yesterday", "")[0] == 400


@pytest.mark.parametrize(
    ("token", "size", "status"),
    [("", "9999999999", 401), (SHOWS, "9999999999", 413), (SHOWS, "-1", 413), (SHOWS, "many", 413)],
)
def test_who_shows_no_token_or_brings_too_much_is_not_read(answering, token, size, status):
    connection = HTTPConnection("127.0.0.1", answering[0].port, timeout=10)
    connection.putrequest("POST", "/gateways/gateway-0?life=a")
    connection.putheader("Authorization", f"Bearer {token}")
    connection.putheader("Content-Length", size)
    connection.endheaders()
    assert connection.getresponse().status == status
    connection.close()
