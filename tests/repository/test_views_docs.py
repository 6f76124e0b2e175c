"""The tables of docs/reference/views.md: every field of every view, with the shape that it has in a run."""

import re
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np
import pytest

import edgewise as ew
from edgewise import policies
from edgewise.core.defer import CapacityView
from edgewise.core.dispatch.views import DispatchView
from edgewise.core.orchestrate import ReplicaView
from edgewise.core.place import NetworkView
from edgewise.core.split import SplitView
from edgewise.policies.dispatch.static import Closest

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reference" / "views.md").read_text("utf-8")
RECORDS = ("world", "site", "replicas", "machine")  # of a ReplicaView, whose fields it has itself
VIEWS = {
    "dispatch": DispatchView,
    "requests and orchestrate": ReplicaView,
    "split": SplitView,
    "place": NetworkView,
    "defer": CapacityView,
}
EXAMPLES = DOCS.parent / "examples" / "03-every-decision"
TOYS = re.findall(
    r"^edgewise simulate (\S+).*?--policy (\w+)=(\w+\.py):(\w+)",
    (EXAMPLES / "README.md").read_text("utf-8"),
    re.M,
)


def table(section):
    """Shape, unit and kind of each field, by name."""
    part = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if "| `" in line
    ]
    found = {row[0].strip("`"): row[1:] for row in rows}
    assert len(found) == len(rows) and all(len(row) == 5 for row in rows)
    return found


def names_of(view):
    """Fields and properties of a class of views."""
    own = [field.name for field in fields(view)] if is_dataclass(view) else list(view._fields)
    return {*own, *(name for name, what in vars(view).items() if isinstance(what, property))}


@pytest.mark.parametrize("section", VIEWS)
def test_every_field_of_a_view_has_a_row_and_every_row_is_a_field(section):
    rows = {name.partition(".")[0] for name in table(section)}
    known = names_of(VIEWS[section])
    if section == "requests and orchestrate":
        from edgewise.core.orchestrate import MACHINE, REPLICAS, SITE, WORLD

        known |= {name for kind in (WORLD, SITE, REPLICAS, MACHINE) for name in kind.names}
    assert rows == known


@pytest.mark.parametrize(("scenario", "decision", "file", "name"), TOYS, ids=[file for _, _, file, _ in TOYS])
def test_fields_have_the_shape_that_the_tables_say(scenario, decision, file, name):
    kind, seen = type(policies.load(decision, f"{EXAMPLES / file}:{name}")), []

    class Spy(kind):
        def decide(self, view):
            seen.append({field: shape_of(view, field) for field in rows})
            return super().decide(view)

    section = next(each for each in VIEWS if decision in each)
    rows = table(section)
    short = {"kais-demo": 1000, "deferrable": 172_800}.get(scenario)
    ew.simulate(ew.load_scenario(scenario, {"duration_s": short} if short else {}), {decision: Spy}, [0])
    check_shapes(rows, seen[-1])


def test_fields_of_dispatch_have_the_shape_that_the_table_says():
    rows, seen = table("dispatch"), []

    class Spy(Closest):
        def tick(self, view):
            seen.append({field: shape_of(view, field) for field in rows})

    ew.simulate("tiny", {"dispatch": Spy}, [0])
    check_shapes(rows, seen[-1])


def check_shapes(rows, seen):
    """One letter is one size, in all fields."""
    sizes = {"3": 3}
    for field, shape in seen.items():
        said = rows[field][0]
        letters = [letter.strip() for letter in said.strip("()–").split(",") if letter.strip()]
        assert len(letters) == len(shape), (field, said, shape)
        for letter, size in zip(letters, shape, strict=True):
            assert sizes.setdefault(letter, size) == size, (field, said, shape)


def shape_of(view, field):
    found = view
    for part in field.split("."):
        if part in ("worlds", "bound"):
            return ()
        found = getattr(found, part)
    return np.shape(found) if isinstance(found, np.ndarray) else ()
