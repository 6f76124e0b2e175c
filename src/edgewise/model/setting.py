"""Which rules of a scenario are as a paper has them, and not as a running system does.

What a scenario does not say is as live. A rule that only a paper's setting has is named in every table.
"""

from edgewise.model.scenario import Scenario


def published(scenario: Scenario, work: str) -> tuple[str, ...]:
    """Keys and values by which a kind of work is simulated as published; none: as it runs live."""
    found = list[str]()
    if work == "streams" and scenario.streams.gateways == "one" and len(scenario.topology.sites) > 1:
        found.append("streams.gateways: one")
    if work == "services" and (services := scenario.services) is not None:
        found += ["services.gateways: one"] if services.gateways == "one" else []
        if services.cloud_has == "pool" and services.gateways != "one":
            found.append("services.cloud_has: pool")
        found += [] if services.answers else ["services.answers: false"]
        found += [] if services.returns_cores else ["services.returns_cores: false"]
    if work == "pipelines" and not scenario.reservations.capped:
        found.append("reservations.capped: false")
    if work == "pipelines" and scenario.reservations.cores == "none":
        found.append("reservations.cores: none")
    if work == "graphs" and not scenario.telemetry.servers:
        found.append("telemetry.servers: none")
    if work == "jobs" and scenario.jobs is not None and scenario.jobs.room == "pooled":
        found.append("jobs.room: pooled")
    return tuple(found)


def setting(scenario: Scenario, work: str) -> str:
    """ "as live", or "as published" and by which keys."""
    found = published(scenario, work)
    return f"as published ({', '.join(found)})" if found else "as live"
