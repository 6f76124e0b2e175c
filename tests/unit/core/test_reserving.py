"""What flows reserve of links: no more than their pipeline can use, and never all of a link."""

from dataclasses import replace

import numpy as np
import pytest

from edgewise import policies
from edgewise.config import load_scenario
from edgewise.core.place import (
    PUBLISHED,
    BandwidthChanged,
    PipelineSubmitted,
    PlacementDue,
    Reserving,
    arrays_of,
    throughput,
)
from edgewise.core.place.core import PlaceCore, reserving_of
from edgewise.model.pipelines import network_of
from edgewise.workloads.pipelines import pipelines_of

SCENARIO = load_scenario("recognition", {"topology.nodes": 12, "pipelines[0].count": 5})
WIDE = 4000.0  # times the bandwidth: pipelines wait for nodes, not for links


def placed(name, reserving, wide=1.0):
    network = network_of(SCENARIO)
    network = replace(network, bandwidth_bps=network.bandwidth_bps * wide)
    core = PlaceCore(network, policies.load("place", name), 3, reserving=reserving)
    for number, pipeline in enumerate(pipelines_of(SCENARIO, 0)):
        core.handle(PipelineSubmitted(arrays_of(pipeline, number, network)))
    core.handle(PlacementDue(0.0))
    core.validate()
    return core


@pytest.mark.parametrize("name", policies.names("place"))
@pytest.mark.parametrize("wide", [1.0, WIDE])
def test_flows_have_no_more_than_their_pipeline_can_use_and_leave_a_share(name, wide):
    core = placed(name, Reserving(), wide)
    assert core.running and (core.whole_bps == network_of(SCENARIO).bandwidth_bps * wide).all()
    assert (core.flows_bps().sum(axis=0) <= 0.9 * core.whole_bps * (1 + 1e-9)).all()
    running = list(core.running.values())
    for p, fps in zip(running, throughput(core.network, running), strict=True):
        flows = np.isfinite(p.bandwidth_bps)
        assert (p.bandwidth_bps <= fps * p.pipeline.volume_bits * (1 + 1e-9))[flows].all()


@pytest.mark.parametrize("name", ["otfa", "tp", "otfs"])
def test_a_flow_that_is_capped_costs_its_pipeline_nothing(name):
    """On the first decision: the same rates of frames, of less."""
    whole, capped = placed(name, PUBLISHED, WIDE), placed(name, Reserving(kept=0.0), WIDE)
    if name != "otfs":  # which places the second pipeline by what the first one leaves
        rates = [throughput(core.network, list(core.running.values())) for core in (whole, capped)]
        assert rates[1] == pytest.approx(rates[0], rel=1e-12)
    assert capped.flows_bps().sum() < 0.9 * whole.flows_bps().sum()


def test_what_is_kept_is_kept_of_a_link_that_changes():
    core = placed("tp", Reserving(kept=0.25))
    core.handle(BandwidthChanged(0, 8e6))
    assert (core.whole_bps[0], core.network.bandwidth_bps[0]) == (8e6, 6e6)
    core.validate()


def test_as_published_nothing_is_kept_and_by_default_it_is():
    assert reserving_of(SCENARIO) == PUBLISHED
    assert reserving_of(load_scenario("campus-small")) == Reserving(capped=True, kept=0.1)
