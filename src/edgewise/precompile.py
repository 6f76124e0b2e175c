"""Compile beforehand what simulated and live runs use: every shipped policy decides a little.

`edgewise kernels` runs this in processes of their own, `python -m edgewise.precompile NAME…`: what they
compile is found on disk afterwards. A policy that needs a package which is not installed is left out.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from edgewise import api, policies
from edgewise.config import load_scenario
from edgewise.core.orchestrate import Requests
from edgewise.core.world import World
from edgewise.errors import PolicyError
from edgewise.model.services import services_of
from edgewise.model.topology import LinkChange, NodeChange
from edgewise.policies import cards
from edgewise.policies.requests import features as kais
from edgewise.runtime.process.compiling import try_out
from edgewise.sim.slots import replicas as replicating
from edgewise.testing.driven import CASES
from edgewise.workloads.services import SimulatedServices, simulated_services


def parts() -> dict[str, Callable[[], None]]:
    """What can be compiled by itself, by name."""
    of_one_topology = cards.shipped("dispatch")
    every: tuple[tuple[str, Sequence[str], Callable[[str], None]], ...] = (
        ("streams", [name for name in policies.names("dispatch") if name not in of_one_topology], streams),
        ("requests", policies.names("requests"), requests),
        ("replicas", policies.names("orchestrate"), scale),
        ("splitting", policies.names("split"), split),
        ("features", ("kais",), features),
        ("placement", policies.names("place"), partial(checked, "place")),
        ("deferral", policies.names("defer"), deferral),
        ("together", ("fifo", "none"), together),
    )
    return {f"{kind}:{name}": partial(run, name) for kind, names, run in every for name in names}


def compile_parts(names: Sequence[str]) -> list[str]:
    """Compile some of `parts`.

    Returns:
        What was left out, and why.
    """
    known, left_out = parts(), []
    for name in names:
        try:
            known[name]()
        except (PolicyError, ModuleNotFoundError) as error:
            left_out.append(f"{name}: {error}")
    return left_out


def streams(name: str) -> None:
    """A dispatch policy, in simulation with all that may change on the way, and live."""
    tiny = load_scenario("tiny")
    site, cluster = tiny.topology.sites[0].name, tiny.topology.clusters[-1].name
    changes = (
        LinkChange(3.0, site, cluster, delay_s=0.01),
        LinkChange(4.0, site, cluster, up=False),
        LinkChange(5.0, site, cluster, up=True),
        NodeChange(6.0, tiny.topology.nodes[0].name, up=False),
        NodeChange(8.0, tiny.topology.nodes[0].name, up=True),
    )
    api.simulate(replace(tiny, timeline=changes), name)
    live("dispatch", name)


def live(decision: str, name: str) -> None:
    """What a running system does with a policy, unless it runs in simulation only."""
    tiny = load_scenario("tiny")
    world, services = World.build(tiny.catalog, tiny.topology), services_of(load_scenario("kais-live"))
    with suppress(PolicyError):
        try_out((decision, name), world, services)


def requests(name: str) -> None:
    """A request policy or the dispatcher of a shipped card, in simulation and live."""
    _replicas(name, "none")
    live("requests", name)


def scale(name: str) -> None:
    """A replica policy, in simulation and live."""
    _replicas("greedy", name)
    live("orchestrate", name)


def _replicas(one: str, two: str) -> None:
    simulated, drawn, worlds = _services()
    dispatch, orchestrate = policies.load("requests", one), policies.load("orchestrate", two)
    for policy in (dispatch, orchestrate):
        if hasattr(policy, "know"):
            policy.know(drawn, simulated.system, simulated.horizon_s)
    replicating.simulate(worlds, dispatch, orchestrate)
    worlds.reset()
    worlds.step(dispatch.decide(worlds.view))


def checked(decision: str, name: str, seen_as: Callable[[Any], Any] = lambda policy: policy) -> None:
    """A policy in the worlds that policies of its decision are checked in."""
    for case in CASES[decision]():
        policy = seen_as(policies.load(decision, name))
        with suppress(PolicyError):  # some split policies are for equal servers only, or for groups of them
            case.drive(policy)


def features(name: str) -> None:
    """What the networks of a trained card are given."""
    _, _, worlds = _services()
    stations, view = worlds.system.stations, worlds.view
    kais.station_rows(worlds.system, view, np.ones((*view.head.shape, stations), dtype=np.bool_))
    kais.draws(view, stations)


def _services() -> tuple[SimulatedServices, Requests, replicating.ReplicaWorlds]:
    simulated = simulated_services(load_scenario("kais-demo", {"duration_s": 1000}))
    drawn = simulated.draw(range(1))
    return simulated, drawn, replicating.ReplicaWorlds(simulated.system, drawn, simulated.slots, range(1))


class _Asked:
    """What a driver that asks query by query sees of a split policy; `compiled` is left out."""

    def __init__(self, policy: Any) -> None:
        self.name, self.reset, self.decide = policy.name, policy.reset, policy.decide


def split(name: str) -> None:
    """A split policy, in simulation and as a gateway asks it."""
    checked("split", name)
    checked("split", name, _Asked)


def together(sharing: str) -> None:
    """All kinds of work in one run, on links that are shared or not; nothing of it depends on who decides."""
    timeline = [{"at_s": 20, "node": "hall-1", "up": False}, {"at_s": 30, "node": "hall-1", "up": True}]
    settings = {"sharing": sharing, "timeline": timeline, "streams.arrivals.clients_per_min": 6}
    dispatch = {"fifo": "deadline-queue", "none": "greedy"}[sharing]  # greedy looks at what is free now
    api.simulate(load_scenario("campus-small", settings | {"duration_s": 40}), {"requests": dispatch})


def deferral(name: str) -> None:
    """A policy of deferrable jobs, in simulation and live."""
    checked("defer", name)
    live("defer", name)


if __name__ == "__main__":
    print(*compile_parts(sys.argv[1:] or list(parts())), sep="\n", end="")
