"""Traffic of other systems: logs and rates that real ones wrote, as traces.

The files in `foreign` were written by nginx 1.22, Envoy 1.40 (default formats) and Prometheus 2.42 about one
server, which queries through each of the two asked, four a second: every fourth for `reader`, others for
`yolo`. The metrics are that server's, in the form of Triton's.
"""

import csv
import gzip
import json
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from edgewise.config import load_scenario
from edgewise.errors import ScenarioError
from edgewise.workloads.foreign import Query, Rate, TrafficFile
from edgewise.workloads.foreign_traces import import_traffic
from edgewise.workloads.generate import generate_streams
from in_process import edgewise

FILES = Path(__file__).parent / "foreign"
AS = [("yolo", "cars"), ("reader", "pool")]


def rows(folder, name="streams.csv"):
    with (folder / name).open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(("file", "whole"), [("nginx.log", True), ("envoy.log", False)])
def test_every_line_of_a_real_log_is_a_query(file, whole):
    source = TrafficFile(FILES / file)
    found = list(source.read())
    assert len(found) == 40 and source.unread == 0 and all(query.whole == whole for query in found)
    assert [query.what for query in found] == ["yolo" if k % 4 else "reader" for k in range(40)]
    assert len({query.client for query in found}) == 1
    assert [query.size_bytes for query in found] == [None if whole else 1000.0 + k for k in range(40)]
    assert 9.0 <= found[-1].at_s - found[0].at_s <= 11.0


@pytest.mark.parametrize("file", ["counters.json", "rates.json", "triton.txt"])
def test_rates_of_real_counters_are_those_that_were_sent(file):
    """Two models at 2 and 6 queries/s, of both ways together, in the middle of the run."""
    found = list(TrafficFile(FILES / file, period_s=1.0).read())
    for model, qps in (("reader", 2.0), ("yolo", 6.0)):
        mine = [rate for rate in found if rate.what == model]
        assert np.median([rate.qps for rate in mine]) == pytest.approx(qps, rel=0.05), mine
    assert [rate.from_s for rate in found] == sorted(rate.from_s for rate in found)


def test_a_counter_that_begins_anew_is_not_negative(tmp_path):
    text = "".join(f'nv_inference_request_success{{model="m"}} {count}\n' for count in (5, 15, 2, 12))
    (tmp_path / "scraped").write_text(text)
    assert [rate.qps for rate in TrafficFile(tmp_path / "scraped", 10.0).read()] == [1.0, 0.2, 1.0]


@pytest.mark.parametrize("file", ["nginx.log", "envoy.log", "triton.txt", "counters.json", "rates.json"])
def test_what_if_from_a_file_of_another_system(tmp_path, file):
    """A file and a shipped scenario are all that it takes: no edgewise ran."""
    names = [f"--as={pattern}={name}" for pattern, name in AS]
    asked = ["--from", FILES / file, "--scenario", "three-tier", *names, "--period", "1"]
    done = edgewise("record", "mine", *asked, cwd=tmp_path)
    assert done.returncode == 0 and not done.stderr, done.stderr
    done = edgewise("replay", "mine", "--policies", "closest,least-impedance", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    (row,) = told["comparison"]
    assert row["rival"] == "closest" and row["left_over"].endswith("% refused")
    assert "with one seed" in row["in_words"]  # a trace has one
    summary = told["summary"]
    found = list(TrafficFile(FILES / file, period_s=1.0).read())
    sent = sum(1 if isinstance(each, Query) else each.qps * (each.to_s - each.from_s) for each in found)
    assert all(row["queries"] == pytest.approx(sent, rel=0.1) for row in summary), (sent, summary)


def logged(scenario, seed, folder, form):
    """A log of the queries of drawn streams, each of a client of its own, in order; and the streams."""
    streams = generate_streams(scenario, seed)
    queries = sorted(
        (float(at), stream.id, stream.application)
        for stream in streams
        for at in np.arange(stream.open_s, stream.close_s, 1.0 / stream.rate_qps)
    )
    with gzip.open(folder / "access.log.gz", "wt") as file:
        for at_s, client, name in queries:
            at, host = datetime.fromtimestamp(1.7e9 + at_s, UTC), f"10.0.{client // 256}.{client % 256}"
            if form == "nginx":
                stamp = at.strftime("%d/%b/%Y:%H:%M:%S +0000")
                file.write(f'{host} - - [{stamp}] "POST /infer/{name}?x=1 HTTP/2.0" 200 17 "-" "cam"\n')
            else:
                stamp = at.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
                tail = f'"{host}" "cam" "id" "here:80" "127.0.0.1:8000"'
                file.write(f'[{stamp}] "POST /infer/{name} HTTP/1.1" 200 - 30000 17 4 3 {tail}\n')
    return streams, queries


@pytest.mark.parametrize(("form", "off_s"), [("nginx", 1.0), ("envoy", 0.002)])
def test_a_known_process_comes_back_from_its_log(tmp_path, form, off_s):
    """Streams that send three queries or more keep when they open and their rate; all queries are there."""
    scenario = load_scenario("three-tier")
    streams, queries = logged(scenario, 3, tmp_path, form)
    given = [("/infer/*", "cars")]
    made = import_traffic(TrafficFile(tmp_path / "access.log.gz"), scenario, tmp_path / "out", given)
    found = rows(tmp_path / "out")
    assert made.written == len(found) == len({client for _, client, _ in queries})
    total = sum(float(row["length_s"]) * float(row["rate_qps"]) for row in found)
    assert total == pytest.approx(len(queries), rel=1e-3)
    began_s = queries[0][0]
    opens = sorted(float(row["open_s"]) for row in found)
    assert np.abs(np.array(opens) - [s.open_s - began_s for s in streams]).max() <= off_s
    truth = np.array([s.rate_qps for s in streams if (s.close_s - s.open_s) * s.rate_qps > 20])
    rates = sorted(float(r["rate_qps"]) for r in found if float(r["length_s"]) * float(r["rate_qps"]) > 20)
    assert np.median(rates) == pytest.approx(np.median(truth), rel=0.02 + off_s / 20)


def test_requests_of_a_log_are_requests_of_services(tmp_path):
    scenario = load_scenario("kais-live")
    given = [("yolo", "camera"), ("reader", "plates")]
    made = import_traffic(TrafficFile(FILES / "envoy.log"), scenario, tmp_path, given)
    found = rows(tmp_path, "requests.csv")
    assert (made.work, made.written, len(found)) == ("requests", 40, 40)
    assert [row["payload_bytes"] for row in found[:2]] == ["1000.0", "1001.0"]
    done = edgewise(
        "replay", ".", "--policies", "orchestrate=none,autoscaler", "--json", "--out", "out", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    import_traffic(TrafficFile(FILES / "rates.json"), scenario, tmp_path / "rates", given)
    sent = sum(rate.qps for rate in TrafficFile(FILES / "rates.json").read())  # each over a second
    assert len(rows(tmp_path / "rates", "requests.csv")) == pytest.approx(sent, abs=2)


def envoy(at, client):
    """A line of Envoy's log."""
    stamp = at.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
    request = "POST /v2/models/cars/infer HTTP/1.1"
    return f'[{stamp}Z] "{request}" 200 - 9 9 1 1 "{client}" "cam" "id" "here" "there"\n'


def test_clients_pause_and_come_back_as_other_streams(tmp_path):
    times = [datetime(2026, 1, 1, 0, minute, s, tzinfo=UTC) for minute in (0, 2) for s in range(0, 30, 3)]
    (tmp_path / "log").write_text("".join(envoy(at, "10.0.0.1") for at in times))
    made = import_traffic(TrafficFile(tmp_path / "log"), load_scenario("three-tier"), tmp_path / "out")
    found = rows(tmp_path / "out")
    assert made.written == 2 and [float(row["open_s"]) for row in found] == [0.0, 120.0]
    assert {float(row["rate_qps"]) for row in found} == {1 / 3} and len({row["site"] for row in found}) == 1


def test_lines_that_are_none_are_counted_and_said(tmp_path):
    good = (FILES / "nginx.log").read_text()
    bad = "\x00\xff garbage\n" + '1.2.3.4 - - [99/Foo/2026:00:00:00 +0000] "GET / HTTP/1.1" 200 1\n' + "\n"
    (tmp_path / "log").write_text(good[:1000] + "\n" + bad + good[1000:], encoding="latin-1")
    done = edgewise(
        "record", "out", "--from", "log", "--scenario", "three-tier", "--as", "yolo=cars", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "lines were not read, the first:" in done.stderr and "reader (10)" in done.stderr


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        ("", ["--scenario", "tiny"], "holds no traffic"),
        ("hello\nworld\n", ["--scenario", "tiny"], "2 lines were not read, the first: hello"),
        ('{"status": "error"}', ["--scenario", "tiny"], "no answer of Prometheus to a range query"),
        ('{"a', ["--scenario", "tiny"], "no answer of Prometheus to a range query"),
        ("nginx", ["--scenario", "tiny"], "yolo (30)"),
        ("nginx", ["--scenario", "tiny", "--as", "yolo=quik"], "did you mean 'quick'"),
        ("nginx", ["--scenario", "tiny", "--as", "yolo"], "write PATTERN=NAME"),
        ("nginx", [], "--from needs --scenario"),
        ("nginx", ["--scenario", "kais-demo"], "none is a variant of the catalog"),
        (None, ["--scenario", "tiny"], "cannot be read"),
    ],
)
def test_what_is_no_traffic_is_said(tmp_path, content, arguments, message):
    if content is not None:
        (tmp_path / "log").write_text((FILES / "nginx.log").read_text() if content == "nginx" else content)
    done = edgewise("record", "out", "--from", "log", *arguments, cwd=tmp_path)
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr


def test_a_broken_archive_is_said(tmp_path):
    whole = gzip.compress((FILES / "nginx.log").read_bytes())
    (tmp_path / "log.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ScenarioError, match="cannot be read"):
        list(TrafficFile(tmp_path / "log.gz").read())


def test_a_long_log_takes_little_memory(tmp_path):
    """Twenty thousand lines of 9 MB, of clients that come and go."""
    with (tmp_path / "log").open("w") as file:
        for k in range(20_000):
            at = datetime.fromtimestamp(1.7e9 + k / 10, UTC)
            file.write(envoy(at, f"10.{k // 1000}.0.{k % 7}").replace("cam", "cam" * 100))
    tracemalloc.start()
    made = import_traffic(TrafficFile(tmp_path / "log"), load_scenario("three-tier"), tmp_path / "out")
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert made.written == 140 and most_bytes < 3e6, most_bytes


def test_both_kinds_are_what_they_say():
    assert {type(each) for each in TrafficFile(FILES / "envoy.log").read()} == {Query}
    assert {type(each) for each in TrafficFile(FILES / "rates.json").read()} == {Rate}
