"""One trace through the simulator and through the live core: the same commands.

The live session runs under a virtual clock; it builds its own events from opened and closed
streams, ticks and telemetry, as the gateway does.
"""

import pytest

import edgewise as ew
from edgewise import policies
from edgewise.core.dispatch.events import Bind, Measured, Refuse
from edgewise.core.dispatch.views import REASONS, Violation
from edgewise.core.world import World
from edgewise.runtime.gateway.session import Session
from edgewise.sim.simulate import Simulation
from edgewise.testing import VirtualClock
from edgewise.workloads.generate import generate_streams

NARROW = {"sharing": "fifo", "links.0.bandwidth_bps": "2Mbps", "links.1.bandwidth_bps": "3Mbps"}


class Listening(Simulation):
    """Keeps the telemetry that it sent."""

    def __init__(self, *args):
        self.news = []
        super().__init__(*args)

    def _handle(self, event):
        if isinstance(event, Measured):
            self.news.append(event)
        super()._handle(event)


def live_commands(scenario, policy, seed, news):
    """Bindings and refusals of the live session over the scenario's trace, with the same telemetry."""
    clock = VirtualClock()
    world = World.build(scenario.catalog, scenario.topology, scenario.sharing)
    session = Session(world, policies.load("dispatch", policy), seed, clock)
    trace = generate_streams(scenario, seed)
    events = [(s.open_s, 4, s.id, s) for s in trace] + [(s.close_s, 0, s.id, s) for s in trace]
    windows = int(-(-scenario.duration_s // scenario.window_s))
    events += [(k * scenario.window_s, 3, k, None) for k in range(windows)]
    events += [(event.time_s, 2, k, event) for k, event in enumerate(news)]
    log = []
    for at_s, kind, _, stream in sorted(events, key=lambda e: e[:3]):
        clock.advance(at_s - clock.now_s)
        if kind == 4:
            log += [(at_s, c) for c in session.open_stream(stream)]
        elif kind == 0:
            log += [(at_s, c) for c in session.close_stream(stream.id)]
        elif kind == 2:
            session.core.handle(stream)
        else:
            log += [(at_s, c) for c in session.tick()]
    session.core.validate()
    return log


@pytest.mark.parametrize(
    "policy", [name for name in policies.names("dispatch") if not name.startswith("chooser-")]
)
@pytest.mark.parametrize("name", ["three-tier", "tiny", "narrow"])
@pytest.mark.parametrize("seed", [0, 7])
def test_simulated_and_live_commands_are_identical(name, policy, seed):
    scenario = ew.load_scenario("tiny" if name == "narrow" else name, NARROW if name == "narrow" else {})
    simulation = Listening(scenario, policies.load("dispatch", policy), seed)
    simulated = simulation.run().commands
    live = live_commands(scenario, policy, seed, simulation.news)
    assert live == simulated
    kinds = {type(command) for _, command in simulated}
    assert Bind in kinds
    if name != "tiny":
        assert Refuse in kinds  # otherwise the test would not compare reasons
    if name == "narrow":
        assert REASONS[Violation.LINK] in {c.reason for _, c in simulated if isinstance(c, Refuse)}
