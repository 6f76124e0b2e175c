"""Policies of services by name: registered ones, and the halves of learned cards."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

from edgewise.core.orchestration import ReplicaPolicy, RequestPolicy
from edgewise.errors import PolicyError, ProtocolError
from edgewise.policies import orchestrate
from edgewise.policies.dispatch import requests

CARDS = Path(__file__).resolve().parents[1] / "data" / "policies" / "kais"
SIMULATED = ("gsp-ss",)  # takes the rates of the whole system as known; a gateway sees its own requests
LEARNED = "edgewise.learn.orchestration.export"  # lies above this layer: imported when a card is asked for


def request_policies() -> list[str]:
    """Names of request policies, shipped cards among them."""
    return sorted({*requests.names(), *_cards("dispatch")} - {*SIMULATED})


def replica_policies() -> list[str]:
    """Names of replica policies, shipped cards among them."""
    return sorted({*orchestrate.names(), *_cards("scale")})


def load_request_policy(name: str, live: bool = True) -> RequestPolicy:
    """A request policy by its name, or the dispatcher of a card.

    Args:
        live: refuse those that run in simulation only.
    Raises:
        PolicyError: there is none, it does not run live, or its files are wrong.
    """
    if live and name in SIMULATED:
        raise PolicyError(
            f"request policy {name!r} runs in simulation only; live: {', '.join(request_policies())}"
        )
    if name in _cards("dispatch") or name.endswith(".json"):
        learned: RequestPolicy = _learned().load_dispatch(name)
        return learned
    return requests.load(name)


def load_replica_policy(name: str) -> ReplicaPolicy:
    """A replica policy by its name, or the orchestrator of a card.

    Raises:
        PolicyError: there is none, or its files are wrong.
    """
    if name in _cards("scale") or name.endswith(".json"):
        learned: ReplicaPolicy = _learned().load_scale(name)
        return learned
    return orchestrate.load(name)


def check_name(name: str, have: list[str]) -> None:
    """Refuse a name that a client made up; files are for those who write the scenario.

    Raises:
        ProtocolError: it is none of `have`.
    """
    if name not in have:
        raise ProtocolError(f"policy: {name[:80]!r} is none of {', '.join(have)}")


def _cards(half: str) -> list[str]:
    """Shipped cards that have a half, "dispatch" or "scale"."""
    return [
        file.stem for file in CARDS.glob("*.json") if half in json.loads(file.read_text(encoding="utf-8"))
    ]


def _learned() -> Any:
    return importlib.import_module(LEARNED)
