"""Run folders: what a run leaves behind, and the figures every report starts from.

    runs/<name>/
        scenario.yaml     the scenario as it was run
        manifest.json     seeds, policies, version, command
        items.parquet     a row for each piece of work
        windows.parquet   a row for each span of time
        summary.json      a row for each policy and seed
        jobs-…            these three again for each other kind of work that ran on the same nodes
        holds.parquet     who used what, see `report.use`; and workers, links and delays, where known

The columns of the two tables are those of the kind of work, `schema.WORK`.

A folder appears complete or not at all: it is written beside its place and renamed.
The same records give the same bytes, in whatever order their rows arrive.
"""

import json
import shutil
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from edgewise.errors import RunError
from edgewise.policies import DECISIONS
from edgewise.report.decided import ByPolicy, of_json
from edgewise.report.schema import WORK, Measure, Work, measures_of
from edgewise.report.summary import summary_of
from edgewise.report.use import SORTED_BY, USE

OWNERS = {
    "state.sqlite": "a live system",
    "state.sqlite.copy": "a live system",
    "manifest.json": "a simulation",
    "runs.jsonl": "a sweep",
    "claims.json": "a reproduction",
    "scenario.yaml": "a recording",
}
"""Files that say whose a folder is, the first that is there: some have a scenario.yaml, too."""

FORMAT = 2
"""Version of the folder's layout, kept in the manifest."""

_MANIFEST_KEYS = ("work", "seeds", "policies", "version", "command")
_FILES = ("scenario.yaml", "manifest.json", "items.parquet", "windows.parquet", "summary.json")
_TABLES = ("items.parquet", "windows.parquet", "summary.json")  # once more for each work beside
_USED = tuple(f"{name}.parquet" for name in USE)
_REPLACED = ("report.html", "figures", "streams.parquet", "frames.parquet", "run.json")  # some of format 1


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run read back from its folder.

    Attributes:
        folder: where it was read from.
        scenario_yaml: the scenario as it was run.
        manifest: work, seeds, policies, version, command and what else the driver noted.
        items: sorted by seed, policy and item.
        windows: sorted by seed, policy and window.
        summary: rows of `summary_of`.
        beside: the same of other work that ran on the same nodes.
        use: tables of `report.use`, by name.
    """

    folder: Path
    scenario_yaml: str
    manifest: dict[str, Any]
    items: pa.Table
    windows: pa.Table
    summary: list[dict[str, Any]]
    beside: "tuple[RecordedRun, ...]" = ()
    use: Mapping[str, pa.Table] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """Its kind of work, of `schema.WORK`."""
        return str(self.manifest["work"])

    @property
    def work(self) -> Work:
        """How its kind of work is recorded and judged."""
        return WORK[self.kind]

    @property
    def measures(self) -> tuple[Measure, ...]:
        """By which its policies are judged."""
        return measures_of(self.kind, self.summary)

    @property
    def all_decided(self) -> ByPolicy:
        """How often policies were to decide, and the fallback did; older runs do not say it."""
        return of_json(self.manifest.get("decided", {}))

    @property
    def decided(self) -> ByPolicy:
        """The same, of the decisions of its kind of work."""
        return {
            label: {decision: one for decision, one in of.items() if DECISIONS[decision] == self.kind}
            for label, of in self.all_decided.items()
        }

    @property
    def name(self) -> str:
        """Name of the run: that of its folder."""
        return self.folder.resolve().name

    @property
    def policies(self) -> list[str]:
        """Policies with records, in the manifest's order."""
        present = set(pc.unique(self.items["policy"]).to_pylist())
        present |= set(pc.unique(self.windows["policy"]).to_pylist())
        listed = [policy for policy in map(str, self.manifest["policies"]) if policy in present]
        return [*dict.fromkeys(listed), *sorted(present - set(listed))]

    def label(self, policy: str) -> str:
        """What runs of a policy of other work are called here: the same, or, where all have one, its name."""
        mine = self.policies
        return policy if policy in mine or len(mine) != 1 else mine[0]


def conform(table: pa.Table, schema: pa.Schema, order: str, what: str) -> pa.Table:
    """A table in the schema's columns and types, rows sorted by seed, policy and `order`.

    Args:
        table: records, columns in any order and of any type that casts without loss.
        schema: of `schema.WORK`.
        order: last column of the sort key, as "stream" or "window".
        what: name of the table in messages.
    Raises:
        RunError: a column is missing, unknown, null where it may not be, of a wrong type, or
            ok + failed + rejected differs from queries in some row.
    """
    missing = [name for name in schema.names if name not in table.column_names]
    unknown = [name for name in table.column_names if name not in schema.names]
    if missing or unknown:
        raise RunError(
            f"{what}: missing columns {missing}, unknown columns {unknown}; use the columns of report.schema"
        )
    table = table.select(schema.names)
    for each in schema:
        if not each.nullable and table[each.name].null_count:
            raise RunError(f"{what}: column {each.name!r} holds null; give every row a {each.type}")
    try:
        table = table.cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise RunError(f"{what}: a column does not cast to report.schema: {error}") from error
    if "ok" in schema.names:
        _check_counts(table, order, what)
    keys = [(key, "ascending") for key in ("seed", "policy", order)]
    return table.sort_by(keys).combine_chunks()


def _check_counts(table: pa.Table, order: str, what: str) -> None:
    """Every query is counted once."""
    parts = pc.add(pc.add(table["ok"], table["failed"]), table["rejected"])
    wrong = table.filter(pc.not_equal(parts, table["queries"]))
    if wrong.num_rows:
        row = wrong.slice(0, 1).to_pylist()[0]
        raise RunError(
            f"{what}: {order} {row[order]} of policy {row['policy']!r}, seed {row['seed']}: queries is "
            f"{row['queries']} but ok + failed + rejected is {row['ok'] + row['failed'] + row['rejected']}; "
            "count every query once"
        )


def _write_files(folder: Path, texts: Mapping[str, str], tables: Mapping[str, pa.Table]) -> None:
    """Parquet of which every byte follows from the tables: settings fixed, one thread, no times."""
    folder.mkdir(parents=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
    for name, table in tables.items():
        pq.write_table(
            table,
            folder / name,
            version="2.6",
            data_page_version="1.0",
            compression="zstd",
            compression_level=3,
            use_dictionary=True,
            write_statistics=True,
            row_group_size=1 << 20,
        )


def _json(value: object, what: str) -> str:
    try:
        return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise RunError(f"{what} does not go into JSON: {error}; use plain numbers, text and lists") from error


def _strangers(folder: Path) -> list[str]:
    """Entries of an old run folder that no part of edgewise wrote."""
    known = {*_FILES, *_REPLACED, *(f"{work}-{name}" for work in WORK for name in _TABLES), *_USED}
    strange = [entry.name for entry in folder.iterdir() if entry.name not in known]
    drawn = (folder / "figures").glob("*")
    return sorted([*strange, *(f"figures/{entry.name}" for entry in drawn if entry.suffix != ".png")])


def _put_in_place(written: Path, folder: Path) -> None:
    """Rename a complete folder to its place, in exchange for an earlier run there."""
    if not folder.exists():
        written.rename(folder)
        return
    old = folder.with_name(f".{folder.name}-{uuid.uuid4().hex}.old")
    folder.rename(old)
    try:
        written.rename(folder)
    except OSError:
        old.rename(folder)
        raise
    shutil.rmtree(old)


def write_whole(path: str | Path, text: str, what: str) -> None:
    """Write a text file, whole or not at all; its folder is made.

    Args:
        what: name of the content in messages.
    Raises:
        RunError: it cannot be written.
    """
    place = Path(path)
    written = place.with_name(f".{place.name}-{uuid.uuid4().hex}.tmp")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            written.write_text(text, encoding="utf-8", newline="\n")
            written.replace(place)
        finally:
            written.unlink(missing_ok=True)
    except OSError as error:
        raise RunError(f"cannot write {what} {place}: {error}; check the path and its rights") from error


def refuse_others(what: str, folder: Path, mine: str = "") -> None:
    """Nobody writes into a folder that is something else's, whose files of the same names would be lost.

    Args:
        what: the user calls it, for the message.
        mine: whose it may be, of `OWNERS`.
    Raises:
        RunError: says whose it is.
    """
    owner = next((owner for file, owner in OWNERS.items() if (folder / file).is_file()), mine)
    if owner != mine:
        raise RunError(f"{what} {folder}: is the folder of {owner}, which stays as it is; name another")


def check_place(folder: str | Path) -> None:
    """Find out before long work whether a run folder can be written; its parents are made.

    Raises:
        RunError: the folder cannot be written, or holds files that are no part of a run.
    """
    place = Path(folder).absolute()
    try:
        refuse_others("run folder", place, "a simulation")
        if place.exists() and (strange := _strangers(place)):
            raise RunError(f"{place} holds {', '.join(strange[:3])}, no part of a run; choose another folder")
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place.parent):
            pass
    except OSError as error:
        raise RunError(f"cannot write run folder {place}: {error}; check the path and its rights") from error


def write_run(
    folder: str | Path,
    *,
    scenario_yaml: str,
    manifest: Mapping[str, Any],
    items: pa.Table,
    windows: pa.Table,
    summary: Sequence[Mapping[str, Any]] | None = None,
    beside: Mapping[str, tuple[pa.Table, pa.Table]] | None = None,
    use: Mapping[str, pa.Table] | None = None,
) -> None:
    """Write a run folder, whole or not at all; an earlier run there is replaced.

    Args:
        folder: runs/<name>; parents are made.
        scenario_yaml: the scenario as it was run.
        manifest: at least work, seeds, policies, version, command; plain JSON values.
        items, windows: records in the schemas of its work.
        summary: rows of `summary_of`, with what else is known of each; None makes them.
        beside: items and windows of other work that ran on the same nodes, by its kind.
        use: tables of `report.use`.
    Raises:
        RunError: a table breaks the schema, the manifest lacks a key, or the folder cannot be
            written or holds files that are no part of a run.
    """
    place = Path(folder).absolute()
    lacking = [key for key in _MANIFEST_KEYS if key not in manifest]
    if lacking:
        raise RunError(f"manifest lacks {', '.join(lacking)}; it needs {', '.join(_MANIFEST_KEYS)}")
    texts = {
        "scenario.yaml": scenario_yaml,
        "manifest.json": _json({**manifest, "format": FORMAT}, "manifest"),
    }
    tables: dict[str, pa.Table] = {}
    for kind, found in {manifest["work"]: (items, windows), **(beside or {})}.items():
        before = "" if kind == manifest["work"] else f"{kind}-"
        work = WORK[kind]
        mine = conform(found[0], work.items, work.item, f"{before}items")
        spans = conform(found[1], work.windows, "window", f"{before}windows")
        rows = summary_of(kind, mine, spans) if before or summary is None else list(summary)
        texts[f"{before}summary.json"] = _json(rows, f"{before}summary")
        tables |= {f"{before}items.parquet": mine, f"{before}windows.parquet": spans}
    for name, table in (use or {}).items():
        if table.num_rows:
            keys = [(key, "ascending") for key in ("seed", "policy", *SORTED_BY[name])]
            tables[f"{name}.parquet"] = conform(table, USE[name], "seed", name).sort_by(keys)
    written = place.with_name(f".{place.name}-{uuid.uuid4().hex}.tmp")
    check_place(place)
    try:
        _write_files(written, texts, tables)
        _put_in_place(written, place)
    except OSError as error:
        raise RunError(f"cannot write run folder {place}: {error}; check the path and its rights") from error
    finally:
        shutil.rmtree(written, ignore_errors=True)


def read_run(folder: str | Path) -> RecordedRun:
    """Read a run folder.

    Raises:
        RunError: a file is missing or unreadable, or a newer edgewise wrote the folder.
    """
    place = Path(folder)
    _refuse_lack(place, _FILES)
    found = _tables(place, "")
    try:
        manifest = json.loads((place / "manifest.json").read_text(encoding="utf-8"))
        scenario_yaml = (place / "scenario.yaml").read_text(encoding="utf-8")
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"cannot read run folder {place}: {error}; run the scenario again") from error
    lacking = [key for key in _MANIFEST_KEYS if not isinstance(manifest, dict) or key not in manifest]
    if lacking:
        raise RunError(f"{place}/manifest.json lacks {', '.join(lacking)}; run the scenario again")
    if manifest.get("format", 0) > FORMAT:
        raise RunError(f"{place}: format is {manifest['format']}, this edgewise reads {FORMAT}; upgrade it")
    runs: list[RecordedRun] = []
    for kind in (manifest["work"], *manifest.get("beside", ())):
        work, before = WORK.get(kind), f"{kind}-" if runs else ""
        if work is None:
            raise RunError(f"{place}/manifest.json: work is {kind!r}; use one of {', '.join(WORK)}")
        items, windows, summary = _tables(place, before) if runs else found
        items = conform(items, work.items, work.item, f"{before}items.parquet")
        windows = conform(windows, work.windows, "window", f"{before}windows.parquet")
        keys = {"policy", "seed", *(measure.key for measure in work.measures)}
        if not isinstance(summary, list) or not all(
            isinstance(row, dict) and keys <= {*row} for row in summary
        ):
            raise RunError(f"{place}/{before}summary.json lacks measures of {kind}; run the scenario again")
        about = {**manifest, "work": kind}
        runs.append(RecordedRun(place, scenario_yaml, about, items, windows, summary))
    use = {
        name: conform(_parquet(place, file), columns, SORTED_BY[name][0], file)
        for name, columns in USE.items()
        if (place / (file := f"{name}.parquet")).is_file()
    }
    return replace(runs[0], beside=tuple(runs[1:]), use=use)


def _tables(place: Path, before: str) -> tuple[pa.Table, pa.Table, list[dict[str, Any]]]:
    """Items, windows and summary of one kind of work."""
    names = [before + name for name in _TABLES]
    _refuse_lack(place, names)
    items, windows = (_parquet(place, name) for name in names[:2])
    try:
        return items, windows, json.loads((place / names[2]).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"cannot read run folder {place}: {error}; run the scenario again") from error


def _parquet(place: Path, name: str) -> pa.Table:
    try:
        return pq.read_table(place / name)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise RunError(f"cannot read run folder {place}: {error}; run the scenario again") from error


def _refuse_lack(place: Path, names: Sequence[str]) -> None:
    if missing := [name for name in names if not (place / name).is_file()]:
        report = place / "report.html"  # of a sweep
        fix = f"its report is {report}" if report.is_file() else "give a folder of `runs/`"
        raise RunError(f"{place} is no run folder: it lacks {', '.join(missing)}; {fix}")
