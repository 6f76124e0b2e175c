"""What the parser of command lines says of a mistake, in the form that all errors have."""

import re
from typing import Any

import typer

# The base of whatever a parser of arguments complains of; Typer has brought its own parser for some time.
UsageError: Any = typer.BadParameter.__base__
_HINT = r"'?(?P<name>--?[\w-]+|[\[\]\w.]+)'?(?: / '?--?[\w-]+'?)*"
_FORMS = (
    (rf"Invalid value for {_HINT}: (?P<why>.*)", "{name}: {why}"),
    (rf"Missing (?:argument|option|parameter) {_HINT}\.?.*", "{name}: is missing"),
    (
        r"No such option:? (?P<name>\S+?)\.?(?: [(]?(?:Did you mean|Possible options:) (?P<near>.+?)[?)]*)?",
        "{name}: is no option of this command",
    ),
    (rf"Option {_HINT} requires an argument\.", "{name}: needs a value after it"),
    (r"Got unexpected extra argument\S* \((?P<name>.*)\)", "{name}: is one argument too many"),
)


def told(error: Any) -> str:
    """A mistake in words: what it is about, what is wrong, and where one reads how it is written."""
    said = str(error.format_message())
    for form, words in _FORMS:
        if (match := re.fullmatch(form, said, re.DOTALL)) is not None:
            found = match.groupdict()
            if not found["name"].startswith("-") and "extra" not in said:
                found["name"] = found["name"].upper()  # as usages show arguments
            said = words.format(**found)
            near = found.get("near") or ""
            said += f"; did you mean {near.replace(', ', ' or ')}?" if near else ""
            break
    said = re.sub(r"Input should be (a valid )?", "must be a ", said.partition(", unable to parse")[0])
    said = said.replace("must be a integer", "must be a whole number").replace(
        "must be a greater", "must be greater"
    )
    context = getattr(error, "ctx", None)
    where = "edgewise" if context is None else context.command_path
    return (
        f"{said.strip()} See {where} --help"
        if said.endswith("?")
        else f"{said.strip(' .')}; see {where} --help"
    )
