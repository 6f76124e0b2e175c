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
    assert len(streams) >= 30 and max(s.open_s for s in streams) <= 3.0  # all are open together
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
    assert len({round(share.ok, 2) for share in shares}) > 1


def shares(ok, policy="closest"):
    return live.PolicyShares(policy, 100, ok, 1.0 - ok, 0.0)


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
        return live.compare(console, *both, live.TOLERANCE, busy)

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
