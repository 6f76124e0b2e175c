"""One gateway in front of workers that somebody else runs."""

import ssl
from collections.abc import Sequence
from urllib.parse import unquote

from edgewise.core.world import World
from edgewise.errors import ScenarioError
from edgewise.model.scenario import Scenario
from edgewise.runtime import clock, http
from edgewise.runtime.apart import load
from edgewise.runtime.gateway.gateway import Gateway, Patience
from edgewise.runtime.gateway.needs import StreamRules
from edgewise.runtime.gateway.session import Session

MODELS = "/v2/models/"


def gateway(
    scenario: Scenario,
    policy: str,
    workers: Sequence[str],
    token: str | None = None,
    tls: ssl.SSLContext | None = None,
) -> Gateway:
    """A gateway for a scenario's workers.

    Args:
        workers: "NAME=URL" of each, in any order. A URL that ends in /v2/models/MODEL says what the model is
            called there; otherwise it has the name of the worker's variant.
        token: that workers want to see.
        tls: whom to trust where a URL begins with https; the system's authorities when None.
    Raises:
        ScenarioError: a worker is missing, unknown or given twice, or its URL is wrong.
        PolicyError: the policy cannot be loaded.
    """
    world = World.build(scenario.catalog, scenario.topology, scenario.sharing)
    urls = _by_name(workers, world.worker_names)
    clients, models = [], []
    for name, variant in zip(world.worker_names, world.variant_names, strict=True):
        url, _, model = urls[name].partition(MODELS)
        try:
            clients.append(http.Client.of_url(url, token, tls))
        except ValueError as error:
            raise ScenarioError(f"--worker {name}: {error}") from None
        models.append(unquote(model) or variant)
    began_s = clock.monotonic_s()
    rules = StreamRules.of(scenario)
    decides = load("dispatch", policy, rules.budgets_s.dispatch)
    session = Session(world, decides, 0, lambda: clock.monotonic_s() - began_s, rules)
    return Gateway(session, clients, models, patience=Patience(lease_s=scenario.streams.lease_s))


def _by_name(workers: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """URL of each worker.

    Raises:
        ScenarioError: not exactly one for each of `names`.
    """
    urls: dict[str, str] = {}
    for text in workers:
        name, _, url = text.partition("=")
        if not url:
            raise ScenarioError(f"--worker: {text!r} is not NAME=URL, as {names[0]}=http://127.0.0.1:8001")
        if name not in names or name in urls:
            what = "is given twice" if name in urls else "is not in the scenario"
            raise ScenarioError(f"--worker: {name!r} {what}; its workers are {', '.join(names)}")
        urls[name] = url
    if missing := [name for name in names if name not in urls]:
        raise ScenarioError(f"--worker: none for {', '.join(missing)}; give NAME=URL for each worker")
    return urls
