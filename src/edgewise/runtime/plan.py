"""From a scenario to the processes that make it live: a worker for each of its workers, gateways."""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import asdict
from pathlib import Path
from typing import Any

from edgewise.config import dump_scenario
from edgewise.core.world import World
from edgewise.errors import ScenarioError
from edgewise.model.catalog import Variant
from edgewise.model.scenario import Scenario
from edgewise.runtime.http import LOCALHOST
from edgewise.runtime.pieces import SUFFIX, WHOLE
from edgewise.runtime.store import Process, Store

DATABASE, SCENARIO, STAND_IN = "state.sqlite", "scenario.yaml", "stand-in.onnx"
MOST_PROCESSES = 64


def prepare(
    folder: Path,
    scenario: Scenario,
    *,
    policy: str = "least-impedance",
    models: Path | None = None,
    gateways: int | None = None,
    emulate: bool = True,
    port: int = 0,
    seed: int = 0,
    client_s: float = 0.0,
    token: str | None = None,
) -> Store:
    """Write down what is wanted; whoever runs the folder's controller brings it about.

    Args:
        folder: state of the system. What is known there of processes and streams is kept.
        models: holds VARIANT.onnx, MODEL.onnx or VARIANT.split (`pieces`); others get a stand-in that
            returns its input.
        gateways: how many; None for one at each site.
        emulate: links and workers take the scenario's time; without, their own.
        port: of the first gateway, the others follow; 0 takes free ones.
        seed: keys the emulated delays and the policy.
        client_s: time that clients on this machine take themselves; deducted from the emulated ways.
        token: that clients of the gateways and the controller must show.
    Raises:
        ScenarioError: too many workers for one machine, or a model's file is missing.
    """
    world = World.build(scenario.catalog, scenario.topology)
    count = len(scenario.topology.sites) if gateways is None else gateways
    if world.workers + count > MOST_PROCESSES:
        raise ScenarioError(
            f"workers: {world.workers} and {count} gateways are more than {MOST_PROCESSES} processes; "
            "use a smaller scenario, or --gateways 1"
        )
    store = Store(folder / DATABASE)
    (folder / SCENARIO).write_text(dump_scenario(scenario))
    known = {running.process.name: running.process.port for running in store.processes()}
    ports = _Ports(known)
    workers = [
        _worker(w, world, scenario, ports, _file(scenario, w, models, folder), emulate, seed)
        for w in range(world.workers)
    ]
    settings = {
        "workers": [
            {"url": p.url, "model": p.settings["model"], "split": p.settings["split"]} for p in workers
        ],
        "emulate": emulate, "seed": seed, "client_s": client_s,
        "telemetry_period_s": scenario.telemetry_period_s,
    }  # fmt: skip
    fronts = []
    for g in range(count):
        site = world.site_names[g % len(world.site_names)]
        name = f"gateway-{g}"
        number = port + g if port else ports.of(name)
        fronts.append(Process(name, "gateway", number, {**settings, "site": site}))
    store.want([*workers, *fronts])
    store.put("policy", policy)
    store.put("token", token)
    store.put("controller", {"port": ports.of("controller", store), "admin_token": store_token(store)})
    return store


def store_token(store: Store) -> str:
    """The token that the controller shows gateways; made once."""
    found = (store.get("controller") or {}).get("admin_token")
    return found or secrets.token_urlsafe(24)


def _worker(
    w: int, world: World, scenario: Scenario, ports: _Ports, file: Path, emulate: bool, seed: int
) -> Process:
    name, variant = world.worker_names[w], scenario.catalog.variant(world.variant_names[w])
    split = str(file.parent) if file.parent.suffix == SUFFIX else None  # takes the time that it takes
    settings: dict[str, Any] = {
        "model": variant.name, "file": str(file), "split": split, "max_batch": variant.max_batch,
        "batch_timeout_s": variant.batch_timeout_s, "capacity_qps": variant.capacity_qps,
        "profile": asdict(variant.profile) if emulate and split is None else None, "seed": seed, "entity": w,
    }  # fmt: skip
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return Process(name, "worker", ports.of(name), settings, (cores[w % len(cores)],) if cores else ())


def _file(scenario: Scenario, w: int, models: Path | None, folder: Path) -> Path:
    """A worker's ONNX file: from `models`, of its variant, or a stand-in."""
    variant: Variant = scenario.catalog.variant(scenario.topology.workers[w].variant)
    for name in (f"{variant.name}{SUFFIX}/{WHOLE}", f"{variant.name}.onnx", f"{variant.model}.onnx"):
        if models is not None and (models / name).is_file():
            return (models / name).resolve()
    if variant.file is not None:
        if not Path(variant.file).is_file():
            raise ScenarioError(f"variants.{variant.name}.file: no file {variant.file}; correct it")
        return Path(variant.file).resolve()
    file = folder / STAND_IN
    if not file.is_file():
        write_stand_in(file)
    return file.resolve()


def write_stand_in(file: Path) -> None:
    """A network that returns its input: x FP32 [n, size] → y."""
    import onnx  # an extra
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", "size"]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "stand-in", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), file)


class _Ports:
    """Free ports, and those that processes had before."""

    def __init__(self, known: dict[str, int]) -> None:
        self._known = known

    def of(self, name: str, store: Store | None = None) -> int:
        """The port of a process, or of the controller as its store has it."""
        before = (store.get("controller") or {}).get("port") if store else self._known.get(name)
        if before:
            return int(before)
        with socket.socket() as probe:
            probe.bind((LOCALHOST, 0))
            return int(probe.getsockname()[1])
