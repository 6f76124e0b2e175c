"""One gateway in front of workers that somebody else runs."""

from __future__ import annotations

import time
from collections.abc import Sequence

from edgewise import policies
from edgewise.core.world import World
from edgewise.errors import ScenarioError
from edgewise.model.scenario import Scenario
from edgewise.model.spec_services import LiveStreamsSpec
from edgewise.runtime import http
from edgewise.runtime.gateway import Gateway, Patience
from edgewise.runtime.session import Session


def gateway(scenario: Scenario, policy: str, workers: Sequence[str]) -> Gateway:
    """A gateway for a scenario's workers.

    Args:
        workers: "URL=MODEL" of each, in the scenario's order; MODEL is its name in its own URLs.
    Raises:
        ScenarioError: not as many as the scenario has workers, or one is malformed.
        PolicyError: the policy cannot be loaded.
    """
    world = World.build(scenario.catalog, scenario.topology)
    if len(workers) != world.workers:
        names = ", ".join(world.worker_names)
        raise ScenarioError(f"--worker: {len(workers)} given, the scenario has {world.workers}: {names}")
    clients, models = [], []
    for text in workers:
        url, _, model = text.rpartition("=")
        if not url or not model:
            raise ScenarioError(f"--worker: {text!r} is not URL=MODEL, as http://127.0.0.1:8001=my-model")
        try:
            clients.append(http.Client.of_url(url))
        except ValueError as error:
            raise ScenarioError(f"--worker: {error}") from None
        models.append(model)
    began_s, bounds = time.monotonic(), scenario.spec.streams or LiveStreamsSpec()
    session = Session(
        world, policies.load(policy), 0, lambda: time.monotonic() - began_s,
        window_s=scenario.window_s, retry_refused=scenario.retry_refused, burst=bounds.burst,
    )  # fmt: skip
    return Gateway(session, clients, models, patience=Patience(lease_s=bounds.lease_s))
