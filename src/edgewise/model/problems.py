"""What is wrong with a scenario, in words: dotted path, bad value, fix.

Forbidden here: I/O.
"""

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

Problems = list[str]
SHOWN = 60  # characters of a bad value
LISTED = 50  # problems of a file


def nearest(name: object, known: Iterable[str]) -> str:
    """A hint at the nearest of the `known` names, or at all of them when none is near."""
    names = list(dict.fromkeys(known))
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    return (
        f"use one of: {', '.join(names[:12])}{', …' if len(names) > 12 else ''}" if names else "there is none"
    )


def listed(where: str, problems: Sequence[str]) -> str:
    """One message for all problems."""
    if len(problems) == 1:
        return f"{where}: {problems[0]}"
    more = [f"… and {len(problems) - LISTED:,} more"] if len(problems) > LISTED else []
    return "\n  - ".join([f"{where}: {len(problems):,} problems", *problems[:LISTED], *more])


def shown(value: object) -> str:
    """A value, cut to a readable length."""
    text = "(empty)" if value is None else repr(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def known(where: str, kind: str, name: str, names: Iterable[str], problems: list[str]) -> None:
    """A name that is not among `names` is a problem, with a hint at the nearest."""
    names = list(names)
    if name not in names:
        problems.append(f"{where}: unknown {kind} {name!r}; {nearest(name, names)}")


def unique(where: str, names: Sequence[str], problems: list[str]) -> None:
    """Names that are given twice are problems."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    problems.extend(f"{where}: the name {name!r} is given twice; rename one" for name in twice)


def dotted(loc: Sequence[str | int]) -> str:
    """catalog.variants[0].name from ("catalog", "variants", 0, "name")."""
    path = ""
    for part in loc:
        if _is_tag(part):
            continue
        path += f"[{part}]" if isinstance(part, int) else f"{'.' if path else ''}{part}"
    return path or "top level"


def _is_tag(part: str | int) -> bool:
    """Whether a part is no key of the file, but marks the form it was checked as: "(own)", "(use)"."""
    return isinstance(part, str) and part.startswith("(")


def explain(error: ValidationError, root: type[BaseModel]) -> list[str]:
    """One line for each error of pydantic."""
    # A list whose only entry is wrong also counts as too short: only the entry's own error helps.
    return [
        _line(dict(detail), root)
        for detail in error.errors(include_url=False)
        if not (detail["type"] == "too_short" and detail["input"])
    ]


def _line(detail: Mapping[str, Any], root: type[BaseModel]) -> str:
    loc, value = detail["loc"], detail["input"]
    keys, bad = _keys_at(root, loc[:-1]), shown(value)
    match detail["type"]:
        case "extra_forbidden":
            says = f"unknown key {str(loc[-1])!r}; {nearest(loc[-1], keys)}"
        case "missing":
            about = keys.get(loc[-1])
            says = f"is missing; add it ({about})" if about else "is missing; add it"
        case "value_error" if isinstance(value, dict | BaseModel):
            says = str(detail["ctx"]["error"])
        case "value_error":
            says = f"{bad} {detail['ctx']['error']}"
        case "literal_error":
            says = f"{bad} is not allowed; use {detail['ctx']['expected']}"
        case "string_pattern_mismatch":
            says = f"{bad} is not a name; use letters, digits and . _ -, a letter or digit first"
        case "string_type":
            says = f"{bad} is not a string; put it in quotes"
        case "model_type" | "model_attributes_type":
            says = f"{bad} is not a mapping; its keys are {', '.join(_keys_at(root, loc)) or '…'}"
        case "tuple_type" | "too_short":
            says = f"{bad} is not a list with at least one entry; write '- …' lines"
        case _:
            says = f"{bad}: {detail['msg']}"
    return f"{dotted(loc)}: {says}"


def _keys_at(root: type[BaseModel], loc: Sequence[str | int]) -> dict[str, str]:
    """The keys of the part of a file at a place, and what they say; none where nothing is known of it."""
    model: type[BaseModel] | None = root
    annotation: Any = root
    for part in loc:
        if isinstance(part, int):
            continue
        if _is_tag(part):
            annotation = _tagged(annotation, str(part))
        elif model is None or part not in model.model_fields:
            return {}
        else:
            annotation = model.model_fields[part].annotation
        model = _model_in(annotation)
    return {key: field.description or "" for key, field in model.model_fields.items()} if model else {}


def _tagged(annotation: Any, tag: str) -> Any:
    """The member of a union that carries a tag, however deep the union lies."""
    for part in get_args(annotation):
        if any(getattr(mark, "tag", None) == tag for mark in getattr(part, "__metadata__", ())):
            return part
        if (inner := _tagged(part, tag)) is not part:
            return inner
    return annotation


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part))), None)
