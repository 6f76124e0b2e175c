"""Systems of services are, array by array, what the readers of their own two forms gave."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path

import numpy as np
import pytest

from edgewise.config import load_scenario
from edgewise.model.orchestration import System
from edgewise.model.services import services_of
from edgewise.workloads.services import simulated_services
from edgewise_studies.training.kais.settings import as_frozen, setting, whole_description

RECORDED = json.loads((Path(__file__).parent / "frozen_systems.json").read_text())
# The live reader left out the deviation of the way to the cloud; nothing that runs live reads it.
MENDED = {"kais-live": {"wan_deviation_s": 5e-3 * math.sqrt(2.0)}}


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _hashes(system: System) -> dict[str, str]:
    fields = as_frozen(system)
    arrays = {name: np.ascontiguousarray(value) for name, value in fields.items()}
    shapes = {name: np.shape(value) for name, value in fields.items()}
    return {
        name: _sha(str((array.dtype, shapes[name])).encode() + array.tobytes())
        for name, array in arrays.items()
    }


@pytest.mark.parametrize("name", RECORDED["systems"])
def test_scenarios_give_the_systems_of_the_old_readers(name: str) -> None:
    system = simulated_services(load_scenario(name)).system
    mended = MENDED.get(name, {})
    assert {key: as_frozen(system)[key] for key in mended} == mended
    found = _hashes(system)
    assert [key for key in found if found[key] != RECORDED["systems"][name][key]] == list(mended)


def test_live_and_simulated_services_are_one_system() -> None:
    loaded = load_scenario("kais-live")
    services = services_of(loaded)
    assert services is not None
    assert _hashes(services.system) == _hashes(simulated_services(loaded).system)


@pytest.mark.parametrize("name", RECORDED["settings"])
def test_learned_settings_are_as_they_were_frozen(name: str) -> None:
    whole = _sha(json.dumps(whole_description(name), sort_keys=True).encode())
    assert _hashes(setting(name).system) | {"whole_description": whole} == RECORDED["settings"][name]
