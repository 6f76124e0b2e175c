"""The suite passes a sound picker, and finds each planted fault by the case that is about it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pickers
import pytest

from picker_conformance import Level, Outcome, Result, run
from picker_conformance.cases import ALL
from picker_conformance.suite import Bench

# Which cases a fault fails: the one that is about it, and others that it cannot but fail.
FOUND_BY: dict[str, tuple[str, set[str]]] = {
    "Disagrees": ("destination.agree", set()),
    "IgnoresHint": (
        "subset.one",
        {
            f"subset.{name}"
            for name in ("some-unknown", "without-body", "none-eligible", "empty", "malformed", "text")
        }
        | {"robustness.many-at-once"},
    ),
    "DropsBody": (
        "bodies.whole",
        {f"bodies.{name}" for name in ("single-bytes", "empty-end", "response-streams", "response-trailers")},
    ),
    "EmptyIsNone": ("subset.empty", set()),
    "HoldsResponse": ("bodies.response-streams", {"bodies.response-trailers"}),
    "ForgetsTrailers": ("bodies.request-trailers", {"bodies.response-trailers"}),
    "SharesState": ("robustness.many-at-once", set()),
    "NotReady500": ("subset.none-eligible", {"subset.empty", "subset.malformed"}),
    "Waits": ("bodies.no-silence", {"bodies.headers-only", "bodies.buffered", "bodies.streamed"}),
}
WITH_STATES = {"errors.none-ready", "errors.shed", "errors.recovers"}


def judged(picker: pickers.Picker, area: str = "") -> dict[str, Result]:
    """The result of each case of an area, or of all, for a picker in this process."""

    async def play() -> list[Result]:
        server, port = await pickers.start(picker)
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                bench = Bench(channel, channel, pool=tuple(pickers.POOL), patience_s=1.0)
                return await run(bench, lambda case: case.id.startswith(area))
        finally:
            await server.stop(0)

    return {result.case.id: result for result in asyncio.run(play())}


def failed(results: dict[str, Result]) -> set[str]:
    return {name for name, result in results.items() if result.outcome is Outcome.FAIL}


def test_a_sound_picker_passes_every_case_that_needs_no_state():
    results = judged(pickers.Picker())
    assert {n: r.detail for n, r in results.items() if r.outcome is Outcome.FAIL} == {}
    assert {n for n, r in results.items() if r.outcome is Outcome.NOT_RUN} == WITH_STATES


@pytest.mark.parametrize("name", FOUND_BY)
def test_a_planted_fault_is_found_by_the_case_about_it(name):
    about, others = FOUND_BY[name]
    results = judged(getattr(pickers, name)())
    assert failed(results) == {about} | others, {n: r.detail for n, r in results.items()}
    assert results[about].detail


def test_every_planted_fault_is_tried():
    assert {each.__name__ for each in pickers.FAULTY} == FOUND_BY.keys()


def test_cases_have_stable_ids_levels_and_sentences():
    assert len({case.id for case in ALL}) == len(ALL) > 35
    assert all(case.sentence and case.source and isinstance(case.level, Level) for case in ALL)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """A sound picker as a process of its own, and the file that says in which state its world is."""
    state = tmp_path / "state"
    state.write_text("normal")
    picker = Path(pickers.__file__)
    with subprocess.Popen(
        [sys.executable, picker, "Picker", state], stdout=subprocess.PIPE, text=True
    ) as made:
        assert made.stdout is not None
        try:
            yield json.loads(made.stdout.readline())["port"], state
        finally:
            made.kill()


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The command line, as a user calls it."""
    line = [sys.executable, "-m", "picker_conformance", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)


def test_the_command_brings_the_pool_into_states_and_writes_a_report(served, tmp_path):
    port, state = served
    report = tmp_path / "report.json"
    # a change is seen 10 ms later; the command returns when the picker has had time for five such looks
    enter = [f"--enter={name}=sh -c 'echo {name} > {state}; sleep 0.05'"
             for name in ("none-ready", "overloaded", "normal")]  # fmt: skip
    done = command(
        "--target", f"127.0.0.1:{port}", *enter, "--only", "errors.", "--only", "health.", "--json", report
    )
    assert done.returncode == 0, done.stdout + done.stderr
    cases = {row["id"]: row["outcome"] for row in json.loads(report.read_text())["cases"]}
    assert set(cases.values()) == {"pass"} and cases.keys() >= WITH_STATES


def test_the_command_fails_for_a_must_and_for_a_should_only_when_strict(served):
    port, _ = served
    one = ["--target", f"127.0.0.1:{port}", "--endpoints", "10.9.9.9:1"]  # not the pool it has
    done = command(*one, "--only", "destination.of-the-pool")
    assert done.returncode == 1 and "is none of 10.9.9.9:1" in done.stdout
    assert command("--target", f"127.0.0.1:{port}", "--only", "health.", "--strict").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "--target HOST:PORT is needed"),
        (["--target", "127.0.0.1:1", "--patience", "0.5"], "cannot be reached"),
        (["--target", "h:1", "--enter", "asleep=true"], "--enter asleep"),
        (["--target", "h:1", "--enter", "none-ready=true"], "--enter normal=COMMAND is needed"),
        (["--target", "h:1", "--json", "/no/such/folder/x.json"], "there is no folder"),
    ],
)
def test_what_cannot_be_run_is_said_with_status_two(arguments, says):
    done = command(*arguments)
    assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr


def test_the_list_names_every_case_with_its_sentence():
    done = command("--list")
    assert done.returncode == 0 and all(case.id in done.stdout for case in ALL)
