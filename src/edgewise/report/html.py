"""One self-contained page per run: what came of it in words, then pictures, then tables.

First what it was and how it went, a picture of the places and of who held what over time; then all kinds of
work in one grid, and a section for each. Every name in a run may come from a user's scenario, so the template
escapes all of them; the page loads nothing and runs no script.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from edgewise.config import load_scenario
from edgewise.errors import ScenarioError
from edgewise.model.scenario import Scenario
from edgewise.report import decided, figures, sections, site, sources, words
from edgewise.report.records import RecordedRun
from edgewise.report.summary import warning

_CAPTIONS = {
    "outcome-shares": "Shares of all, mean over seeds. The whisker is the 95 % interval of success.",
    "means": "Mean over seeds. The whisker is its 95 % interval.",
    "success-over-time": "Share that was answered in time, by window. "
    "Line: mean over seeds; band, with up to four policies: 95 % interval.",
    "success-by-application": "Share of each application's queries answered in time, mean over seeds.",
    "time-line-of-nodes": "One run: share of each node's cores and memory that each kind of work holds. "
    "At the right the mean over the run of what is held, and the most. Steps last 1/400 of the run.",
    "time-line-of-links": "One run: share of each link's rate that is reserved, and that messages use.",
    "late": "By when the work was asked for; above a dashed line, where there is one, it comes too late.",
    "lost": "What was refused or came to nothing, by when it was asked for and why, mean over seeds.",
    "gantt": "One run: the line is from a job's submission to the latest start that it allows, and the bars "
    "are when it ran.",
    "paired-differences": "Difference under the same seeds. The grey zone is too small to count as a win.",
}


def _percent(share: float | None, decimals: int = 1) -> str:
    return "–" if share is None else f"{100 * share:.{decimals}f}"


def _width(share: float) -> str:
    """Length of a bar, for a style."""
    return f"{100 * min(1.0, max(0.0, share)):.1f}%"


def _points(difference: float | None) -> str:
    return "–" if difference is None else f"{100 * difference:+.2f}".replace("-", "−")


def _p(value: float | None) -> str:
    if value is None:
        return "–"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _seeds(seeds: Any) -> str:
    """Seeds in few words: 1, 2, 3 as 1–3."""
    if not isinstance(seeds, list) or not all(isinstance(seed, int) for seed in seeds):
        return str(seeds)
    if len(seeds) > 2 and seeds == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"{seeds[0]}–{seeds[-1]} ({len(seeds)})"
    return ", ".join(map(str, seeds))


def _breaking(name: str) -> Markup:
    """A name of several policies, as a+b, which may go on in the next line after each."""
    return escape(name).replace("+", Markup("+<wbr>"))


SHOWN = 3  # limits of a policy


def environment() -> Environment:
    """Templates of pages, with the filters that they use."""
    environment = Environment(
        loader=PackageLoader("edgewise.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        percent=_percent,
        width=_width,
        points=_points,
        p=_p,
        seeds=_seeds,
        seconds=sections.seconds,
        breaking=_breaking,
    )
    return environment


def scenario_of(run: RecordedRun) -> Scenario | None:
    """The scenario of a run; None where this edgewise cannot load it."""
    try:
        return load_scenario(run.folder / "scenario.yaml")
    except ScenarioError:
        return None


def _about(run: RecordedRun, limits: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What was run, in words: scenario, hardware, policies, what breaks first, and how it was simulated.

    Args:
        limits: of the policy that is shown.
    """
    scenario, manifest = scenario_of(run), run.manifest
    found: dict[str, str] = {}
    if scenario is not None:
        found |= words.scenario(scenario)
    found["Policies"] = "; ".join(words.policies(run.all_decided, run.policies))
    found |= {"First to break" if one.get("lost") else "Would break first": one["text"] for one in limits[:1]}
    for setting in dict.fromkeys(manifest.get("settings", {}).values()):
        works = [work for work, one in manifest["settings"].items() if one == setting]
        found["Simulated" if "Simulated" not in found else f"But {' and '.join(works)}"] = f"{setting}" + (
            f": {', '.join(works)}" if "Simulated" not in found else ""
        )
    command = manifest["command"]
    if "live" in manifest:
        found["Live"] = words.lived(manifest["live"])
        found.pop("Simulated", None)
    else:
        found["Seeds"] = _seeds(manifest["seeds"])
    found["Version"] = str(manifest["version"])
    found["Command"] = " ".join(map(str, command)) if isinstance(command, list) else str(command)
    return {name: value for name, value in found.items() if value}


def _images(images: Mapping[str, bytes]) -> dict[str, dict[str, str]]:
    """Pictures for the page by stem: what they show, and their bytes as text."""
    found = {}
    for stem, image in images.items():
        caption = _CAPTIONS.get(stem.rstrip("-234")) or _CAPTIONS[stem.partition("-")[2]]
        found[stem] = {"caption": caption, "data": base64.b64encode(image).decode("ascii")}
    return found


def _parts(run: RecordedRun) -> list[dict[str, Any]]:
    """What the section of each kind of work shows."""
    found = []
    for part in (run, *run.beside):
        headings, rows = sections.measures(part)
        found.append({
            "kind": part.kind,
            "about": part.work.about,
            "by_policy": len(run.policies) <= sections.BESIDE,
            "headings": headings,
            "measures": rows,
            "timed": sections.timed(part, run.use.get("delays")),
            "applications": sections.applications(part) if part.kind == "streams" else [],
            "policies": sections.best_first(part),
            "refused": sections.refused(part),
            "sources": sources.shown(sources.by_source(part.items)) if part.kind == "streams" else [],
        })  # fmt: skip
    return found


def site_picture(run: RecordedRun, policy: str) -> str:
    """The places of a run under a policy, as SVG; "" where nothing can be drawn."""
    scenario = scenario_of(run)
    return "" if scenario is None else site.picture(scenario, run, policy)


def _limits(run: RecordedRun) -> list[dict[str, Any]]:
    """Of each policy what limits it, the first to break first; older runs do not say it."""
    known = run.manifest.get("limits", {})
    return [{"policy": policy, **one} for policy in run.policies for one in known.get(policy, [])[:SHOWN]]


def render(run: RecordedRun, rival: str | None = None, images: Mapping[str, bytes] | None = None) -> str:
    """The page as text.

    Args:
        run: the run.
        rival: as for `figures.comparisons_of`.
        images: as `figures.drawn`, where it was called before.
    Raises:
        PolicyError: the rival has no records in the run.
    """
    comparisons = figures.comparisons_of(run, rival)
    shown = next(iter(sections.best_first(run)), "")
    limits = _limits(run)
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            run=run,
            scenario=run.manifest.get("scenario", run.name),
            verdicts=words.verdicts(run, comparisons),
            about=_about(run, [one for one in limits if one["policy"] == shown]),
            links=warning(run.summary),
            limits=limits,
            stood_in=[*decided.nothing(run.all_decided), *decided.lines(run.all_decided)],
            site=Markup(site_picture(run, shown)),
            shown=shown,
            overview=sections.overview(run),
            unit=run.measures[0].unit,
            policies=sections.best_first(run),
            comparisons=[(row, words.compared(row, run.measures[0])) for row in comparisons],
            parts=_parts(run),
            use=sections.use_tables(run),
            source_headings=sources.HEADINGS,
            sources_about=sources.ABOUT.capitalize(),
            folded=sections.FOLDED,
            images=_images(figures.drawn(run, rival) if images is None else images),
        )
    )
