"""The demo's parts; the whole of it is `edgewise demo`."""

import asyncio
import io
import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from rich.console import Console

from command_line import edgewise
from edgewise.errors import EdgewiseError
from edgewise.runtime.protocol.messages import InferRequest
from edgewise.runtime.watch.starving import CpuTotals, Watched, waited_share, watched
from edgewise.runtime.worker.onnx_model import OnnxModel
from waiting import takes

pytestmark = pytest.mark.live
pictures = pytest.importorskip("edgewise.demo.reading")
world = pytest.importorskip("edgewise.demo.world")
live = pytest.importorskip("edgewise.demo.live")
outcome = pytest.importorskip("edgewise.demo.outcome")

try:
    DETECTOR, RECOGNISER = pictures.model_file("det"), pictures.model_file("rec")
except EdgewiseError as error:
    pytest.skip(str(error), allow_module_level=True)


def answer(file, pixels):
    model = OnnxModel("m", file, file.parent)
    (array,) = model.run(InferRequest({"x": pixels})).outputs.values()
    return array


@pytest.mark.parametrize("word", ["GATE 7", "HOME 3", "hello"])
def test_the_recogniser_reads_what_was_drawn(word):
    scores = answer(RECOGNISER, pictures.picture(word))
    assert pictures.read(scores[0], pictures.characters(RECOGNISER)) == word


@pytest.mark.parametrize(("x", "y"), [(4, 6), (40, 30)])
def test_the_detector_finds_where_it_was_drawn(x, y):
    left, top, right, bottom = pictures.found(answer(DETECTOR, pictures.scene("hello", x, y)))
    assert x - 4 <= left <= x + 12 and x + 25 <= right and y - 4 <= top <= y + 12 and bottom <= y + 26
    assert pictures.found(answer(DETECTOR, pictures.scene("", x, y))) is None


def test_streams_have_the_reference_needs_and_fit_the_machine():
    streams = world.streams(15.0, seed=0)
    assert len(streams) >= 25 and max(s.open_s for s in streams) <= 3.0  # all are open together
    kinds = {kind.name: kind for kind in world.applications()}
    for stream in streams:
        low, high = kinds[stream.application].deadline_s
        assert low <= stream.deadline_s <= high
    quick, slow = world.RunTimes(0.002, 0.007, 1.0), world.RunTimes(0.02, 0.07, 2.0)
    factor = world.scale(streams, slow)
    assert 0 < factor < world.scale(streams, quick) <= 1
    run_s = {world.FIND: slow.find_s, world.READ: slow.read_s}
    cores = sum(factor * s.rate_qps * run_s[s.task] for s in streams)
    assert cores <= 0.5 * len(os.sched_getaffinity(0))


@pytest.mark.parametrize("seed", [0, 1, 7, 101])
def test_a_good_policy_serves_what_a_naive_one_refuses_whatever_the_seed(seed):
    """So far apart that measured shares, up to the tolerance from theirs, cannot turn the order."""
    factor = 0.3
    drawn = [replace(s, rate_qps=factor * s.rate_qps) for s in world.streams(15.0, seed)]
    scenario = world.scenario(factor, 15.0)
    naive, *_, good = (live.simulated_shares(scenario, name, drawn, seed) for name in live.POLICIES)
    assert naive.queries == good.queries
    assert good.ok > 0.88 and good.ok > naive.ok + 0.08 > naive.ok + outcome.TOLERANCE
    assert naive.rejected > 2 * good.rejected
    load_qps, usual = (sum(s.rate_qps for s in world.streams(15.0, each)) for each in (seed, 0))
    assert load_qps == pytest.approx(usual, rel=0.05)  # who has which needs is drawn, not how much


def shares(ok, policy="closest"):
    return outcome.PolicyShares(policy, 100, ok, 1.0 - ok, 0.0)


def test_the_conclusion_is_one_sentence_and_fits_eighty_columns(tmp_path):
    measured = [shares(0.712), shares(0.853, "load-balancing"), shares(0.941, "least-harm")]
    simulated = [shares(0.729), shares(0.86, "load-balancing"), shares(0.924, "least-harm")]
    found = outcome.DemoOutcome(measured, simulated, machine(measured))
    assert found.same_order and not found.reasons()
    assert found.sentence() == (
        "least-harm answered 94.1 % of the queries in time, 22.9 points more than closest (simulated: 19.5); "
        "measured and simulated shares differ by at most 1.7 points and put the policies in the same order."
    )
    console = Console(file=io.StringIO(), width=80)
    outcome.show(console, found)
    page = outcome.save(tmp_path, found, "Three streams.", "edgewise demo --seed 7", "name: demo")
    outcome.conclude(console, found, page)
    lines = console.file.getvalue().splitlines()
    assert all(len(line) <= 80 for line in lines if str(tmp_path) not in line)
    assert any("71.2 | 72.9" in line and "1.7, within" in line for line in lines)
    assert lines[-2:][0].startswith("next: edgewise init") or lines[-1].startswith("next: edgewise init")
    text = page.read_text("utf-8")
    assert (
        found.sentence() in text and "edgewise demo --seed 7" in text and (tmp_path / "shares.csv").is_file()
    )


def machine(measured, **seen):
    return {one.policy: Watched(**seen) for one in measured}


def test_policies_that_simulation_tells_apart_must_follow_each_other_live():
    simulated = [shares(0.82), shares(0.90, "least-harm")]
    measured = [shares(0.86), shares(0.85, "least-harm")]
    turned = outcome.DemoOutcome(measured, simulated, machine(measured))
    assert not turned.same_order and "differently" in turned.sentence()
    assert len(turned.reasons()) == 2  # how the machine was is said of both, though one is within 5 points
    near = [shares(0.85), shares(0.86, "least-harm")]
    level = outcome.DemoOutcome(measured, near, machine(measured))
    assert level.same_order and level.sentence().endswith(
        "put those more than 5 points apart in the same order."
    )


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        ({"waited": 0.58}, "its processes waited 58 % of the time that they could have run."),
        ({"waited": 0.03}, "waited 3 % of the time that they could have run, which does not explain it"),
        ({"waited": 0.8, "busy": "this machine was too busy"}, "this machine was too busy; end other prog"),
    ],
)
def test_a_share_far_from_its_simulation_is_said_with_its_reason_and_the_order_judged(tmp_path, seen, says):
    measured = [shares(0.60), shares(0.9, "least-harm")]
    found = outcome.DemoOutcome(
        measured, [shares(0.82), shares(0.9, "least-harm")], machine(measured, **seen)
    )
    console = Console(file=io.StringIO(), width=200)
    outcome.show(console, found)
    page = outcome.save(tmp_path, found, "Two streams.", "edgewise demo", "name: demo").read_text("utf-8")
    (reason,) = found.reasons()
    assert reason.startswith("closest is 22.0 points from its simulation: ") and says in reason
    assert reason in console.file.getvalue() and reason in page and "22.0, beyond" in page
    assert found.same_order


@pytest.mark.parametrize("same", [True, False])
def test_the_exit_status_says_whether_live_and_simulation_have_one_order(tmp_path, monkeypatch, same):
    asked = []

    def ran(seconds, out, folder, seed):
        asked.append((seconds, seed))
        measured = [shares(0.70), shares(0.9 if same else 0.6, "least-harm")]
        simulated = [shares(0.70), shares(0.9, "least-harm")]
        return outcome.DemoOutcome(measured, simulated, machine(measured, waited=0.25))

    monkeypatch.setattr("edgewise.demo.run", ran)  # the whole of it takes a minute
    edgewise("demo", "--seed", "7", folder=tmp_path, code=0 if same else 1)
    found = json.loads(edgewise("demo", "--json", folder=tmp_path, code=0 if same else 1))
    assert asked == [(15.0, 7), (15.0, 0)]
    assert found["same_order"] is same and len(found["reasons"]) == (0 if same else 2)
    naive, good = found["policies"]
    assert naive["simulated"]["ok"] == 0.7 and naive["waited"] == 0.25 and naive["busy"] is None
    assert good["apart"] == pytest.approx(0.0 if same else 0.3)


def test_a_seed_draws_other_streams():
    rates = [[s.rate_qps for s in world.streams(15.0, seed)] for seed in (0, 0, 1)]
    assert rates[0] == rates[1] != rates[2]


def test_the_share_of_waiting_is_of_the_time_that_threads_could_have_run():
    before, after = CpuTotals(1.0, 2.0, 0.0, 0.0), CpuTotals(4.0, 3.0, 0.0, 0.0)
    assert waited_share(before, after) == 0.25 and waited_share(before, before) == 0.0


def test_who_is_starved_meanwhile_is_said_by_the_same_watch():
    async def run():
        async with watched([]) as seen:
            await asyncio.sleep(0)
            takes(0.3)  # holds the event loop up
            for _ in range(5):  # turns, in the first of which the watch is due
                await asyncio.sleep(0)
        return seen.busy

    assert "this machine was too busy: " in asyncio.run(run())


@pytest.mark.alone
def test_the_whole_of_it_agrees_with_its_simulation_on_the_order(tmp_path):
    words = ("demo", "--json", "--seconds", "8", "--seed", "3", "--out", "it")
    done = subprocess.run(
        [sys.executable, "-m", "edgewise", *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [one["policy"] for one in found["policies"]] == list(live.POLICIES) and found["same_order"]
    naive, *_, good = found["policies"]
    assert good["simulated"]["ok"] > naive["simulated"]["ok"] + outcome.TOLERANCE  # else it says nothing
    assert good["measured"]["ok"] > naive["measured"]["ok"]
    assert naive["measured"]["queries"] > 50 and 0.0 <= naive["waited"] < 1.0
    page = (tmp_path / "it" / "report.html").read_text("utf-8")
    assert found["sentence"] in page and "edgewise demo --seconds 8 --seed 3" in page
