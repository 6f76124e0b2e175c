"""Hashes of the records of the golden runs, and what differs from them.

`python tests/golden/golden_records.py` writes records.json anew; a change is listed in CHANGES.md before.

A column is its kind, a hash of its bytes, and a hash of its values to 12 significant digits. Bytes are
compared where this machine's logarithms and exponentials are those of the machine that wrote the file
(`arithmetic`): numpy and libm choose others on other processors, which differ in the last bit, and arrivals
go through a logarithm. Elsewhere the 12 digits are compared. `marks` has two digits for each row, to
place a difference.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

RECORDS = Path(__file__).parent / "records.json"


def arithmetic() -> str:
    """Names this machine's logarithms and exponentials."""
    x = np.linspace(1e-6, 20.0, 4001)
    scalars = np.array([(math.log(v), math.exp(-v), math.log1p(v), math.pow(v, 0.7)) for v in x.tolist()])
    arrays = (scalars, np.log(x), np.exp(-x), np.log1p(x), np.power(x, 0.7))
    return _hash(b"".join(array.tobytes() for array in arrays))


def described(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What records.json says of a run's tables."""
    return {name: _table(columns) for name, columns in tables.items()}


def differences(before: Mapping[str, Any], now: Mapping[str, Any], same_arithmetic: bool) -> list[str]:
    """What differs between two descriptions, by table and column, with the first row that does."""
    found = [f"table {name} is missing" for name in before if name not in now]
    found += [f"table {name} is new" for name in now if name not in before]
    for name in before:
        if name in now:
            found += [f"{name}: {what}" for what in _in_table(before[name], now[name], same_arithmetic)]
    return found


def _in_table(before: Mapping[str, Any], now: Mapping[str, Any], same_arithmetic: bool) -> list[str]:
    old, new = before["columns"], now["columns"]
    found = [f"column {name} is missing" for name in old if name not in new]
    found += [f"column {name} is new" for name in new if name not in old]
    compared = ("kind", "bytes") if same_arithmetic else ("kind", "digits")
    changed = [name for name in old if name in new and any(old[name][k] != new[name][k] for k in compared)]
    found += [f"column {name}: {_figures(old[name])}, now {_figures(new[name])}" for name in changed]
    if before["rows"] != now["rows"]:
        found.append(f"{before['rows']} rows, now {now['rows']}")
    if found and (row := _first_row(before["marks"], now["marks"])) is not None:
        found.append(f"the first row that differs is {row}")
    return found


def _figures(column: Mapping[str, Any]) -> str:
    return f"{column['kind']} of sum {column['sum']}"


def _first_row(before: str, now: str) -> int | None:
    rows = min(len(before), len(now)) // 2
    return next((i for i in range(rows) if before[2 * i : 2 * i + 2] != now[2 * i : 2 * i + 2]), None)


def _table(columns: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: list(np.asarray(column).tolist()) if isinstance(column, np.ndarray) else list(column)
              for name, column in columns.items()}  # fmt: skip
    rows = [repr([_digits(value) for value in row]) for row in zip(*values.values(), strict=True)]
    return {
        "rows": len(rows),
        "columns": {name: _column(column) for name, column in values.items()},
        "marks": "".join(_hash(row.encode())[:2] for row in rows),
    }


def _column(values: Sequence[Any]) -> dict[str, Any]:
    kinds = sorted({type(value).__name__ for value in values})
    numbers = [value for value in values if isinstance(value, (int, float)) and math.isfinite(value)]
    return {
        "kind": " or ".join(kinds),
        "bytes": _hash(
            repr([value.hex() if isinstance(value, float) else value for value in values]).encode()
        ),
        "digits": _hash(repr([_digits(value) for value in values]).encode()),
        "sum": _digits(math.fsum(numbers)) if numbers else None,
    }


def _digits(value: Any) -> Any:
    return f"{value:.12g}" if isinstance(value, float) else value


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def main() -> None:
    """Write records.json anew."""
    from golden_runs import RUNS

    runs = {name: {"what": run.what, "tables": described(run.tables())} for name, run in RUNS.items()}
    written = {"arithmetic": arithmetic(), "runs": runs}
    RECORDS.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
