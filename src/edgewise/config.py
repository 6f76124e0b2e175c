"""Scenario files: find, read, write. The only place that reads YAML."""

from __future__ import annotations

import difflib
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from edgewise.errors import ScenarioError
from edgewise.model.scenario import Scenario, parse_scenario
from edgewise.model.spec import ScenarioSpec

_SHIPPED = files("edgewise") / "data" / "scenarios"


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
    text, where = _read(path_or_name)
    try:
        data = yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise ScenarioError(f"{where}{line}: not valid YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise ScenarioError(f"{where}: not valid YAML: {error}") from None
    return parse_scenario(data, where)


def shipped_scenarios() -> list[str]:
    """Names of the scenarios that come with edgewise."""
    return sorted(entry.name[:-5] for entry in _SHIPPED.iterdir() if entry.name.endswith(".yaml"))


def dump_scenario(scenario: Scenario) -> str:
    """YAML with every default written out; loads back to an equal scenario."""
    data = scenario.spec.model_dump(mode="json", exclude_none=True)
    text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=110)
    return text


def scenario_schema() -> dict[str, Any]:
    """JSON Schema of scenario files, for editors and `edgewise schema`."""
    schema = ScenarioSpec.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _read(path_or_name: str | Path) -> tuple[str, str]:
    name = str(path_or_name)
    if name in shipped_scenarios():
        return (_SHIPPED / f"{name}.yaml").read_text(encoding="utf-8"), name
    path = Path(path_or_name)
    try:
        return path.read_text(encoding="utf-8"), name
    except (FileNotFoundError, NotADirectoryError):
        close = difflib.get_close_matches(path.stem, shipped_scenarios(), n=1, cutoff=0.4)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ScenarioError(
            f"scenario {name!r}: no such file and no such name; {hint}"
            f"shipped scenarios: {', '.join(shipped_scenarios())}"
        ) from None
    except IsADirectoryError:
        raise ScenarioError(f"scenario {name!r}: is a folder; name a YAML file in it") from None
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise ScenarioError(f"scenario {name!r}: cannot be read: {error}") from None
