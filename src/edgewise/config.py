"""Scenario and catalog files: find, read, write. The only place that reads YAML."""

import difflib
import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NoReturn

import yaml
from pydantic import ValidationError

from edgewise.errors import ScenarioError
from edgewise.model.build import build_catalog
from edgewise.model.grammar.places import CatalogSpec
from edgewise.model.grammar.scenario import Backbone, Library, ScenarioSpec
from edgewise.model.grammar.services import ApplicationSpec, ApplicationsSpec
from edgewise.model.parsing import check_scenario, parse_scenario, set_paths
from edgewise.model.problems import explain, listed, shown
from edgewise.model.scenario import Scenario
from edgewise.model.topology import Catalog

_SHIPPED = files("edgewise") / "data" / "scenarios"
_CATALOGS = files("edgewise") / "data" / "catalogs"
_APPLICATIONS = files("edgewise") / "data" / "applications"
_EDITION = re.compile(r"([^/@]+)@[0-9a-f]{8}")
CARD, NETWORK = ".json", ".onnx"  # end the names of policies and of networks that are files


MOST_VALUES, MOST_DEEP = 1_000_000, 100
LONGEST_NUMBER = 100  # characters


class _Loader(yaml.SafeLoader):
    """Plain data only, as `yaml.safe_load`; a key given twice is an error, and so is what fills the memory.

    A few lines can stand for any number of values, since an alias brings along all that its anchor has.
    """

    def get_single_node(self) -> yaml.Node | None:
        """The document, whose values are bounded as if each alias were written out."""
        node = super().get_single_node()
        if node is not None:
            _count(node, {})
        return node

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """A value with all that is in it; how deep they lie in each other is bounded."""
        self.deep = getattr(self, "deep", 0) + 1
        if self.deep > MOST_DEEP:
            _refuse(self.peek_event().start_mark, f"values lie in each other more than {MOST_DEEP} deep")  # type: ignore[no-untyped-call]
        node: yaml.Node | None = super().compose_node(parent, index)
        self.deep -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """A value; a text that only looks like one, as 2026-13-01 like a date, is refused."""
        if isinstance(node, yaml.ScalarNode) and node.tag in _NUMBERS and len(node.value) > LONGEST_NUMBER:
            many = f"{node.value[:20]}… has {len(node.value):,} characters"
            _refuse(node.start_mark, f"{many}; a number has {LONGEST_NUMBER} at most")
        try:
            return super().construct_object(node, deep)
        except (ValueError, OverflowError, KeyError, AttributeError) as error:  # as each tag has it
            shown_as = f"{str(node.value)[:40]!r}: {error}"
            _refuse(node.start_mark, f"{shown_as}; write a text in quotes")


_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


def _refuse(mark: yaml.Mark, problem: str) -> NoReturn:
    raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


def _count(node: yaml.Node, known: dict[int, int]) -> int:
    """How many values a node stands for with every alias written out.

    Args:
        known: of nodes that were counted; 0 of those that are being counted.
    """
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) not in known:
        known[id(node)] = 0
        pairs = isinstance(node, yaml.MappingNode)
        within = [each for pair in node.value for each in pair] if pairs else node.value
        known[id(node)] = 1 + sum(_count(each, known) for each in within)
        if known[id(node)] > MOST_VALUES:
            _refuse(node.start_mark, f"with its aliases written out, it has more than {MOST_VALUES:,} values")
    elif not known[id(node)]:
        _refuse(node.start_mark, "an alias stands within what it stands for; write it out")
    return known[id(node)]


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


def load_scenario(path_or_name: str | Path, settings: Mapping[str, Any] | None = None) -> Scenario:
    """Read a scenario from a YAML file, or a shipped one by its name.

    With `@` and an edition after the name (`edition`), as tiny@1a2b3c4d, it is that one or none.
    A shipped name wins over a file without suffix of the same name. Files that the scenario uses
    are sought in its folder.

    Args:
        settings: dotted path → value, to be set before the scenario is built: `topology.antennas`,
            `streams.arrivals.clients_per_min`; entries of lists by number or name:
            `streams.applications.pool.weight`.
    Raises:
        ScenarioError: there is no such file or name, it is of another edition, it is not YAML, its content
            is wrong, or a setting's path does not exist.
    """
    if (pinned := _EDITION.fullmatch(str(path_or_name))) is not None:
        found = load_scenario(pinned[1])
        if edition(found) != str(path_or_name):
            raise ScenarioError(
                f"scenario {path_or_name}: is {edition(found)} now; take the version of edgewise that its "
                "figures name, or compare with figures of this edition"
            )
        return load_scenario(pinned[1], settings) if settings else found
    if (twin := _offered(path_or_name)) is not None:
        base, changes = twin
        return load_scenario(base, {"name": str(path_or_name), **changes, **(settings or {})})
    text, where = _read(path_or_name, "scenario", _SHIPPED)
    library = Files(Path(path_or_name).parent)
    data = _anchored(_plain(text, where), library.folder)
    if settings:
        data = set_paths(data, settings, where, library)
    return parse_scenario(data, where, library)


def parse_setting(text: str) -> tuple[str, Any]:
    """Path and value of "path=value"; the value is read as YAML.

    Raises:
        ScenarioError: there is no "=", or the value is not YAML.
    """
    path, found, value = text.partition("=")
    if not found or not path.strip():
        raise ScenarioError(f"setting {text!r}: write path=value, for example topology.antennas=100")
    return path.strip(), _plain(value, f"setting {text!r}")


class Files(Library):
    """Reads the catalogs, applications and graphs that a scenario uses (`model.grammar.scenario.Library`).

    Args:
        folder: where relative paths start, the scenario's folder.
    """

    def __init__(self, folder: Path = Path()) -> None:
        self.folder = folder

    def catalog(self, name: str) -> CatalogSpec:
        """A shipped catalog, or a file."""
        return _catalog(*self._read(name, "catalog", _CATALOGS), (self.folder / name).parent)[0]

    def applications(self, name: str) -> tuple[ApplicationSpec, ...]:
        """Shipped applications, or a file."""
        text, where = self._read(name, "applications", _APPLICATIONS)
        try:
            return ApplicationsSpec.model_validate(_plain(text, where)).applications
        except ValidationError as error:
            raise ScenarioError(listed(where, explain(error, ApplicationsSpec))) from None

    def graph(self, name: str) -> Backbone:
        """A graph of the topohub package, with names that may be used in files and lengths in km."""
        try:
            import topohub
        except ImportError:
            raise ScenarioError(
                f"graph {name!r}: comes from the package topohub; pip install 'edgewise[place]'"
            ) from None
        try:
            data = topohub.get(name)
        except (KeyError, ValueError, FileNotFoundError):
            raise ScenarioError(
                f"graph {name!r}: topohub has no such graph; use for example sndlib/nobel-germany, "
                "sndlib/germany50 or topozoo/Abilene"
            ) from None
        index = {node["id"]: i for i, node in enumerate(data["nodes"])}
        edges = [
            (index[edge["source"]], index[edge["target"]], float(edge["dist"])) for edge in data["edges"]
        ]
        return Backbone(_place_names(str(node.get("name") or "node") for node in data["nodes"]), tuple(edges))

    def _read(self, name: str, kind: str, shipped: Traversable) -> tuple[str, str]:
        return _read(name if name in _names(shipped) else self.folder / name, kind, shipped)


def shipped_scenarios() -> list[str]:
    """Names of the scenarios that come with edgewise."""
    return _names(_SHIPPED)


def offered_scenarios() -> list[str]:
    """Names of the scenarios that other packages offer by entry points of the group `edgewise.scenarios`.

    Each is a shipped one, or a file, in which something is set: an entry point gives a mapping that has
    (scenario, settings) by its name.
    """
    return sorted({each.name for each in entry_points(group="edgewise.scenarios")})


def _offered(path_or_name: str | Path) -> tuple[str, dict[str, Any]] | None:
    name = str(path_or_name)
    if name in _names(_SHIPPED) or Path(path_or_name).suffix or Path(path_or_name).exists():
        return None
    for entry in entry_points(group="edgewise.scenarios", name=name):
        base, settings = entry.load()[name]
        return base, dict(settings)
    return None


def load_catalog(path_or_name: str | Path) -> Catalog:
    """Read a catalog (models and variants) from a YAML file, or a shipped one by its name.

    Raises:
        ScenarioError: there is no such file or name, it is not YAML, or its content is wrong.
    """
    return _catalog(*_read(path_or_name, "catalog", _CATALOGS), Path(path_or_name).parent)[1]


def parse_catalog(text: str, where: str) -> tuple[CatalogSpec, Catalog]:
    """A catalog from YAML text, as it is written and as it is used.

    Raises:
        ScenarioError: as `load_catalog`, each problem after `where`.
    """
    return _catalog(text, where, None)


def _catalog(text: str, where: str, folder: Path | None) -> tuple[CatalogSpec, Catalog]:
    """See `parse_catalog`; its files are sought in `folder`."""
    data = _anchored({"catalog": _plain(text, where)}, folder)["catalog"]
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


def _place_names(places: Iterable[str]) -> tuple[str, ...]:
    """Names in plain letters, made unique by numbers."""
    names: list[str] = []
    for place in places:
        plain = unicodedata.normalize("NFKD", place).encode("ascii", "ignore").decode()
        name = re.sub(r"[^A-Za-z0-9]+", "-", plain).strip("-") or "node"
        same = sum(other == name or other.startswith(f"{name}.") for other in names)
        names.append(f"{name}.{same}" if same else name)
    return tuple(names)


def _anchored(data: Any, folder: Path | None) -> Any:
    """Plain data of a scenario whose relative paths begin in the folder of its file; changes `data`.

    Names of catalogs and applications are not paths yet: `Files` seeks them.
    """
    if folder is None or not isinstance(data, dict):
        return data
    pipelines, services = _rows(data, "pipelines"), data.get("services")
    named = [(row, "file") for row in _rows(data.get("catalog"), "variants")]
    named += [(row, "network") for row in _rows(data, "graphs")] + [(row, "code") for row in pipelines]
    if isinstance(deciding := data.get("policies"), dict):
        named += [(deciding, decision) for decision in deciding]
    if isinstance(services, dict) and isinstance(requests := services.get("requests"), dict):
        named.append((requests, "file"))
    for row, key in named:
        path = row.get(key)
        if isinstance(path, str) and (key in ("file", "code") or path.endswith((CARD, NETWORK))):
            row[key] = str((folder / path).absolute())
    for row in pipelines:
        if isinstance(inputs := row.get("inputs"), list):
            row["inputs"] = [str((folder / p).absolute()) if isinstance(p, str) else p for p in inputs]
    return data


def _rows(data: Any, key: str) -> list[dict[str, Any]]:
    """The mappings in a list of `data`."""
    found = data.get(key) if isinstance(data, dict) else None
    return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []


def _plain(text: str, where: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise ScenarioError(f"{where}{line}: not valid YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise ScenarioError(f"{where}: not valid YAML: {error}") from None


def dump_scenario(scenario: Scenario) -> str:
    """YAML with every default, catalog and application written out; loads back to an equal scenario."""
    data = scenario.spec.model_dump(mode="json", exclude_none=True)
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=110)


def edition(scenario: Scenario) -> str:
    """Which scenario a number comes from: its name, `@`, and the beginning of a hash of all that it says.

    Defaults and what it uses of other files count, too; its description does not, nor the folder of files.
    """
    said = scenario.spec.model_dump(mode="json", exclude_none=True, exclude={"description"})
    text = json.dumps(_without_folders(said), sort_keys=True)
    return f"{scenario.name}@{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _without_folders(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_folders(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_folders(each) for each in value]
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def scenario_schema() -> dict[str, Any]:
    """JSON Schema of scenario files, for editors and `edgewise schema`."""
    schema = ScenarioSpec.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def scenario_form(name: str) -> ScenarioSpec:
    """The form of a scenario that ships or is offered: what it holds and shows."""
    if _offered(name) is not None:
        return load_scenario(name).spec
    text, where = _read(name, "scenario", _SHIPPED)
    return check_scenario(_plain(text, where), where)


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
        shipped += offered_scenarios() if kind == "scenario" else []
        close = difflib.get_close_matches(path.stem, shipped, n=1, cutoff=0.4)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ScenarioError(
            f"{kind} {name!r}: no such file and no such name; {hint}shipped {kind}s: {', '.join(shipped)}"
        ) from None
    except IsADirectoryError:
        raise ScenarioError(f"{kind} {name!r}: is a folder; name a YAML file in it") from None
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise ScenarioError(f"{kind} {name!r}: cannot be read: {error}") from None
