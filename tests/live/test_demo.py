"""The demo's parts; the whole of it is `edgewise demo`."""

import asyncio
import io
import os
import time

import pytest
from command_line import edgewise
from rich.console import Console

from edgewise.errors import EdgewiseError
from edgewise.runtime.metrics import watched
from edgewise.runtime.protocol.messages import InferRequest
from edgewise.runtime.worker.onnx_model import OnnxModel

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


def test_policies_differ_in_simulation():
    streams = world.streams(15.0, seed=0)
    scenario = world.scenario(1.0, 15.0)
    shares = [live._simulated(scenario, name, streams, 0) for name in live.POLICIES]
    assert len({share.queries for share in shares}) == 1
    naive, *_, good = shares
    assert good.ok > 0.9 > 0.8 > naive.ok and good.rejected < 0.1 < naive.rejected


def shares(ok, policy="closest"):
    return outcome.PolicyShares(policy, 100, ok, 1.0 - ok, 0.0)


def test_the_conclusion_is_one_sentence_and_fits_eighty_columns(tmp_path):
    measured = [shares(0.712), shares(0.853, "load-balancing"), shares(0.941, "least-harm")]
    simulated = [shares(0.729), shares(0.86, "load-balancing"), shares(0.924, "least-harm")]
    found = outcome.DemoOutcome(measured, simulated, {"load-balancing": "its processes waited"})
    assert found.fine and found.same_order
    assert found.sentence() == (
        "least-harm answered 94.1 % of the queries in time, 22.9 points more than closest (simulated: 19.5); "
        "measured and simulated shares differ by at most 1.7 points and put the policies in the same order."
    )
    console = Console(file=io.StringIO(), width=80)
    outcome.show(console, found)
    page = outcome.save(tmp_path, found, "Three streams.", "name: demo")
    outcome.conclude(console, found, page)
    lines = console.file.getvalue().splitlines()
    assert all(len(line) <= 80 for line in lines if str(tmp_path) not in line)
    assert any("71.2 | 72.9" in line and "1.7, within" in line for line in lines)
    assert lines[-2:][0].startswith("next: edgewise init") or lines[-1].startswith("next: edgewise init")
    assert found.sentence() in page.read_text("utf-8") and (tmp_path / "shares.csv").is_file()


def test_policies_that_simulation_tells_apart_must_follow_each_other_live():
    simulated = [shares(0.80), shares(0.90, "least-harm")]
    turned = outcome.DemoOutcome([shares(0.86), shares(0.85, "least-harm")], simulated, {})
    assert not turned.same_order and not turned.fine and "differently" in turned.sentence()
    near = outcome.DemoOutcome(
        [shares(0.86), shares(0.85, "least-harm")], [shares(0.85), shares(0.86, "least-harm")], {}
    )
    assert near.same_order and near.fine


@pytest.mark.parametrize(
    ("measured", "busy", "fine"),
    [
        (0.80, {}, True),
        (0.60, {}, False),
        (0.60, {"closest": "its processes waited"}, True),
        (0.60, {"farthest": "its processes waited"}, False),  # of the other one nothing is known
    ],
)
def test_the_exit_status_says_whether_live_and_simulation_agree(tmp_path, monkeypatch, measured, busy, fine):
    console = Console(file=io.StringIO(), width=200)

    def judged(seconds, out, folder):
        both = [shares(measured), shares(0.9, "farthest")], [shares(0.82), shares(0.9, "farthest")]
        result = outcome.DemoOutcome(*both, busy)
        outcome.show(console, result)
        return result.fine

    monkeypatch.setattr("edgewise.demo.run", judged)  # the whole of it takes a minute
    edgewise("demo", folder=tmp_path, code=0 if fine else 1)
    assert ("not judged" in console.file.getvalue()) == bool(busy)


def test_who_is_starved_meanwhile_is_said_by_the_same_watch():
    async def run():
        async with watched([]) as seen:
            await asyncio.sleep(0)
            time.sleep(0.3)  # holds the event loop up
            await asyncio.sleep(0.03)
        return seen.busy

    assert "this machine was too busy: " in asyncio.run(run())
