"""A trained network as a `RequestPolicy`, and the made-up views on which its card says what it decides.

The network draws from π, as it did in training. How it is run is handed in; `of_card` does so with
onnxruntime. Execution is decentralised: each site's decision uses that site's rows only, which the tests
check. Made-up views catch a file that was changed, features that mean something else by now, and a runtime
that computes something else.
"""

import hashlib
import json
from functools import cache
from typing import Any

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.keyed import Key
from edgewise.core.orchestrate import HOLD, ReplicaView, context_mask, hosts, new_view
from edgewise.errors import PolicyError
from edgewise.model.orchestration import System
from edgewise.policies.cards import Card, Run
from edgewise.policies.requests.features import (
    PAIR_FEATURES,
    STATION_FEATURES,
    draws,
    gumbel,
    local_state,
    station_rows,
)
from edgewise.policies.requests.rules import RequestDispatch, Weighted

COUNT, SEED = 16, 20_260_101
SITE_OF = (0, 0, 0, 1, 1)  # of policies that fit any system


def golden_of(policy: Any, services: int, site_of: Any = SITE_OF) -> dict[str, Any]:
    """What a card says of a policy, which is begun anew: a system that it fits, and what it decides there."""
    system, view = _golden(services, tuple(map(int, site_of)))
    policy.reset(system, Key(SEED))
    golden = policy.decide(view).tolist()
    return {"services": services, "site_of": system.site_of.tolist(), "golden": golden}


@cache
def _golden(services: int, site_of: tuple[int, ...]) -> tuple[System, ReplicaView]:
    """Made once: a card is loaded for every run of its policy."""
    system = golden_system(services, np.array(site_of, dtype=np.int64))
    return system, golden_view(system)


def _draws(what: int, shape: tuple[int, ...], low: float, high: float) -> Floats:
    drawn = Key(SEED).uniform(what, np.arange(int(np.prod(shape)))).reshape(shape)
    return np.asarray(low + (high - low) * drawn)


def golden_system(services: int, site_of: Ints) -> System:
    """A system of so many services, and of nodes that belong to these sites; the cloud is one machine."""
    nodes, sites = site_of.size, int(site_of.max()) + 1
    memory = np.round(_draws(1, (services,), 1e8, 6e8))
    layers = np.concatenate([np.eye(services, dtype=bool), np.ones((services, 1), dtype=bool)], axis=1)
    return System(
        slot_s=0.25, frame_slots=100, site_of=site_of,
        first_machine=np.concatenate([[0], 1 + np.arange(nodes + 1)]),
        cpu_cores=np.append(32.0, np.round(_draws(2, (nodes,), 1.0, 4.0))),
        memory_bytes=np.append(64e9, np.round(_draws(3, (nodes,), 2e9, 6e9))),
        disk_bytes=np.append(1e12, np.full(nodes, 5e10)),
        service_memory_bytes=memory, service_cpu_cores=_draws(4, (services,), 0.3, 1.0),
        replica_cpu_cores=np.zeros(services), layer_bytes=np.append(_draws(5, (services,), 1e8, 2e9), 1e8),
        needs_layer=layers, initial=np.zeros((nodes, services), dtype=np.int64),
        delay_s=np.concatenate([np.full((sites, 1), 0.05), _draws(6, (sites, nodes), 0.001, 0.02)], axis=1),
        rate_bps=np.concatenate([np.full((sites, 1), 1e8), np.full((sites, nodes), 1e9)], axis=1),
        deviation_s=np.zeros((sites, nodes + 1)), start_delay_s=2.0, service_deviation=0.0,
        returns_cpu=True, drops=True,
    )  # fmt: skip


def golden_view(system: System) -> ReplicaView:
    """16 worlds of a system, from an idle one to a full one."""
    view = new_view(system, COUNT, np.arange(COUNT, dtype=np.uint64))
    full = np.arange(COUNT) / (COUNT - 1)

    def whole(what: int, like: Any, most: float, least: float = 0.0) -> Ints:
        share = 0.3 + 0.7 * full.reshape(COUNT, *[1] * (like.ndim - 1))
        return np.floor(_draws(what, like.shape, least, most) * share).astype(np.int64)

    view.clock_s[:], view.cloud_delay_s[:] = 25.0 * np.arange(COUNT), 0.1 + full
    here = _draws(10, view.head.shape, 0.0, 1.0) < 0.8
    view.head[:] = np.where(here, np.arange(here.size).reshape(here.shape), -1)
    service = np.floor(_draws(11, here.shape, 0.0, system.services - 1e-6)).astype(np.int64)
    view.head_service[:], view.site_queue[:] = np.where(here, service, -1), here * (1 + whole(12, here, 9.0))
    view.head_deadline_s[:] = here * (view.clock_s[:, None] + _draws(13, here.shape, 0.2, 4.0))
    for number, (name, most) in enumerate(
        (("service_s", 1.0), ("cpu_cores", 1.0), ("memory_bytes", 2e8), ("payload_bytes", 5e5))
    ):
        view[1][f"head_{name}"] = here * _draws(14 + number, here.shape, 0.1 * most, most)
    view.ready[:] = whole(20, view.ready, 6.0, 1.0)
    view.busy[:] = np.minimum(view.ready, whole(21, view.ready, 4.0))
    view.ready[:, 0] = view.busy[:, 0]  # the cloud has as many as it needs
    view.waiting[:], view.starting[:, 1:] = whole(22, view.ready, 2.0), whole(23, view.ready[:, 1:], 1.5)
    view.removing[:, 1:] = np.minimum(view.busy, whole(24, view.ready, 1.4))[:, 1:]
    view.waiting_s[:] = 0.5 * view.waiting
    left = 1.0 - full[:, None] * _draws(25, view.free_cpu_cores.shape, 0.3, 1.0)
    view.free_cpu_cores[:], view.free_memory_bytes[:] = left * system.cpu_cores, left * system.memory_bytes
    view.layer["on_disk"] = _draws(26, view.layer.shape, 0.0, 1.0) < 0.6
    view.arrived[:] = whole(27, view.arrived, 60.0)
    return view


STATES = "site: S + 5 + 5K, one-hot; node: 5 + 2S + 1; version 3"


def feature_hash() -> str:
    """Hash of what the features mean; a policy trained on others is refused."""
    return hashlib.sha256(json.dumps([STATION_FEATURES, PAIR_FEATURES, STATES]).encode()).hexdigest()


def of_card(card: Card) -> RequestDispatch:
    """Dispatcher of a card: a network, or a linear score, which runs inside the compiled engine.

    Raises:
        PolicyError: it was changed, is for other features, or decides otherwise than it did.
    """
    card.check_features(feature_hash())
    part = card.part
    policy: RequestDispatch
    if "weights" in part:
        policy = Weighted(np.array(part["weights"]), card.name)
    else:
        infer = card.network(".requests.onnx")
        policy = LearnedDispatch(card.name, infer, part["scored"], part["context"], part["inputs"])
    card.check_golden(golden_of(policy, part["services"], part["site_of"])["golden"], part["golden"])
    return policy


class LearnedDispatch(RequestDispatch):
    """cMMAC's actors: each site draws from its π, with draws of its own (as the paper's agents do).

    Args:
        name: of the policy.
        infer: (M, F) → (M,) scores of stations if `scored`, else (R, D + B) → (R, N + 1) log p.
        scored: whether stations are scored one by one, so that any system will do.
        context: which stations may be chosen, "resources" or "hosts".
        inputs: length of a row that the network reads.
    """

    def __init__(self, name: str, infer: Run, scored: bool, context: str, inputs: int) -> None:
        self.name = name
        self._infer, self._scored, self._inputs = infer, scored, inputs
        self._mask = context_mask if context == "resources" else hosts

    def reset(self, world: System, key: Key) -> None:
        """Nothing is drawn.

        Raises:
            PolicyError: the networks were trained on a system of another shape.
        """
        state = world.services + 5 + 5 * int(np.bincount(world.site_of).max()) + world.sites
        if not self._scored and state != self._inputs:
            raise PolicyError(
                f"{self.name}: its network reads {self._inputs} numbers, this system's sites have {state}; "
                "train it on this scenario, or use a policy that scores stations"
            )
        self.system = world

    def decide(self, view: ReplicaView) -> Ints:
        """A station for each site's head, drawn from π: argmax of log π + Gumbel noise."""
        system, allowed = self.system, self._mask(view)
        values = np.full(allowed.size, -np.inf)
        if self._scored:
            rows = station_rows(system, view, allowed)
            if rows.cell.size:
                values[rows.cell] = self._infer(rows.values)[0]
        else:
            local = local_state(system, view)
            site = np.broadcast_to(np.eye(system.sites, dtype=np.float32), (*local.shape[:2], system.sites))
            flat = np.concatenate([local, site], axis=2).reshape(-1, self._inputs)
            values = np.where(allowed.reshape(-1), self._infer(flat)[0].reshape(-1), -np.inf)
        best = (values.reshape(allowed.shape) + gumbel(draws(view, system.stations))).argmax(axis=2)
        return np.where(view.head >= 0, best, HOLD)
