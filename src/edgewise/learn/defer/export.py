"""A trained agent becomes NAME.onnx and NAME.json, its card; `load` makes a policy of the two.

The card says how the policy was made, and holds golden examples that are computed anew when it is
loaded: a file that does not decide as it did is refused. torch is needed to export, not to load.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewise.arrays import Floats32
from edgewise.errors import PolicyError
from edgewise.learn.onnx_session import open_session
from edgewise.policies.defer.features import JOB_FEATURES, SUMMARY_FEATURES, Scale
from edgewise.policies.defer.learned import LearnedDeferral

if TYPE_CHECKING:
    from edgewise.learn.defer.ppo import Agent

GOLDEN, GOLDEN_JOBS = 16, 5
CLOSE = 1e-4
SHIPPED = Path(__file__).resolve().parents[2] / "data" / "policies" / "defer"


def feature_hash() -> str:
    """Hash of what the features mean; a policy trained on others is refused."""
    text = json.dumps([JOB_FEATURES, SUMMARY_FEATURES, Scale()])
    return hashlib.sha256(text.encode()).hexdigest()


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


def load(path: str | Path) -> LearnedDeferral:
    """A policy from its ONNX file and card.

    Args:
        path: of the ONNX file, or the name of a shipped policy, as "osdec".
    Raises:
        PolicyError: a file is missing, was changed, is for other features, or decides otherwise than it did.
    """
    path = Path(path) if str(path).endswith(".onnx") else SHIPPED / f"{path}.onnx"
    card_path = path.with_suffix(".json")
    for file in (path, card_path):
        if not file.is_file():
            shipped = ", ".join(sorted(p.stem for p in SHIPPED.glob("*.onnx")))
            raise PolicyError(f"deferral policy: no file {file}; shipped are: {shipped or 'none'}")
    card = json.loads(card_path.read_text(encoding="utf-8"))
    if card["features_sha256"] != feature_hash():
        raise PolicyError(f"{path}: was trained on other features; train it anew with this edgewise")
    if card["onnx_sha256"] != hashlib.sha256(path.read_bytes()).hexdigest():
        raise PolicyError(f"{path}: is not the file of {card_path.name}; restore both from one source")
    infer = _infer(path)
    scores, _ = infer(
        *(np.array(card["golden"][key], dtype=np.float32) for key in ("jobs", "summary", "memory"))
    )
    if not np.allclose(scores, np.array(card["golden"]["scores"]), atol=CLOSE):
        raise PolicyError(f"{path}: gives other scores than its card says; check the onnxruntime version")
    return LearnedDeferral(card["name"], infer, card["memory"], card["skip"], card.get("slot_s", 0.0))


def _infer(path: Path) -> Any:
    session = open_session(path)

    def infer(jobs: Floats32, summary: Floats32, memory: Floats32) -> tuple[Floats32, Floats32]:
        scores, after = session.run(None, {"jobs": jobs, "summary": summary, "memory": memory})
        return scores, after

    return infer


def _examples(memory: int) -> tuple[Floats32, Floats32, Floats32]:
    """Made-up but possible inputs, the same every time, rounded so that a card stays small."""
    rng = np.random.default_rng(0)
    jobs = rng.random((GOLDEN, GOLDEN_JOBS, len(JOB_FEATURES))).round(2)
    jobs[:, :, 5:8] = np.eye(3)[rng.integers(0, 3, (GOLDEN, GOLDEN_JOBS))]
    summary, past = rng.random((GOLDEN, len(SUMMARY_FEATURES))), rng.uniform(-1, 1, (GOLDEN, memory))
    return jobs.astype(np.float32), summary.round(2).astype(np.float32), past.round(2).astype(np.float32)


def _card(path: Path, name: str, memory: int, skip: bool, about: Mapping[str, Any]) -> dict[str, Any]:
    inputs = _examples(memory)
    scores, _ = _infer(path)(*inputs)
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
