"""Shipped scenarios as they are: what simulated sites were told, told to gateways' cores, is answered alike.

With the scenarios' own delays, noise, images and news, under every policy that decides live. The simulated
sites go on in compiled code; each core here hears one event after the other.
"""

import pytest

from edgewise import policies
from edgewise.config import load_scenario
from edgewise.core.dispatch.events import Drop, ReplicaTold, RequestAgain, RequestReturned, Send
from edgewise.core.dispatch.requests import RequestCore
from edgewise.errors import PolicyError
from edgewise.sim.requests.news import News
from edgewise.sim.requests.sites import RequestSites
from edgewise.workloads.services import services_at_sites, simulated_services
from joint_scenarios import simulate_sites

SEED, NOTES = 500_000, 4000
SHORT = {"kais-demo": 1000, "scarce": 50, "edge-cloud": 50, "kais-live": 9}
CASES = [(name, policy) for name in SHORT for policy in policies.names("requests", live=True)]


def simulated(name, policy):
    """A scenario's sites, once all is over, and its services."""
    scenario = load_scenario(name, {"duration_s": SHORT[name]})
    given = simulated_services(scenario)
    services = services_at_sites(scenario, given)
    news = News(scenario.telemetry.period_s, scenario.telemetry.lag_s)
    frames = given.slots // given.system.frame_slots

    def make():
        return policies.load("requests", policy, live=True)

    sites = RequestSites(services, given.draw([SEED]), make, SEED, frames, news, notes=NOTES)
    simulate_sites(sites, policies.load("orchestrate", "marginal"))
    return sites, services


def without_why(commands):
    """A simulation does not say why it drops a request."""
    return [each._replace(reason="") if isinstance(each, Drop) else each for each in commands]


@pytest.mark.parametrize(("name", "policy"), CASES)
def test_cores_answer_what_was_told_in_a_shipped_scenario_as_simulated(name, policy):
    try:
        sites, services = simulated(name, policy)
    except PolicyError as error:
        assert policy.startswith("kais"), error  # trained for the services of another scenario
        return
    assert not sites.guard.fault
    sent, events = 0, set()
    for site, core in enumerate(sites.cores):
        live = RequestCore(services, site, policies.load("requests", policy, live=True), core.seed)
        for where, event, commands in sites.log:
            if where == site:
                assert without_why(live.handle(event)) == without_why(commands), event
                events.add(type(event))
                sent += sum(isinstance(each, Send) for each in commands)
        live.validate()
        assert live.said == core.said and (live.arrived == core.arrived).all()
    assert sent > 50 and events >= {ReplicaTold, RequestReturned}
    assert RequestAgain not in events or policy == "flow"  # nobody else keeps requests
