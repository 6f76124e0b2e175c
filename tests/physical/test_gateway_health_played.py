"""A gateway's checks of its workers on a virtual clock: first all at once, then apart from each other."""

import asyncio
from itertools import pairwise

import pytest
from virtual import played

from edgewise import policies
from edgewise.config import load_scenario
from edgewise.core.world import World
from edgewise.runtime import http
from edgewise.runtime.gateway.gateway import Gateway, Patience
from edgewise.runtime.gateway.needs import StreamRules
from edgewise.runtime.gateway.session import Session

PERIOD_S, LIVES_S = 1.0, 10.0


class PlayedWorker:
    """Answers at once until it dies; notes when it was asked."""

    def __init__(self):
        self.asked_s, self.up = [], True

    def abort(self):
        pass

    async def request(self, method, path, headers=None, body=b"", timeout_s=30.0):
        self.asked_s.append(asyncio.get_running_loop().time())
        if not self.up:
            raise ConnectionRefusedError
        return http.Response(200, b"{}")


async def watched(workers, dies_s):
    """Lets a gateway watch workers; when the first one, which dies, was seen to be down."""
    loop = asyncio.get_running_loop()
    scenario = load_scenario("three-tier")
    world = World.build(scenario.catalog, scenario.topology)
    session = Session(world, policies.load("dispatch", "closest"), 0, loop.time, StreamRules())
    clients = [workers.setdefault(name, PlayedWorker()) for name in world.worker_names]
    gateway = Gateway(session, clients, list(world.variant_names), Patience(health_period_s=PERIOD_S))
    watching = loop.create_task(gateway.watch())
    await asyncio.sleep(dies_s)
    clients[0].up = False
    while gateway.upstreams[0].up:
        await asyncio.sleep(0.01)
    seen_s = loop.time()
    await asyncio.sleep(LIVES_S - seen_s)
    watching.cancel()
    return seen_s


def test_all_are_asked_at_once_first_and_then_apart_from_each_other():
    workers = {}
    played(watched(workers, dies_s=LIVES_S - 0.5))
    assert {worker.asked_s[0] for worker in workers.values()} == {0.0}
    later = [[at_s for at_s in each.asked_s if at_s > 0.0] for each in workers.values()]
    times = sorted(at_s for each in later for at_s in each)
    assert min(after - before for before, after in pairwise(times)) > PERIOD_S / len(workers) / 2
    for each in later:  # and no worker less often than before
        assert len(each) >= LIVES_S / PERIOD_S - 1
        assert max(after - before for before, after in pairwise(each)) < 1.01 * PERIOD_S


@pytest.mark.parametrize("dies_s", [2.01, 2.5, 2.99])
def test_who_refuses_is_seen_to_be_down_within_a_period(dies_s):
    assert played(watched({}, dies_s)) - dies_s < 1.01 * PERIOD_S
