"""Run folders: what goes in comes out, in the same bytes; nothing half-written stays."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from report_example import MANIFEST, example_run, stream_row, table, window_row

from edgewise.errors import RunError
from edgewise.report import records
from edgewise.report.schema import STREAMS, WINDOWS, WORK
from edgewise.report.summary import summarise

STREAM_ROWS = [
    stream_row(seed=seed, policy=policy, stream=stream)
    for seed in (2, 1)
    for policy in ("random", "closest")
    for stream in (1, 0)
]
FILES = {"scenario.yaml", "manifest.json", "items.parquet", "windows.parquet", "summary.json"}


def write(folder: Path, streams: pa.Table | None = None, **manifest: object) -> None:
    records.write_run(
        folder,
        scenario_yaml="name: x\n",
        manifest=MANIFEST | manifest,
        items=table(STREAM_ROWS, STREAMS) if streams is None else streams,
        windows=table([window_row()], WINDOWS),
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_every_column_is_described() -> None:
    assert STREAMS.names[:3] == ["seed", "policy", "stream"] and STREAMS.names[-1] == "delay_max_s"
    assert [field.name for field in WINDOWS if field.nullable] == []
    assert [field.name for field in STREAMS if field.nullable] == [
        "source", "worker", "variant", "cluster", "reason", "delay_mean_s", "delay_max_s",
    ]  # fmt: skip
    for work in WORK.values():
        for schema, key in ((work.items, work.item), (work.windows, "window")):
            assert schema.names[:3] == ["seed", "policy", key]
            assert all(field.metadata[b"description"] for field in schema)


def test_round_trip(tmp_path: Path) -> None:
    write(tmp_path / "runs" / "x")
    run = records.read_run(tmp_path / "runs" / "x")
    assert run.name == "x"
    assert run.scenario_yaml == "name: x\n"
    assert run.manifest["seeds"] == MANIFEST["seeds"]
    assert run.policies == ["closest", "random"]
    assert run.items.schema == STREAMS and run.windows.schema == WINDOWS
    assert run.windows.to_pylist() == [window_row()]
    key = [(row["seed"], row["policy"], row["stream"]) for row in run.items.to_pylist()]
    assert key == sorted((row["seed"], row["policy"], row["stream"]) for row in STREAM_ROWS)
    assert run.summary == summarise(run.items)


def test_the_same_records_give_the_same_bytes(tmp_path: Path) -> None:
    write(tmp_path / "a")
    parts = [table([row], STREAMS) for row in reversed(STREAM_ROWS)]
    write(tmp_path / "b", pa.concat_tables(parts).select(list(reversed(STREAMS.names))))
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert set(contents(tmp_path / "a")) == FILES
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_parquet_keeps_the_descriptions(tmp_path: Path) -> None:
    write(tmp_path / "a")
    field = pq.read_schema(tmp_path / "a" / "items.parquet").field("rate_qps")
    assert field.metadata[b"description"] == b"queries per second"


def test_an_earlier_run_is_replaced_but_not_a_folder_of_other_things(tmp_path: Path) -> None:
    run = example_run(tmp_path / "a")
    assert len(run.policies) == 4
    write(tmp_path / "a")
    assert records.read_run(tmp_path / "a").policies == ["closest", "random"]
    (tmp_path / "a" / "thesis.tex").write_text("x")
    with pytest.raises(RunError, match=r"thesis\.tex"):
        write(tmp_path / "a")
    assert (tmp_path / "a" / "thesis.tex").read_text() == "x"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a")
    before = contents(tmp_path / "a")

    def full(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(records.pq, "write_table", full)
    with pytest.raises(RunError, match="no space left"):
        write(tmp_path / "a", version="0.2.0")
    assert contents(tmp_path / "a") == before
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize(
    ("streams", "message"),
    [
        (table(STREAM_ROWS, STREAMS).drop_columns(["ok"]), r"missing columns \['ok'\]"),
        (table(STREAM_ROWS, STREAMS).append_column("extra", [[0] * 8]), r"unknown columns \['extra'\]"),
        (table([stream_row(ok=49)], STREAMS), "queries is 50 but ok .* is 49"),
        (pa.Table.from_pylist([stream_row(site=None)]), "'site' holds null"),
        (pa.Table.from_pylist([stream_row(rate_qps="many")]), "does not cast"),
    ],
)
def test_tables_that_break_the_schema(tmp_path: Path, streams: pa.Table, message: str) -> None:
    with pytest.raises(RunError, match=message):
        write(tmp_path / "a", streams)
    assert not (tmp_path / "a").exists()


def test_manifests_that_are_wrong(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="lacks work, seeds"):
        records.write_run(
            tmp_path / "a", scenario_yaml="", manifest={"policies": [], "version": "", "command": ""},
            items=table([], STREAMS), windows=table([], WINDOWS),
        )  # fmt: skip
    with pytest.raises(RunError, match="does not go into JSON"):
        write(tmp_path / "a", seeds={1, 2})


def test_reading_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"lacks scenario\.yaml"):
        records.read_run(tmp_path)
    write(tmp_path / "a")
    (tmp_path / "a" / "items.parquet").write_bytes(b"not parquet")
    with pytest.raises(RunError, match="cannot read run folder"):
        records.read_run(tmp_path / "a")
    write(tmp_path / "a")
    manifest = json.loads((tmp_path / "a" / "manifest.json").read_text())
    (tmp_path / "a" / "manifest.json").write_text(json.dumps(manifest | {"format": 99}))
    with pytest.raises(RunError, match="format is 99"):
        records.read_run(tmp_path / "a")
    for summary in ("{}", "[1]", "[{}]"):
        write(tmp_path / "b")
        (tmp_path / "b" / "summary.json").write_text(summary)
        with pytest.raises(
            RunError, match=r"summary\.json lacks measures of streams; run the scenario again"
        ):
            records.read_run(tmp_path / "b")
    write(tmp_path / "c")
    pq.write_table(table(STREAM_ROWS, STREAMS), tmp_path / "c" / "delays.parquet")
    with pytest.raises(RunError, match=r"delays\.parquet: missing columns \['above_s', "):
        records.read_run(tmp_path / "c")
