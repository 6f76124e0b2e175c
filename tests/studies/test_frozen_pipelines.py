"""Scenarios give the networks and pipelines that edgewise 0.1 made in Python and read from other files."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgewise.core.place import arrays_of
from edgewise.model.parsing import parse_scenario
from edgewise.model.pipelines import Network, Pipeline, network_of, pipeline_of
from edgewise.workloads.pipeline_profiler import TaskProfile, profiled
from edgewise_studies.papers.ents import E1, E2, E4, E6, FigurePoint, world

RECORDED = json.loads((Path(__file__).parent / "frozen_pipelines.json").read_text())
ENTS = [key for key in RECORDED if key != "read-text"]


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _plain(value: Any) -> str:
    return _sha(json.dumps(value).encode())


def _arrays(parts: list[np.ndarray]) -> str:
    return _sha(b"".join(str(part.dtype).encode() + part.tobytes() for part in parts))


def hashes(network: Network, pipelines: tuple[Pipeline, ...]) -> dict[str, str]:
    """Every array of a network, and of all pipelines in order."""
    every = [arrays_of(pipeline, i, network) for i, pipeline in enumerate(pipelines)]
    of_network = ("speed_ops", "memory_bytes", "ends", "bandwidth_bps")
    of_pipelines = ("work_ops", "memory_bytes", "tail", "head", "volume_bits")
    return {
        "names": _plain(network.names),
        **{name: _arrays([getattr(network, name)]) for name in of_network},
        **{f"pipeline.{name}": _plain([getattr(a, name) for a in every]) for name in ("id", "source")},
        **{f"pipeline.{name}": _arrays([getattr(a, name) for a in every]) for name in of_pipelines},
        "pipeline.length": _plain([(p.frames, p.duration_s) for p in pipelines]),
        "pipeline.arrival_s": _plain([p.arrival_s for p in pipelines]),
        "pipeline.tasks": _plain([p.graph.order() for p in pipelines]),
    }


@pytest.mark.parametrize("key", ENTS)
def test_the_reproduction_has_the_arrays_that_it_was_frozen_with(key: str) -> None:
    kind, nodes, megabits, count, seed = key.split("/")
    assert (
        hashes(*world(FigurePoint(int(nodes), int(megabits), int(count)), int(seed), kind)) == RECORDED[key]
    )


def test_reading_text_has_the_arrays_of_the_old_files(tmp_path: Path) -> None:
    reading = pytest.importorskip("edgewise.demo.reading")
    (tmp_path / "frame.bmp").write_bytes(reading.frame(reading.SIGNS[0]))
    scenario = parse_scenario(reading.scenario([tmp_path / "frame.bmp"]), "read-text")
    (spec,) = scenario.pipelines or ()
    times = tuple(TaskProfile(task.name, 1.0, 1e4) for task in spec.tasks)
    pipeline = replace(pipeline_of(profiled(spec, times, 1e9)), duration_s=20.0)
    assert hashes(network_of(scenario), (pipeline,)) == RECORDED["read-text"]


def test_every_point_of_the_paper_was_recorded() -> None:
    recorded = {tuple(map(int, key.split("/")[1:4])) for key in ENTS if key.startswith("recognition")}
    assert recorded == {(p.nodes, p.megabits, p.pipelines) for p in (*E1, *E2, *E4, *E6)}
