"""Networks for streaming jobs from YAML or JSON: `nodes` with speed and memory, `links` with a bandwidth."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from edgewise.errors import ScenarioError
from edgewise.model.jobs import size_bytes
from edgewise.model.network import Network
from edgewise.model.problems import nearest, shown

NODE_KEYS, LINK_KEYS = ("name", "speed_ops", "memory"), ("between", "bandwidth_bps")


def load_network(path: str | Path) -> Network:
    """Read and check a network file.

    Raises:
        ScenarioError: the file cannot be read, or something in it is wrong.
    """
    try:
        data = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path}: cannot be read: {error}; check the path") from None
    except yaml.YAMLError as error:
        raise ScenarioError(f"{path}: is not valid YAML: {error}") from None
    return parse_network(data, str(path))


def parse_network(data: Any, where: str = "network") -> Network:
    """A network from plain data.

    Raises:
        ScenarioError: field, value and fix of the first mistake.
    """
    if not isinstance(data, Mapping) or set(data) != {"nodes", "links"}:
        raise ScenarioError(f"{where}: needs two lists, `nodes` and `links`, and nothing else")
    nodes = [_checked(row, NODE_KEYS, f"{where}: nodes[{i}]") for i, row in enumerate(data["nodes"] or [])]
    links = [_checked(row, LINK_KEYS, f"{where}: links[{i}]") for i, row in enumerate(data["links"] or [])]
    names = tuple(str(node["name"]) for node in nodes)
    ends = [_ends(link["between"], names, f"{where}: links[{i}].between") for i, link in enumerate(links)]
    return Network(
        names,
        np.array([_number(n["speed_ops"], f"{where}: nodes[{i}].speed_ops") for i, n in enumerate(nodes)]),
        np.array([size_bytes(n["memory"], f"{where}: nodes[{i}].memory") for i, n in enumerate(nodes)]),
        np.array(ends, dtype=np.int64).reshape(-1, 2),
        np.array(
            [_number(n["bandwidth_bps"], f"{where}: links[{i}].bandwidth_bps") for i, n in enumerate(links)]
        ),
    )


def _checked(row: Any, keys: tuple[str, ...], where: str) -> Mapping[str, Any]:
    if not isinstance(row, Mapping):
        raise ScenarioError(f"{where}: {shown(row)} is not a mapping; its keys are {', '.join(keys)}")
    for key in row:
        if key not in keys:
            raise ScenarioError(f"{where}.{key}: unknown key; {nearest(str(key), keys)}")
    for key in keys:
        if key not in row:
            raise ScenarioError(f"{where}.{key}: is missing; add it")
    return row


def _number(value: Any, where: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ScenarioError(f"{where}: {shown(value)} is not a number; write for example 8e6") from None


def _ends(value: Any, names: tuple[str, ...], where: str) -> list[int]:
    if not isinstance(value, list) or len(value) != 2:
        raise ScenarioError(f"{where}: {shown(value)} is not a pair; write [{', '.join(names[:2])}]")
    for name in value:
        if name not in names:
            raise ScenarioError(f"{where}: {name!r} is not a node; {nearest(str(name), names)}")
    return [names.index(name) for name in value]
