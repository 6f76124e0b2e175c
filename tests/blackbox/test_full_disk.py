"""A disk without room: what cannot be kept is refused and why, what was accepted stays, room mends it."""

import subprocess
from contextlib import contextmanager

import pytest
from outside import NEEDS, ask, edgewise, running

from waiting import wait_until

pytestmark = pytest.mark.live
STATE = "disk/state"


@contextmanager
def small_disk(folder):
    """A file system of its own, of 96 MiB."""
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", "size=96m,mode=0700", "tmpfs", str(folder)]
    if subprocess.run(["mount", *options], capture_output=True).returncode:
        pytest.skip("a file system cannot be mounted here: that takes root and mount")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(folder):
    """A file that takes all the room there is."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as opened:
        for size in (1 << 20, 4096):
            try:
                while opened.write(bytes(size)) == size:
                    pass
            except OSError:
                pass
    return ballast


def until_refused(post):
    """What was accepted while the log of the store still had a page, and the first refusal."""
    accepted = []
    for _ in range(2000):
        answer = post()
        if answer.status not in (200, 201):
            return accepted, answer
        accepted.append(answer.json())
    raise AssertionError("all was accepted on a full disk")


@pytest.fixture
def live(tmp_path):
    with small_disk(tmp_path / "disk"), running(tmp_path, state=STATE) as made:
        yield made


def test_refused_with_the_reason_nothing_accepted_is_lost_and_room_mends_it(live):
    kept = live.open_stream()[1]
    pipeline = live.run_pipeline().json()["id"]
    commands = [["sh", "-c", f"until [ -e {file} ]; do sleep 0.1; done"] for file in ("room", "full")]
    job, brief = (live.submit(command, duration_s=600).json()["id"] for command in commands)
    wait_until(lambda: live.job(brief)["state"] == "running")
    wait_until(lambda: live.pipeline(pipeline)["frames"] > 0)
    ballast = fill(live.folder / "disk")
    needs = NEEDS | {"rate_qps": 0.05}
    posts = {
        "streams": lambda: ask(live.gateways[0], "POST", "/v1/streams", needs),
        "jobs": live.submit_for_later,
        "pipelines": live.run_pipeline,
    }
    accepted = {}
    for work, post in posts.items():
        accepted[work], answer = until_refused(post)
        assert answer.status == 503 and "room" in answer.json()["error"], (work, answer)
    said = edgewise("submit", "--duration", "9s", "--state", STATE, "--", "true", folder=live.folder, code=2)
    assert "room" in said
    assert live.infer(kept).status == 200
    wait_until(lambda: live.get("/v1/status")["store"])
    assert "room" in edgewise("status", "--state", STATE, folder=live.folder)

    (live.folder / "full").touch()  # a job ends while nothing can be written down
    began = live.pipeline(pipeline)["frames"]
    wait_until(lambda: live.pipeline(pipeline)["frames"] > began)
    ballast.unlink()
    (live.folder / "room").touch()
    wait_until(lambda: not live.get("/v1/status")["store"], lambda: live.get("/v1/status")["store"])
    frames = live.pipeline(pipeline)["frames"]  # which are counted in the store
    wait_until(lambda: live.pipeline(pipeline)["frames"] > frames)
    for opened in (kept, *accepted["streams"]):
        assert live.infer(opened).status == 200
    for each in (job, brief):
        row = wait_until(lambda each=each: (row := live.job(each)) and row["ended_s"] and row)
        assert row["state"] == "done", row
    for each in accepted["jobs"]:
        assert live.job(each["id"])["state"] == "waiting"
    for each in accepted["pipelines"]:
        assert live.pipeline(each["id"])["state"] in ("waiting", "running")
    assert live.open_stream()[0] == 201
    assert live.submit(["true"]).status == live.run_pipeline().status == 200
    live.down()
