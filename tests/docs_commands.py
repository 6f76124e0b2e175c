"""Commands that the documentation shows, block by block, and where each of them is run."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LIVE = (
    "up", "down", "status", "load", "record", "policy", "shadow", "streams", "workers", "drain", "resume",
    "pipelines", "nodes", "fail", "repair", "token", "submit", "jobs", "job", "demo", "worker",
    "gateway",
)  # fmt: skip
"""Verbs that need a live system, or are one."""
RECORDED, LEFT = "replay runs/recorded", "report runs/live"

NOT_RUN = {
    "reproduce": "takes minutes: tests/studies/test_every_reproduction.py runs each with one seed",
    "dev freeze": "fixes things for good: tests/studies/test_cli_reproduce.py",
    "dev looks": "lists what is published: tests/studies/test_cli_reproduce.py",
    "train": "needs torch and minutes: tests/learn",
    "compare full-edge --policies chooser,runs/chooser": "of what `train` wrote: tests/learn",
    "compare three-tier --policies mine.py": "as it stands there by tests/repository/test_own_policy_docs.py",
}
"""Why commands that begin so are not run here, and which test shows them."""

SHORT = {
    "simulate campus --": "duration_s=7200 --set timeline=[]",
    "compare full-edge --policies random": "duration_s=60",
}
"""What is set so that commands that begin so take seconds: a day, and a policy that simulates ahead."""

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


def needs_a_system(command: str) -> bool:
    """Whether it is of a live system, or of what was recorded of one; a recording of a log needs none."""
    return (command.split()[0] in LIVE and " --from " not in command) or command.startswith((RECORDED, LEFT))


def why_not(command: str) -> str:
    """Why a command is not run in simulation; "": it is."""
    if needs_a_system(command):
        return "live"
    return next((why for start, why in NOT_RUN.items() if command.startswith(start)), "")


def blocks() -> list[Block]:
    """Of all pages; of the reference of the command line what is no usage. README has its own test."""
    found = []
    for file in sorted((ROOT / "docs").rglob("*.md")):
        if "results" in file.parts:
            continue
        page = str(file.relative_to(ROOT / "docs"))
        for lines in shell_of(file):
            if file.name == "cli.md":
                lines = [line for line in lines if not USAGE.search(line.partition("#")[0])]
            found.append(Block(page, tuple(lines)))
    return [each for each in found if each.commands]


def shell_of(file: Path) -> list[list[str]]:
    """Of each block of shell of a page its lines, whole commands each."""
    text = file.read_text(encoding="utf-8")
    return [
        re.sub(r"\\\n\s*", " ", block).splitlines()
        for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        if language in SHELLS
    ]


def quickly(command: str) -> str:
    """The same with two seeds and for a short while: what a page says of it is measured with more."""
    verb = command.split()[0]
    if verb == "profile":
        return f"{command} --seconds 1"
    if verb == "benchmark":
        return f"{command} --seeds 0:1"
    if verb not in ("simulate", "compare", "sweep", "size"):
        return command
    few = re.sub(r"--seeds 0:(?!1\b)\S+", "--seeds 0:2", command)
    few += next((f" --set {short}" for name, short in SHORT.items() if few.startswith(name)), "")
    return few if "--seeds" in few else f"{few} --seeds 0:2"
