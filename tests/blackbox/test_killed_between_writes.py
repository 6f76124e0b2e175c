"""kill -9 right before each change of the disk, whichever process makes it, with all kinds of work.

Each thing that a user does is done once, and the changes of the disk that the whole system makes for it are
counted. Then it is done once for each of these changes, before which the process that makes it dies.
What was accepted is answered or told to have failed, a job runs at most once, and all processes come back.
"""

import os
import time
from pathlib import Path
from uuid import uuid4

import pytest
from outside import (
    CAMERA,
    NEEDS,
    POLICIES,
    Live,
    ask_until_answered,
    clients_of,
    key_of,
    kill_9,
    running,
    zeros,
)

from waiting import wait_until

pytestmark = pytest.mark.live
DYING = Path(__file__).parent / "dying"
EVERY = bool(os.environ.get("EDGEWISE_EVERY_DEATH"))  # else some of them, evenly, as each takes seconds


def chosen(changes, most):
    """Before which of the changes somebody dies."""
    return range(1, changes + 1, 1 if EVERY else max(changes // most, 1))


class Deaths:
    """When who changes the disk dies; see `dying/sitecustomize.py`."""

    def __init__(self, folder):
        self.seen, self.before, self.died = (folder / name for name in ("seen", "before", "died"))
        self.never()

    def never(self):
        self.before.write_text("0")
        self.seen.write_bytes(b"")
        self.died.unlink(missing_ok=True)

    @property
    def changes(self):
        return self.seen.stat().st_size

    def at(self, number):
        """Before the change of this number, from now on."""
        self.never()
        self.before.write_text(str(number))


@pytest.fixture(scope="module")
def deaths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("deaths")
    paths = os.pathsep.join([str(DYING), *filter(None, [os.environ.get("PYTHONPATH")])])
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("EDGEWISE_DEATHS", str(folder))
        patched.setenv("PYTHONPATH", paths)
        yield Deaths(folder)


@pytest.fixture(scope="module")
def live(deaths, tmp_path_factory):
    with running(tmp_path_factory.mktemp("killed")) as made:
        yield made


def asked(live, method, path, body=None):
    """Of the controller, by the rule of retries."""
    answer = ask_until_answered(live.controller, method, path, body, live.operator)
    assert answer.status < 300 or (method, answer.status) == ("DELETE", 404), answer
    return answer.json() if answer.body else None


def stream(live):
    """It is opened, used, closed."""
    url = live.gateways[0]
    opened = ask_until_answered(url, "POST", "/v1/streams", NEEDS).json()
    described, body = zeros(url, "detection")
    headers = {**described, "edgewise-stream": str(opened["stream"]), **key_of(opened)}
    assert ask_until_answered(url, "POST", "/v2/models/detection/infer", body, None, headers).status == 200
    assert live.close_stream(opened) in (200, 404)


def queries(live):
    """A request of a service, and a query of a split model."""
    for task in ("ear-cpu", "inception"):
        described, body = zeros(live.gateways[0], task)
        headers = {**described, "edgewise-deadline-s": "20", "edgewise-rate-qps": "5"}
        path = f"/v2/models/{task}/infer"
        assert ask_until_answered(live.gateways[0], "POST", path, body, None, headers).status == 200


def job(live):
    """It is submitted, and ends; whatever dies, it was run once, or never and has failed."""
    now_s, written = time.time(), live.folder / f"ran-{uuid4().hex}"
    wish = {"key": uuid4().hex, "command": ["sh", "-c", f"echo ran >> {written}"], "folder": str(live.folder),
            "cores": 1, "memory_bytes": 1e6, "duration_s": 5, "earliest_s": now_s, "latest_s": now_s + 600,
            "priority": 0, "when_evicted": "pause"}  # fmt: skip
    number = asked(live, "POST", "/v1/admin/jobs", wish)["id"]
    row = wait_until(lambda: (row := live.job(number))["ended_s"] and row, lambda: live.job(number))
    ran = written.read_text().count("ran") if written.exists() else 0
    assert (row["state"], ran) in [("done", 1), ("failed", 0), ("failed", 1)], (row, ran)
    assert row["state"] == "done" or row["why"], row
    with_key = [each for each in live.get("/v1/admin/jobs?all=true") if each["id"] >= number]
    assert len(with_key) == 1, with_key  # the same wish, sent again, is one job


def pipeline(live):
    """It is submitted, its frames flow, it is ended."""
    wish = {"pipeline": CAMERA, "code": None, "functions": {}, "frames": []}
    number = asked(live, "POST", "/v1/admin/pipelines", {"key": uuid4().hex, "live": wish})["id"]
    frames = live.pipeline(number)["frames"]
    wait_until(lambda: live.pipeline(number)["frames"] > frames + 3, lambda: live.pipeline(number))
    asked(live, "DELETE", f"/v1/admin/pipelines/{number}")
    wait_until(lambda: live.pipeline(number)["ended_s"], lambda: live.pipeline(number))


def server(live):
    """One of its servers dies, and comes back."""
    row = next(row for row in live.get("/v1/status")["processes"] if row["name"].startswith("eye-cpu@"))
    before = live.pid(row["url"])
    kill_9(before)

    def back():
        now = live.row(row["name"])
        return now["state"] == "running" and live.pid(now["url"]) not in (None, before)

    wait_until(back, lambda: live.row(row["name"]))


def policy(live):
    """Another policy decides on streams, and then the former one."""
    for name in ("least-impedance", POLICIES["dispatch"]):
        asked(live, "PUT", "/v1/policies/dispatch", {"policy": name})
        wait_until(lambda name=name: _deciding(live)["dispatch"] == name, lambda: _deciding(live))


def _deciding(live):
    return {row["decision"]: row["policy"] for row in live.get("/v1/policies")}


def whole(live):
    """All processes run, and all kinds of queries are answered."""

    def runs():
        rows = live.get("/v1/status")["processes"]
        return all(row["state"] == "running" for row in rows) and all(live.pid(row["url"]) for row in rows)

    wait_until(runs, lambda: live.get("/v1/status")["processes"])


@pytest.mark.parametrize("does", [stream, queries, job, pipeline, server, policy])
def test_whoever_dies_before_any_change_of_the_disk(live, deaths, does):
    does(live)  # what is made once is there
    deaths.never()
    does(live)
    numbers, died = chosen(deaths.changes, 12), []
    assert numbers or does in (stream, queries)
    with clients_of(live) as seen:
        for number in numbers:
            deaths.at(number)
            does(live)
            if deaths.died.exists():
                died.append(deaths.died.read_text())
            deaths.never()
            if live.terminal.poll() is not None:  # `up` itself died: nobody would begin another controller
                live.up()
            whole(live)
    assert all(kinds == {200} for kinds in seen.kinds().values()), (seen.kinds(), died)
    assert len(died) >= len(numbers) // 3, (numbers, died)  # fewer changes may be needed than were counted


@pytest.fixture
def anew(deaths, tmp_path):
    """A system that is not there yet."""
    deaths.never()
    made = Live(tmp_path, options=[f"--policy={decision}={name}" for decision, name in POLICIES.items()])
    yield made
    made.kill_all()


def test_whoever_dies_while_a_system_starts(anew, deaths):
    """By itself, or when `edgewise up` is typed again, it then runs whole."""
    anew.up()
    numbers, died = chosen(deaths.changes, 6), []
    anew.down()
    for number in numbers:
        anew.state = anew.folder / f"state-{number}"
        anew.command[anew.command.index("--state") + 1] = str(anew.state)
        deaths.at(number)
        try:
            anew.up()
        except AssertionError:
            assert deaths.died.exists() and anew.terminal.wait(1) < 0, number  # `up` itself, which was killed
            died.append(deaths.died.read_text())
            deaths.never()
            anew.up()
        if deaths.died.exists():
            died.append(deaths.died.read_text())
        deaths.never()
        whole(anew)
        stream(anew)
        anew.down()
    assert len(died) >= len(numbers) * 2 // 3, (
        numbers,
        died,
    )  # the last ones come after the start, now and then
