"""The page and the figures: numbers are there, names are escaped, odd runs still render."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_example import MANIFEST, example_run, stream_row, table, window_row

from edgewise.config import dump_scenario, load_scenario
from edgewise.errors import PolicyError, RunError
from edgewise.report import figures, sections, site, words
from edgewise.report.html import environment, render
from edgewise.report.records import RecordedRun, read_run, write_run, write_whole
from edgewise.report.schema import STREAMS, WINDOWS, WORK
from edgewise.report.statistics import compare
from edgewise.report.summary import by_seed
from edgewise.report.use import USE

STEMS = [
    "outcome-shares", "success-over-time", "success-by-application", "paired-differences", "streams-late",
    "streams-lost",
]  # fmt: skip
VOID = {"meta", "img", "br"}


class Balanced(HTMLParser):
    """Fails on a tag that is not closed in order; collects tag names."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    return example_run(tmp_path_factory.mktemp("runs") / "demo")


def small_run(folder: Path, streams: list[dict[str, Any]], windows: list[dict[str, Any]]) -> RecordedRun:
    write_run(
        folder, scenario_yaml="", manifest=MANIFEST,
        items=table(streams, STREAMS), windows=table(windows, WINDOWS),
    )  # fmt: skip
    return read_run(folder)


def test_the_page_holds_the_numbers(run: RecordedRun, tmp_path: Path) -> None:
    write_whole(tmp_path / "out" / "report.html", render(run), "report")
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    values = by_seed(run.summary)
    for policy in run.policies:
        assert policy in page
        assert f"{100 * values[policy].mean():.2f}" in page
    for row in compare(by_seed(run.summary, "success", run.policies)):
        assert f"{100 * row.difference:+.2f}".replace("-", "−") in page
    for text in ("1–5 (5)", "0.1.0", "edgewise run x", "three-tier", "no worker is accurate enough"):
        assert text in page
    assert page.count("data:image/png;base64,") == len(STEMS) - 1  # of few policies a table says it


def test_no_interval_of_a_share_leaves_what_is_possible(tmp_path: Path) -> None:
    """Of policies, of applications, and of differences, with seeds that are far apart."""
    rows, succeeded = [], {"closest": (12, 50, 40), "random": (0, 1, 50)}
    for policy, of_seeds in succeeded.items():
        for seed, ok in enumerate(of_seeds, 1):
            rows.append(stream_row(policy=policy, seed=seed, ok=ok, failed=50 - ok))
    windows = [
        window_row(policy=row["policy"], seed=row["seed"], queries=50, ok=row["ok"], failed=50 - row["ok"])
        for row in rows
    ]
    page = render(small_run(tmp_path / "apart", rows, windows))
    shown = re.findall(r'class="ci">([^<]*) to ([^<]*)<', page)
    differences = [each for each in shown if "+" in each[1]]
    assert differences == [("−100.00", "+100.00")]
    ends = [float(end) for each in shown if each not in differences for end in each]
    assert len(ends) >= 2 * (2 * 5 + 2) and all(0.0 <= end <= 100.0 for end in ends)


def test_the_page_is_well_formed_escaped_and_self_contained(run: RecordedRun) -> None:
    page = render(run, rival="closest")
    assert "<b>drones" not in page and "&lt;b&gt;drones &amp; co&lt;/b&gt;" in page
    assert "no capacity &lt;left&gt; &amp; none due" in page
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert not parser.seen & {"script", "link", "iframe", "b"}
    assert not re.search(r'(src|href)="(?!data:|#)', page) and "url(" not in page
    assert page.count('<td class="names">closest</td>') >= 5  # in all work, compared, delays, refusals


def test_the_rival_of_the_manifest_is_the_default(run: RecordedRun) -> None:
    named = replace(run, manifest=run.manifest | {"rival": "closest"})
    assert [row.rival for row in figures.comparisons_of(named)] == ["closest"] * 3
    assert [row.rival for row in figures.comparisons_of(named, "random")] == ["random"] * 3
    assert len(figures.comparisons_of(run)) == 6


def test_the_page_is_the_same_every_time(run: RecordedRun) -> None:
    assert render(run) == render(run)


def test_whiskers_do_not_meet_labels(run: RecordedRun) -> None:
    figure = figures.outcome_shares(run)
    figure.canvas.draw()
    (axes,) = figure.axes
    whiskers = [axes.transData.transform(bars.get_segments()[0]) for bars in axes.collections]
    labels = [text.get_window_extent() for text in axes.texts]
    assert len(whiskers) == len(run.policies) and len(labels) > len(run.policies)
    cap = 2.5 * figure.dpi / 72 + 1
    met = 0
    for (left, height), (right, _) in whiskers:
        beside = [label for label in labels if left < label.x1 and label.x0 < right]
        met += len(beside)
        assert not any(label.y0 < height + cap and height - cap < label.y1 for label in beside)
    assert met > 0  # some labels do lie above a whisker


def test_forest_says_unit_and_verdict() -> None:
    base = np.array([1.0, 2.0, 3.0])
    values = {"fast": 0.8 * base, "same": base * np.array([1.001, 0.999, 1.0]), "base": base}
    rows = compare(values, "base", ratio=True, lower_is_better=True)
    axes = figures.forest(rows, ["load ×0.8", "load ×1.2"], "Robustness").axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["load ×0.8", "load ×1.2"]
    assert axes.get_xlabel() == "difference (%), 95 % interval"
    assert [row.verdict for row in rows] == ["win", "tie"]
    assert axes.get_legend_handles_labels()[1] == ["within ±1 %: no win", "win", "tie"]


def test_figures_are_saved(run: RecordedRun, tmp_path: Path) -> None:
    paths = figures.save_all(run, tmp_path)
    assert paths == [tmp_path / "figures" / f"{stem}.png" for stem in STEMS]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    assert figures.save_all(run)[0].parent == run.folder / "figures"


def test_time_figure_shows_the_mean_of_the_windows(run: RecordedRun) -> None:
    axes = figures.success_over_time(run).axes[0]
    rows = [row for row in run.windows.to_pylist() if row["policy"] == "closest" and row["window"] == 7]
    line = {line.get_label(): line for line in axes.lines}["closest"]
    assert np.asarray(line.get_ydata())[7] == pytest.approx(np.mean([row["ok"] / 200 for row in rows]))
    assert np.asarray(line.get_xdata())[7] == 75.0


@pytest.mark.parametrize(
    ("streams", "windows"),
    [
        ([], []),
        ([stream_row()], [window_row()]),
        ([stream_row(policy="a $x$ _{")], [window_row(policy="a $x$ _{", queries=0, ok=0)]),
        ([stream_row(queries=0, ok=0)], [window_row()]),
        (
            [stream_row(policy=f"policy-number-{k}", seed=s) for k in range(12) for s in (1, 2)],
            [window_row(policy=f"policy-number-{k}", seed=s) for k in range(12) for s in (1, 2)],
        ),
    ],
    ids=["nothing", "one-stream", "mathtext-name", "no-query", "twelve-policies"],
)
def test_odd_runs_still_render(
    tmp_path: Path, streams: list[dict[str, Any]], windows: list[dict[str, Any]]
) -> None:
    odd = small_run(tmp_path / "odd", streams, windows)
    parser = Balanced()
    parser.feed(render(odd))
    assert parser.open == []


def test_errors(run: RecordedRun, tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="rival is 'best'"):
        render(run, rival="best")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write figures"):
        figures.save_all(run, tmp_path / "file")
    with pytest.raises(RunError, match="cannot write report"):
        write_whole(tmp_path / "file" / "report.html", render(run), "report")


def test_the_page_begins_with_the_verdict_and_pictures_come_before_tables(run: RecordedRun) -> None:
    page = render(run, rival="closest")
    order = ["verdicts", "Policies</dt>", 'id="pictures"', 'id="all"', 'id="compared"', 'id="streams"']
    places = [page.index(text) for text in order]
    assert places == sorted(places)
    best = max(run.policies, key=lambda policy: float(by_seed(run.summary)[policy].mean()))
    share = by_seed(run.summary)[best].mean()
    assert f"{100 * share:.1f} % of queries are answered in time under {best}, the best here" in page
    listed = re.findall(r'<td class="names">([^<]*)</td>', page[places[3] : places[4]])
    values = by_seed(run.summary)
    assert listed == sorted(values, key=lambda policy: -float(values[policy].mean()))


def test_what_breaks_first_is_said_on_top_and_told_after_the_pictures(run: RecordedRun) -> None:
    best = sections.best_first(run)[0]
    limit = {"kind": "link", "name": "wan", "share": 0.99, "when_s": 3.0, "cures": [{"text": "raise it"}]}
    full, near = (
        limit | {"lost": lost, "text": text} for lost, text in ((0.1, "wan is full"), (0.0, "wan is near"))
    )
    other = next(policy for policy in run.policies if policy != best)
    for mine, said in (
        (full, "First to break</dt><dd>wan is full"),
        (near, "break first</dt><dd>wan is near"),
    ):
        known = {best: [mine], other: [full | {"text": "of another policy"}]}
        page = render(replace(run, manifest=run.manifest | {"limits": known}))
        places = [page.index(text) for text in (said, 'id="pictures"', 'id="limits"', "raise it", 'id="all"')]
        assert places == sorted(places) and "<dd>of another policy" not in page
    assert 'id="limits"' not in render(run)


def test_refusals_and_delays_stand_in_the_section_of_their_work(run: RecordedRun) -> None:
    page = render(run)
    section = page[page.index('id="streams"') :]
    rows = [row for row in run.items.to_pylist() if row["policy"] == "random" and row["reason"]]
    worst = Counter(row["reason"] for row in rows).most_common(1)[0]
    shown = re.search(r'<td class="names">random</td><td>([^<]*)</td><td class="num">([0-9,]+)</td>', section)
    assert shown is not None and (unescape(shown[1]), int(shown[2])) == worst
    assert "color-scheme: dark" in page and "figure img { filter: invert" in page


def test_verdicts_say_how_sure_they_are() -> None:
    base = np.array([0.5, 0.6, 0.7])
    measure = WORK["streams"].measures[0]
    (sure,) = compare({"a": base + 0.1 + np.array([0.001, 0.0, -0.001]), "b": base}, "b")
    assert words.compared(sure, measure) == "a against b, success over 3 seeds: ahead by 10.0 points."
    (open_,) = compare({"a": base - np.array([0.3, 0.0, 0.1]), "b": base}, "b")
    said = "a against b, success over 3 seeds: behind by 13.3 points, maybe by chance."
    assert words.compared(open_, measure) == said
    (same,) = compare({"a": base, "b": base}, "b")
    assert words.compared(same, measure) == "a and b do equally well in success over 3 seeds."


def test_the_site_is_drawn_with_its_loads(tmp_path: Path) -> None:
    """A node that holds half of its cores is filled half, and a way as full as what was sent over it."""
    scenario = load_scenario("tiny")
    policy = scenario.topology.clusters[0].nodes[0]
    cores = policy.resources.cpu_cores
    holds = table(
        [
            dict(seed=1, policy="closest", place=policy.name, owner=owner, work=work, start_s=0.0, end_s=10.0,
                 cores=share * cores, memory_bytes=0.0, bps=0.0, accelerator_memory_bytes=0.0)
            for owner, work, share in (("", "total", 1.0), ("w", "streams", 0.5))
        ],
        USE["holds"],
    )  # fmt: skip
    way = scenario.topology.ways[0]
    size = 0.25 * way.bandwidth_bps * 10.0 / 8.0 / 50
    write_run(
        tmp_path / "run", scenario_yaml=dump_scenario(scenario), manifest=MANIFEST, use={"holds": holds},
        items=table([stream_row(site=way.site, cluster=way.cluster, size_bytes=size)], STREAMS),
        windows=table([window_row()], WINDOWS),
    )  # fmt: skip
    recorded = read_run(tmp_path / "run")
    loads = site.loads_of(scenario.topology, recorded, "closest")
    assert loads.nodes[policy.name].mean == pytest.approx(0.5)
    assert loads.links[f"{way.site} → {way.cluster}"].mean == pytest.approx(0.25)
    drawn = site.picture(scenario, recorded, "closest")
    assert f"50 % of {cores:g} cores" in drawn and f"{way.site} → {way.cluster}: 25 %" in drawn
    widths = {
        box: float(width) for box, width in re.findall(r'class="(box|held)".*? width="([0-9.]+)"', drawn)
    }
    page = render(recorded)
    assert '<svg class="site"' in page and words.hardware(scenario) in unescape(page)
    assert widths["box"] > widths["held"] >= 0.0


def test_work_beside_is_said_though_its_policies_have_other_names(run: RecordedRun) -> None:
    """A simulation calls the runs of each kind of work after its own policies."""
    jobs = WORK["jobs"]
    window = dict.fromkeys(jobs.windows.names, 0) | {"policy": "fifo", "jobs": 4, "ended": 3, "end_s": 9.0}
    row = dict.fromkeys((measure.key for measure in jobs.measures), 2.0) | {"policy": "fifo", "seed": 1}
    beside = replace(
        run, manifest=run.manifest | {"work": "jobs", "policies": ["fifo"]}, use={}, beside=(),
        items=table([], jobs.items), windows=table([window | {"seed": 1}], jobs.windows),
        summary=[row | {"jobs": 4.0, "ended": 3.0, "lost": 1.0}],
    )  # fmt: skip
    only = replace(run, manifest=run.manifest | {"policies": ["closest"]}, beside=(beside,))
    assert "3 of 4 jobs are done by the end under fifo; 1 never started in time." in words.verdicts(only)
    (cells,) = [cells for policy, cells in sections.overview(only)[1] if policy == "closest"]
    assert len(cells) == 2 and cells[1].mean != "–"


def test_a_name_of_several_policies_may_go_on_in_the_next_line_and_is_escaped() -> None:
    assert str(environment().filters["breaking"]("<a>+b")) == "&lt;a&gt;+<wbr>b"
