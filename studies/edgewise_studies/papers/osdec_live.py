"""OSDEC as live: jobs on nodes make way for on-demand work that comes there, and are lost if they start late.

The paper's reward asks how many core-slots begin, and how soon, in one pool. As live there is no pool to
exceed: what on-demand work takes is taken from jobs, which move and do again what was done. So what counts is
work that was worth something in the end, how many jobs are lost, and how much is done twice.

The networks are the five that the paper's recipe trained, five of ours, and five of `osdec-skip`, of which a
quick run takes the one that ships.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from edgewise import api
from edgewise.arrays import Floats
from edgewise.config import load_scenario
from edgewise_studies.claims import at_least, at_most
from edgewise_studies.frozen import setting_text, sha256
from edgewise_studies.papers.osdec import EFFECT, RULES, RUNS
from edgewise_studies.run import Run, boxes, reproduction
from edgewise_studies.training.osdec.situations import name_of
from edgewise_studies.trainings import crossed, gained, interquartile_figure

FIGURES = ("finished_core_s", "lost", "jobs", "redone_core_s")
SKIP = "osdec-skip"
RECIPES = {"published": ("osdec", "paper"), "ours": ("osdec", "ours")}  # by ids of claims
SAID = {"published": "OSDEC by the paper's recipe", "ours": "OSDEC by our recipe"}
LOST = 0.01  # share of jobs, as a point everywhere
WASTE = 0.01  # of what is finished

_CLAIMS = {
    f"{id}-{what}": f"O1, as live: {who} {does}"
    for id, who in SAID.items()
    for what, does in {
        **{f"finished-{rule}": f"finishes at least 1.01 of the work of {rule}" for rule in RULES},
        **{f"lost-{rule}": f"loses at most a point more of its jobs than {rule}" for rule in RULES},
        "redone": "does at most 1 % of what it finishes twice, for on-demand work that comes",
    }.items()
}
_SHIPPED = {"skip-finished": "beyond: OSDEC that goes on past a misfit finishes at least 1.01 of FIFO's work"}


def frozen() -> str:
    """JSON of the hash of the scenario."""
    return setting_text({"deferrable": sha256(load_scenario("deferrable"))})


@reproduction(
    "osdec-live",
    paper="OSDEC (Dong et al.) as live: work that is finished, jobs that are lost, evictions",
    claims=_CLAIMS | _SHIPPED,
    ours=[id for id in (*_CLAIMS, *_SHIPPED) if not id.startswith("published-")],
    as_live=[*_CLAIMS, *_SHIPPED],
    trained=list(_CLAIMS),
    training_of="osdec",
    setting=frozen,
    look=3,
    seeds=(20, 3),
)
def osdec_live(run: Run) -> None:
    """Rules and trained networks; a quick run has the rules and what ships."""
    run.step("rules")
    rules = {rule: _measured(run, [rule]) for rule in RULES}
    trained = run.training is not None and not run.quick
    run.step(SKIP)
    skip = _measured(run, _cards(run, SKIP, "ours") if trained else [SKIP])
    words = f"{_words(skip)}; FIFO {_words(rules['fifo'])}"
    ratio = skip["finished_core_s"] / rules["fifo"]["finished_core_s"]
    run.claim("skip-finished", gained(ratio, words), at_least(EFFECT))
    found = {SKIP: skip} | rules
    for id, recipe in RECIPES.items() if trained else ():
        run.step(SAID[id])
        found[SAID[id]] = _measured(run, _cards(run, *recipe))
        _claims(run, id, found[SAID[id]], rules)
    finished = {name: each["finished_core_s"] / 1e6 for name, each in found.items()}
    lost = {name: 100.0 * each["lost"] / each["jobs"] for name, each in found.items()}
    run.figure(
        "finished", boxes({n: each.ravel() for n, each in finished.items()}, "Finished work", "M core-s", 9.0)
    )
    run.figure("lost", boxes({n: each.ravel() for n, each in lost.items()}, "Jobs that are lost", "%", 9.0))
    run.figure("trainings", interquartile_figure(finished, "finished work, M core-s"))


def _cards(run: Run, method: str, recipe: str) -> list[str]:
    """Of the trainings of a method by a recipe."""
    assert run.training is not None
    names = (name_of(method, number, "paper", recipe) for number in RUNS)
    return [str(run.training / f"{name}.json") for name in names]


def _measured(run: Run, policies: Sequence[str]) -> Mapping[str, Floats]:
    """(policies, seeds) of each figure."""
    scenario = load_scenario("deferrable")
    rows = [api.simulate(scenario, {"defer": each}, run.seeds, jobs=run.jobs).summary() for each in policies]
    return {
        figure: np.array([[row[figure] for row in each] for each in rows], dtype=np.float64)
        for figure in FIGURES
    }


def _words(found: Mapping[str, Floats]) -> str:
    lost = 100.0 * float((found["lost"] / found["jobs"]).mean())
    return f"{found['finished_core_s'].mean() / 1e6:.3f} M core-s, {lost:.1f} % lost"


def _claims(
    run: Run, id: str, found: Mapping[str, Floats], rules: Mapping[str, Mapping[str, Floats]]
) -> None:
    for rule, rival in rules.items():
        words = f"{_words(found)}; {rule} {_words(rival)}"
        ratio = found["finished_core_s"] / rival["finished_core_s"]
        run.claim(f"{id}-finished-{rule}", crossed(ratio, words), at_least(EFFECT))
        more = found["lost"] / found["jobs"] - rival["lost"] / rival["jobs"]
        run.claim(f"{id}-lost-{rule}", crossed(more, words), at_most(LOST))
    run.claim(f"{id}-redone", crossed(found["redone_core_s"] / found["finished_core_s"]), at_most(WASTE))
