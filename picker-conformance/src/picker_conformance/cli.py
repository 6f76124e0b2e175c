"""The command: picker-conformance --target host:port."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import ssl
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import grpc

from picker_conformance.messages import Request
from picker_conformance.suite import CHANNEL, PROTOCOL, Bench, Case, Level, Outcome, Result, run

EXAMPLES = """examples:
  picker-conformance --target 127.0.0.1:9002
  picker-conformance --target 127.0.0.1:9002 --health 127.0.0.1:9003 --endpoints 10.0.0.1:8000,10.0.0.2:8000
  picker-conformance --target 127.0.0.1:9002 --only bodies. --json report.json
  picker-conformance --target 127.0.0.1:9002 --enter none-ready='kubectl scale deploy/model --replicas=0' \\
                     --enter normal='kubectl scale deploy/model --replicas=2'

exit status: 0 when no case of level must fails (with --strict: nor of level should), 1 otherwise,
2 when the picker cannot be reached or an argument is wrong"""


STATES = ("none-ready", "overloaded", "normal")


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    made = argparse.ArgumentParser(
        prog="picker-conformance", description=f"Judge an endpoint picker by the {PROTOCOL}.",
        epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    made.add_argument("--target", metavar="HOST:PORT", help="the picker's external processing service")
    made.add_argument("--health", metavar="HOST:PORT", help="its health service, where that is another port")
    made.add_argument("--endpoints", default="", metavar="IP:PORT,…", help="the pool's ready endpoints")
    made.add_argument(
        "--enter", action="append", default=[], metavar="STATE=COMMAND",
        help="how to reach none-ready, overloaded and normal; returns when the state is reached",
    )  # fmt: skip
    made.add_argument("--model", default="m", help="name of a model in the requests' bodies")
    made.add_argument("--path", default="/v1/completions", help="of the requests")
    made.add_argument("--body", type=Path, help="a file with a request's body, in place of a completion")
    made.add_argument("--patience", type=float, default=5.0, metavar="S", help="most that an answer may take")
    made.add_argument("--ca", type=Path, help="certificates to trust; the connection is then encrypted")
    made.add_argument("--tls", action="store_true", help="encrypted, trusting the certificate that is shown")
    made.add_argument("--only", action="append", default=[], metavar="TEXT", help="cases whose id begins so")
    made.add_argument("--list", action="store_true", help="list the cases with the sentences they test")
    made.add_argument("--strict", action="store_true", help="a failure of level should counts too")
    made.add_argument("--json", type=Path, metavar="FILE", help="write a report")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the suite; the exit status says whether the picker conforms."""
    try:
        _main(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # who reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(2)


def _main(arguments: Sequence[str] | None) -> None:
    made = parser()
    options = made.parse_args(arguments)
    if options.list:
        return listing()
    if not options.target:
        made.error("--target HOST:PORT is needed, or --list")
    states = dict(each.partition("=")[::2] for each in options.enter)
    if wrong := sorted(set(states) - {"none-ready", "overloaded", "normal"}) or [
        s for s in states if not states[s]
    ]:
        made.error(f"--enter {wrong[0]}: give none-ready, overloaded or normal, each with =COMMAND")
    if states and "normal" not in states:
        made.error("--enter normal=COMMAND is needed to come back from the other states")
    if options.json is not None and not options.json.parent.is_dir():
        made.error(f"--json {options.json}: there is no folder {options.json.parent}")
    try:
        results = asyncio.run(_run(options, states))
    except (OSError, TimeoutError) as error:
        made.exit(2, f"picker-conformance: {options.target} cannot be reached: {error}\n")
    _summary(results, options)
    counts = (Level.MUST, Level.SHOULD) if options.strict else (Level.MUST,)
    sys.exit(any(r.outcome is Outcome.FAIL and r.case.level in counts for r in results))


def listing() -> None:
    """Print every case with its level, source and sentence."""
    from picker_conformance.cases import ALL

    for each in ALL:
        print(f"{each.id}  [{each.level}]  {each.source}\n    {each.sentence}")


async def _run(options: argparse.Namespace, states: dict[str, str]) -> list[Result]:
    body = options.body.read_bytes() if options.body else json.dumps(
        {"model": options.model, "prompt": "Hello", "max_tokens": 8}
    ).encode()  # fmt: skip
    async with _channel(options, options.target) as channel, asyncio.timeout(options.patience):
        await channel.channel_ready()

    def chosen(each: Case) -> bool:
        return not options.only or each.id.startswith(tuple(options.only))

    async with Bench(
        partial(_channel, options, options.target),
        partial(_channel, options, options.health or options.target),
        Request(body=body, path=options.path),
        tuple(each.strip() for each in options.endpoints.split(",") if each.strip()),
        states, options.patience,
    ) as bench:  # fmt: skip
        return await run(bench, chosen, _say)


def _channel(options: argparse.Namespace, target: str) -> grpc.aio.Channel:
    if not (options.tls or options.ca):
        return grpc.aio.insecure_channel(target, options=CHANNEL)
    host, _, port = target.rpartition(":")
    roots = options.ca.read_bytes() if options.ca else ssl.get_server_certificate((host, int(port))).encode()
    return grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(roots), options=CHANNEL)


def _say(result: Result) -> None:
    mark = {Outcome.PASS: "pass", Outcome.FAIL: "FAIL", Outcome.NOT_RUN: "–   "}[result.outcome]
    print(f"{mark}  {result.case.level!s:6}  {result.case.id:28}  {result.detail}", flush=True)


def _summary(results: list[Result], options: argparse.Namespace) -> None:
    print()
    for level in Level:
        of = [r.outcome for r in results if r.case.level is level]
        counts = ", ".join(f"{of.count(outcome)} {outcome}" for outcome in Outcome)
        print(f"{level!s:6}  {counts}")
    if options.json is not None:
        report = {"protocol": PROTOCOL, "target": options.target, "cases": [r.row() for r in results]}
        options.json.write_text(json.dumps(report, indent=2) + "\n")
