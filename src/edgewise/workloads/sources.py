"""Streams of sources: each opens at its hour, from a phase of its own, and stays to its hour's end.

Their draws are keyed by names, so a source that is added moves nobody's, and their ids follow those of
clients' streams. Of what opens at one time, the more important asks first.
"""

from dataclasses import replace

from edgewise.model.scenario import Scenario, Streams
from edgewise.model.sources import draws_as
from edgewise.model.work import Stream


def source_streams(scenario: Scenario, first_id: int = 0) -> list[Stream]:
    """The streams of a run's sources: by importance, source, site, number and opening.

    The same for every seed: a seed draws their phases.

    Args:
        first_id: their ids go on from here.
    """
    came, sites = scenario.streams, [site.name for site in scenario.topology.sites]
    streams: list[Stream] = []
    for source in sorted(came.sources, key=lambda each: -each.priority):
        openings = source.openings_s(came.begins_at_s, scenario.duration_s)
        one = Stream(
            0, 0, source.name, source.task, 0.0, 0.0, source.rate_qps, source.size_bytes, source.deadline_s,
            source.min_accuracy, source.priority, "periodic", source.answer_bytes,
        )  # fmt: skip
        for site in source.sites:
            for number in range(source.count):
                for opening, (open_s, close_s) in enumerate(openings):
                    key = draws_as(source.name, sites[site], number, opening)
                    i = first_id + len(streams)
                    opened = replace(one, open_s=open_s, close_s=close_s, source=f"{source.name}-{number}")
                    streams.append(replace(opened, id=i, site=site, draws_as=key))
    return streams


def sources_load_bps(came: Streams, site: int) -> float:
    """Bits/s that the sources of a site send when all of them do."""
    return sum(8.0 * s.count * s.rate_qps * s.size_bytes for s in came.sources if site in s.sites)
