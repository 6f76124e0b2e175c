"""From a scenario to the processes that make it live: a worker for each of its workers, gateways."""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from edgewise import policies
from edgewise.config import dump_scenario
from edgewise.core.guard import begin
from edgewise.core.keyed import Key
from edgewise.core.world import World
from edgewise.errors import PolicyError, RunError, ScenarioError
from edgewise.model.orchestration import System
from edgewise.model.pools import decided_on
from edgewise.model.scenario import Scenario
from edgewise.model.services import Services, services_of
from edgewise.model.topology import Variant, Worker
from edgewise.runtime import disk
from edgewise.runtime.apart import BEGIN_S, load
from edgewise.runtime.backends.system import THIS_MACHINE, choose
from edgewise.runtime.controller.difference import Wanted, difference
from edgewise.runtime.controller.graphs import cut_graphs, served_graphs, with_servers
from edgewise.runtime.controller.known import Known
from edgewise.runtime.controller.models import answering, model_file
from edgewise.runtime.controller.planned_replicas import held, replicas
from edgewise.runtime.controller.rolling import (
    ScenarioChange,
    begin_change,
    beside,
    renamed_twice,
    write_change,
    write_scenario,
)
from edgewise.runtime.controller.taken import check_taken, taken
from edgewise.runtime.http import tls_server
from edgewise.runtime.process.serving import Listen
from edgewise.runtime.store import (
    DATABASE as DATABASE,
    POLICIES,
    SCENARIO as SCENARIO,
    Store,
    from_fields,
    tls_files,
)
from edgewise.runtime.store.copies import check_whole, keep_copy
from edgewise.runtime.testbeds.spaces import SPACES, Spaces, as_settings, from_settings
from edgewise.runtime.watch.collector import check_otlp
from edgewise.runtime.worker.pieces import SUFFIX

MOST_PROCESSES = 64
SHARING = "gateway_processes"  # a setting of the store: how many share the port of a gateway
HERE = Listen()


@dataclass(frozen=True, slots=True)
class Emulation:
    """Whether links and workers take the scenario's time, or their own.

    Attributes:
        seed: keys the emulated delays and the policy.
        client_s: time that clients on this machine take themselves; deducted from the emulated ways.
    """

    on: bool = True
    seed: int = 0
    client_s: float = 0.0


class ChosenBackend(NamedTuple):
    """What keeps the processes of a system.

    Attributes:
        name: of `backends.system.BACKENDS`.
        cluster: where, on Kubernetes; see `backends.kubernetes.system.OnCluster`.
    """

    name: str = THIS_MACHINE
    cluster: Mapping[str, Any] | None = None


EMULATED, ON_THIS_MACHINE = Emulation(), ChosenBackend()
NONE: Mapping[str, str] = {}


def deciding(scenario: Scenario, given: Mapping[str, str] = NONE) -> dict[str, str]:
    """The policy of each decision of a live system: those given, those that the scenario names, and defaults.

    Args:
        given: by decision, of `policies.DECISIONS`.
    Raises:
        PolicyError: nobody decides that in this scenario.
    """
    services, pools = scenario.services is not None, bool(scenario.topology.pools)
    there = dict.fromkeys(policies.DECISIONS, True) | {
        "dispatch": bool(scenario.topology.sites),
        "requests": services,
        "orchestrate": services or pools,
        "split": bool(served_graphs(scenario)),
        "place": scenario.pipelines is not None,
    }
    found = {decision: name for decision, name in policies.deciding(scenario).items() if there[decision]}
    if strange := given.keys() - found.keys():
        raise PolicyError(
            f"no decision {min(strange)!r} in a live system of {scenario.name}: {', '.join(found)}"
        )
    return {decision: policies.located(name) for decision, name in {**found, **given}.items()}


def prepare(
    folder: Path,
    scenario: Scenario,
    *,
    given: Mapping[str, str] | None = NONE,
    models: Path | None = None,
    gateways: int | None = None,
    gateway_processes: int | None = None,
    emulation: Emulation = EMULATED,
    where: Listen = HERE,
    otlp: str | None = None,
    backend: ChosenBackend = ON_THIS_MACHINE,
    on_namespaces: bool = False,
    switched: Mapping[str, str] = NONE,
    rehearsed: Path | None = None,
    superseding: bool = False,
) -> Store:
    """Write down what is wanted; whoever runs the folder's controller brings it about, see `rolling`.

    What stays keeps its port, its core and its draws, whatever is added before it.

    Args:
        folder: state of the system. What is known there of processes and streams is kept.
        given: policies by decision, see `deciding`; None keeps those of a system that runs, or did not come
            to its end, where they still fit: its controller switches them.
        models: holds VARIANT.onnx, MODEL.onnx or VARIANT.split (`pieces`); others get a stand-in,
            see `models`.
        gateways: how many; None for one at each site.
        gateway_processes: of each, which share its port; None: as many as run, or one.
        emulation: of links and workers.
        where: the first gateway listens, and which clients may ask; the ports of the others follow, or are
            free ones where it says 0. Certificate and key are copied.
        otlp: address of a collector that traces go to; None for no traces.
        backend: keeps the processes.
        on_namespaces: each site and node is a network namespace, joined as the scenario says, see
            `testbeds.spaces`; they are made here.
        switched: policies by decision that the controller switches afterwards, for what is shown.
        rehearsed: the folder that this one is a copy of; no namespaces are made, see `rehearsal`.
        superseding: see `begin_change`.
    Raises:
        ScenarioError: too many workers for one machine, a model's or TLS file is missing, or no traces can
            be made.
        PolicyError: a policy of its services is unknown, or nobody decides that here.
        RunError: an earlier change is under way, the state is damaged or cannot be written, or no namespaces
            can be made.
    """
    check_otlp(otlp)
    given_scenario, scenario = scenario, with_servers(scenario)
    world = World.build(scenario.catalog, scenario.topology, scenario.sharing)
    count = len(scenario.topology.sites) if gateways is None else gateways
    services, wanted_policies = services_of(scenario), deciding(scenario, given or NONE)
    systems = _systems(scenario, services)
    _check(world, services, count * (gateway_processes or 1), wanted_policies, systems)
    if where.pair:
        tls_server(*where.pair)
    check_whole(folder / DATABASE)
    store = Store(folder / DATABASE)
    change = begin_change(store, superseding)
    backend_name, cluster = backend
    check_taken(scenario.topology, cluster is not None, on_namespaces)
    choose(store, backend_name, cluster)
    sharing = _sharing(store, gateway_processes)
    spaces = _spaces(store, scenario, on_namespaces, rehearsed)
    cut = cut_graphs(given_scenario, folder, emulation.on)
    digest = _write(scenario, store)
    kinds = {
        name: _settings(variant, model_file(variant, models, folder), emulation)
        | {"otlp": otlp, "cut": None}
        | cut.get(name, {})
        | ({"needs": asdict(variant.resources), "image": cluster["image"]} if cluster is not None else {})
        for name in dict.fromkeys(world.variant_names)
        if (variant := scenario.catalog.variant(name))
    }
    serving = {} if services is None else answering(kinds, services, folder)
    splits = {each.name: kinds[each.variant]["split"] for each in scenario.topology.workers}
    settings = {
        "splits": {name: split for name, split in splits.items() if split},
        "emulate": emulation.on, "seed": emulation.seed, "client_s": emulation.client_s,
        "scenario": digest, "telemetry_period_s": scenario.telemetry.period_s, "otlp": otlp,
        "host": where.host, "names": where.names, "open": where.open, "tls": _copy_tls(where, folder),
    }  # fmt: skip
    if pods := cluster is not None and cluster["owner"] is not None:
        if where.pair:
            raise ScenarioError("--tls-cert: gateways that are pods have none yet; leave it or --owner out")
        settings |= {"pod": True, "image": cluster["image"]}
    sites = [world.site_names[g % len(world.site_names)] for g in range(count)]
    if given is None:
        wanted_policies |= _kept(store, wanted_policies, systems)
    with store.at_once():  # the controller of a system that runs starts and ends replicas meanwhile
        known = Known(store, world)
        fronts = known.gateways(sites, sharing, where, settings, _near(scenario) if pods else spaces)
        workers = [
            known.worker(w, taken(w, kinds[w.variant], scenario.topology, fronts))
            if w.served_by is not None
            else known.worker(
                w, kinds[w.variant] | {"node": w.node} | _starts(scenario, w) | spaces.get(w.node, {})
            )
            for w in scenario.topology.workers
        ]
        wanted = [
            *workers,
            *replicas(store, known.ports, services, serving, held(scenario, services, workers)),
            *fronts,
        ]
        store.want([beside(process, known.rows, known.ports) for process in wanted], known.renamed)
        store.name_policies(wanted_policies)
        store.put(SHARING, sharing)
        store.put("token", where.token)
        store.put("controller", {"port": (store.get("controller") or {}).get("port") or known.ports.free()})
        if change.before is None:
            store.put("nodes down", [])
            store.put("links down", [])
            store.put("node changes", [])
        else:
            change.before["renamed"] = renamed_twice(change.before["renamed"], known.renamed)
        after = Wanted(yaml.safe_load(dump_scenario(scenario)), wanted_policies | dict(switched), wanted)
        deeds = difference(_before(change), after, (change.before or {}).get("renamed", {}))
        write_change(store, replace(change, difference=[asdict(each) for each in deeds]))
    for whose in ("operator", "parts"):
        store.secret(whose)  # whoever reads the file or its copy alone can ask the controller
    store.checkpoint()
    keep_copy(store.file)
    return store


def _before(change: ScenarioChange) -> Wanted | None:
    """What was wanted before a change, where something runs."""
    if (before := change.before) is None:
        return None
    processes = [from_fields(fields) for fields in before["processes"]]
    policies_before = before["settings"][POLICIES] or {}
    return Wanted(yaml.safe_load(before["scenario"]), policies_before, processes)


def _sharing(store: Store, wanted: int | None) -> int:
    """How many processes share the port of a gateway; as long as a system lives, numbers of streams go by it.

    Raises:
        RunError: another number runs.
    """
    runs = None if store.ended() else int(store.get(SHARING, 1))
    if wanted is not None and runs not in (None, wanted):
        raise RunError(
            f"--gateway-processes {wanted}: {runs} serve each gateway, which cannot change while the system "
            "runs; edgewise down, then up"
        )
    return runs or wanted or 1


def _spaces(
    store: Store, scenario: Scenario, on_namespaces: bool, rehearsed: Path | None
) -> Mapping[str, dict[str, str]]:
    """Settings of the processes of each site and node: where they are, on namespaces.

    They are made, or, where a change is rehearsed for a folder, planned.

    Raises:
        ScenarioError: there are too many.
        RunError: they cannot be made, or the system runs otherwise.
    """
    before, spaces = store.get(SPACES, {}), Spaces(rehearsed or store.file.parent)
    if not store.ended() and bool(before) != on_namespaces:
        raise RunError("--on: cannot change while the system runs; edgewise down, then up")
    lay = spaces.make if rehearsed is None else spaces.plan
    made = as_settings(lay(scenario.topology, from_settings(before))) if on_namespaces else {}
    store.put(SPACES, made)
    return made


def _near(scenario: Scenario) -> dict[str, dict[str, Any]]:
    """Settings of the gateway of each site that is a pod: the nodes that it belongs on."""
    topology = scenario.topology
    return {
        site.name: {"near": [node.name for node in topology.nodes if node.cluster == site.cluster]}
        for site in topology.sites
    }


def _write(scenario: Scenario, store: Store) -> str:
    """Write a scenario for all processes to read; returns its digest: gateways start anew for another."""
    text = dump_scenario(scenario)
    write_scenario(store, text)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _copy_tls(where: Listen, folder: Path) -> str | None:
    """Copy certificate and key: gateways start again with what was seen to fit; returns their digest."""
    if where.pair is None:
        return None
    certificate, key = (file.read_bytes() for file in where.pair)
    digest = hashlib.sha256(certificate + key).hexdigest()[:16]
    for file, content in zip(tls_files(folder, digest), (certificate, key), strict=True):
        disk.write_file(file, content)
    return digest


def _systems(scenario: Scenario, services: Services | None) -> dict[str, System]:
    """What policies of requests and of orchestration begin with, of those that there are."""
    what = decided_on(scenario, services)
    found = {} if services is None else {"requests": services.system}
    return found if what is None else {**found, "orchestrate": what.system}


def _check(
    world: World,
    services: Services | None,
    gateways: int,
    wanted: Mapping[str, str],
    systems: Mapping[str, System],
) -> None:
    """Few enough processes for one machine, and policies that fit the services.

    Raises:
        ScenarioError: too many processes.
        PolicyError: a policy of the services cannot be loaded, or is for others.
    """
    workers = int(world.at_first.sum()) + (int(services.system.initial.sum()) if services is not None else 0)
    if workers + gateways > MOST_PROCESSES:
        raise ScenarioError(
            f"workers: {workers} and {gateways} gateways are more than {MOST_PROCESSES} processes; "
            "use a smaller scenario, --gateways 1, or fewer --gateway-processes"
        )
    for decision, system in systems.items():
        _begun(decision, wanted[decision], system)


def _begun(decision: str, name: str, system: System) -> None:
    """See that a policy can be used with services.

    Raises:
        PolicyError: it cannot.
    """
    begin(load(decision, name, BEGIN_S), system, Key(0))


def policies_left(folder: Path) -> dict[str, str]:
    """Policies by decision of a system that did not come to its end, as when it was killed; else none.

    Raises:
        RunError: the state cannot be used.
    """
    if not (folder / DATABASE).is_file():
        return {}
    check_whole(folder / DATABASE)
    store = Store(folder / DATABASE)
    found: dict[str, str] = {} if store.ended() else store.get(POLICIES, {})
    store.close()
    return found


def _kept(store: Store, wanted: Collection[str], systems: Mapping[str, System]) -> dict[str, str]:
    """Policies in use of the decisions that are wanted, where they still fit."""
    return {
        decision: name
        for decision, name in store.get(POLICIES, {}).items()
        if decision in wanted and _fits(decision, name, systems.get(decision))
    }


def _fits(decision: str, name: str, system: System | None) -> bool:
    """Whether a policy that is in use stays in use with this system."""
    try:
        if system is not None:
            _begun(decision, name, system)
    except PolicyError:
        return False
    return True


def _settings(variant: Variant, file: Path, emulation: Emulation) -> dict[str, Any]:
    """What a worker of a variant needs to run, besides its number."""
    split = str(file.parent) if file.parent.suffix == SUFFIX else None  # takes the time that it takes
    return {
        "model": variant.name, "file": str(file), "split": split, "max_batch": variant.max_batch,
        "batch_timeout_s": variant.batch_timeout_s, "capacity_qps": variant.capacity_qps,
        "profile": asdict(variant.profile) if emulation.on and split is None else None,
        "seed": emulation.seed, "providers": list(variant.providers),
    }  # fmt: skip


def _starts(scenario: Scenario, worker: Worker) -> dict[str, float]:
    """What gateways need to know of one that comes and goes: how long it takes to start."""
    return {} if worker.pool is None else {"start_s": scenario.catalog.variant(worker.variant).start_s}
