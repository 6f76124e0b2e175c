"""Trained agents become NAME.dispatch.onnx, NAME.scale.onnx and a card NAME.json; see `policies.cards`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewise.policies.cards import runner
from edgewise.policies.dispatch.requests.features import PAIR_FEATURES
from edgewise.policies.dispatch.requests.learned import GOLDEN, examples, feature_hash
from edgewise.policies.dispatch.requests.stations import STATION_FEATURES
from edgewise.policies.orchestrate.marginal import TERMS

if TYPE_CHECKING:
    from edgewise.learn.orchestration.cmmac import Dispatcher
    from edgewise.learn.orchestration.evolve import Search
    from edgewise.learn.orchestration.gpg import Scaler
    from edgewise.learn.orchestration.train import Training

NO_NETWORK = (
    "parameters of the algorithm in policies/orchestrate/marginal.py, not of a network: there is no ONNX file"
)


def export(training: Training, folder: Path, name: str, about: Mapping[str, Any]) -> Path:
    """Write the networks that learned, and their card.

    Args:
        about: for the card: command, seeds, scores.
    Returns:
        The card.
    """
    folder.mkdir(parents=True, exist_ok=True)
    card: dict[str, Any] = {"name": name, **about, "features_sha256": feature_hash()}
    if training.dispatcher is not None:
        card["dispatch"] = _export_dispatch(training.dispatcher, folder / f"{name}.dispatch.onnx")
    if training.scaler is not None:
        card["scale"] = export_scale(training.scaler, folder / f"{name}.scale.onnx")
    path = folder / f"{name}.json"
    path.write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    return path


def _export_dispatch(agent: Dispatcher, path: Path) -> dict[str, Any]:
    scored = agent.config.scored
    inputs = len(STATION_FEATURES) if scored else agent.state + agent.system.sites
    part = _write(agent.actor, path, (GOLDEN, inputs), ["values"])
    return part | {"scored": scored, "context": agent.config.context, "inputs": inputs}


def export_search(search: Search, folder: Path, name: str, about: Mapping[str, Any]) -> Path:
    """Write what a search found: the linear score as ONNX and in the card, orchestration's terms in the card.

    Returns:
        The card.
    """
    import torch

    from edgewise.learn.orchestration.evolve import WEIGHTS
    from edgewise.learn.orchestration.networks import Scorer

    weights, terms = search.mean[:WEIGHTS], np.exp(search.mean[WEIGHTS:])
    network = Scorer(len(STATION_FEATURES), ())
    with torch.no_grad():
        weight, bias = network.parameters()
        weight[:] = torch.from_numpy(weights[None, :-1].astype(np.float32))
        bias.zero_()
    folder.mkdir(parents=True, exist_ok=True)
    card: dict[str, Any] = {"name": name, **about, "features_sha256": feature_hash()}
    part = _write(network, folder / f"{name}.dispatch.onnx", (GOLDEN, len(STATION_FEATURES)), ["values"])
    card["dispatch"] = part | {"inputs": len(STATION_FEATURES), "weights": weights.round(9).tolist()}
    if search.config.half != "dispatch":
        known = {key: value.round(9).tolist() for key, value in search.known._asdict().items()}
        card["scale"] = {
            "note": NO_NETWORK,
            "terms": dict(zip(TERMS, terms.round(9).tolist(), strict=True)),
            **known,
        }
    path = folder / f"{name}.json"
    path.write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    return path


def export_scale(agent: Scaler, path: Path) -> dict[str, Any]:
    """Write the network of an orchestrator; what the card says of it."""
    system, pairs = agent.system, agent.config.body == "pairs"
    shape: tuple[int, ...] = (GOLDEN, system.nodes, 5 + 2 * system.services + 1)
    if pairs:
        shape = (GOLDEN, 2, system.services, len(PAIR_FEATURES))
    part = _write(agent.network, path, shape, ["values"] if pairs else ["nodes", "values"])
    shape_of = [system.nodes, system.services]
    return part | {
        "pairs": pairs,
        "masked": agent.config.masked,
        "system": shape_of,
        "inputs": list(shape[1:]),
    }


def _write(network: Any, path: Path, shape: tuple[int, ...], outputs: list[str]) -> dict[str, Any]:
    import torch

    free = {0: "rows"} | ({1: "nodes", 2: "services"} if len(shape) == 4 else {})
    torch.onnx.export(
        network.eval(),
        (torch.from_numpy(examples(shape)),),
        str(path),
        input_names=["features"],
        output_names=outputs,
        dynamic_axes={"features": free} | {each: {0: "rows"} for each in outputs},
        opset_version=17,
        dynamo=False,
    )
    golden = runner(path)(examples(shape))[-1]
    return {
        "onnx_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "golden": np.asarray(golden[:, ...], dtype=np.float64).reshape(GOLDEN, -1)[:, :8].round(5).tolist(),
    }
