"""Write what was measured into a catalog file, and leave the rest of the file as it is.

Not by ruamel.yaml: up to 0.19.1 it writes `- n: 2 b: 3`, which nobody can read, for an entry that is put
behind `- {n: 1, b: 2}  # why` in a list whose key has a comment, too. Texts are edited at marks of PyYAML.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from edgewise import config
from edgewise.errors import ProfileError, ScenarioError
from edgewise.model.grammar.places import CatalogSpec, ModelSpec, VariantSpec
from edgewise.model.topology import CPU
from edgewise.profiling.measure import Measurement

Entry = dict[str, Any]
MEGABYTE = 1e6
FITTED = ("fixed_s", "per_byte_s", "batch_slope", "deviation")


def variant_entry(name: str, model: str, measured: Measurement, file: Path | None) -> Entry:
    """A variant as a catalog lists it; `file` is left out where its weights are random."""
    profile = measured.fit.profile
    entry: Entry = {
        "name": name,
        "model": model,
        "resources": {
            "cpu_cores": measured.threads,
            "memory_bytes": float(max(round(measured.memory_bytes / MEGABYTE), 1) * MEGABYTE),
        },
        "profile": {key: _rounded(getattr(profile, key)) for key in FITTED} | {"source": profile.source},
        "capacity_qps": _rounded(measured.load.capacity_qps),
        "largest_bytes": float(measured.largest_bytes),
        "max_batch": measured.max_batch,
    }
    if measured.providers != (CPU,):
        entry["providers"] = list(measured.providers)
    return entry if file is None else {**entry, "file": str(file)}


def model_entry(name: str, task: str, accuracy: float) -> Entry:
    """A model as a catalog lists it."""
    return {"name": name, "task": task, "accuracy": accuracy}


def write(file: Path, model: Entry, variant: Entry) -> bool:
    """Add both to the catalog in `file`, or replace those of the same names; makes the file if needed.

    The file's other entries, their order and all comments stay. Only where models and variants are
    not plain block lists is the file written anew, without comments.

    Returns:
        Whether comments were kept.
    Raises:
        ScenarioError: the file is there but is no catalog, or the entries break its rules.
        ProfileError: the file cannot be written.
    """
    text = _text(file)
    if text is None:
        new, kept = _dump({"models": [model], "variants": [variant]}), True
        config.parse_catalog(new, str(file))
    else:
        spec, _ = config.parse_catalog(text, str(file))
        wanted = _updated(spec, model, variant)
        edited = _edit(_edit(text, "models", model), "variants", variant)
        kept = _same(edited, wanted)
        new = edited if kept else _dump(wanted.model_dump(mode="json", exclude_defaults=True))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(new, encoding="utf-8")
    except OSError as error:
        raise ProfileError(f"{file}: cannot be written: {error.strerror or error}") from None
    return kept


def check_place(file: Path) -> None:
    """Find out before a measurement whether the catalog can be written; its folder is made.

    Raises:
        ProfileError: it cannot.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=file.parent):
            pass
    except OSError as error:
        why = error.strerror or error
        raise ProfileError(f"{file}: cannot be written: {why}; check the path and its rights") from None


def known_model(file: Path, name: str) -> ModelSpec | None:
    """The model called `name` in the catalog `file`, if both are there."""
    text = _text(file)
    if text is None:
        return None
    spec, _ = config.parse_catalog(text, str(file))
    return next((model for model in spec.models if model.name == name), None)


def _text(file: Path) -> str | None:
    """What is in the file; None when there is none, or it is empty."""
    try:
        text = file.read_text(encoding="utf-8").rstrip()
        return text + "\n" if text else None
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"{file}: cannot be read: {error}") from None


def _rounded(value: float) -> float:
    """Three digits: more are noise."""
    return float(f"{value:.3g}")


def _updated(spec: CatalogSpec, model: Entry, variant: Entry) -> CatalogSpec:
    """The catalog with both entries, new ones last."""
    models = {m.name: m for m in spec.models} | {model["name"]: ModelSpec.model_validate(model)}
    variants = {v.name: v for v in spec.variants} | {variant["name"]: VariantSpec.model_validate(variant)}
    return CatalogSpec(models=tuple(models.values()), variants=tuple(variants.values()))


def _same(text: str, wanted: CatalogSpec) -> bool:
    try:
        return config.parse_catalog(text, "edited")[0] == wanted
    except ScenarioError:
        return False


def _edit(text: str, key: str, entry: Entry) -> str:
    """Replace the entry of that name in the list under `key`, or put a new one behind the last."""
    items = _items(text, key)
    if not items:
        return text
    old = {_name(item): item for item in items}.get(entry["name"])
    column = items[0].start_mark.column
    block = ("\n" + " " * column).join(_dump(entry).splitlines())
    if old is not None:
        return text[: old.start_mark.index] + block + text[_end(old, text) :]
    at = text.find("\n", _end(items[-1], text))  # behind a comment on the last line
    return f"{text[:at]}\n{' ' * (column - 2)}- {block}{text[at:]}"


def _items(text: str, key: str) -> list[yaml.MappingNode]:
    """The entries of the block list under `key`; none where it is written on one line."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        return []
    values = [value for name, value in root.value if name.value == key]
    return list(values[0].value) if values and not values[0].flow_style else []


def _name(item: yaml.MappingNode) -> str:
    return next((str(value.value) for key, value in item.value if key.value == "name"), "")


def _end(node: yaml.Node, text: str) -> int:
    """Where the text of a node ends; a block's own mark lies behind the comments that follow it."""
    if isinstance(node, yaml.MappingNode) and not node.flow_style:
        return _end(node.value[-1][1], text)
    if isinstance(node, yaml.SequenceNode) and not node.flow_style:
        return _end(node.value[-1], text)
    end = int(node.end_mark.index)
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        return len(text[:end].rstrip())
    return end


def _dump(data: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True, width=110)
