"""What breaks first, what next, and what would cure it: before a run from a scenario, after it from records.

A *limit* is a link, a node, workers, a deadline or a variant that work is lost to, or that would be next if
more work came. Forbidden here: printing, files, and running simulations.

    reach    who can serve whom in time and accuracy
    load     how much is asked for over time, as drawn or as recorded
    balance  the least load of links, nodes and workers under any policy
    checked  all of it before a run: `edgewise check`
    found    what a run was limited by: `simulate`, `compare`, `sweep`, `size` and reports
    cures    what to change of a scenario
"""

from edgewise.limits.words import Cure, Limit, in_words

__all__ = ["Cure", "Limit", "in_words"]
