"""Times, spans and sizes of `edgewise submit`, and what it says when nothing is up."""

import re
from datetime import datetime

import pytest
from typer.testing import CliRunner

from edgewise.cli import app, jobs
from edgewise.cli.lasting import read_duration
from edgewise.errors import EdgewiseError
from edgewise.model.durations import SECONDS, seconds_of
from edgewise.model.values import amount_schema, quantity

NOW_S = datetime(2026, 5, 4, 12, 30).timestamp()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("10m", 600), ("1.5min", 90), ("2h", 7200), ("1h30m", 5400), ("1h 30min", 5400),
     ("2d", 172800), ("0.5m", 30), ("250ms", 0.25), (" 1e2 s ", 100)],
)  # fmt: skip
def test_durations_are_read_alike_on_the_command_line_and_in_scenarios(text, seconds):
    assert seconds_of(text) == pytest.approx(seconds)
    assert read_duration(text, "latest") == pytest.approx(seconds)
    assert quantity(text, SECONDS) == pytest.approx(seconds)
    (schema,) = [each["pattern"] for each in amount_schema(SECONDS, False, 1e9)["anyOf"] if "pattern" in each]
    assert re.match(schema, text)


@pytest.mark.parametrize("text", ["", "x", "5x", "m", "30m1h", "1h1h", "1h30", "5 5", "1:30"])
def test_wrong_durations_are_named(text):
    assert seconds_of(text) is None
    with pytest.raises(EdgewiseError, match=r"latest: .* is no duration; write it as 90, 90s, 1.5min"):
        read_duration(text, "latest")
    with pytest.raises(ValueError, match="not a number"):
        quantity(text, SECONDS)


def test_times():
    def at(text):
        return datetime.fromtimestamp(jobs.parse_time(text, NOW_S, "latest"))

    assert at("now") == datetime(2026, 5, 4, 12, 30)
    assert at("+1h30m") == datetime(2026, 5, 4, 14, 0)
    assert at("18:00") == datetime(2026, 5, 4, 18, 0)
    assert at("12:00") == datetime(2026, 5, 5, 12, 0)  # the next one
    assert at("2026-12-24T08:00") == datetime(2026, 12, 24, 8, 0)
    for wrong in ("25:00", "soon", "2026-13-01", "+x"):
        with pytest.raises(EdgewiseError, match=r"latest: .* is no (time|duration)"):
            jobs.parse_time(wrong, NOW_S, "latest")


def test_sizes():
    assert [jobs.parse_size(text) for text in ("0", "500M", "2Gi", "3kB")] == [
        0,
        500_000_000,
        2**31,
        3000,
    ]
    with pytest.raises(EdgewiseError, match="500M or 2Gi"):
        jobs.parse_size("lots")


def test_without_a_live_system_the_message_says_what_to_start(tmp_path):
    arguments = ["submit", "--duration", "5m", "--state", str(tmp_path), "--", "true", "--all"]
    found = CliRunner().invoke(app, arguments)
    assert isinstance(found.exception, EdgewiseError) and "use edgewise up" in str(found.exception)
