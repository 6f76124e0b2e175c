"""Tables of the command line: no name is broken, the best comes first, and a verdict is said in words."""

import io
import json
import re

import pytest
from rich.console import Console

from edgewise.cli.output import show
from edgewise.report.statistics import DifferenceRule, PairedComparison
from edgewise.report.verdicts import best_first, left_unserved, verdict_in_words
from in_process import edgewise

RULE = DifferenceRule()
RATIO = DifferenceRule(ratio=True, lower_is_better=True)


def printed(headings, rows, width=80, **more):
    console = Console(file=io.StringIO(), width=width)
    show(headings, rows, console=console, **more)
    return console.file.getvalue()


def row(mean, low, high, p, rule=RULE, n=10):
    from edgewise.report.intervals import Interval

    interval = Interval(mean, low, high, n)
    verdict = rule.verdict(interval, p)
    return PairedComparison("new", "old", n, 0.5 + mean, 0.5, mean, low, high, p, p, verdict, "", rule)


@pytest.mark.parametrize(
    ("found", "unit", "words"),
    [
        (row(0.032, 0.02, 0.04, 0.001), "points", "ahead by 3.2 points"),
        (row(-0.032, -0.04, -0.02, 0.001), "points", "behind by 3.2 points"),
        (row(-0.30, -0.4, -0.2, 0.001, RATIO), "%", "ahead by 30.0 %"),
        (row(0.005, 0.004, 0.006, 0.001), "points", "ahead, by less than 1 point"),
        (row(-0.005, -0.006, -0.004, 0.001), "points", "behind, by less than 1 point"),
        (row(0.005, 0.001, 0.02, 0.01), "points", "ahead, maybe by less than 1 point"),
        (row(0.001, -0.002, 0.004, 0.4), "points", "level within 1 point"),
        (row(0.0, 0.0, 0.0, 1.0), "points", "level within 1 point"),
        (row(0.06, -0.13, 0.25, 0.17), "%", "ahead by 6.0 %, maybe by chance"),
        (row(0.004, -0.13, 0.14, 0.9), "%", "level, or too few seeds to tell"),
        (row(0.06, None, None, None, n=1), "points", "ahead by 6.0 points with one seed, which cannot tell"),
    ],
)
def test_a_verdict_is_said_in_words(found, unit, words):
    assert verdict_in_words(found, unit) == words


def test_what_was_left_unserved_is_said_of_every_kind_of_work():
    pipelines = [{"unserved": 36.0, "pipelines": 50.0}, {"unserved": 38.0, "pipelines": 50.0}]
    assert left_unserved("pipelines", pipelines) == "37 of 50 starve"
    assert left_unserved("streams", [{"rejected": 0.07}, {"rejected": 0.09}]) == "8.0 % refused"
    assert left_unserved("services", [{"dropped": 0.02, "waiting": 0.01}]) == "3.0 % dropped or waiting"
    assert left_unserved("jobs", [{"lost": 172.5, "jobs": 1278.0}]) == "172.5 of 1278 lost"
    assert left_unserved("graphs", [{"mean_s": 1.0}]) == ""


def test_the_best_by_the_first_measure_comes_first():
    summary = [
        {"policy": name, "success": share, "mean_s": share}
        for name, share in (("a", 0.5), ("b", 0.9), ("c", None), ("d", 0.7), ("d", 0.8))
    ]
    assert best_first("streams", summary, ("a", "b", "c", "d"), "success") == ["b", "d", "a", "c"]
    assert best_first("graphs", summary, ("a", "b", "c", "d"), "mean_s") == ["a", "d", "b", "c"]


NAME = "least-loaded-feasible-at-the-site"


@pytest.mark.parametrize("width", [48, 60, 80, 120])
def test_no_name_is_broken_and_no_figure_lost(width):
    headings = ["policy", *(f"finished core-s {k}" for k in range(9))]
    rows = [(NAME, *(f"{1e6 * k:,.0f}" for k in range(9))), ("fifo", *"123456789")]
    shown = printed(headings, rows, width)
    assert all(len(line.rstrip()) <= width for line in shown.splitlines())
    names = [line.split()[0] for line in shown.splitlines() if "fifo" in line or NAME in line]
    assert names == [NAME, "fifo"] * (len(names) // 2) and names
    assert sorted(re.findall(r"[\d,]+,000", shown)) == sorted(f"{1e6 * k:,.0f}" for k in range(1, 9))
    if width == 48:
        assert len(names) > 2  # what has no room beside follows in a table of its own


def test_a_caption_below_the_rest_of_a_wide_table_is_not_as_narrow_as_that():
    headings = ["policy", *(f"finished core-s {k}" for k in range(9))]
    caption = "finished: of jobs done by their latest start plus duration; redone: run in vain"
    shown = printed(headings, [(NAME, *"123456789")], 80, caption=caption).splitlines()
    assert sum(line.split()[:1] == [NAME] for line in shown) > 1 and shown[-1].strip() == caption


def test_sentences_wrap_between_words():
    words = "every suitable worker is at capacity, and so is the cloud behind the wide link of the site"
    shown = printed(("policy", "reason", "queries"), [(NAME, words, 61)], title="why")
    assert NAME in shown and set(words.replace(",", "").split()) <= set(shown.replace(",", "").split())


def test_a_comparison_is_sorted_and_judged_in_words(tmp_path):
    words = ("compare", "tiny", "--policies", "farthest,closest,least-impedance", "--rival", "closest")
    busy = ("--set", "streams.arrivals.clients_per_min=300", "--seeds", "0:3")
    shown = edgewise(*words, *busy, cwd=tmp_path).stdout
    found = json.loads(edgewise(*words, *busy, "--json", cwd=tmp_path).stdout)
    means = {}
    for each in found["summary"]:
        means.setdefault(each["policy"], []).append(each["success"])
    expected = sorted(found["policies"], key=lambda name: -sum(means[name]))
    table = shown.split("policy")[1].splitlines()
    assert [line.split()[0] for line in table if line.split() and line.split()[0] in means] == expected
    assert "success against closest, which left" in shown and "verdict" in shown
    for each in found["comparison"]:
        said = re.sub(r"\s+", "", shown)
        assert all(word in said for word in each["in_words"].split()) and "% refused" in each["left_over"]
