"""kill -9 of each kind of process: accepted work is answered or has failed, and comes back if it should."""

import json
import re

import psutil
import pytest
from outside import POLICIES, ask_until_answered, clients_of, edgewise, kill_9, running

from waiting import wait_until

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    with running(tmp_path_factory.mktemp("killed")) as made:
        yield made


def begun(live):
    """A pipeline whose frames flow, and the processes that it has."""
    before = {each.pid for each in live.processes()}
    number = live.run_pipeline().json()["id"]
    wait_until(lambda: live.pipeline(number)["frames"] > 10, lambda: live.pipeline(number))
    return number, [each for each in live.processes() if each.pid not in before]


def flows(live, number):
    """Wait until frames of a pipeline come anew."""
    frames = live.pipeline(number)["frames"]

    def more():
        row = live.pipeline(number)
        assert row["state"] in ("running", "waiting"), row
        return row["state"] == "running" and row["frames"] > frames

    wait_until(more, lambda: live.pipeline(number))


def job_begun(live, *lines, **changes):
    """A job that runs: its number, and the process of its command."""
    number = live.submit(["sh", "-c", "; ".join(("echo $$ >> pid.$EDGEWISE_JOB", *lines))], **changes)
    number = number.json()["id"]
    wait_until(lambda: live.job(number)["state"] == "running")
    file = live.folder / f"pid.{number}"
    wait_until(lambda: file.exists() and file.read_text().endswith("\n"))
    return number, int(file.read_text())


def lives(number):
    """Whether a process runs; one whose parent has gone may stay as a zombie."""
    return psutil.pid_exists(number) and psutil.Process(number).status() != psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("kind", ["worker of streams", "replica", "split server", "gateway"])
def test_a_server_comes_back_and_no_query_is_lost(live, kind):
    pattern = {"worker of streams": "eye-cpu@", "replica": "ear-cpu@hall", "split server": "inception@",
               "gateway": "gateway-0"}[kind]  # fmt: skip
    rows = [row for row in live.get("/v1/status")["processes"] if row["name"].startswith(pattern)]
    row = rows[0]
    before = live.pid(row["url"])
    with clients_of(live) as seen:
        kill_9(before)

        def back():
            now = live.row(row["name"])
            return now["state"] == "running" and live.pid(now["url"]) not in (None, before) and now

        now = wait_until(back, lambda: live.row(row["name"]))
        assert now["restarts"] == row["restarts"] + 1 and now["why"] is None
    assert all(kinds == {200} for kinds in seen.kinds().values()), seen.kinds()
    others = [each for each in live.get("/v1/status")["processes"] if each["name"] != row["name"]]
    assert all(each["state"] == "running" for each in others), others


def test_a_gateway_keeps_its_streams_and_those_closed_stay_closed(live):
    gateway = live.gateways[1]
    kept, closed = live.open_stream(1)[1], live.open_stream(1)[1]
    assert live.infer(kept, 1).status == live.infer(closed, 1).status == 200
    assert live.close_stream(closed, 1) == 200
    before = live.pid(gateway)
    kill_9(before)
    wait_until(lambda: live.pid(gateway) not in (None, before))
    ask_until_answered(gateway, "GET", "/v2/health/ready")
    assert live.infer(kept, 1).status == 200
    assert live.infer(closed, 1).status in (404, 409)
    anew = live.open_stream(1)[1]
    assert anew["stream"] not in (kept["stream"], closed["stream"])


def test_without_its_controller_all_goes_on_and_the_next_one_knows_it(live):
    number, _ = begun(live)
    job, command = job_begun(live, "sleep 3", "echo end >> ended")
    before, children = live.pid(live.controller), {each.pid for each in live.processes()}
    with clients_of(live) as seen:
        kill_9(before)
        wait_until(lambda: live.pid(live.controller) not in (None, before))
        flows(live, number)
    assert all(kinds == {200} for kinds in seen.kinds().values()), seen.kinds()
    row = wait_until(lambda: (row := live.job(job)) and row["ended_s"] and row)
    assert row["state"] == "done", row
    assert (live.folder / "ended").read_text() == "end\n"  # once
    rows = live.get("/v1/status")["processes"]
    assert all(each["state"] == "running" for each in rows), rows
    assert {live.pid(each["url"]) for each in rows} <= children  # none was started anew
    live.steer("DELETE", f"/v1/admin/pipelines/{number}")


def test_a_task_of_a_pipeline_comes_back(live):
    number, tasks = begun(live)
    try:
        kill_9(max(tasks, key=lambda each: each.create_time()).pid)
        flows(live, number)
    finally:
        live.steer("DELETE", f"/v1/admin/pipelines/{number}")


def test_a_killed_job_has_failed_and_says_so(live):
    number, command = job_begun(live, "exec sleep 60")
    kill_9(command)
    row = wait_until(lambda: (row := live.job(number)) and row["ended_s"] and row)
    assert row["state"] == "failed" and "9" in row["why"], row
    assert re.search(
        rf"^ *{number} .*failed", edgewise("jobs", "--all", "--state", "state", folder=live.folder), re.M
    )


def test_a_job_without_its_runner_ends_or_is_awaited(live):
    number, command = job_begun(live, "sleep 4", f"echo end >> {live.folder}/late")
    runner = psutil.Process(command).parent()
    assert runner.pid != live.pid(live.controller)
    runner.kill()
    row = wait_until(lambda: (row := live.job(number)) and row["ended_s"] and row)
    wait_until(lambda: not lives(command))
    written = (live.folder / "late").exists()
    assert (row["state"] == "done") == written, (row, written)


def test_after_up_was_killed_all_goes_on_and_the_next_takes_over_with_the_same_policies(live):
    status, opened = live.open_stream()
    before = {each.pid for each in live.processes()} - {live.terminal.pid}
    live.terminal.kill()
    live.terminal.wait()
    assert live.infer(opened).status == 200
    live.command = [each for each in live.command if not each.startswith("--policy")]
    live.up()
    wait_until(lambda: all(row["state"] == "running" for row in live.get("/v1/status")["processes"]))
    assert live.infer(opened).status == 200
    servers = {live.pid(row["url"]) for row in live.get("/v1/status")["processes"]}
    assert servers <= before  # it found them
    decided = {row["decision"]: row["policy"] for row in live.get("/v1/policies")}
    assert {decision: decided[decision] for decision in POLICIES} == POLICIES


def test_status_of_the_command_line_says_what_the_interface_says(live):
    said = edgewise("status", "--state", "state", folder=live.folder)
    for row in live.get("/v1/status")["processes"]:
        assert re.search(rf"{re.escape(row['name'])} .*{row['state']} +{row['restarts']} ", said), (row, said)
    printed = json.loads(edgewise("status", "--state", "state", "--json", folder=live.folder))
    answered = live.get("/v1/status")
    assert printed.keys() == answered.keys() and printed["policies"] == answered["policies"]
    names = [[row["name"] for row in found["processes"]] for found in (printed, answered)]
    assert names[0] == names[1]


def test_down_ends_what_was_killed_and_came_back(live):
    _, tasks = begun(live)
    _, command = job_begun(live, "exec sleep 60")
    live.down()
    assert not any(each.is_running() for each in tasks) and not lives(command)
