"""Settings: values put at dotted paths of a scenario before it is built.

A path may name whatever the scenario has, also what it has by default or takes from a file: that
part is then written out in the scenario, with the new value. Forbidden here: I/O.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from edgewise.errors import ScenarioError
from edgewise.model.library import Library, resolve
from edgewise.model.problems import listed, nearest
from edgewise.model.scenario import check_scenario

FREE = ("mix", "shapes")  # mappings whose keys are names that the user chooses
INSTEAD = {
    "streams.arrivals.pattern": "clients_per_min",
    "streams.arrivals.clients_per_min": "pattern",
}


def set_paths(data: Any, settings: Mapping[str, Any], where: str, library: Library) -> Any:
    """Plain data of a scenario with values put at dotted paths.

    Entries of lists are named by number or by their `name`. Of `streams.arrivals.pattern`
    and `streams.arrivals.clients_per_min` the one that is set replaces the other.

    Args:
        data: the scenario as YAML gave it; must be correct in form without the settings.
        settings: dotted path → value, as `topology.antennas` or `streams.applications.pool.weight`.
    Raises:
        ScenarioError: the data are wrong, or a path does not exist; names the nearest key.
    """
    for path, value in settings.items():
        spec = check_scenario(data, where)
        problems: list[str] = []
        written = resolve(spec, library, problems).model_dump(mode="json")
        if problems:
            raise ScenarioError(listed(where, problems))
        parts = re.sub(r"\[(\d+)\]", r".\1", path).split(".")
        try:
            data = _assign(data, spec.model_dump(mode="json"), written, parts, value)
        except KeyError as error:
            raise ScenarioError(f"{where}: setting {path!r}: {error.args[0]}") from None
        if path in INSTEAD and value is not None:
            data["streams"]["arrivals"].pop(INSTEAD[path], None)
    return data


def _assign(given: Any, full: Any, written: Any, parts: list[str], value: Any) -> Any:
    """A copy of `given` with `value` at `parts`.

    Args:
        given: as the user wrote it.
        full: the same part with every default.
        written: the same part with what is used from files written out.
    """
    if not parts:
        return value
    key, rest = parts[0], parts[1:]
    if not isinstance(given, type(full)) or full is None:
        given = full
    if _find(full, key) is None and _find(written, key) is not None:
        given = full = written
    at = _find(full, key)
    if at is None:
        raise KeyError(f"unknown key {key!r}; {nearest(key, _keys(full) + _keys(written))}")
    copy = deepcopy(given)
    child = given[at] if _find(given, key) is not None else full[at]
    inner = _find(written, key)
    if rest and key in FREE:
        copy[at] = {**child, **_free(rest, value)}
    else:
        copy[at] = _assign(child, full[at], None if inner is None else written[inner], rest, value)
    return copy


def _free(parts: list[str], value: Any) -> dict[str, Any]:
    """An entry of a mapping whose keys are the user's; their names may have dots."""
    return {".".join(parts): value}


def _find(part: Any, key: str) -> Any:
    """Where `key` is in a mapping or a list, None when it is not there."""
    if isinstance(part, dict):
        return key if key in part else None
    if not isinstance(part, list):
        return None
    if key.isdigit():
        return int(key) if int(key) < len(part) else None
    return next(
        (i for i, entry in enumerate(part) if isinstance(entry, dict) and entry.get("name") == key), None
    )


def _keys(part: Any) -> list[str]:
    if isinstance(part, dict):
        return list(part)
    entries = part if isinstance(part, list) else []
    return [str(entry["name"]) for entry in entries if isinstance(entry, dict) and "name" in entry]
