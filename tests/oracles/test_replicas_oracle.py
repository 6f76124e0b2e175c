"""The compiled engine of requests and replicas agrees with a plain one, request by request."""

from __future__ import annotations

import numpy as np
import pytest
from naive_replicas import NaiveWorld
from replica_scenarios import a_system, some_commands, some_requests, some_stations

from edgewise.core.orchestrate import hosts
from edgewise.sim.slots import replica_state as k
from edgewise.sim.slots.replicas import ReplicaWorlds

STATUS = {
    k.UNSEEN: "unseen",
    k.AT_SITE: "site",
    k.SENT: "sent",
    k.WORKED_ON: "working",
    k.IN_TIME: "in time",
    k.LATE: "late",
    k.DROPPED: "dropped",
}
SLOTS, WORLDS, MOST = 40, 4, 60


def _run(seed: int, for_life: bool = False) -> tuple[ReplicaWorlds, list[NaiveWorld]]:
    rng = np.random.default_rng(seed)
    system = a_system(rng, returns_cpu=seed % 5 != 0, drops=seed % 3 != 0, for_life=for_life)
    requests = some_requests(rng, system, WORLDS, SLOTS, MOST)
    seeds = list(range(seed, seed + WORLDS))
    worlds = ReplicaWorlds(system, requests, SLOTS, seeds)
    naive = [NaiveWorld(system, requests, w, np.uint64(s)) for w, s in enumerate(seeds)]
    while not worlds.done:
        if worlds.frame_begins:
            commands = some_commands(rng, system, WORLDS)
            valid = worlds.scale(commands)
            plain = [[world.scale(*map(int, c)) for c in commands[w]] for w, world in enumerate(naive)]
            assert np.array_equal(valid, plain)
        allowed = hosts(worlds.view)
        stations = some_stations(rng, allowed, worlds.view.head)
        for w, world in enumerate(naive):
            heads = [queue[0].id if queue else -1 for queue in world.sites]
            assert heads == worlds.view.head[w].tolist()
            for b in np.flatnonzero(worlds.view.head[w] >= 0):
                assert np.flatnonzero(allowed[w, b]).tolist() == world.hosts(int(b))
            world.step(stations[w].tolist())
        worlds.step(stations)
    return worlds, naive


@pytest.mark.parametrize("for_life", [False, True], ids=["cores of requests", "cores of replicas"])
@pytest.mark.parametrize("seed", range(12))
def test_every_request_ends_as_in_the_plain_engine(seed: int, for_life: bool) -> None:
    worlds, naive = _run(seed, for_life)
    records = worlds.state.truth.request
    for w, world in enumerate(naive):
        rows = records[w, : len(world.requests)]
        assert [STATUS[int(x)] for x in rows["state"]] == [r.status for r in world.requests]
        assert rows["station"].tolist() == [r.station for r in world.requests]
        ended = np.array([r.status in ("in time", "late", "dropped") for r in world.requests], dtype=bool)
        ends = np.array([r.end for r in world.requests])
        np.testing.assert_allclose(rows["end_s"][ended], ends[ended], rtol=1e-12)
        view = worlds.view
        for n, station in enumerate(world.stations):
            if n:
                assert view.ready[w, n].tolist() == [station.ready[s] for s in range(view.ready.shape[2])]
                assert np.isclose(
                    view.free_memory_bytes[w, worlds.system.first_machine[n]], station.machines[0][1]
                )
                assert np.isclose(view.free_disk_bytes[w, n], station.disk)
        outcome = worlds.outcome()
        assert np.isclose(outcome.image_bytes[w].sum(), world.bytes["image"])
        assert np.isclose(outcome.forwarded_bytes[w].sum(), world.bytes["forwarded"])
        assert np.isclose(outcome.local_bytes[w].sum(), world.bytes["local"])


def test_the_cases_reach_every_rule() -> None:
    """Pressure is real: every end of a request, removals that wait and images that are pulled occur."""
    seen: set[str] = set()
    pulled = 0.0
    for seed in range(12):
        worlds, naive = _run(seed)
        seen |= {r.status for world in naive for r in world.requests}
        pulled += worlds.outcome().image_bytes.sum()
    assert {"in time", "late", "dropped"} <= seen
    assert pulled > 0
