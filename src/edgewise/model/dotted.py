"""Values at dotted paths of plain data, for settings of scenarios. Forbidden here: I/O."""

from copy import deepcopy
from typing import Any

from edgewise.model.problems import nearest

FREE = ("mix", "shapes")  # mappings whose keys are names that the user chooses


def assigned(given: Any, full: Any, written: Any, parts: list[str], value: Any) -> Any:
    """A copy of `given` with `value` at `parts`.

    Args:
        given: as the user wrote it.
        full: the same part with every default.
        written: the same part with what is used from files written out.
    """
    if not parts:
        return value
    if isinstance(full, list) and len(full) == 1 and _find(full, parts[0]) is None and parts[0] in full[0]:
        parts = ["0", *parts]
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
        copy[at] = {**child, ".".join(rest): value}  # names that the user chose may have dots
    else:
        copy[at] = assigned(child, full[at], None if inner is None else written[inner], rest, value)
    return copy


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
