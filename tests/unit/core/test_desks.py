"""What a site counts of replicas where something has changed is what it would count of all."""

import numpy as np
import pytest

from edgewise import policies
from edgewise.config import load_scenario
from edgewise.core.dispatch import desks, request_flow as flow
from edgewise.core.dispatch.events import ReplicaChanged, ReplicaForgotten
from edgewise.core.dispatch.requests import DeskRoom, RequestCore
from edgewise.model.services import services_of

SITES, STEPS = 2, 300


class Played:
    """Sites that share a room, whose requests come and go at random, as a simulation's loop says it."""

    def __init__(self, seed: int) -> None:
        self.services = services_of(load_scenario("campus"))
        self.room = DeskRoom(self.services, np.arange(SITES), seed, requests=STEPS)
        self.random, self.now_s = np.random.default_rng(seed), 0.0
        self.stations = self.room.desks.back_s.shape[1]
        self.cores = [
            RequestCore(self.services, d, policies.load("requests", "greedy"), seed, room=self.room)
            for d in range(SITES)
        ]
        for number in range(12):
            self.change(number)

    def pick(self, many: int) -> int:
        return int(self.random.integers(many))

    def change(self, number: int) -> None:
        """A replica comes, or is another, at every site."""
        name, wanted, up = f"replica {number}", self.pick(4) > 0, self.pick(4) > 0
        at = self.pick(len(self.services.names)), self.pick(self.stations)
        for core in self.cores:
            core.handle(ReplicaChanged(self.now_s, name, *at, wanted, up, 1 + self.pick(2)))

    def follow(self, i: int, said: int) -> None:
        """A request whose site says so goes to any station."""
        if said == flow.ASK:
            flow.obey(self.room.desks, i, self.pick(self.stations), self.now_s)

    def step(self) -> None:
        """Something happens at a site, or at all."""
        x, self.now_s = self.room.desks, self.now_s + 0.01
        sent = np.flatnonzero((x.asked["known"] == 1) & (x.asked["replica"] >= 0))
        match self.pick(6):
            case 0 | 1:
                place = self.pick(SITES), self.pick(len(self.services.names))
                i = self.room.take_request()
                self.follow(i, flow.come(x, i, place, (self.now_s, self.now_s + 100.0), 1e4))
            case 2 | 3 if sent.size:
                i = int(self.random.choice(sent))
                how = flow.ANSWERED if self.pick(5) else flow.LOST
                self.follow(i, flow.come_back(x, i, self.now_s, how, 0.05 + 0.01 * self.pick(9)))
            case 4:
                d = self.pick(SITES)
                desks.tell(x, d, int(x.order[d, self.pick(int(x.desk[d].replicas))]), self.pick(5))
            case 5 if not self.pick(5):
                self.change(self.pick(12))
                gone = f"replica {self.pick(12)}"
                for core in self.cores:
                    if gone in core.replicas:
                        core.handle(ReplicaForgotten(self.now_s, gone))

    def counted(self, d: int) -> list[bytes]:
        """What the view of a site shows, counted now."""
        x = self.room.desks
        desks.count_all(x, d, self.now_s)
        return [part[d].tobytes() for part in x.seen]


@pytest.mark.parametrize("seed", range(3))
def test_where_something_has_changed_is_counted_as_all_would_be(seed: int) -> None:
    played, changes = Played(seed), 0
    for _ in range(STEPS):
        played.step()
        for d in range(SITES):
            part = played.counted(d)
            played.room.desks.changed[d] = True
            assert part == played.counted(d)
            changes += played.room.desks.seen.waiting_s[d].any()
    assert changes and all(core.validate() is None for core in played.cores)


def test_what_a_policy_writes_into_its_view_is_forgotten() -> None:
    played = Played(3)
    before, core = played.counted(0), played.cores[0]
    flow.come(played.room.desks, played.room.take_request(), (0, 0), (0.0, 100.0), 1e4)

    def scrawls(view, _):
        view.ready[:], view.free_cpu_cores[:] = 9, 0.0
        return 0

    core.adviser.station = scrawls
    assert core.station() == 0
    assert played.counted(0) == before
