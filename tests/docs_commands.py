"""Commands that the documentation shows, block by block, and where each of them is run."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LIVE = (
    "up", "down", "status", "load", "record", "policy", "shadow", "streams", "workers", "drain", "resume",
    "pipelines", "nodes", "fail", "repair", "token", "submit", "jobs", "job", "run", "demo", "worker",
    "gateway",
)  # fmt: skip
"""Verbs that need a live system, or are one."""

NOT_RUN = {
    "reproduce": "takes minutes: tests/studies/test_every_reproduction.py runs each with one seed",
    "dev looks": "lists what is published: tests/studies/test_cli_reproduce.py",
    "train": "needs torch and minutes: tests/learn",
    "profile": "measures for a minute on a machine that is free: tests/live/test_profile.py",
    "catalog catalog.yaml": "of what `profile` wrote: tests/unit/test_profiling.py",
    "compare full-edge --policies aset,runs/aset": "of what `train` wrote: tests/learn",
    "compare full-edge --policies random": "looks ahead by simulation, which takes a minute",
    "compare three-tier --policies mine.py": "tests/unit/test_own_policy_docs.py",
    "benchmark --policy": "of a policy of one's own: tests/unit/test_benchmark.py",
    "simulate campus --": "a whole day takes a minute: tests/unit/test_campus.py has a busy hour",
    "replay runs/recorded": "of what a live system recorded: tests/live/test_live_services.py",
    "replay runs/shop": "of an access log: tests/unit/test_foreign.py",
}
"""Why commands that begin so are not run here, and which test shows them."""

ELSEWHERE = {
    "record runs/recorded --last": "tests/live/test_live_services.py",
    "record runs/shop --from": "tests/unit/test_foreign.py",
    "run read-text": "tests/live/test_read_text.py",
    "run --resume": "tests/live/test_read_text.py",
    "run split-inception": "tests/live/test_live_split.py",
    "status --state runs/run": "tests/live/test_read_text.py",
    "up tiny --set": "tests/live/test_change.py",
    "up tiny --restore": "tests/live/test_damaged_store.py",
    "up tiny --otlp": "tests/live/test_tracing.py",
}
"""The test of commands that begin so and that tests/live/test_docs_live.py does not run."""


USAGE = re.compile(r"[\[…|]|\b[A-Z]{2,}\b")  # choices, and names in place of values
SHELLS = ("", "sh", "bash", "shell", "console")


class Block(NamedTuple):
    """A block of shell: what is shown of it line by line, whole commands each."""

    page: str
    lines: tuple[str, ...]

    @property
    def commands(self) -> list[str]:
        """What calls edgewise, without that word."""
        found = (re.match(r"\s*(?:\$ )?(?:sudo )?edgewise (.*)", line) for line in self.lines)
        return [each[1].partition(" #")[0].strip() for each in found if each]

    @property
    def is_whole(self) -> bool:
        """Whether all that calls edgewise is run in simulation, so that a shell can run it all."""
        return bool(self.commands) and not any(map(why_not, self.commands))


def why_not(command: str) -> str:
    """Why a command is not run in simulation; "": it is."""
    if command.split()[0] in LIVE:
        return "live"
    return next((why for start, why in NOT_RUN.items() if command.startswith(start)), "")


def blocks() -> list[Block]:
    """Of all pages; of the reference of the command line what is no usage. README has its own test."""
    found = []
    for file in sorted((ROOT / "docs").rglob("*.md")):
        if "results" in file.parts:
            continue
        text = file.read_text(encoding="utf-8")
        for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            lines = re.sub(r"\\\n\s*", " ", block).splitlines() if language in SHELLS else []
            if file.name == "cli.md":
                lines = [line for line in lines if not USAGE.search(line.partition("#")[0])]
            found.append(Block(str(file.relative_to(ROOT / "docs")), tuple(lines)))
    return [each for each in found if each.commands]


def quickly(command: str) -> str:
    """The same with two seeds: what a page says of it is measured with more."""
    if command.split()[0] not in ("simulate", "compare", "sweep", "size"):
        return command
    few = re.sub(r"--seeds 0:(?!1\b)\S+", "--seeds 0:2", command)
    return few if "--seeds" in few else f"{few} --seeds 0:2"
