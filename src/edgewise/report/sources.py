"""What became of the sources of a run: a table by source, as its records say."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from edgewise.arrays import Floats

HEADINGS = ("source", "policy", "how many", "queries", "in time %", "refused %", "worst one %")
ABOUT = (
    "in time: of the queries of all of them; refused: queries that no worker was bound for; "
    "worst one: in time, of the source that fared worst"
)


def by_source(streams: pa.Table) -> list[dict[str, Any]]:
    """Rows by policy and source, over all seeds; empty where no stream is of a source.

    Args:
        streams: records in schema.STREAMS.
    Returns:
        rows of source, policy, sources (how many there are), queries, and shares of these: in_time, refused,
        and worst: in time, of the one that fared worst in a run. A share is None where no query was sent.
    """
    mine = streams.filter(pc.is_valid(streams["source"]))
    if not mine.num_rows:
        return []
    each = ["policy", "application", "seed", "site", "source"]
    counts = [("queries", "sum"), ("ok", "sum"), ("rejected", "sum")]
    one = mine.group_by(each, use_threads=False).aggregate(counts)
    rows = []
    for policy, name in dict.fromkeys(zip(*(one[key].to_pylist() for key in each[:2]), strict=True)):
        of = one.filter((pc.field("policy") == policy) & (pc.field("application") == name))
        sent, ok, rejected = (of[f"{column}_sum"].to_numpy() for column, _ in counts)
        rows.append(
            {
                "source": name,
                "policy": policy,
                "sources": of.num_rows // len(pc.unique(of["seed"])),
                "queries": int(sent.sum()),
                "in_time": _share(ok, sent),
                "refused": _share(rejected, sent),
                "worst": float((ok[sent > 0] / sent[sent > 0]).min()) if sent.any() else None,
            }
        )
    return sorted(rows, key=lambda row: (row["source"], -(row["in_time"] or 0.0), row["policy"]))


def _share(part: Floats, whole: Floats) -> float | None:
    return float(part.sum() / whole.sum()) if whole.any() else None


def shown(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Cells under `HEADINGS`."""
    shares = [[row[key] for key in ("in_time", "refused", "worst")] for row in rows]
    return [
        (
            row["source"], row["policy"], str(row["sources"]), f"{row['queries']:,}",
            *("–" if share is None else f"{100 * share:.2f}" for share in mine),
        )
        for row, mine in zip(rows, shares, strict=True)
    ]  # fmt: skip
