"""The tables of docs/reference/scenario.md, made from the JSON Schema; `python` runs it to print them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from edgewise.config import scenario_schema

Schema = Mapping[str, Any]
FORMS = {
    "use": ", from a file",
    "generate": ", generated",
    "mean_bps": " of kind edge-network",
    "pattern": ", from a trace",
}


def key_tables() -> str:
    """Markdown: for each part of a scenario a heading with its paths, what it is, and its keys."""
    schema = scenario_schema()
    paths: dict[str, list[str]] = {}
    for name, path in _parts(schema, schema, ""):
        paths.setdefault(name, []).append(path)
    sections = [_section("### Top level", schema)]
    for name, where in paths.items():
        heading = ", ".join(f"`{path}`" for path in dict.fromkeys(where))
        part = schema["$defs"][name]
        form = next((form for key, form in FORMS.items() if key in part["properties"]), "")
        form = ", recorded" if name == "RecordedRequestsSpec" else form
        sections.append(_section(f"### {heading}{form}", part))
    return "\n".join(sections)


def _section(heading: str, part: Schema) -> str:
    required = part.get("required", ())
    rows = [
        f"| `{name}` | {'required' if name in required else _default(field)} | {field['description']} |"
        for name, field in part["properties"].items()
    ]
    about = " ".join(part.get("description", "").split())
    return "\n".join([heading, "", about, "", "| key | default | what |", "|---|---|---|", *rows, ""])


def _default(field: Schema) -> str:
    value = field.get("default")
    if isinstance(value, dict) and "$ref" in field:
        return "see below"
    return "–" if value in (None, "", [], ()) else f"`{_text(value)}`"


def _text(value: Any) -> str:
    """A value as one would write it in YAML; zeros in mappings are left out."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_text(item)}" for key, item in value.items() if item != 0) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_text, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _parts(root: Schema, part: Schema, path: str) -> Iterator[tuple[str, str]]:
    """(definition, path) of every part inside, outer ones first."""
    for name, field in part["properties"].items():
        for definition, inside in _definitions(field):
            here = f"{path}.{name}{inside}" if path else f"{name}{inside}"
            yield definition, here
            yield from _parts(root, root["$defs"][definition], here)


def _definitions(field: Schema) -> Iterator[tuple[str, str]]:
    """Definitions that a field refers to, with `[]` where they are entries of a list."""
    if "$ref" in field:
        yield field["$ref"].rsplit("/", 1)[1], ""
    for option in (*field.get("anyOf", ()), *field.get("oneOf", ())):
        yield from _definitions(option)
    if "items" in field:
        for definition, inside in _definitions(field["items"]):
            yield definition, f"[]{inside}"


if __name__ == "__main__":
    print(key_tables())
