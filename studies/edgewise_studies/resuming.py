"""Measurements that go on where they were cut off: rows of a CSV file, of which some are there."""

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Write = Callable[[Sequence[Sequence[Any]]], None]


@contextmanager
def resumed(file: Path, columns: Sequence[str], keys: int) -> Iterator[tuple[set[tuple[str, ...]], Write]]:
    """What a file has, by the texts of its first `keys` columns; and what adds rows that are kept at once."""
    done: set[tuple[str, ...]] = set()
    if file.exists():
        with file.open(newline="", encoding="utf-8") as rows:
            done = {tuple(row[column] for column in columns[:keys]) for row in csv.DictReader(rows)}
    with file.open("a", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, lineterminator="\n")
        if out.tell() == 0:
            writer.writerow(columns)

        def write(rows: Sequence[Sequence[Any]]) -> None:
            writer.writerows(rows)
            out.flush()

        yield done, write
