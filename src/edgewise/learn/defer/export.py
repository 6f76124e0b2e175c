"""A trained agent becomes NAME.onnx and NAME.json, its card; see `edgewise.policies.cards`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewise.arrays import Floats32
from edgewise.policies.cards import runner
from edgewise.policies.defer.features import JOB_FEATURES, SUMMARY_FEATURES
from edgewise.policies.defer.learned import feature_hash

if TYPE_CHECKING:
    from edgewise.learn.defer.ppo import Agent

GOLDEN, GOLDEN_JOBS = 16, 5


def name_of(method: str, seed: int, situation: str = "paper", recipe: str = "ours") -> str:
    """Name of a run's files."""
    extra = [situation] * (situation != "paper") + [f"{recipe}-recipe"] * (recipe != "ours")
    return "-".join([method, *extra, str(seed)])


def export(agent: Agent, folder: Path, name: str, about: Mapping[str, Any]) -> Path:
    """Write NAME.onnx and NAME.json.

    Args:
        about: for the card: command, seeds, scores, hash of the pattern.
    Returns:
        The ONNX file.
    """
    import torch

    from edgewise.learn.defer.networks import Auxiliary

    class ExportedScorer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network, self.auxiliary = agent.network, agent.auxiliary

        def forward(
            self, jobs: torch.Tensor, summary: torch.Tensor, memory: torch.Tensor
        ) -> tuple[torch.Tensor, torch.Tensor]:
            extra, after = agent.extra(summary, memory)
            mean, _, _ = self.network(jobs, extra)
            return mean, after + 0.0 * summary[:, :1]  # keeps every input, whatever the variant reads

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.onnx"
    example = tuple(map(torch.from_numpy, _examples(Auxiliary.memory)))
    names = {"jobs": {0: "worlds", 1: "jobs"}, "summary": {0: "worlds"}, "memory": {0: "worlds"}}
    torch.onnx.export(
        ExportedScorer().eval(),
        example,
        str(path),
        input_names=list(names),
        output_names=["scores", "next_memory"],
        dynamic_axes=names | {"scores": {0: "worlds", 1: "jobs"}, "next_memory": {0: "worlds"}},
        opset_version=17,
        dynamo=False,
    )
    card = _card(path, name, Auxiliary.memory, agent.config.skip, about)
    path.with_suffix(".json").write_text(_layout(card), encoding="utf-8")
    return path


def _layout(card: Mapping[str, Any]) -> str:
    """One line for each entry of a card."""
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in card.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _examples(memory: int) -> tuple[Floats32, Floats32, Floats32]:
    """Made-up but possible inputs, the same every time, rounded so that a card stays small."""
    rng = np.random.default_rng(0)
    jobs = rng.random((GOLDEN, GOLDEN_JOBS, len(JOB_FEATURES))).round(2)
    jobs[:, :, 5:8] = np.eye(3)[rng.integers(0, 3, (GOLDEN, GOLDEN_JOBS))]
    summary, past = rng.random((GOLDEN, len(SUMMARY_FEATURES))), rng.uniform(-1, 1, (GOLDEN, memory))
    return jobs.astype(np.float32), summary.round(2).astype(np.float32), past.round(2).astype(np.float32)


def _card(path: Path, name: str, memory: int, skip: bool, about: Mapping[str, Any]) -> dict[str, Any]:
    inputs = _examples(memory)
    scores, _ = runner(path)(*inputs)
    values = [np.asarray(x, dtype=np.float64).round(6).tolist() for x in (*inputs, scores)]
    return {
        "name": name,
        **about,
        "memory": memory,
        "skip": skip,
        "features_sha256": feature_hash(),
        "onnx_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "golden": dict(zip(("jobs", "summary", "memory", "scores"), values, strict=True)),
    }
