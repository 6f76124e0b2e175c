"""Kernels of a policy are compiled in a process of their own, which hands them over in the cache on disk.

Compiling takes seconds of one core, and a thread that compiles shares its interpreter with everything
else that a process does. The child runs at low priority, so that it takes what others leave; it tries the
policy out on the same world, so that one that cannot be loaded is known before anybody switches to it.

A file beside the kernels says for which policies that was done: these need no child.
"""

import asyncio
import os
import pickle
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE
from urllib.parse import quote

import numpy as np

from edgewise import policies
from edgewise.core.defer import Slots
from edgewise.core.dispatch import requests
from edgewise.core.guard import Strict, begin
from edgewise.core.keyed import Key
from edgewise.core.ledger import NodeLedger, Reservation
from edgewise.core.one_world import batched
from edgewise.core.orchestrate.core import OrchestrateCore
from edgewise.core.world import World
from edgewise.errors import EdgewiseError, PolicyError
from edgewise.kernels.compiled import JIT, numba
from edgewise.model.pools import Orchestrated, decided_on, of_services
from edgewise.model.scenario import Scenario
from edgewise.model.services import Services, services_of
from edgewise.model.topology import Node, Resources
from edgewise.runtime.controller import jobs, pipelines
from edgewise.runtime.controller.graphs import with_servers
from edgewise.runtime.gateway import session, split

NICE = 5  # a third of the share of others: a machine that is full must not starve it for ever
LONGEST_S = 300.0  # that a child may take: a policy that never answers keeps others from being switched
Wanted = tuple[str, str]  # a decision, of `policies.DECISIONS`, and the name of a policy


def try_out_here(
    wanted: Wanted, world: World, services: Services | None, what: Orchestrated | None = None
) -> None:
    """As `try_out`, of policies that decide in this process; others have one of their own.

    Raises:
        PolicyError: as there.
    """
    if _ships(wanted):
        try_out(wanted, world, services, what)


def try_out(
    wanted: Wanted, world: World, services: Services | None, what: Orchestrated | None = None
) -> None:
    """Load a policy and let it decide once, on a world of its own: then all that it needs is compiled.

    Args:
        services: of the scenario; needed by policies of requests and replicas.
        what: orchestration decides on, where that is more than services.
    Raises:
        PolicyError: it cannot be loaded, does not fit the services, or raises when it is asked to decide.
    """
    decision, name = wanted
    policy = policies.load(decision, name, live=True)
    if decision == "dispatch":
        session.rehearse(policy, world)
    elif decision == "defer":
        begin(batched(policy), Slots(1.0), Key(0))
        _use_ledger()
        Strict(name).ask(lambda: jobs.rehearse(policy), list)
    elif decision == "split":
        split.rehearse(policy)
    elif decision == "place":
        Strict(name).ask(lambda: pipelines.rehearse(policy), list)
    elif decision == "requests" and services is not None:
        requests.rehearse(services, policy)
    elif decision == "requests" or (services is None and what is None):
        raise PolicyError(f"{name}: the scenario has no services")
    else:
        what = of_services(services) if what is None and services is not None else what
        assert what is not None  # one of the two is there
        policy = begin(batched(policy), what.system, Key(0))
        core = OrchestrateCore(what.system, what.holds, policy, NodeLedger(()), what.nodes, pools=what.pools)
        Strict(name).ask(lambda: policy.decide(core.view(0.0)), lambda: None)
        core.carried_out(np.array([[0, 1], [0, -1]]))


def _ships(wanted: Wanted) -> bool:
    return policies.ships(*wanted)


def missing(wanted: Sequence[Wanted]) -> list[Wanted]:
    """Policies whose kernels the cache on disk lacks, and those that do not ship, which may have changed."""
    return [each for each in wanted if not _ships(each) or (JIT and not _mark(each).is_file())]


async def compiled(
    wanted: Sequence[Wanted],
    world: World,
    services: Services | None,
    told: Callable[[], None],
    what: Orchestrated | None = None,
) -> None:
    """Have the cache on disk hold what policies need; `told` is called before a child is started.

    However long that takes; what was compiled when this is cancelled stays in the cache.

    Raises:
        PolicyError: a policy cannot be used.
    """
    for decision, name in wanted:
        if policies.ships(decision, name):  # others are looked for in the child, which runs their files
            policies.find(decision, name, live=True)
    if not (lacking := missing(wanted)):
        return
    told()
    # By a protocol that leaves arrays read-only: a kernel is compiled anew for those that may be written to.
    asked = pickle.dumps((lacking, world, services, what), pickle.HIGHEST_PROTOCOL)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "edgewise.runtime.process.compiling",
        stdin=PIPE, stdout=DEVNULL, stderr=PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        async with asyncio.timeout(LONGEST_S):
            _, said = await child.communicate(asked)
    except TimeoutError:
        raise PolicyError(f"{lacking[-1][1]}: was tried out for {LONGEST_S:g} s without an end") from None
    finally:
        if child.returncode is None:
            child.kill()
    if child.returncode:
        lines = said.decode(errors="replace").strip().splitlines()
        raise PolicyError(lines[-1] if lines else f"their compiler ended with status {child.returncode}")


def needed_by(scenario: Scenario, wanted: Iterable[Wanted], told: Callable[[], None]) -> None:
    """Have the cache hold what a live system of a scenario needs; `told` is called before that takes long.

    Raises:
        PolicyError: a policy cannot be used.
    """
    scenario = with_servers(scenario)
    world = World.build(scenario.catalog, scenario.topology, scenario.sharing)
    services = services_of(scenario)
    asyncio.run(compiled(list(wanted), world, services, told, decided_on(scenario, services)))


def _mark(wanted: Wanted) -> Path:
    """A file that is there once a policy's kernels are."""
    decision, name = wanted
    return Path(numba.config.CACHE_DIR) / "compiled" / f"{decision}.{quote(name, safe='')}"  # type: ignore[attr-defined]


def main() -> int:
    """Be the child."""
    os.nice(NICE)
    with suppress(OSError):  # the kernel may share the processor out by sessions; others have no such file
        Path("/proc/self/autogroup").write_text(str(NICE))
    wanted, *given = pickle.load(sys.stdin.buffer)  # written by `Child`
    try:
        for decision, name in wanted:
            policies.find(decision, name, live=True)
        _compile(wanted, *given)
    except EdgewiseError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _compile(
    wanted: Sequence[Wanted], world: World, services: Services | None, what: Orchestrated | None
) -> None:
    """Try policies out, and note for each that the cache holds what it needs."""
    for each in wanted:
        try_out(each, world, services, what)
        with suppress(OSError):  # a cache that cannot be written: the next switch finds nothing either
            _mark(each).parent.mkdir(parents=True, exist_ok=True)
            _mark(each).touch()


def _use_ledger() -> None:
    """Ask for every rule once, so that all of them are compiled."""
    ledger = NodeLedger([Node("n", "", Resources(1.0))])
    ledger.reserve(Reservation("job", "n", Resources(1.0), 0, preemptible=True))
    ledger.hold(Reservation("worker", "n", Resources(1.0), 1))
    ledger.fits("n", Resources(1.0))
    ledger.release("worker")


if __name__ == "__main__":
    sys.exit(main())
