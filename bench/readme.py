"""`python -m bench.readme`: the outputs and pictures of the README, made anew by running its commands.

Every block of the console between `<!-- runs -->` and `<!-- / -->` begins with a command, and what it says
follows. A test runs the same commands and compares the figures. The pictures are of the simulation's run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README, IMAGES = ROOT / "README.md", ROOT / "docs" / "images"
BLOCK = re.compile(r"```console\n\$ (?P<command>edgewise [^\n]*)\n(?P<shown>.*?)```\n", re.DOTALL)
WIDTH = "100"


def shown() -> list[tuple[str, str]]:
    """Each command of the README, and what it says there."""
    return [(mark["command"], mark["shown"]) for mark in BLOCK.finditer(README.read_text(encoding="utf-8"))]


def said(command: str, folder: Path) -> str:
    """What a command says, run in a folder where the examples are."""
    if not (folder / "examples").exists():
        (folder / "examples").symlink_to(ROOT / "examples")
    words = [sys.executable, "-m", *command.split()]
    environment = os.environ | {"COLUMNS": WIDTH, "NO_COLOR": "1", "TERM": "dumb"}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())


def main() -> None:
    """Run the commands, and write their outputs and the pictures."""
    from edgewise.config import load_scenario
    from edgewise.report.records import read_run
    from edgewise.report.site import picture

    text = README.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for command, before in shown():
            text = text.replace(f"$ {command}\n{before}", f"$ {command}\n{said(command, folder)}")
        (place,) = [path for path in (folder / "runs").glob("factory-*") if (path / "items.parquet").exists()
                    and not path.name.endswith(("compare", "sweep"))]  # fmt: skip
        run = read_run(place)
        drawn = picture(load_scenario(place / "scenario.yaml"), run, run.policies[0])
        (IMAGES / "site.svg").write_text(drawn + "\n", encoding="utf-8")
        (IMAGES / "site-nodes.png").write_bytes((place / "figures" / "time-line-of-nodes.png").read_bytes())
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
