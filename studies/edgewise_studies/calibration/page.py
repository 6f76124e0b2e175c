"""The page of the calibration, written from the rows alone."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgewise.report import style
from edgewise.seeds import SEEN_IN
from edgewise_studies.calibration import best, fitting, learned, measure, predicates, room, slices, space
from edgewise_studies.calibration.measure import Row
from edgewise_studies.calibration.predicates import PREDICATES
from edgewise_studies.run import chart
from edgewise_studies.trainings import gains_figure

TITLES = {"edge": "full-edge, λ = 60", "burst": "full-edge, bursts", "co": "co-dc-cloud, λ = 60"}
SHOWN = ("fill", "office_servers", "centre_servers", "longest_s", "mix_spread", "deviations")
# By hand, to the rows as they are: read the figures again when there are more.
SO_FAR = """**So far there is little room at a steady rate, and some under bursts**: at λ = 60 who knows
what comes gains 0.1 to 1.2 points, a point and more in one of the six worlds that fit; under bursts 0
to 1.7 points, a point and more in three of the six; on co-dc-cloud 0.0 to 1.3, in one of the six. These
are whole runs of one seed each; slices, of three seeds, find a point and more in none at λ = 60 and in
one under bursts. A learned chooser sees less than one that knows what comes, and ASET as published,
trained in each of these worlds, is in none a point better than the best of its seven policies ([on test
seeds](../aset/index.md)). What is not shown is that none of the paper's worlds had more room."""
Gains = Mapping[tuple[int, str], Mapping[str, Any]]  # by world and setting
KINDS = ("greedy", "episodes", "windows", "applications")


def write(folder: Path, worlds: Sequence[int]) -> Path:
    """Figures and page; where the page is."""
    searched = measure.read(folder / "worlds.csv")
    explored = measure.read(folder / "room.csv")
    found = {
        (world, setting): room.gains(explored, world, setting)
        for world in (space.SHIPPED, *worlds)
        for setting in room.ROOM_SETTINGS
    }
    found = {where: gains for where, gains in found.items() if gains["seeds"]}
    known = slices.read(folder / "slices.csv")
    style.png(_figure(found, known, worlds), folder / "room.png")
    place = folder / "index.md"
    parts = [_intro(searched, worlds), _predicates(searched, worlds), _worlds(searched, worlds)]
    parts += [_room(found, worlds, known), slices_said(known, worlds)]
    parts += [trained(gained := learned.read(folder / "learned.csv"))]
    parts += [on_the_way(best.read(folder / "best.csv")), _repeat()]
    if gained:
        style.png(_learned_figure(gained), folder / "learned.png")
    place.write_text("\n\n".join(part for part in parts if part) + "\n", encoding="utf-8")
    return place


def _named(world: int) -> str:
    return "as shipped" if world == space.SHIPPED else str(world)


def _points(value: float) -> str:
    return f"{100 * value:.1f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _intro(rows: Sequence[Row], worlds: Sequence[int]) -> str:
    begun = len({row["world"] for row in rows} - {space.SHIPPED})
    met = fitting.counts([row for row in rows if row["seed"] == predicates.SEEDS[0]])
    least = min(met[world] for world in worlds)
    return f"""# Did ASET's worlds have room?

ASET learns which of seven static policies should decide in the next 25 seconds. On the worlds that ship
with edgewise even one who knows what comes gains little by choosing among the seven, so there is little to
learn.
The paper leaves much open: how often clients pick which application, how long sessions last, how many
servers there are and what runs on them, how full a worker may be booked, whether refused streams ask
again, how old news of load are. Perhaps its worlds had more room.

So these were drawn at random in ranges that the paper allows ({len(space.RANGES)} of them,
{space.WORLDS} worlds of a Latin hypercube, {space.ANTENNAS} antennas), and judged by what the paper's
figures say of its **static** policies alone: {len(PREDICATES)} predicates with tolerances, written down
and [frozen](../frozen/aset-calibration.json) before the first world was measured. Nothing here was
trained, and no predicate is about ASET. The paper prints no numbers of its curves, so the predicates are
its sentences; and how far a queue may grow is set by how full a worker may be booked, as workers' queues
have no bound here.

Measured so far: {begun} worlds on validation seed {predicates.SEEDS[0]}; {len(met)} of them whole, the
others were left when they had missed more than {predicates.MISSES} predicates. {len(worlds)} fit equally
well, with {least} of {len(PREDICATES)} or more, and are
[frozen](../frozen/aset-calibration-worlds.json). It is a beginning: a few of {space.WORLDS} worlds, judged on
one seed, and none meets all predicates. More can be measured, and what then fits better be frozen by
another name.

{SO_FAR}"""


def _predicates(rows: Sequence[Row], worlds: Sequence[int]) -> str:
    numbers = sorted({row["world"] for row in rows} - {space.SHIPPED})
    judged = {world: predicates.judge(measure.found_of(rows, world)) for world in (space.SHIPPED, *numbers)}
    body = []
    for name, each in PREDICATES.items():
        known = [judged[world][name] for world in numbers if name in judged[world]]
        fit = sum(judged[world][name] for world in worlds)
        ships = {True: "yes", False: "no", None: "–"}[judged[space.SHIPPED].get(name)]
        says = (f"`{name}`", each.figure, each.says, each.test)
        body.append((*says, f"{sum(known)} of {len(known)}", f"{fit} of {len(worlds)}", ships))
    head = (
        "predicate",
        "figure",
        "the paper",
        "tested as",
        "worlds measured",
        "worlds that fit",
        "as shipped",
    )
    return "## What the paper says of static policies\n\n" + table(head, body)


def _worlds(rows: Sequence[Row], worlds: Sequence[int]) -> str:
    body = []
    for world in worlds:
        found, at = measure.found_of(rows, world), space.point(world)
        missed = [name for name, met in predicates.judge(found).items() if not met]
        choices = ", ".join(
            f"{name} {int(at[name])}" for name in ("office", "centre", "cloud", "access", "ssd", "retry")
        )
        gateways, period_s = space.FEEDBACK[int(at["feedback"])]
        body.append((
            str(world), ", ".join(f"`{name}`" for name in missed) or "none",
            *(f"{at[name]:.3g}" for name in SHOWN), f"{gateways}, {period_s:g} s", choices,
            *(f"{_points(max(predicates.shares(found[s])))} ({_points(predicates.spread(found[s]))})"
              for s in ("dc", "co", "edge", "burst")),
        ))  # fmt: skip
    head = (
        "world",
        "misses",
        *SHOWN,
        "feedback",
        "choices",
        "dc-cloud",
        "co-dc-cloud",
        "full-edge",
        "bursts",
    )
    text = (
        "Success of the best of the seven in percent, in brackets how far the worst is below it, in points."
    )
    return f"## The worlds that fit\n\n{text}\n\n" + table(head, body)


def _room(
    found: Gains,
    worlds: Sequence[int],
    known: Mapping[slices.Cell, float],
) -> str:
    estimated = {setting: slices.by_world(known, setting) for setting in room.ROOM_SETTINGS}
    body = [
        (_named(world), TITLES[setting], str(gains["best"]), _points(gains["success"]),
         *(f"{100 * gains[kind]:+.1f}" for kind in KINDS), str(gains["seeds"]),
         f"{100 * estimated[setting][world]:+.1f}" if world in estimated[setting] else "–")
        for (world, setting), gains in found.items()
    ]  # fmt: skip
    head = ("world", "setting", "best of seven", "success (%)", "looks ahead", "each seed's best",
            "better of both", "each application's best", "seeds", "in slices")  # fmt: skip
    return f"""## What one who knows what comes gains

Points above the one policy of the seven that is best over all seeds. *Looks ahead*: at each window it
tries the seven on the true clients, delays and services of the next {room.WINDOWS_AHEAD} windows and
takes the best; greedy, so not a bound. *Each seed's best*: the best of the seven, chosen anew for each
run. *Each application's best*: as if every application could have the policy that suits it best and it
did not matter to it what others get, which is too much.

![Gain of a chooser that knows what comes, for each world that fits](room.png)

{table(head, body)}

{conclusion(found, worlds)}"""


def slices_said(known: Mapping[slices.Cell, float], worlds: Sequence[int]) -> str:
    """What a chooser would gain in short slices of each window, also in worlds that do not fit."""
    lines = []
    for setting, title in TITLES.items():
        fit = [gain for world, gain in slices.by_world(known, setting).items() if world in worlds]
        if fit:
            many = sum(gain >= predicates.POINT for gain in fit)
            span = (
                f"{_points(min(fit))} to {_points(max(fit))} points, median {_points(float(np.median(fit)))}"
            )
            lines.append(f"- Worlds that fit, {title}: {span}; a point and more in {many} of {len(fit)}.")
    for setting in slices.EVERY:
        gains = {world: gain for world, gain in slices.by_world(known, setting).items() if world >= 0}
        if not gains:
            return ""
        most = max(gains, key=gains.__getitem__)
        middle = _points(float(np.median(list(gains.values()))))
        some = f"{sum(gain >= predicates.POINT for gain in gains.values())} of {len(gains)} worlds"
        span = f"median {middle} points, most {_points(gains[most])} (world {most})"
        lines.append(f"- All worlds, {TITLES[setting]}: {span}; a point and more in {some}.")
    listed = "\n".join(lines)
    return f"""## In slices, also where worlds do not fit

*In slices* estimates the same from short slices of each window, with one gateway that knows all loads and
clients who do not ask again, whatever the world says: a second for each instead of a minute, so also for
worlds that were not measured otherwise, whether they fit or not (`slices.csv`). A chooser that would do
worse than the best policy stays with it.

{listed}"""


def conclusion(found: Gains, worlds: Sequence[int]) -> str:
    """In words, from the figures."""
    lines = []
    for setting, title in TITLES.items():
        gains = [found[world, setting]["windows"] for world in worlds if (world, setting) in found]
        if not gains:
            continue
        ships = found.get((space.SHIPPED, setting))
        beside = "" if ships is None else f"; as shipped {100 * ships['windows']:+.1f}"
        some = sum(gain >= predicates.POINT for gain in gains)
        span = f"{_points(min(gains))} to {_points(max(gains))} points"
        middle = _points(float(np.median(gains)))
        lines.append(
            f"- {title}: {span}, median {middle}; a point and more in {some} of {len(gains)} worlds{beside}."
        )
    return "So one who knows what comes gains (better of both):\n\n" + "\n".join(lines)


def trained(found: Mapping[tuple[int, str], learned.Learned]) -> str:
    """What ASET as published reaches where it was trained."""
    if not found:
        return "ASET was trained in none of them yet."
    head = ("world", "setting", "best of the seven", "in time", "trained, less that (points)", "mean [95 %]")
    rows = [
        (
            _named(world), TITLES[setting], each.best, _points(each.success),
            ", ".join(f"{100.0 * gain:+.2f}" for gain in each.gains), _interval(each.gains),
        )
        for (world, setting), each in found.items()
    ]  # fmt: skip
    gains = [gain for each in found.values() for gain in each.gains]
    intervals = [ci for each in found.values() if (ci := each.interval())]
    below, above = sum(high < 0.0 for _, high in intervals), sum(low > 0.0 for low, _ in intervals)
    best, means = 100.0 * max(*gains, 0.0), [float(np.mean(each.gains)) for each in found.values()]
    ahead = sum(gain > 0.0 for gain in gains)
    return (
        "ASET's network and algorithm 1 as published, choosing among its seven policies, was trained "
        f"{len(gains)} times, {learned.EPISODES} episodes each, in these worlds and in the one that ships. "
        f"Constants are the best of {len(learned.VARIANTS)} tried (`{learned.USED}`, `tuning.csv`). "
        f"Each training decides on the validation seeds {', '.join(map(str, learned.SEEDS))}, beside each of "
        "the seven alone; the best of them is named by the same seeds, which favours it "
        "(`python -m edgewise_studies.calibration learned`; `learned.csv`, and `curves.csv` of the "
        f"trainings). **{ahead} of {len(gains)} trainings are above the best of the seven, by {best:.2f} "
        f"points at most; the mean is {_interval(means)} points**, where each world and setting counts once. "
        f"By the interval over its trainings the mean is surely below in {below} of {len(intervals)} worlds "
        f"and settings, surely above in {above}, and else undecided.\n\n"
        + table(head, rows)
        + "\n\n![What each training gains](learned.png)"
    )


def on_the_way(found: Mapping[tuple[int, str], best.Both]) -> str:
    """What trainings reach by the best of their networks in place of the last."""
    if not found:
        return ""
    rows = [
        (
            _named(world), TITLES[setting], each.rival,
            *(", ".join(f"{100.0 * gain:+.2f}" for gain in gains) for gains in (each.last, each.best)),
            *(_interval(gains.tolist()) for gains in (each.last, each.best, each.best - each.last)),
        )
        for (world, setting), each in found.items()
    ]  # fmt: skip
    head = ("world", "setting", "best of the seven", "last networks (points)", "best networks (points)",
            "mean, last [95 %]", "mean, best [95 %]", "best less last [95 %]")  # fmt: skip
    return f"""## The best network on the way

Algorithm 1 ends with its last network, and some trainings end where another of the seven is points ahead.
So trainings were repeated that look every fourth episode how their network does in
{len(SEEN_IN)} worlds of their own ({", ".join(map(str, SEEN_IN))}), and give the best of these.
Nothing else of them differs, and both networks are judged on {", ".join(map(str, learned.SEEDS))}, beside
the best of the seven there (`python -m edgewise_studies.calibration best`, `best.csv`).

{table(head, rows)}"""


def _interval(values: Sequence[float]) -> str:
    """Mean and interval in points."""
    ci, mean = learned.interval_of(values), f"{100.0 * np.mean(values):+.2f}"
    return mean if ci is None else f"{mean} [{100.0 * ci[0]:+.2f}, {100.0 * ci[1]:+.2f}]"


def _learned_figure(found: Mapping[tuple[int, str], learned.Learned]) -> Any:
    """Each training's gain over the best of the seven, and the mean with its interval."""
    rows = {
        f"{_named(world)}: {TITLES[setting]}": (np.array(each.gains), each.interval())
        for (world, setting), each in found.items()
    }
    return gains_figure(rows, "ASET as published less the best of its seven policies")


def _repeat() -> str:
    return """## Repeat it

```sh
python -m edgewise_studies.calibration worlds --minutes 3   # again and again: it goes on
python -m edgewise_studies.calibration room --minutes 3
python -m edgewise_studies.calibration slices --minutes 3
python -m edgewise_studies.calibration tune --minutes 20      # needs torch, as the next one does
python -m edgewise_studies.calibration learned --minutes 60
python -m edgewise_studies.calibration best --minutes 40
python -m edgewise_studies.calibration page
```

Rows: `worlds.csv` and `room.csv`, one for each world, setting, seed and policy, with success by
application; `slices.csv`, one for each world, setting and seed."""


def _figure(found: Gains, known: Mapping[slices.Cell, float], worlds: Sequence[int]) -> Any:
    order = (space.SHIPPED, *worlds)
    with chart(
        7.0, 4.0, "Gain of a chooser that knows what comes", "world", "points above the best static policy", 3
    ) as (drawn, axes):
        for shift, (setting, title) in enumerate(TITLES.items()):
            estimated = slices.by_world(known, setting)
            at = [k + 0.27 * (shift - 1) for k in range(len(order))]
            axes.bar(
                at, [100 * estimated.get(world, 0.0) for world in order], 0.25, label=f"{title}, in slices"
            )
            whole = [k for k, world in enumerate(order) if (world, setting) in found]
            heights = [100 * found[order[k], setting]["windows"] for k in whole]
            name = "whole runs" if shift == 0 else None
            axes.plot([at[k] for k in whole], heights, "D", color="#222222", markersize=5, label=name)
        axes.axhline(1.0, color="#222222", linestyle=":", linewidth=1.0)
        axes.set_xticks(range(len(order)), [_named(world) for world in order])
    return drawn
