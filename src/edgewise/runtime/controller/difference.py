"""What a change makes of a running system, in plain rows, before anything is done. Forbidden here: I/O."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from edgewise.runtime.store import Process

START, END, REPLACE, CHANGE, STAY = "start", "end", "replace", "change", "stay"
DEEDS = START, END, REPLACE, CHANGE, STAY
SIGNS = {START: "+", END: "-", REPLACE: "±", CHANGE: "~", STAY: "="}
SINGULAR = {
    "nodes": "node", "links": "link", "cables": "link", "services": "service", "models": "model",
    "variants": "variant", "sites": "site", "clusters": "cluster", "pipelines": "pipeline", "graphs": "graph",
    "offered": "service", "applications": "application",
}  # fmt: skip
CALLED_BY = "variant", "site", "cluster", "node"  # entries of a scenario that have no name
SETTING = "setting"
NAMED_APART = ("policies",)  # of a scenario: who decides in the end is a row of its own


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a system shall be.

    Attributes:
        scenario: as its file has it.
        policies: by decision.
        processes: those that shall run, and those that may.
    """

    scenario: Mapping[str, Any]
    policies: Mapping[str, str]
    processes: Sequence[Process]


@dataclass(frozen=True, slots=True)
class Field:
    """A value that changes; None where there is none."""

    name: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Deed:
    """One thing that a change does.

    Attributes:
        deed: of `DEEDS`.
        kind: "worker", "replica", "gateway", "policy", "setting", or a part of the scenario, as "node".
        name: of what is changed.
        fields: what is replaced or changed in it.
    """

    deed: str
    kind: str
    name: str
    fields: tuple[Field, ...] = ()


def difference(before: Wanted | None, after: Wanted, renamed: Mapping[str, str]) -> list[Deed]:
    """What is started, ended, replaced and changed on the way from one to the other, and what stays.

    Args:
        before: None where nothing runs; what the scenario says is then no change.
        renamed: new names of processes by former ones.
    """
    if before is None:
        before = replace(after, policies={}, processes=())
    former = [replace(each, name=renamed.get(each.name, each.name)) for each in before.processes]
    deeds = [
        *_processes(former, after.processes),
        *_policies(before.policies, after.policies),
        *_scenario(before.scenario, after.scenario),
    ]
    return sorted(deeds, key=lambda each: DEEDS.index(each.deed))


def _processes(before: Sequence[Process], after: Sequence[Process]) -> Iterator[Deed]:
    old = {each.name: each for each in before if each.wanted}
    new = {each.name: each for each in after if each.wanted}
    yield from (Deed(START, each.kind, name) for name, each in new.items() if name not in old)
    yield from (Deed(END, each.kind, name) for name, each in old.items() if name not in new)
    for name in (name for name in new if name in old):
        same = old[name].digest == new[name].digest
        fields = _fields(_shown(old[name]), _shown(new[name]))
        yield Deed(STAY, new[name].kind, name) if same else Deed(REPLACE, new[name].kind, name, fields)


def _shown(process: Process) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(process.settings))  # as the store has it: lists, no tuples
    return {"port": process.port, "cores": list(process.cores), **plain}


def _policies(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Deed]:
    for decision in sorted(before.keys() | after.keys()):
        old, new = before.get(decision), after.get(decision)
        deed = STAY if old == new else START if old is None else END if new is None else CHANGE
        yield Deed(deed, "policy", decision, (Field("", old, new),))


def _scenario(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Deed]:
    """Entries of lists are things of a kind; other values are settings, or fields of a thing around them."""
    changed: dict[tuple[str, str], tuple[Field, ...]] = {}
    for path, old, new in _leaves(before, after, ()):
        kind, name, rest = _thing(path)
        if rest or kind == SETTING or (old is not None and new is not None):
            changed[kind, name] = (*changed.get((kind, name), ()), Field(rest, old, new))
        else:
            yield Deed(START if old is None else END, kind, name)
    yield from (Deed(CHANGE, kind, name, fields) for (kind, name), fields in changed.items())


class _Entry(str):
    """The name of an entry of a list, in a path."""


def _thing(path: tuple[str, ...]) -> tuple[str, str, str]:
    """Kind and name of the innermost thing that a path leads into, and the rest of the path."""
    for k in range(len(path) - 2, -1, -1):
        if path[k] in SINGULAR and isinstance(path[k + 1], _Entry):
            return SINGULAR[path[k]], path[k + 1], ".".join(path[k + 2 :])
    return SETTING, ".".join(path), ""


def _leaves(old: Any, new: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Where two pieces of plain data differ: path, old and new value."""
    if old == new:
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        left, right = dict(old), dict(new)
    elif isinstance(old, list) and isinstance(new, list) and _things([*old, *new]):
        left, right = _named(old), _named(new)
    else:
        yield path, old, new
        return
    for key in dict.fromkeys((*left, *right)):
        if path or key not in NAMED_APART:
            yield from _leaves(left.get(key), right.get(key), (*path, key))


def _things(entries: Sequence[Any]) -> bool:
    return bool(entries) and all(isinstance(each, Mapping) for each in entries)


def _named(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Entries by what they are called; those that are called alike are numbered."""
    found: dict[str, Any] = {}
    for each in entries:
        called = str(each.get("name") or "@".join(str(each[key]) for key in CALLED_BY if key in each) or "1")
        numbered = (called if k == 1 else f"{called} ({k})" for k in count(1))
        found[_Entry(next(name for name in numbered if name not in found))] = each
    return found


def _fields(old: Any, new: Any) -> tuple[Field, ...]:
    return tuple(Field(".".join(path), left, right) for path, left, right in _leaves(old, new, ()))


def lines(deeds: Sequence[Deed]) -> list[str]:
    """The rows as text: a line for all that is done, one for what stays, one that counts."""
    said = [_line(each) for each in deeds if each.deed != STAY]
    stay = [f"{each.kind} {each.name}" for each in deeds if each.deed == STAY]
    many = {deed: sum(each.deed == deed for each in deeds) for deed in DEEDS}
    total = ", ".join(f"{many[deed]} to {deed}" for deed in (START, END, REPLACE, CHANGE))
    return [*said, *([f"  = stay     {', '.join(stay)}"] if stay else []), f"{total}; {many[STAY]} stay"]


def _line(deed: Deed) -> str:
    said = f"  {SIGNS[deed.deed]} {deed.deed:8} {deed.kind} {deed.name}"
    fields = [_field(each, deed.deed) for each in deed.fields]
    return f"{said}: {'; '.join(fields)}" if any(fields) else said


def _field(field: Field, deed: str) -> str:
    alone = field.after if deed == START else field.before
    if deed in (START, END):
        return _text(alone) if isinstance(alone, str | int | float) else ""
    return f"{field.name} {_text(field.before)} → {_text(field.after)}".lstrip()


def _text(value: Any) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value)
