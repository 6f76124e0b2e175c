"""Reproductions with all they do, and little of what takes long: they run in seconds and claim nothing."""

from dataclasses import replace

from edgewise.seeds import VALIDATION
from edgewise_studies.papers import aset, aset_published, ents, nona

SEEDS = (2_000_000,)


def shorten(patch, name):
    """Have the reproduction `name` do less of the same.

    Args:
        patch: of pytest, in this process: give the run `jobs=1`.
    """
    if name == "aset":
        run_one, bound = aset.run_one, aset.hindsight_bound
        patch.setattr(aset, "run_one", lambda scenario, *rest: run_one(short(scenario), *rest))
        patch.setattr(aset, "hindsight_bound", lambda scenario, seed: bound(short(scenario), seed))
    if name == "aset-published":
        simulation_of = aset_published.simulation_of
        patch.setattr(aset_published, "simulation_of", lambda world, *how: simulation_of(short(world), *how))
    if name == "nona":
        study = nona.Study
        patch.setattr(nona, "Study", lambda workload, queries: study(workload, 100))
        patch.setattr(nona, "LINK_QUERIES", 100)
    if name == "ents":
        patch.setattr(ents, "VALIDATED", VALIDATION[:1])


def short(scenario):
    """The first half minute of a scenario."""
    return replace(scenario, duration_s=30.0)
