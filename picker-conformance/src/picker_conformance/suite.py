"""Cases, how they are run, and what they may come to."""

from __future__ import annotations

import asyncio
import enum
import shlex
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

import grpc

from picker_conformance.conversation import Closed, Conversation, Silence
from picker_conformance.messages import FULL_DUPLEX, Request

PROTOCOL = "endpoint picker protocol v1.0.0"
EXT_PROC = "external_processor.proto"
MODES = "processing_mode.proto"
BASE = "base.proto"
HEALTH = "gRPC Health Checking Protocol"
GRPC = "gRPC over HTTP2"

Of = TypeVar("Of")
Came = TypeVar("Came")

# A connection of its own for each channel; cases judge how large an answer is, not gRPC.
CHANNEL = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1))
# Of one connection: a server may allow no more than a hundred, and a proxy then opens further ones.
STREAMS_A_CONNECTION = 64


class Level(enum.StrEnum):
    """How binding the sentence is that a case tests."""

    MUST = "must"
    SHOULD = "should"
    MAY = "may"


class Outcome(enum.StrEnum):
    """What a case came to; `NOT_RUN` says what it lacked."""

    PASS = "pass"
    FAIL = "fail"
    NOT_RUN = "not run"


class Failed(Exception):
    """The picker did something else than the sentence asks for."""


class NotRun(Exception):
    """The case cannot be judged here, and why."""


@dataclass(frozen=True)
class Case:
    """One sentence of a specification, and the messages that test it.

    Attributes:
        id: stable; `area.what`.
        level: of the sentence.
        source: the document.
        sentence: its words, so that a reader can judge the case.
        check: plays the messages; returns a remark, raises Failed or NotRun.
    """

    id: str
    level: Level
    source: str
    sentence: str
    check: Callable[[Bench], Awaitable[str | None]]


@dataclass(frozen=True)
class Result:
    """A case and what it came to."""

    case: Case
    outcome: Outcome
    detail: str = ""

    def row(self) -> dict[str, str]:
        """For a report."""
        case = self.case
        return {
            "id": case.id, "level": str(case.level), "outcome": str(self.outcome), "detail": self.detail,
            "source": case.source, "sentence": case.sentence,
        }  # fmt: skip


REGISTERED: list[Case] = []


def case(id: str, level: Level, source: str, sentence: str) -> Callable[..., Callable[..., object]]:
    """Register a check as a case."""

    def register(check: Callable[[Bench], Awaitable[str | None]]) -> Callable[..., object]:
        REGISTERED.append(Case(id, level, source, sentence, check))
        return check

    return register


@dataclass
class Bench:
    """What a case has in hand; connections end with the block.

    Attributes:
        connect: opens a connection to the picker's external processing service.
        connect_health: to its health service; often the same.
        request: what clients of this picker send.
        pool: its ready endpoints as `ip:port`, where the caller named them.
        enter: a command for each state that the picker's world can be brought into.
        patience_s: most that one answer may take.
    """

    connect: Callable[[], grpc.aio.Channel]
    connect_health: Callable[[], grpc.aio.Channel]
    request: Request = field(default_factory=Request)
    pool: tuple[str, ...] = ()
    enter: Mapping[str, str] = field(default_factory=dict)
    patience_s: float = 5.0

    async def __aenter__(self) -> Self:
        self.health = self.connect_health()
        self._connections = [self.connect()]
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in (self.health, *self._connections):
            await each.close()

    def talk(self, mode: int = FULL_DUPLEX, patience_s: float | None = None, beside: int = 0) -> Conversation:
        """A new stream.

        Args:
            beside: how many the case has open already; beyond those of one connection another is opened.
        """
        connection = beside // STREAMS_A_CONNECTION
        while len(self._connections) <= connection:
            self._connections.append(self.connect())
        return Conversation(self._connections[connection], mode, patience_s or self.patience_s)

    async def endpoints(self, least: int = 1, asks: int = 24) -> list[str]:
        """Endpoints that are ready: those that the caller named, or those that the picker picks.

        Raises:
            NotRun: there are fewer than `least`.
        """
        found = list(self.pool)
        for _ in range(0 if found else asks):
            async with self.talk() as talk:
                for each in (await talk.ask(self.request)).endpoints:
                    if each not in found:
                        found.append(each)
        if len(found) < least:
            raise NotRun(f"needs {least} ready endpoints, {len(found)} seen; name them by --endpoints")
        return found

    async def state(self, name: str) -> None:
        """Bring the picker's world into a state.

        Raises:
            NotRun: no command for it is known, or it fails.
        """
        command = self.enter.get(name)
        if command is None:
            raise NotRun(f"needs --enter {name}=COMMAND, and --enter normal=COMMAND to come back")
        made = await asyncio.create_subprocess_exec(*shlex.split(command))
        if await made.wait():
            raise NotRun(f"the command for {name} ended with status {made.returncode}")

    async def lives(self) -> None:
        """Check that the picker still answers an ordinary request.

        Raises:
            Failed: it does not.
        """
        try:
            async with self.talk() as talk:
                answer = await talk.ask(self.request)
        except (Closed, Silence) as error:
            raise Failed(f"afterwards an ordinary request is not answered: it {error}") from None
        require(bool(answer.endpoints), "afterwards an ordinary request gets no destination")


def require(holds: bool, otherwise: str) -> None:
    """Fail the case unless it holds."""
    if not holds:
        raise Failed(otherwise)


async def at_once(one: Callable[[Of], Coroutine[Any, Any, Came]], each: Iterable[Of]) -> list[Came]:
    """What many do side by side; the first that fails ends the others, which may be waiting for it."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(of)) for of in each]
    except ExceptionGroup as several:
        raise several.exceptions[0] from None
    return [task.result() for task in tasks]


async def judge(case: Case, bench: Bench) -> Result:
    """Run one case; a picker that is silent or closes the stream fails it."""
    try:
        remark = await case.check(bench)
    except (Failed, Closed, Silence) as error:
        return Result(case, Outcome.FAIL, str(error))
    except NotRun as error:
        return Result(case, Outcome.NOT_RUN, str(error))
    return Result(case, Outcome.PASS, remark or "")


async def run(
    bench: Bench,
    chosen: Callable[[Case], bool] = lambda _: True,
    heard: Callable[[Result], None] | None = None,
) -> list[Result]:
    """Run the chosen cases one after another; `heard` is told of each result as it comes."""
    from picker_conformance import cases  # registers them

    results = []
    for each in cases.ALL:
        if chosen(each):
            results.append(await judge(each, bench))
            if heard is not None:
                heard(results[-1])
    return results
