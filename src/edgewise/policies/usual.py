"""Who decides where nobody is named: one default for each decision, in simulation and live."""

from collections.abc import Mapping

from edgewise.model.scenario import Scenario

USUAL: Mapping[str, str] = {
    "dispatch": "least-harm",
    "requests": "deadline-queue",
    "split": "nona-queues",
    "place": "otfa",
    "orchestrate": "autoscaler",
    "defer": "tetris",
}


def deciding(scenario: Scenario) -> dict[str, str]:
    """The policy of each decision: the one that the scenario names, or the usual one."""
    return {**USUAL, **scenario.policies}
