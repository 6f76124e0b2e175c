"""What is left out while services have nothing to do leaves no trace in the records."""

import math

from edgewise import load_scenario, simulate
from edgewise.policies.orchestrate.autoscale import Autoscaler
from edgewise.sim.requests.sites import RequestSites

SEED = 500_100
SPARSE = {
    "duration_s": 1500,
    "services.requests.rate_qps": 0.004,
    "streams.arrivals.clients_per_min": 6,
    "timeline": [{"at_s": 400, "node": "hall-1", "up": False}, {"at_s": 450, "node": "hall-1", "up": True}],
}


class Asked(Autoscaler):
    """Says not that it rests, so that it is asked in every frame."""


def tables(monkeypatch, sharing, calm, policy=Autoscaler):
    calms, frames = [], []

    def calm_until_s(sites, now_s):
        calms.append(found_s := until_s(sites, now_s))
        return found_s if calm else -math.inf

    def count(sites):
        frames.append(sites.now_s)
        return counted(sites)

    until_s, counted = RequestSites.calm_until_s, RequestSites.counted
    with monkeypatch.context() as patch:
        patch.setattr(RequestSites, "calm_until_s", calm_until_s)
        patch.setattr(RequestSites, "counted", count)
        scenario = load_scenario("campus-small", SPARSE | {"sharing": sharing})
        found = simulate(scenario, {"orchestrate": policy}, seeds=(SEED,))
    assert max(calms) > -math.inf, "it is calm now and then"
    assert len(frames) == 150 if not calm else len(frames) < 50, f"{len(frames)} frames"
    each = {"items": found.items, "windows": found.windows, **found.use}
    for work, beside in found.beside.items():
        each |= {f"{work}.items": beside.items, f"{work}.windows": beside.windows}
    return {name: str(table.to_pydict()) for name, table in each.items() if table is not None}


def test_sites_sleep_and_policies_are_not_asked_again_without_a_trace(monkeypatch):
    for sharing in ("fifo", "none"):
        awake = tables(monkeypatch, sharing, calm=False, policy=Asked)
        asleep = tables(monkeypatch, sharing, calm=True)
        assert not [name for name in awake if awake[name] != asleep[name]]
