"""What the results of reproductions rest on: what was frozen, which code ran, and the log of looks.

What a reproduction runs was fixed, with a date, before the first training:

    <results>/frozen.json        {"three-tier": {"sha256": "9a…", "date": "2030-01-31"}, …}
    <results>/frozen/NAME.yaml   the resolved scenario; its SHA-256 is the one in frozen.json

    <results>/frozen/NAME.json   the same for a setting that is no scenario: constants of a reproduction

What is frozen never changes. To try another one, give it another name.

The log of looks has one JSON line for every use of test seeds, appended and never rewritten:

{"time": "2030-01-31T12:00:00Z", "paper": "queues", "commit": "1f…", "dirty": false,
 "version": "0.1.0", "seeds": [1000000, …], "quick": false, "finished": true,
 "claims": [{"id": "…", "estimate": 1.0, "ci": [0.9, 1.1], "status": "holds"}, …],
 "scenarios": {"three-tier": "9a…"}}
"""

import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from edgewise.config import dump_scenario, load_scenario
from edgewise.errors import RunError, ScenarioError
from edgewise.model.scenario import Scenario
from edgewise.report.records import write_whole
from edgewise_studies.claims import Claim
from edgewise_studies.twins import as_published, published_settings


def sha256(scenario: Scenario) -> str:
    """SHA-256 of the resolved scenario, as `sha256sum` of its `dump_scenario` gives it."""
    return digest_of(dump_scenario(scenario))


def read_frozen(folder: Path) -> dict[str, dict[str, str]]:
    """Name → sha256 and date of every frozen scenario; empty when there is none.

    Raises:
        RunError: frozen.json cannot be read.
    """
    path = folder / "frozen.json"
    try:
        frozen: dict[str, dict[str, str]] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise RunError(f"cannot read {path}: {error}; restore it from git") from error
    return frozen


def freeze(name: str | Path, folder: Path) -> tuple[str, str]:
    """Freeze a scenario.

    Args:
        name: a scenario file, or the name of a shipped one.
        folder: of the results.
    Returns:
        name and SHA-256 of the scenario.
    Raises:
        ScenarioError: it cannot be loaded, or one of its name is frozen already.
        RunError: it cannot be written.
    """
    scenario = as_published(name)
    return scenario.name, _freeze(f"{scenario.name}.yaml", dump_scenario(scenario), folder)


def freeze_setting(name: str, text: str, folder: Path) -> str:
    """Freeze a setting that is no scenario file, such as generated networks; its SHA-256.

    Args:
        name: of the reproduction.
        text: JSON of all that defines the setting.
        folder: of the results.
    Raises:
        ScenarioError: something of that name is frozen already.
        RunError: it cannot be written.
    """
    return _freeze(f"{name}.json", text, folder)


def check_frozen(scenario: Scenario, folder: Path) -> str:
    """The SHA-256 of a scenario that is as it was frozen.

    A later edgewise may write scenarios with more keys; what was frozen is then read and written
    anew by this edgewise, and that is compared. Where its setting became a key, it is the published one.

    Raises:
        ScenarioError: it is not frozen, or differs from what was frozen; the message names what differs.
        RunError: frozen.json cannot be read.
    """

    def plain(read: Scenario) -> Any:
        return read.spec.model_dump(mode="json", exclude_none=True)

    file, text = f"{scenario.name}.yaml", dump_scenario(scenario)
    return _check(
        file,
        text,
        folder,
        lambda copy: _first_difference(
            "", plain(load_scenario(copy, dict(published_settings(scenario.name)))), plain(scenario)
        ),
    )


def setting_text(setting: Mapping[str, Any]) -> str:
    """Constants as the JSON text whose SHA-256 is compared."""
    return json.dumps(setting, indent=2, sort_keys=True, allow_nan=False) + "\n"


def check_setting(name: str, text: str, folder: Path) -> str:
    """The SHA-256 of a setting that is as it was frozen.

    Raises:
        ScenarioError: it is not frozen, or differs from what was frozen; the message names what differs.
        RunError: frozen.json cannot be read.
    """
    return _check(
        f"{name}.json",
        text,
        folder,
        lambda copy: _first_difference("", json.loads(copy.read_text(encoding="utf-8")), json.loads(text)),
    )


def _freeze(file: str, text: str, folder: Path) -> str:
    """Write a copy, and its SHA-256 and today's date beside it."""
    name, frozen = Path(file).stem, read_frozen(folder)
    if name in frozen:
        raise ScenarioError(
            f"{_kind(file)} {name!r}: is frozen since {frozen[name]['date']} and stays as it is; for "
            "another one choose another `name` and freeze that"
        )
    digest = digest_of(text)
    entry = {"sha256": digest, "date": datetime.now(UTC).date().isoformat()}
    write_whole(folder / "frozen" / file, text, "frozen copy")
    listed = json.dumps(frozen | {name: entry}, indent=2, sort_keys=True) + "\n"
    write_whole(folder / "frozen.json", listed, "list of what is frozen")
    return digest


def _check(file: str, text: str, folder: Path, difference: Callable[[Path], str | None]) -> str:
    """The SHA-256 of what was frozen, if it is this text, or nothing differs but how it is written.

    Args:
        difference: from the copy of what was frozen, in words.
    """
    name, copy = Path(file).stem, folder / "frozen" / file
    entry = read_frozen(folder).get(name)
    if entry is None:
        raise ScenarioError(
            f"{_kind(file)} {name!r}: is not frozen; run `edgewise dev freeze {name}` once, before tuning "
            "anything on it: claims need what was fixed beforehand"
        )
    if digest_of(text) == entry["sha256"]:
        return entry["sha256"]
    try:
        changed = digest_of(copy.read_text(encoding="utf-8")) != entry["sha256"]
        where = f"{copy} was changed after it was frozen" if changed else difference(copy)
    except (OSError, ValueError, ScenarioError):
        where = f"its SHA-256 is {digest_of(text)[:12]}…, and there is no readable copy in {copy}"
    if where is None:
        return entry["sha256"]
    raise ScenarioError(
        f"{_kind(file)} {name!r}: differs from what was frozen on {entry['date']}: {where}. "
        "Undo the change, or give what is changed another `name` and freeze that as a new one"
    )


def _kind(file: str) -> str:
    return "scenario" if file.endswith(".yaml") else "setting"


def digest_of(text: str) -> str:
    """SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def knows_frozen(folder: Path) -> bool:
    """Whether anything says what was frozen: a checkout does, and a folder of results."""
    return checkout() is not None or (folder / "frozen.json").exists()


def _first_difference(path: str, then: Any, now: Any) -> str | None:
    """Where two trees of plain data first differ, as a dotted path with both values."""
    if type(then) is type(now) and isinstance(then, dict):
        steps = [(f"{path}.{key}".lstrip("."), key) for key in dict.fromkeys([*then, *now])]
        pairs = [(step, then.get(key), now.get(key)) for step, key in steps]
    elif type(then) is type(now) and isinstance(then, list) and len(then) == len(now):
        pairs = [(f"{path}[{i}]", a, b) for i, (a, b) in enumerate(zip(then, now, strict=True))]
    elif isinstance(then, list) and isinstance(now, list):
        return f"{path} had {len(then)} entries, now {len(now)}"
    else:
        return None if then == now else f"{path} was {then!r}, now {now!r}"
    return next((found for pair in pairs if (found := _first_difference(*pair))), None)


try:
    import fcntl
except ImportError:  # not on this system: a line is then one write to a file opened for appending
    fcntl = None  # type: ignore[assignment]


def append_look(
    folder: Path,
    paper: str,
    code: "CodeVersion",
    claims: Sequence[Claim],
    *,
    seeds: Sequence[int],
    quick: bool,
    finished: bool,
    scenarios: Mapping[str, str],
) -> Path:
    """Add one use of test seeds, now, to the log in `folder`, which is made, under a lock.

    Args:
        paper: name of the reproduction.
        code: that ran.
        claims: as far as they were made.
        seeds: that were used.
        quick: whether it was a quick run.
        finished: false when it ended early: its figures may have been seen.
        scenarios: name → SHA-256.
    Returns:
        the log.
    Raises:
        RunError: it cannot be written.
    """
    keys = ("id", "estimate", "ci", "status")
    look = {
        "time": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "paper": paper,
        "commit": code.commit,
        "dirty": code.dirty,
        "version": code.version,
        "seeds": list(seeds),
        "quick": quick,
        "finished": finished,
        "claims": [{key: claim.as_dict()[key] for key in keys} for claim in claims],
        "scenarios": dict(scenarios),
    }
    line = json.dumps(look, ensure_ascii=False, allow_nan=False) + "\n"
    path = folder / LOOKS
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(path, "ab", buffering=0) as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
            file.write(line.encode())
            os.fsync(file.fileno())
    except OSError as error:
        raise RunError(f"cannot add a look to {path}: {error}; check the path and its rights") from error
    return path


def read_looks(folder: Path) -> list[dict[str, Any]]:
    """Every look, oldest first; none when there is no log.

    Raises:
        RunError: the log cannot be read, or a line is not JSON.
    """
    path = folder / LOOKS
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"cannot read {path}: {error}; check the path and its rights") from error
    looks = []
    for number, line in enumerate(lines, 1):
        try:
            looks.append(json.loads(line))
        except ValueError as error:
            raise RunError(f"{path}:{number}: not a look: {error}; restore the line from git") from None
    return looks


LOOKS = "looks.jsonl"


@dataclass(frozen=True, slots=True)
class CodeVersion:
    """The code that ran.

    Attributes:
        commit: of the checkout; None outside of one or without git.
        dirty: files differ from the commit; None where it is unknown.
        version: of the package.
    """

    commit: str | None
    dirty: bool | None
    version: str


def checkout() -> Path | None:
    """Root of the git checkout that this package runs from, if it runs from one."""
    root = Path(__file__).resolve().parents[2]
    return root if (root / ".git").exists() and (root / "pyproject.toml").is_file() else None


def results_folder() -> Path:
    """docs/results of the checkout; elsewhere `runs` below the current folder."""
    root = checkout()
    return Path("runs") if root is None else root / "docs" / "results"


def code(root: Path | None) -> CodeVersion:
    """Commit of a checkout, and whether it was changed since; the log of looks does not count."""
    commit = None if root is None else _git(root, "rev-parse", "HEAD")
    if root is None or commit is None:
        return CodeVersion(None, None, version("edgewise"))
    changes = _git(root, "status", "--porcelain", "--", ".", f":(exclude,glob)**/{LOOKS}")
    return CodeVersion(commit, None if changes is None else bool(changes), version("edgewise"))


def _git(root: Path, *arguments: str) -> str | None:
    """What git says; None when there is no git, or it fails."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
