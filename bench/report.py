"""Results as Markdown tables and a bar chart of the ratios."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any


def table(result: dict[str, Any]) -> str:
    """All results in Markdown, ratios first."""
    lines = ["# Benchmark results", "", *_ratios(result)]
    for name in ("queue", "graphs", "decisions"):
        if name in result:
            lines += _rates(result[name])
    for name, section in (
        ("scenario", _scenario), ("joint", _joint), ("requests", _requests), ("startup", _startup),
        ("cold", _cold), ("slots", _slots), ("kais", _kais), ("breakdown", _breakdown), ("split", _split),
        ("place", _place), ("apart", _apart), ("gateway", gateway), ("servers", servers),
    ):  # fmt: skip
        if name in result:
            lines += section(result[name])
    return "\n".join([*lines, *_machines(result)]) + "\n"


def chart(result: dict[str, Any], path: Path) -> None:
    """How many times faster edgewise is than each peer, with targets."""
    from matplotlib.figure import Figure

    rows = [(f"{row['name']} ({case['unit']})", row) for case, row in _compared(result)]
    if not rows:
        return
    figure = Figure(figsize=(7.5, 0.8 + 0.45 * len(rows)), layout="constrained")
    axes = figure.add_subplot(xscale="log", xlabel="edgewise: times faster, CPU time, one core")
    for at, (_, row) in enumerate(rows):
        low, high = row["ratio_spread"]
        axes.barh(at, row["ratio"], color="#3f51b5", xerr=[[row["ratio"] - low], [high - row["ratio"]]])
        axes.annotate(f" {row['ratio']:.3g}×", (high, at), va="center")
        if row["target_ratio"]:
            axes.plot([row["target_ratio"]] * 2, [at - 0.4, at + 0.4], color="#e65100")
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [label for label, _ in rows])
    axes.invert_yaxis()
    axes.margins(x=0.15)
    figure.savefig(path, dpi=120, metadata={"Software": ""})


def _compared(result: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for name in ("queue", "graphs"):
        case = result.get(name)
        for row in case["rows"] if case else ():
            if "ratio" in row:
                yield case, row


def _split(case: dict[str, Any]) -> list[str]:
    rows = [
        (row["name"], str(row["variables"]), f"{1e3 * row['median_s']:.1f}", f"{1e3 * row['longest_s']:.1f}")
        for row in case["rows"]
    ]
    head = ("split queries on new rates", "probabilities", "median CPU ms", "longest")
    return [f"## A new plan of split queries, target {1e3 * case['target_s']:.0f} ms", "", *_grid(head, rows)]


def _ratios(result: dict[str, Any]) -> list[str]:
    rows = [
        (case["title"], row["name"], f"**{row['ratio']:.3g}**",
         "{:.3g} – {:.3g}".format(*row["ratio_spread"]), _target(row["target_ratio"]))
        for case, row in _compared(result)
    ]  # fmt: skip
    head = ("work", "peer", "edgewise is faster by", "least – greatest of a round", "target")
    return _grid(head, rows) if rows else []


def _rates(case: dict[str, Any]) -> list[str]:
    head = (
        "", f"{case['unit']}/s of CPU", "least – greatest", f"{case['unit']}/s of wall", "target",
        case["statistic"],
    )  # fmt: skip
    rows = [
        (row["name"], _k(row["cpu_rate"]), " – ".join(map(_k, row["cpu_rate_spread"])), _k(row["wall_rate"]),
         _target(row["target_rate"]), f"{row['statistic']:.4f}")
        for row in case["rows"]
    ]  # fmt: skip
    return [f"## {case['title']}", "", *_grid(head, rows)]


def _scenario(case: dict[str, Any]) -> list[str]:
    head = (
        "antennas", "workers", "streams", "queries", "CPU s", "wall s", "simulated s per CPU s", "peak MB"
    )  # fmt: skip
    rows = []
    for run in case["runs"]:
        cpu_s, wall_s = statistics.median(run["cpu_s"]), statistics.median(run["wall_s"])
        rows.append(
            (str(run["antennas"]), f"{run['workers']:,}", f"{run['streams']:,}", f"{run['queries']:,}",
             f"{cpu_s:.2f}", f"{wall_s:.2f}", f"{run['simulated_s'] / cpu_s:.3g}",
             f"{run['peak_bytes'] / 1e6:.0f}")
        )  # fmt: skip
    return ["## full-edge, end to end", "", *_grid(head, rows)]


def _joint(case: dict[str, Any]) -> list[str]:
    day, targets = case["day"], case["targets"]
    cpu_s = statistics.median(day["cpu_s"])
    ratios = [
        (what.format(row["name"]), f"**{row['ratio']:.3f}**",
         "{:.3f} – {:.3f}".format(*row["ratio_spread"]), f"≤ {target}")
        for what, target, rows in (
            ("campus, {} idle, over without", targets["idle"], case["idle"]),
            ("{}, links shared (fifo), over private", targets["shared"], case["shared"]),
        )
        for row in rows
    ]  # fmt: skip
    waits = ", ".join(f"{1e3 * row['waited_s']:.3g} ms in {row['name']}" for row in case["shared"])
    return [
        "## All kinds of work in one run", "",
        f"`campus`, {day['simulated_s']:,.0f} s with {day['queries']:,} queries of streams: {cpu_s:.1f} s of "
        f"CPU, {day['simulated_s'] / cpu_s:,.0f} times real time; target {targets['times_real']:,.0f}.", "",
        *_parts(day),
        *_grid(("CPU time", "ratio", "least – greatest of a round", "target"), ratios),
        f"With shared links a query waits, in the mean over streams, {waits}; streams stay where they are.",
        "",
    ]  # fmt: skip


def _requests(case: dict[str, Any]) -> list[str]:
    day = case["day"]
    cpu_s = statistics.median(day["cpu_s"])
    return [
        "## All kinds of work, and many requests", "",
        f"`campus` with {day['requests']:,} requests in {day['simulated_s']:,.0f} s and {day['queries']:,} "
        f"queries of streams: {cpu_s:.1f} s of CPU, {day['simulated_s'] / cpu_s:,.0f} times real time; "
        f"target {case['target']:,.0f}.", "",
        *_parts(day),
    ]  # fmt: skip


def _parts(day: dict[str, Any]) -> list[str]:
    cpu_s = statistics.median(day["cpu_s"])
    parts = [(name, f"{seconds:.2f}", f"{seconds / cpu_s:.0%}") for name, seconds in day["parts_s"].items()]
    rest_s = max(cpu_s - sum(day["parts_s"].values()), 0.0)
    parts += [("clock, decisions and tables", f"{rest_s:.2f}", f"{rest_s / cpu_s:.0%}")]
    return _grid(("of which", "CPU s", "share"), parts)


def _startup(case: dict[str, Any]) -> list[str]:
    median = {name: statistics.median(case[name]) for name in ("wall_s", "cpu_s", "bare_cpu_s")}
    rows = [("python alone", f"{median['bare_cpu_s']:.2f}")]
    rows += [(name, f"{seconds:.2f}") for name, seconds in case["steps_cpu_s"].items()]
    rows += [(f"import of {name}, with what it needs", f"{s:.2f}") for name, s in case["imports_s"].items()]
    first = (
        f"A process that simulates `tiny`: {median['cpu_s']:.2f} s of CPU, {median['wall_s']:.2f} s of wall."
    )
    return ["## Start-up", "", first, "", *_grid(("part", "s"), rows)]


def _cold(case: dict[str, Any]) -> list[str]:
    rows = [(row["name"], f"{row['wall_s']:.1f}", f"{row['cpu_s']:.1f}") for row in case["rows"]]
    head = ("with an empty kernel cache, on one core", "wall s", "CPU s")
    return [f"## The first run, target {case['target_s']:g} s", "", *_grid(head, rows)]


def _slots(case: dict[str, Any]) -> list[str]:
    head = ("threads", "worlds", "events", "events/s of wall", "events/s of CPU")
    rows = [
        (str(run["threads"]), str(run["worlds"]), f"{run['events']:,}", _k(run["events"] / run["wall_s"]),
         _k(run["events"] / run["cpu_s"]))
        for run in case["runs"]
    ]  # fmt: skip
    return ["## Slots over batched worlds", "", *_grid(head, rows)]


def _kais(case: dict[str, Any]) -> list[str]:
    head = ("engine", "worlds", "slots", "slots/s of wall", "slots/s of CPU", "times the plain loop, CPU")
    rows = [
        (f"{run['threads']} threads" if run["threads"] else "plain loop", str(run["worlds"]),
         f"{run['slots']:,}", _k(run["slots"] / run["wall_s"]), _k(run["slots"] / run["cpu_s"]),
         f"{run['times_plain']:.3g}")
        for run in case["runs"]
    ]  # fmt: skip
    return ["## Requests and replicas, random dispatch, `kais-demo`", "", *_grid(head, rows)]


def _breakdown(case: dict[str, Any]) -> list[str]:
    rows = [
        (row["name"], f"{row['ns']:.0f}", "" if row["more_ns"] is None else f"{row['more_ns']:+.0f}")
        for row in case["rows"]
    ]
    alone = [(row["name"], f"{row['ns']:.1f}") for row in case["primitives"]]
    return [
        "## Where a query's time goes", "",
        *_grid(("simulation", "ns per query", "more than the first"), rows),
        *_grid(("primitive, alone in a loop", "ns"), alone),
    ]  # fmt: skip


def gateway(case: dict[str, Any]) -> list[str]:
    """Lines of what a gateway adds to a query."""
    head = ("tensor, connections", "direct p50", "gateway p50", "added", "target", "direct requests/s",
            "gateway requests/s", "target", "gateway CPU for one")  # fmt: skip
    rows = [
        (f"{row['size']}, {row['connections']}", _ms(row["direct_p50_s"]), _ms(row["gateway_p50_s"]),
         _ms(row["added_p50_s"]), f"≤ {_ms(row['target_added_s'])}" if row["target_added_s"] else "",
         f"{row['direct_qps']:,.0f}", f"{row['gateway_qps']:,.0f}",
         f"≥ {row['target_qps']:,.0f}" if row["target_qps"] else "", f"{row['gateway_cpu_s'] * 1e6:.0f} µs")
        for row in case["rows"]
    ]  # fmt: skip
    return ["## Gateway: what it adds to a query", "", *_grid(head, rows)]


def servers(case: dict[str, Any]) -> list[str]:
    """Lines of how fast inference servers answer."""
    rows = [
        (row["name"], row["encoding"], str(row["connections"]), f"{row['qps']:,.0f}", _ms(row["p50_s"]),
         f"{row['cpu_s'] * 1e6:.0f} µs")
        for row in case["rows"]
    ]  # fmt: skip
    ratios = [
        (row["ours"], row["peer"], f"{row['encoding']}, {row['connections']}", f"**{row['qps']:.3g}**",
         f"{row['p50']:.3g}", f"{row['cpu']:.3g}")
        for row in case["ratios"]
    ]  # fmt: skip
    lines = [
        "## Inference servers on an echo model", "",
        *_grid(("server", "encoding", "connections", "requests/s", "p50", "CPU for one"), rows),
        f"How many times better ours are; the target is {case['target']:g} times the requests/s.", "",
        *_grid(("ours", "peer", "encoding, connections", "requests/s", "p50", "CPU"), ratios),
    ]  # fmt: skip
    parts = {(row["part"], row["binary"]): f"{row['s'] * 1e6:.1f} µs" for row in case.get("parts", ())}
    if parts:
        names = dict.fromkeys(part for part, _ in parts)
        grid = _grid(("a worker's part, alone in a loop", "JSON", "binary"),
                     [(name, parts[name, False], parts[name, True]) for name in names])  # fmt: skip
        lines += grid
    versions = ", ".join(f"{peer} {number}" for peer, number in case["versions"].items())
    missing = [f"{name} was not measured: {why}." for name, why in case["skipped"].items()]
    return [*lines, *([f"Peers: {versions}.", ""] if versions else []), *missing, *([""] if missing else [])]


def _place(case: dict[str, Any]) -> list[str]:
    head = (
        "nodes, running jobs",
        "policy",
        "half within, ms",
        "95 % within, ms",
        "longest, ms",
        "target, ms",
    )
    rows = [
        (f"{run['nodes']:,}, {run['jobs']:,}", run["policy"],
         *(f"{1e3 * run[name]:.1f}" for name in ("p50_s", "p95_s", "max_s")), f"{1e3 * run['target_s']:g}")
        for run in case["runs"]
    ]  # fmt: skip
    cold = {run["nodes"]: run["paths_s"] for run in case["runs"]}
    return [
        "## Placement decisions", "", *_grid(head, rows),
        "With known paths. From cold, a network's paths are found once: "
        + ", ".join(f"{s:.3g} s for all {nodes:,} nodes ({1e3 * s / nodes:.2g} ms a node, as needed)"
                    for nodes, s in cold.items()) + ".", "",
    ]  # fmt: skip


def _apart(case: dict[str, Any]) -> list[str]:
    rows = [
        (
            str(row["workers"]),
            row["way"],
            *(f"{1e6 * statistics.median(row[each]):.0f}" for each in ("wall_s", "cpu_s")),
        )
        for row in case["rows"]
    ]
    head = ("workers", "a policy of streams is asked", "wall µs of a decision", "CPU µs, of both processes")
    return ["## Policies in processes of their own", "", *_grid(head, rows)]


def _machines(result: dict[str, Any]) -> list[str]:
    lines = ["## Measured on", ""]
    for name, case in result.items():
        m = case["measured"]
        lines.append(
            f"- {name}: {m['date']}, commit `{(m['commit'] or 'unknown')[:12]}`, {m['processor']},"
            f" {m['cpus']} CPUs, load {m['load_average']}, Python {m['python']}, "
            + ", ".join(f"{package} {number}" for package, number in m["versions"].items())
        )
    return lines


def _grid(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [head, ("---", *["---:"] * (len(head) - 1)), *rows]
    return [*("| " + " | ".join(line) + " |" for line in lines), ""]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms"


def _k(rate: float) -> str:
    return f"{rate / 1e6:.3g} M" if rate >= 1e6 else f"{rate / 1e3:.3g} k"


def _target(number: float) -> str:
    if not number:
        return ""
    return f"{number:,g}" if number < 1e3 else _k(number)
