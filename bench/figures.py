"""Figures in README and docs are those of docs/results; `make bench-docs` writes them there.

A figure stands between two comments, of which the first says which one it is and how it is written:

    <!-- bench queue/rows/SimPy/ratio .3g -->54<!-- / -->
    <!-- claim ents/E1-otfa-tp/estimate 100*.0f -->15<!-- / -->

Those of `bench` are of docs/results/bench, those of `claim` of what `edgewise reproduce` found.
Steps of a path are keys, and in lists the words of an entry, with ";" between them, or "*" for every entry.
Of several values the median is shown; "min" and "max" as the last step choose others. A form may begin with a
factor, as 1e3*.2f for ms. Whoever measures writes them anew, and a test sees that none is older.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results" / "bench"
MARK = re.compile(
    r"(<!-- (?P<of>bench|claim) (?P<path>\S[^>]*?) (?P<form>\S+) -->)(?P<shown>[^<]*)(<!-- / -->)"
)
OF_SEVERAL = {"min": min, "max": max}


def documents() -> Iterator[Path]:
    """README and all pages but results, which are written whole."""
    yield ROOT / "README.md"
    yield from sorted(page for page in (ROOT / "docs").rglob("*.md") if "results" not in page.parts)


@cache
def claims() -> dict[str, Any]:
    """Of each paper the claims as they were measured on test seeds."""
    files = sorted(RESULTS.parent.glob("*/claims.json"))
    return {file.parent.name: json.loads(file.read_text(encoding="utf-8"))["claims"] for file in files}


def insert(result: dict[str, Any]) -> list[Path]:
    """Write the figures of a result into all documents; those that changed."""
    changed = []
    for page in documents():
        text = page.read_text(encoding="utf-8")
        if (fresh := inserted(text, result, str(page))) != text:
            page.write_text(fresh, encoding="utf-8")
            changed.append(page)
    return changed


def inserted(text: str, result: dict[str, Any], where: str) -> str:
    """A document with the figures of a result.

    Raises:
        ValueError: it asks for a figure that is not there, or in no form.
    """

    def fresh(mark: re.Match[str]) -> str:
        path, form = mark["path"], mark["form"]
        try:
            found = _found(result if mark["of"] == "bench" else claims(), path.split("/"))
            return f"{mark[1]}{_formed(found, form)}{mark[6]}"
        except (LookupError, ValueError, TypeError) as error:
            line = text.count("\n", 0, mark.start()) + 1
            raise ValueError(f"{where}:{line}: no figure {path!r} in form {form!r}: {error}") from None

    return MARK.sub(fresh, text)


def _found(value: Any, steps: Sequence[str]) -> Any:
    if isinstance(value, list) and steps[:1] in (["min"], ["max"]):
        return OF_SEVERAL[steps[0]](value)
    if not steps:
        return statistics.median(value) if isinstance(value, list) else value
    step, *rest = steps
    if step == "*":
        return _found([_found(each, rest[:-1]) for each in _entries(value)], rest[-1:])
    if isinstance(value, list):
        words = set(step.split(";"))
        value = next((each for each in value if words <= set(map(str, each.values()))), None)
        if value is None:
            raise LookupError(f"no entry has {step!r}")
        return _found(value, rest)
    return _found(value[step], rest)


def _entries(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else list(value)


def _formed(value: Any, form: str) -> str:
    factor, _, spec = form.rpartition("*")
    return format(float(factor) * value if factor else value, spec)


if __name__ == "__main__":
    for each in insert(json.loads((RESULTS / "bench.json").read_text(encoding="utf-8"))):
        print(each.relative_to(ROOT))
