"""Every path without a token, with a wrong one, with one of another role: refused, and without effect."""

import ctypes
import os
import re
import shutil
import sqlite3
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from urllib.parse import urlsplit

import pytest
from interface import BODY, doors
from outside import EDGEWISE, NEEDS, ask, edgewise, environment, running

from waiting import wait_until

pytestmark = pytest.mark.live
CLIENTS = "a-token-of-the-clients"
REFUSED = {401, 403}
ONLY_SHOWN = {"status", "streams", "workers", "nodes", "jobs"}
# Every other verb for a system that runs, with what it needs to have an effect.
VERBS = {
    "up": ["scenario.yaml", "--set", "telemetry.period_s=2"], "down": [],
    "load": ["detection", "--rate-qps", "5", "--seconds", "1"], "record": ["recorded"],
    "policy": ["set", "defer=fifo"], "shadow": ["set", "least-impedance"], "drain": ["ear-cpu@cloud"],
    "resume": ["ear-cpu@cloud"], "pipelines": ["--end", "1"], "fail": ["hall-0"], "repair": ["hall-0"],
    "token": [], "submit": ["--duration", "9s", "--", "true"], "job": ["cancel", "1"],
}  # fmt: skip


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokens")
    (folder / "clients.token").write_text(CLIENTS)
    (folder / "clients.token").chmod(0o600)
    with running(folder, "--token-file", "clients.token", token=CLIENTS) as made:
        assert made.submit_for_later().status == 200
        assert made.run_pipeline().status == 200
        wait_until(lambda: made.pipeline(1)["state"] == "running", lambda: made.pipeline(1))
        made.opened = made.open_stream()[1]
        yield made


@pytest.fixture(scope="module")
def tokens(live):
    """By role; that between the parts is what a worker takes beside the operator's."""
    with closing(sqlite3.connect(f"file:{live.state}/state.sqlite?mode=ro", uri=True)) as store:
        kept = set(re.findall(r"[\w-]{32,}", "\n".join(store.iterdump())))
    worker = live.row(live.names("worker")[0])["url"]
    takes = {each for each in kept if ask(worker, "GET", "/metrics", token=each).status == 200}
    (parts,) = takes - {live.operator}
    return {"none": None, "wrong": "x" * 43, "clients": CLIENTS, "parts": parts, "operator": live.operator}


def state_of(live):
    """All that a request from outside could change."""
    status = live.get("/v1/status")
    steady = ("name", "kind", "url", "wanted", "state", "restarts")
    decided = ("decision", "policy", "shadow")
    workers = ask(live.gateways[0], "GET", "/v1/admin/workers", token=live.operator).json()
    return {
        "processes": [[row[key] for key in steady] for row in status["processes"]],
        "policies": [[row[key] for key in decided] for row in status["policies"]],
        "nodes": [[row["node"], row["up"]] for row in live.get("/v1/nodes")],
        "jobs": [[row["id"], row["state"], row["cancel"]] for row in live.get("/v1/admin/jobs")],
        "pipelines": [[row["id"], row["state"]] for row in live.get("/v1/admin/pipelines")],
        "operations": len(live.get("/v1/operations")),
        "addresses": sorted((row["worker"], row["url"]) for row in workers),
        "streams": [[row["stream"], row["closed_s"] is None] for row in live.get("/v1/streams")],
        "serves": ask(live.gateways[0], "GET", "/v2/health/ready").status,
    }


@pytest.fixture
def unchanged(live):
    before = state_of(live)
    yield
    assert state_of(live) == before


def interface_of(live, kind):
    """The address of one of a kind, and its doors."""
    worker = live.names("worker")[0]
    urls = {"controller": live.controller, "gateway": live.gateways[0], "worker": live.row(worker)["url"]}
    names = {"worker": worker.replace("#", "%23"), "node": "hall-0", "decision": "defer", "operation": 1,
             "one": "hall-0", "other": "hall-1", "job": 1, "pipeline": 1, "stream": live.opened["stream"],
             "task": "detection", "model": "eye-cpu"}  # fmt: skip
    if kind == "gateway":
        names["decision"] = "dispatch"
    return urls[kind], doors(urls[kind], **names)


def may(kind, role, door):
    """Whom docs/access.md lets in."""
    admin = door.template.startswith("/v1/admin")
    if role == "operator":
        return True
    if role == "parts":  # by which the controller steers gateways, and gateways ask workers
        return kind != "controller"
    return (kind, role, admin) == ("gateway", "clients", False)


@pytest.mark.parametrize("role", ["none", "wrong", "clients", "parts"])
@pytest.mark.parametrize("kind", ["controller", "gateway", "worker"])
def test_whoever_may_not_is_refused_everywhere(live, tokens, unchanged, kind, role):
    url, found = interface_of(live, kind)
    asked = [door for door in found if not may(kind, role, door)]
    assert asked or role == "parts"
    for door in asked:
        answer = ask(url, door.method, door.path, BODY, tokens[role])
        assert answer.status in REFUSED, (str(door), role, answer)
        assert answer.json()["error"] if door.method != "HEAD" else True


@pytest.mark.parametrize("kind", ["controller", "gateway", "worker"])
def test_who_may_reads_all_of_it(live, tokens, kind):
    url, found = interface_of(live, kind)
    for role, token in tokens.items():
        for door in found:
            if door.reads and may(kind, role, door):
                assert ask(url, "GET", door.path, token=token).status not in REFUSED, (str(door), role)


@pytest.mark.parametrize("kind", ["controller", "gateway", "worker"])
def test_pages_of_a_browser_are_refused_even_with_the_token(live, unchanged, kind):
    url, found = interface_of(live, kind)
    port = urlsplit(url).port
    for foreign in ({"host": f"evil.example:{port}"}, {"origin": "http://evil.example"}, {"origin": "null"}):
        for door in found:
            answer = ask(url, door.method, door.path, BODY, live.operator, foreign)
            assert answer.status == 403, (str(door), foreign, answer)


DISGUISES = {
    "two strokes": lambda path: "/" + path, "a stroke within": lambda path: path.replace("/v1/", "/v1//"),
    "a dot": lambda path: path.replace("/v1/", "/v1/./"), "back": lambda path: "/v1/x/.." + path[3:],
    "from health": lambda path: "/v2/health/ready/../../.." + path,
    "letters in numbers": lambda path: path.replace("/v1/", "/%761/").replace("admin", "%61dmin"),
    "strokes in numbers": lambda path: path.replace("/v1/", "/v1%2F"), "loud": str.upper,
    "a stroke at the end": lambda path: path + "/", "a question": lambda path: path + "?a=/v2/health/ready",
    "a backslash": lambda path: path.replace("/v1/", "/v1\\"), "a semicolon": lambda path: path + ";a",
    "queries first": lambda path: "/v2/models/.." + path, "a whole address": lambda path: "http://x" + path,
}  # fmt: skip


@pytest.mark.parametrize("kind", ["controller", "gateway"])
def test_other_ways_to_write_a_path_open_nothing(live, tokens, unchanged, kind):
    url, found = interface_of(live, kind)
    for door in found:
        if door.template.startswith("/v1"):
            for name, disguise in DISGUISES.items():
                role = "clients" if door.template.startswith("/v1/admin") or kind == "controller" else "none"
                answer = ask(url, door.method, disguise(door.path), BODY, tokens[role])
                assert 400 <= answer.status < 500, (str(door), name, answer)


def test_what_only_looks_like_the_token_is_refused(live, unchanged):
    token = live.operator
    other = [f"Basic {token}", token, f"Bearer {token[:-1]}", f"Bearer {token}x",
             f"Bearer {token.swapcase()}", f"Bearer {token},x", "Bearer ", "Bearer null", f"Bearer x {token}",
             f"Bearer \t{token}\x0b"]  # fmt: skip
    for shown in other:
        answer = ask(live.controller, "POST", "/v1/down", {}, headers={"authorization": shown})
        assert answer.status in {400, 401}, (shown, answer)
    for path in (f"/v1/down?token={token}", f"/v1/down?access_token={token}"):
        assert ask(live.controller, "POST", path, {}).status == 401
    assert ask(live.controller, "POST", "/v1/down", {}, headers={"cookie": f"token={token}"}).status == 401


@pytest.mark.parametrize("word", ["bearer", "BEARER"])
def test_the_word_bearer_is_read_in_any_case(live, word):
    shown = {"authorization": f"{word} {live.operator}"}
    assert ask(live.controller, "GET", "/v1/status", headers=shown).status == 200
    shown = {"authorization": f"{word} {CLIENTS}"}
    assert ask(live.gateways[0], "GET", "/v1/streams", headers=shown).status == 200


def test_a_method_in_a_header_counts_for_nothing(live, unchanged):
    for name in ("x-http-method-override", "x-http-method", "x-method-override"):
        answer = ask(live.gateways[0], "GET", f"/v1/streams/{live.opened['stream']}", token=CLIENTS,
                     headers={name: "DELETE"})  # fmt: skip
        assert answer.status in {200, 401, 403, 404}


def verbs_in_help(folder):
    """Those that steer a system, by the sections of `edgewise --help`."""
    sections = re.split(r"╭─ ", edgewise("--help", folder=folder))
    steering = [each for each in sections if each.startswith(("Run live", "Deferrable jobs, live"))]
    return {verb for each in steering for verb in re.findall(r"^│ (\w+)  ", each, re.M)}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_no_verb_has_an_effect_for_who_cannot_read_the_folder(live, unchanged):
    assert verbs_in_help(live.folder) == ONLY_SHOWN | set(VERBS)
    of_others = live.folder / "of-others"
    shutil.copytree(live.state, of_others)
    for path in (of_others, *of_others.rglob("*")):
        os.chown(path, 65534, 65534)

    def without_privileges():  # of root: to read (2) and write (1) what is another's
        for privilege in (1, 2):
            assert ctypes.CDLL(None).prctl(24, privilege, 0, 0, 0) == 0

    def tried(verb):
        return verb, subprocess.run(
            [EDGEWISE, verb, *VERBS[verb], "--state", str(of_others)], cwd=live.folder, env=environment(),
            preexec_fn=without_privileges, text=True, capture_output=True, timeout=120,
        )  # fmt: skip

    with ThreadPoolExecutor(2) as pool:
        for verb, done in pool.map(tried, VERBS):
            said = done.stdout + done.stderr
            assert done.returncode == 2 and "Traceback" not in said, (verb, done.returncode, said)
            assert live.operator not in said


def test_in_the_end_the_operator_may(live):
    assert ask(live.gateways[0], "POST", "/v1/streams", NEEDS, CLIENTS).status == 201
    live.down()
