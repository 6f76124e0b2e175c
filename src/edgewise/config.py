"""Scenario and catalog files: find, read, write. The only place that reads YAML."""

from __future__ import annotations

import difflib
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from edgewise.errors import ScenarioError
from edgewise.model.build import build_catalog
from edgewise.model.catalog import Catalog
from edgewise.model.problems import explain, listed, shown
from edgewise.model.scenario import Scenario, parse_scenario
from edgewise.model.spec import CatalogSpec, ScenarioSpec

_SHIPPED = files("edgewise") / "data" / "scenarios"
_CATALOGS = files("edgewise") / "data" / "catalogs"


class _Loader(yaml.SafeLoader):
    """Plain data only, as `yaml.safe_load`; a key given twice is an error."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[str] = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key.value!r} is given twice; remove one", problem_mark=key.start_mark
                )
            seen.add(key.value)
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def load_scenario(path_or_name: str | Path) -> Scenario:
    """Read a scenario from a YAML file, or a shipped one by its name.

    A shipped name wins over a file without suffix of the same name.

    Raises:
        ScenarioError: there is no such file or name, it is not YAML, or its content is wrong.
    """
    text, where = _read(path_or_name, "scenario", _SHIPPED)
    return parse_scenario(_plain(text, where), where)


def shipped_scenarios() -> list[str]:
    """Names of the scenarios that come with edgewise."""
    return _names(_SHIPPED)


def load_catalog(path_or_name: str | Path) -> Catalog:
    """Read a catalog (models and variants) from a YAML file, or a shipped one by its name.

    Raises:
        ScenarioError: there is no such file or name, it is not YAML, or its content is wrong.
    """
    text, where = _read(path_or_name, "catalog", _CATALOGS)
    return parse_catalog(text, where)[1]


def shipped_catalogs() -> list[str]:
    """Names of the catalogs that come with edgewise."""
    return _names(_CATALOGS)


def parse_catalog(text: str, where: str) -> tuple[CatalogSpec, Catalog]:
    """A catalog from YAML text, as it is written and as it is used.

    Raises:
        ScenarioError: as `load_catalog`, each problem after `where`.
    """
    data = _plain(text, where)
    if not isinstance(data, dict):
        raise ScenarioError(
            f"{where}: {shown(data)} is not a mapping; a catalog has the keys models, variants"
        )
    try:
        spec = CatalogSpec.model_validate(data)
    except ValidationError as error:
        raise ScenarioError(listed(where, explain(error, CatalogSpec))) from None
    problems: list[str] = []
    catalog = build_catalog(spec, problems)
    if problems:
        raise ScenarioError(listed(where, problems))
    return spec, catalog


def _plain(text: str, where: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise ScenarioError(f"{where}{line}: not valid YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise ScenarioError(f"{where}: not valid YAML: {error}") from None


def dump_scenario(scenario: Scenario) -> str:
    """YAML with every default written out; loads back to an equal scenario."""
    data = scenario.spec.model_dump(mode="json", exclude_none=True)
    text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=110)
    return text


def scenario_schema() -> dict[str, Any]:
    """JSON Schema of scenario files, for editors and `edgewise schema`."""
    schema = ScenarioSpec.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _names(folder: Traversable) -> list[str]:
    return sorted(entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def _read(path_or_name: str | Path, kind: str, folder: Traversable) -> tuple[str, str]:
    name, shipped = str(path_or_name), _names(folder)
    if name in shipped:
        return (folder / f"{name}.yaml").read_text(encoding="utf-8"), name
    path = Path(path_or_name)
    try:
        return path.read_text(encoding="utf-8"), name
    except (FileNotFoundError, NotADirectoryError):
        close = difflib.get_close_matches(path.stem, shipped, n=1, cutoff=0.4)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ScenarioError(
            f"{kind} {name!r}: no such file and no such name; {hint}shipped {kind}s: {', '.join(shipped)}"
        ) from None
    except IsADirectoryError:
        raise ScenarioError(f"{kind} {name!r}: is a folder; name a YAML file in it") from None
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise ScenarioError(f"{kind} {name!r}: cannot be read: {error}") from None
