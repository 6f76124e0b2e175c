"""Frozen scenarios: what a reproduction runs was fixed, with a date, before the first training.

    <results>/frozen.json        {"three-tier": {"sha256": "9a…", "date": "2030-01-31"}, …}
    <results>/frozen/NAME.yaml   the resolved scenario; its SHA-256 is the one in frozen.json

    <results>/frozen/NAME.json   the same for a setting that is no scenario: constants of a reproduction

What is frozen never changes. To try another one, give it another name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from edgewise.config import dump_scenario, load_scenario
from edgewise.errors import RunError, ScenarioError
from edgewise.model.scenario import Scenario
from edgewise.report.records import write_whole


def sha256(scenario: Scenario) -> str:
    """SHA-256 of the resolved scenario, as `sha256sum` of its `dump_scenario` gives it."""
    return hashlib.sha256(dump_scenario(scenario).encode()).hexdigest()


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
    scenario = load_scenario(name)
    frozen = read_frozen(folder)
    if scenario.name in frozen:
        raise ScenarioError(
            f"scenario {scenario.name!r}: is frozen since {frozen[scenario.name]['date']} and stays as it "
            "is; for another scenario give the file another `name` and freeze that"
        )
    digest = sha256(scenario)
    entry = {"sha256": digest, "date": datetime.now(UTC).date().isoformat()}
    write_whole(_copy(folder, scenario.name), dump_scenario(scenario), "frozen scenario")
    text = json.dumps(frozen | {scenario.name: entry}, indent=2, sort_keys=True) + "\n"
    write_whole(folder / "frozen.json", text, "frozen scenarios")
    return scenario.name, digest


def check_frozen(scenario: Scenario, folder: Path) -> str:
    """The SHA-256 of a scenario that is as it was frozen.

    A later edgewise may write scenarios with more keys; what was frozen is then read and written
    anew by this edgewise, and that is compared.

    Raises:
        ScenarioError: it is not frozen, or differs from what was frozen; the message names what differs.
        RunError: frozen.json cannot be read.
    """
    entry = read_frozen(folder).get(scenario.name)
    if entry is None:
        raise ScenarioError(
            f"scenario {scenario.name!r}: is not frozen, and claims need one that was fixed beforehand; "
            "run `edgewise freeze SCENARIO` once, before tuning anything on it"
        )
    digest = sha256(scenario)
    if digest == entry["sha256"]:
        return digest
    copy = _copy(folder, scenario.name)
    where = _difference(scenario, copy, entry["sha256"])
    if where is None:
        return entry["sha256"]
    raise ScenarioError(
        f"scenario {scenario.name!r}: differs from what was frozen on {entry['date']}: {where}. "
        "Undo the change, or give the changed scenario another `name` and freeze that as a new one"
    )


def setting_text(setting: Mapping[str, Any]) -> str:
    """A setting as the text whose SHA-256 is compared."""
    return json.dumps(setting, indent=2, sort_keys=True, allow_nan=False) + "\n"


def freeze_setting(name: str, setting: Mapping[str, Any], folder: Path) -> str:
    """Freeze the constants of a reproduction and return their SHA-256.

    Raises:
        ScenarioError: something of that name is frozen already.
        RunError: it cannot be written.
    """
    frozen = read_frozen(folder)
    if name in frozen:
        raise ScenarioError(f"setting {name!r}: is frozen since {frozen[name]['date']} and stays as it is")
    text = setting_text(setting)
    digest = hashlib.sha256(text.encode()).hexdigest()
    entry = {"sha256": digest, "date": datetime.now(UTC).date().isoformat()}
    write_whole(folder / "frozen" / f"{name}.json", text, "frozen setting")
    listed = json.dumps(frozen | {name: entry}, indent=2, sort_keys=True) + "\n"
    write_whole(folder / "frozen.json", listed, "frozen scenarios")
    return digest


def check_setting(name: str, setting: Mapping[str, Any], folder: Path) -> str:
    """The SHA-256 of a setting that is as it was frozen.

    Raises:
        ScenarioError: it is not frozen, or differs from what was frozen; the message names what differs.
        RunError: frozen.json cannot be read.
    """
    entry = read_frozen(folder).get(name)
    if entry is None:
        raise ScenarioError(f"setting {name!r}: is not frozen; run `edgewise freeze {name}` once")
    text = setting_text(setting)
    if hashlib.sha256(text.encode()).hexdigest() == entry["sha256"]:
        return entry["sha256"]
    try:
        then = json.loads((folder / "frozen" / f"{name}.json").read_text(encoding="utf-8"))
        where = _first_difference("", then, json.loads(text)) or "its copy was changed after it was frozen"
    except (OSError, ValueError):
        where = "no readable copy of it"
    raise ScenarioError(
        f"setting {name!r}: differs from what was frozen on {entry['date']}: {where}. Undo the change"
    )


def _copy(folder: Path, name: str) -> Path:
    return folder / "frozen" / f"{name}.yaml"


def _difference(scenario: Scenario, copy: Path, digest: str) -> str | None:
    """The first key that differs from the frozen copy; None when nothing does."""
    try:
        same_text = hashlib.sha256(copy.read_bytes()).hexdigest() == digest
        then = load_scenario(copy)
    except (OSError, ScenarioError):
        return (
            f"its SHA-256 is {sha256(scenario)[:12]}…, frozen was {digest[:12]}… (no readable copy in {copy})"
        )
    if not same_text:
        return f"{copy} was changed after it was frozen"
    before, now = (each.spec.model_dump(mode="json", exclude_none=True) for each in (then, scenario))
    return _first_difference("", before, now)


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
