"""The suite passes a sound picker, and finds each planted fault by the case that is about it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import grpc
import pickers
import pytest

from picker_conformance import Level, Outcome, Result, run
from picker_conformance.cases import ALL
from picker_conformance.messages import Request
from picker_conformance.suite import CHANNEL, Bench

# Which cases a fault fails: the one that is about it, and others that it cannot but fail.
OTHER_ENDPOINT = {
    "destination.of-the-pool", "subset.one", "subset.some-unknown", "subset.without-body", "subset.text",
    "robustness.many-at-once",
}  # fmt: skip
FOUND_BY: dict[str, tuple[str, set[str]]] = {
    "Disagrees": ("destination.agree", {"destination.stays"}),
    "IgnoresHint": (
        "subset.one",
        {
            f"subset.{name}"
            for name in ("some-unknown", "without-body", "none-eligible", "empty", "malformed", "text")
        }
        | {"robustness.many-at-once"},
    ),
    "EmptyIsNone": ("subset.empty", set()),
    "DropsBody": (
        "bodies.whole",
        {
            f"bodies.{name}"
            for name in (
                "single-bytes",
                "empty-end",
                "request-trailers",
                "requests-apart",
                "answer-size",
                "response-whole",
                "response-streams",
                "response-trailers",
                "responses-apart",
            )
        }
        | {"robustness.large-body"},
    ),
    "Loses": ("bodies.whole", {"bodies.answer-size", "robustness.large-body"}),
    "Doubles": ("bodies.whole", {"bodies.answer-size", "robustness.large-body"}),
    "LosesOfResponse": ("bodies.response-whole", {"bodies.response-streams"}),
    "DoublesOfResponse": ("bodies.response-whole", {"bodies.response-streams"}),
    "MixesRequests": ("bodies.requests-apart", set()),
    "MixesResponses": ("bodies.responses-apart", set()),
    "EndsEarly": ("bodies.end", set()),
    "EndsResponseEarly": ("bodies.response-end", set()),
    "EndsBeforeTrailers": ("bodies.end", {"bodies.response-end"}),
    "HoldsResponse": ("bodies.response-streams", set()),
    "ForgetsTrailers": ("bodies.request-trailers", {"bodies.response-trailers"}),
    "SilentWithoutBody": ("bodies.response-without-body", {"robustness.many-streams"}),
    "Appends": ("destination.client-header", set()),
    "LeavesAction": ("destination.overwrites", set()),
    "WritesValue": (
        "destination.header",
        {f"destination.{name}" for name in ("agree", "form", "stays", "client-header")},
    ),
    "PicksAgain": ("destination.stays", set()),
    "PicksByEachHint": ("destination.stays", set()),
    "BadPort": ("destination.form", OTHER_ENDPOINT),
    "BadAddress": ("destination.form", OTHER_ENDPOINT | {"destination.fall-backs"}),
    "DiesWithPool": ("errors.alive", set()),
    "Leaks": ("robustness.many-streams", {f"errors.{name}" for name in ("none-ready", "shed", "recovers")}),
    "Slows": ("robustness.many-streams", set()),
    "StaysOpen": ("robustness.half-close", {"robustness.many-streams"}),
    "OneLarge": ("robustness.large-body", {"bodies.answer-size"}),
    "SharesState": ("robustness.many-at-once", set()),
    "NotReady500": ("subset.none-eligible", {"subset.empty", "subset.malformed", "errors.none-ready"}),
    "Waits": ("bodies.no-silence", {"bodies.headers-only", "bodies.buffered", "bodies.streamed"}),
}
OTHER_MODES = {"bodies.headers-only", "bodies.buffered", "bodies.streamed"}
# Each takes seconds: run for the pickers that they are about.
LONG = {"robustness.many-streams", "robustness.large-body"}
LONG_FOR = {"Leaks": LONG, "Slows": LONG, "OneLarge": LONG, "HundredStreams": LONG, "Picker": LONG,
            "GathersJson": {"robustness.large-body"}}  # fmt: skip


async def judged(kind: type[pickers.Picker], folder: Path) -> dict[str, Result]:
    """The result of each case for a picker in this process."""
    picker = kind()
    picker.state_file = folder / kind.__name__
    picker.state_file.write_text("normal")
    enter = {name: f"sh -c 'echo {name} > {picker.state_file}'"
             for name in ("none-ready", "overloaded", "normal")}  # fmt: skip
    model = getattr(picker, "model", "m")
    request = Request(body=json.dumps({"model": model, "prompt": "Hello", "max_tokens": 8}).encode())
    server, port = await pickers.start(picker)
    connect = partial(grpc.aio.insecure_channel, f"127.0.0.1:{port}", options=CHANNEL)
    left_out = LONG - LONG_FOR.get(kind.__name__, set())
    try:
        async with Bench(connect, connect, request, tuple(pickers.POOL), enter, patience_s=2.0) as bench:
            results = await run(bench, lambda case: case.id not in left_out)
    finally:
        await server.stop(0)
    return {result.case.id: result for result in results}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Result]]:
    """What the cases come to for every picker; several pickers at a time, since much of it is waiting."""
    folder, places = tmp_path_factory.mktemp("states"), 4

    async def play() -> dict[str, dict[str, Result]]:
        free = asyncio.Semaphore(places)

        async def one(kind: type[pickers.Picker]) -> dict[str, Result]:
            async with free:
                return await judged(kind, folder)

        kinds = [pickers.Picker, *pickers.FAULTY, *pickers.ALLOWED]
        came = await asyncio.gather(*map(one, kinds))
        return {kind.__name__: each for kind, each in zip(kinds, came, strict=True)}

    return asyncio.run(play())


def failed(results: dict[str, Result]) -> set[str]:
    return {name for name, result in results.items() if result.outcome is Outcome.FAIL}


def said(results: dict[str, Result]) -> dict[str, str]:
    return {name: r.detail for name, r in results.items() if r.outcome is not Outcome.PASS}


def test_a_sound_picker_passes_every_case(results):
    assert said(results["Picker"]) == {}
    assert results["Picker"].keys() == {case.id for case in ALL}


@pytest.mark.parametrize("name", FOUND_BY)
def test_a_planted_fault_is_found_by_the_case_about_it(results, name):
    about, others = FOUND_BY[name]
    assert failed(results[name]) == {about} | (others & results[name].keys()), said(results[name])
    assert results[name][about].detail
    # a picker that breaks requests fails the whole; who may come to other data planes is warned
    assert results[name][about].case.level is (Level.SHOULD if name == "LeavesAction" else Level.MUST)


@pytest.mark.parametrize("name", [each.__name__ for each in pickers.ALLOWED])
def test_what_the_texts_allow_passes(results, name):
    assert failed(results[name]) == set(), said(results[name])
    not_run = {n for n, r in results[name].items() if r.outcome is Outcome.NOT_RUN}
    assert not_run == (OTHER_MODES if issubclass(getattr(pickers, name), pickers.FullDuplexAlone) else set())


def test_every_planted_fault_is_tried():
    assert {each.__name__ for each in pickers.FAULTY} == FOUND_BY.keys()


def test_a_hint_comes_with_every_message_as_envoy_sends_it():
    seen: list[tuple[str | None, object]] = []

    class Sees(pickers.Picker):
        async def answers(self, message, stream, context):
            seen.append((message.WhichOneof("request"), pickers.subset_of(message)))
            return await super().answers(message, stream, context)

    async def talk() -> None:
        server, port = await pickers.start(Sees())
        connect = partial(grpc.aio.insecure_channel, f"127.0.0.1:{port}", options=CHANNEL)
        async with Bench(connect, connect) as bench, bench.talk() as talk:
            await talk.ask(Request(subset=pickers.POOL[:1]), [b"{", b"}"], whole=True)
            await talk.send_response_headers(pickers.POOL[0])
            await talk.send_response_body(b"{}", ends=False)
            await talk.send_response_trailers()
            await talk.hear_until(lambda answer: "response_trailers" in answer.order)
        await server.stop(0)

    asyncio.run(talk())
    assert [kind for kind, _ in seen] == [
        *("request_headers", "request_body", "request_body"),
        *("response_headers", "response_body", "response_trailers"),
    ]
    assert all(hint == pickers.POOL[:1] for _, hint in seen)


def plain(text: str) -> str:
    """Words alone: without markup, links, and the line breaks of a source file."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r":ref:`([^<`]*?)\s*<[^>]*>`", r"\1", text)
    return " ".join(re.sub(r"[`*\\]", "", text).split())


@pytest.mark.parametrize("case", ALL, ids=lambda each: each.id)
def test_a_sentence_is_quoted_as_it_stands(case):
    text = plain((Path(__file__).parent / "texts" / f"{case.source}.txt").read_text())
    at = 0
    for part in case.sentence.split(" … "):
        found = text.find(plain(part), at)
        assert found >= 0, part
        at = found + 1


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
    enter = [f"--enter={name}=sh -c 'echo {name} > {state}'"
             for name in ("none-ready", "overloaded", "normal")]  # fmt: skip
    done = command(
        "--target", f"127.0.0.1:{port}", *enter, "--only", "errors.", "--only", "health.", "--json", report
    )
    assert done.returncode == 0, done.stdout + done.stderr
    cases = {row["id"]: row["outcome"] for row in json.loads(report.read_text())["cases"]}
    assert set(cases.values()) == {"pass"} and cases.keys() >= {
        "errors.none-ready",
        "errors.alive",
        "errors.shed",
    }


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


def test_a_reader_that_has_seen_enough_is_no_fault():
    with subprocess.Popen(
        [sys.executable, "-m", "picker_conformance", "--list"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as made:  # fmt: skip
        assert made.stdout is not None and made.stderr is not None
        made.stdout.readline()
        made.stdout.close()
        assert "Traceback" not in made.stderr.read()
