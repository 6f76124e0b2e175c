"""A `ReplicaView` from what is known of each replica: how gateways and the controller fill theirs (W = 1).

The rules are the simulation's: a replica serves one request at a time and holds its memory while it lives;
cores it holds as long, or a request while it is worked on (`cores_held`). Forbidden here: I/O and clocks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgewise.arrays import Bools, Floats, Ints
from edgewise.core.orchestrate import ReplicaView
from edgewise.kernels.compiled import held, inner, kernel
from edgewise.model.orchestration import System

# What a replica is doing. One that is removed serves what it has; one that leaves only holds its memory.
STARTING, READY, REMOVING, LEAVING = range(4)


def known(rows: Sequence[tuple[int, int, int, int, int]]) -> Ints:
    """(R, 5) of replicas: station, service, requests held, state, and how many it works on at once."""
    return np.array(rows, dtype=np.int64).reshape(len(rows), 5)


@inner
def request_cores(system: System, s: int, asked_cores: float) -> float:
    """What a request of service s holds of the cores that it asks for: none where its replica holds them."""
    return 0.0 if system.replica_cpu_cores[s] > 0.0 else asked_cores


@kernel
def count(system: System, view: ReplicaView, replicas: Ints, service_s: Floats) -> None:
    """Write the counts of all stations, and what is free on their machines.

    Args:
        view: of one world.
        replicas: (R, 5) see `known`; those in the cloud included.
        service_s: (S,) mean time of a request on a replica.
    """
    system, view = held(system), held(view)
    for k in range(view.replicas.shape[1]):
        clear(system, view, 0, k)
    for r in range(replicas.shape[0]):
        one = replicas[r]
        count_replica(system, view, 0, one[0], one[1], one[2], one[3], one[4])
    for k in range(view.replicas.shape[1]):
        add_up(system, view, 0, k, service_s)


@inner
def clear(system: System, view: ReplicaView, world: int, k: int) -> None:
    """Nothing is at station k."""
    for s in range(view.replicas.shape[2]):
        cell = view.replicas[world, k, s]
        cell.waiting = cell.busy = cell.ready = cell.starting = cell.removing = 0
    if k > 0:
        m = system.first_machine[1] + k - 1
        view.machine[world, m].free_cpu_cores = system.cpu_cores[m]
        view.machine[world, m].free_memory_bytes = system.memory_bytes[m]


@inner
def count_replica(
    system: System, view: ReplicaView, world: int, k: int, s: int, has: int, state: int, most: int
) -> None:
    """One replica of service s at station k that has so many requests, and works on `most` at once."""
    cell = view.replicas[world, k, s]
    serves = state in (READY, REMOVING)
    busy = min(has, most) if serves else 0
    cell.busy += busy
    cell.waiting += has - busy
    cell.ready += busy if k == 0 else int(serves)  # the cloud has as many as it needs
    cell.starting += int(state == STARTING)
    cell.removing += int(state == REMOVING)
    if k > 0:
        machine = view.machine[world, system.first_machine[1] + k - 1]
        cores = system.replica_cpu_cores[s] + request_cores(system, s, busy * system.service_cpu_cores[s])
        machine.free_cpu_cores = max(machine.free_cpu_cores - cores, 0.0)
        machine.free_memory_bytes = max(machine.free_memory_bytes - system.service_memory_bytes[s], 0.0)


@kernel
def add_up(system: System, view: ReplicaView, world: int, k: int, service_s: Floats) -> None:
    """All replicas of station k were counted; the cloud's machines share its requests evenly."""
    for s in range(view.replicas.shape[2]):
        view.replicas[world, k, s].waiting_s = view.replicas[world, k, s].waiting * service_s[s]
    cores, memory, first = 0.0, 0.0, system.first_machine[1]
    if k > 0 or first == 0:
        return
    for s in range(view.replicas.shape[2]):
        cores += view.replicas[world, 0, s].busy * system.service_cpu_cores[s]
        memory += view.replicas[world, 0, s].busy * system.service_memory_bytes[s]
    cores /= system.cpu_cores[:first].sum()
    memory /= system.memory_bytes[:first].sum()
    for m in range(first):
        view.machine[world, m].free_cpu_cores = system.cpu_cores[m] * max(1.0 - cores, 0.0)
        view.machine[world, m].free_memory_bytes = system.memory_bytes[m] * max(1.0 - memory, 0.0)


# What a command does, from the counts of its service on its node; simulation and live ask the same.
NOTHING, AT_ONCE, LATER = range(3)


@kernel
def removal(ready: int, busy: int, starting: int, removing: int) -> int:
    """Removing a replica: AT_ONCE where one is idle, LATER where one that works or starts has to go after.

    NOTHING: none is left that is not to go already.
    """
    if ready + starting <= removing:
        return NOTHING
    return AT_ONCE if ready > busy else LATER


@kernel
def keeps(removing: int) -> bool:
    """Adding a replica: whether one that is to go is kept, so that nothing has to start."""
    return removing > 0


@kernel
def may_change(commands: Ints, done: Bools, at: int, most: int) -> bool:
    """Whether a frame may change the node of a command: at most so many nodes change.

    Args:
        commands: (C, 2) as `commands_of`, of one world.
        done: (C,) which of those before `at` were carried out.
    """
    changed = 0
    for i in range(at):
        if done[i]:
            if commands[i, 0] == commands[at, 0]:
                return True
            again = False
            for j in range(i):
                again = again or (done[j] and commands[j, 0] == commands[i, 0])
            changed += int(not again)
    return changed < most
