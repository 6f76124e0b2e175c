"""The rules of requests: the engine of many worlds and the cores of sites ask the same kernels."""

import numpy as np
import pytest

from edgewise import policies
from edgewise.config import load_scenario
from edgewise.core.dispatch.events import Drop, ReplicaChanged, RequestArrived, Send
from edgewise.core.dispatch.request_flow import nine_of_ten
from edgewise.core.dispatch.request_rules import SLACK_S, in_time, least_way_s, too_late
from edgewise.core.dispatch.requests import RequestCore
from edgewise.core.orchestrate import new_view
from edgewise.model.services import services_of

NODE_OF_ANOTHER_SITE = 3  # of site 0: nodes 0 and 1 are its own


@pytest.fixture(scope="module")
def services():
    return services_of(load_scenario("kais-live"))


def core_of(services):
    core = RequestCore(services, 0, policies.load("requests", "closest", live=True), 0)
    for name in list(core.replicas):
        core.handle(ReplicaChanged(0.0, name, core.replicas[name].service, 0, True, True))
    return core


def test_the_least_way_is_to_who_serves_or_as_kais_was_frozen_to_any_station(services):
    system, size = services.system, 10e3
    view = new_view(system, 1, np.zeros(1, np.uint64))
    view.ready[0, 1:] = 0
    to_cloud = view.cloud_delay_s[0] + 8 * size / system.rate_bps[0, 0]
    assert least_way_s(system, view, 0, 0, 0, size, False) == to_cloud
    view.ready[0, NODE_OF_ANOTHER_SITE + 1, 0] = 1
    there = (
        system.delay_s[0, NODE_OF_ANOTHER_SITE + 1] + 8 * size / system.rate_bps[0, NODE_OF_ANOTHER_SITE + 1]
    )
    assert least_way_s(system, view, 0, 0, 0, size, False) == there < to_cloud
    view.removing[0, NODE_OF_ANOTHER_SITE + 1, 0] = 1  # it gets no more
    assert least_way_s(system, view, 0, 0, 0, size, False) == to_cloud
    fastest = system.rate_bps.max()
    assert least_way_s(system, view, 0, 0, 0, size, True) == system.delay_s[0].min() + 8 * size / fastest


def test_who_could_end_on_the_dot_is_kept():
    assert in_time(1.0 + 0.5 * SLACK_S, 1.0) and not in_time(1.0 + 2 * SLACK_S, 1.0)
    assert too_late(True, 0.8, 0.3, 1.0) and not too_late(True, 0.7, 0.3, 1.0)
    assert not too_late(False, 0.8, 0.3, 1.0)


def test_a_site_drops_what_no_replica_of_its_service_could_end_in_time(services):
    core = core_of(services)
    need_s = core.least_s[0] + least_way_s(services.system, core.view(), 0, 0, 0, 10e3, False)
    (dropped,) = core.handle(RequestArrived(0.0, 0, 0, need_s - 1e-6, 10e3))
    assert isinstance(dropped, Drop) and dropped.late and f"takes at least {need_s:.3f} s" in dropped.reason
    (sent,) = core.handle(RequestArrived(0.0, 1, 0, need_s, 10e3))
    assert isinstance(sent, Send)
    near = ReplicaChanged(0.0, "near", 0, 1, True, True)
    core.handle(near)
    (sent,) = core.handle(RequestArrived(0.0, 2, 0, need_s - 1e-6, 10e3))  # now there is somebody nearer
    assert isinstance(sent, Send)
    core.validate()


@pytest.mark.parametrize("draw", ["uniform", "lognormal", "always the same"])
def test_what_nine_of_ten_take_at_least_is_learned_from_what_some_took(draw):
    rng, usual_s = np.random.default_rng(1), 0.05
    took_s = {
        "uniform": rng.uniform(0.02, 0.08, 20_000),
        "lognormal": 0.05 * np.exp(rng.normal(0.0, 0.4, 20_000)),
        "always the same": np.full(20_000, 0.05),
    }[draw]
    least_s, seen = 0.04, []
    for each in took_s.tolist():
        least_s = nine_of_ten(least_s, each, usual_s)
        seen.append(least_s)
    settled = np.array(seen[2_000:])
    below = (took_s[2_001:] < settled[:-1]).mean()  # of those that come next
    if draw == "always the same":
        assert settled.min() == settled.max() == 0.05
    else:
        assert 0.08 < below < 0.15
        assert np.std(settled) < 0.1 * usual_s
