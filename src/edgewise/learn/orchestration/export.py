"""Trained agents become NAME.dispatch.onnx and NAME.scale.onnx with a card NAME.json; `load` makes policies.

The card says how they were made and holds golden examples, computed anew when loaded: a file that does not
decide as it did is refused. torch is needed to export, not to load.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edgewise.arrays import Floats32
from edgewise.core.orchestration import ReplicaPolicy, RequestPolicy
from edgewise.errors import PolicyError
from edgewise.learn.onnx_session import open_session
from edgewise.policies.dispatch.requests.features import PAIR_FEATURES
from edgewise.policies.dispatch.requests.learned import Infer, LearnedDispatch
from edgewise.policies.dispatch.requests.rules import Weighted
from edgewise.policies.dispatch.requests.stations import STATION_FEATURES
from edgewise.policies.orchestrate.learned import LearnedScaling
from edgewise.policies.orchestrate.marginal import TERMS, MarginalValue, Terms

if TYPE_CHECKING:
    from edgewise.learn.orchestration.cmmac import Dispatcher
    from edgewise.learn.orchestration.evolve import Search
    from edgewise.learn.orchestration.gpg import Scaler
    from edgewise.learn.orchestration.train import Training

GOLDEN = 16
CLOSE = 1e-3
SHIPPED = Path(__file__).resolve().parents[2] / "data" / "policies" / "kais"
NO_NETWORK = (
    "parameters of the algorithm in policies/orchestrate/marginal.py, not of a network: there is no ONNX file"
)
STATES = "site: S + 5 + 5K, one-hot; node: 5 + 2S + 1; version 3"


def feature_hash() -> str:
    """Hash of what the features mean; a policy trained on others is refused."""
    return hashlib.sha256(json.dumps([STATION_FEATURES, PAIR_FEATURES, STATES]).encode()).hexdigest()


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
        (torch.from_numpy(_examples(shape)),),
        str(path),
        input_names=["features"],
        output_names=outputs,
        dynamic_axes={"features": free} | {each: {0: "rows"} for each in outputs},
        opset_version=17,
        dynamo=False,
    )
    golden = runner(path)(_examples(shape))[-1]
    return {
        "onnx_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "golden": np.asarray(golden[:, ...], dtype=np.float64).reshape(GOLDEN, -1)[:, :8].round(5).tolist(),
    }


def _examples(shape: tuple[int, ...]) -> Floats32:
    """Made-up but possible inputs, the same every time."""
    return np.random.default_rng(0).random(shape).astype(np.float32)


def read_card(name: str | Path) -> tuple[dict[str, Any], Path]:
    """Card and its folder.

    Args:
        name: path of a card, or the name of a shipped policy.
    Raises:
        PolicyError: there is none, or it is of other features.
    """
    path = Path(name) if str(name).endswith(".json") else SHIPPED / f"{name}.json"
    if not path.is_file():
        shipped = ", ".join(sorted(p.stem for p in SHIPPED.glob("*.json")))
        raise PolicyError(f"learned orchestration: no file {path}; shipped are: {shipped or 'none'}")
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
        known = card["name"], card["features_sha256"]
    except (ValueError, TypeError, KeyError):  # no JSON, no object, or one of something else
        raise PolicyError(f"{path}: is no card; give what edgewise train wrote") from None
    if known[1] != feature_hash():
        raise PolicyError(f"{path}: was trained on other features; train it anew with this edgewise")
    return card, path.parent


def load_dispatch(name: str | Path) -> RequestPolicy:
    """Dispatcher of a card: a network, or a linear score, which runs inside the compiled engine.

    Raises:
        PolicyError: a file is missing, was changed, or decides otherwise than it did.
    """
    card, folder = read_card(name)
    part = _part(card, "dispatch")
    infer = _checked(folder / f"{card['name']}.dispatch.onnx", part, (GOLDEN, part["inputs"]))
    if "weights" in part:
        weights = np.array(part["weights"])
        golden = _examples((GOLDEN, part["inputs"])) @ weights[:-1]
        if not np.allclose(golden[:, None], np.array(part["golden"]), atol=CLOSE):
            raise PolicyError(f"{card['name']}: weights of the card are not its network's; restore both")
        return Weighted(weights, card["name"])
    return LearnedDispatch(card["name"], infer, part["scored"], part["context"], part["inputs"])


def load_scale(name: str | Path) -> ReplicaPolicy:
    """Orchestrator of a card: a network, or the terms of `MarginalValue`.

    Raises:
        PolicyError: a file is missing, was changed, or decides otherwise than it did.
    """
    card, folder = read_card(name)
    part = _part(card, "scale")
    if "terms" in part:
        known = (np.array(part["rate_qps"]), np.array(part["time_s"]))
        return MarginalValue(Terms(**part["terms"]), *known, card["name"])
    infer = _checked(folder / f"{card['name']}.scale.onnx", part, (GOLDEN, *part["inputs"]))
    nodes, services = part["system"]
    return LearnedScaling(card["name"], infer, part["pairs"], part["masked"], (nodes, services))


def _part(card: Mapping[str, Any], key: str) -> dict[str, Any]:
    if key not in card:
        raise PolicyError(f"{card['name']}: was trained without its half {key!r}; use a baseline for it")
    part: dict[str, Any] = card[key]
    return part


def _checked(path: Path, part: Mapping[str, Any], shape: tuple[int, ...]) -> Infer:
    if not path.is_file():
        raise PolicyError(f"{path}: is missing; restore it with its card")
    if part["onnx_sha256"] != hashlib.sha256(path.read_bytes()).hexdigest():
        raise PolicyError(f"{path}: is not the file of its card; restore both from one source")
    infer = runner(path)
    values = np.asarray(infer(_examples(shape))[-1]).reshape(GOLDEN, -1)[:, :8]
    if not np.allclose(values, np.array(part["golden"]), atol=CLOSE):
        raise PolicyError(f"{path}: gives other values than its card says; check the onnxruntime version")
    return infer


def runner(path: Path) -> Infer:
    """Runs an ONNX file on one thread.

    Raises:
        PolicyError: onnxruntime is not installed.
    """
    session = open_session(path)

    def infer(features: Floats32) -> tuple[NDArray[Any], ...]:
        return tuple(session.run(None, {"features": features}))

    return infer
