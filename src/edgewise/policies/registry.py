"""One registry for the policies of all five decisions.

Wherever a policy can be named, these work:

- a name: of a class with `@policy("name")`, or of a trained policy that ships;
- `path/to/file.py:Class`;
- the path of a card, which `edgewise train` wrote;
- the name of an entry point of an installed package, in the group `edgewise.policies.DECISION`. Dispatchers
  of streams may also stand in `edgewise.policies`; those of requests stand in `….dispatch.requests`.

A class says what it decides by its attribute `decision`, and a dispatcher by `of` for which work.
"""

import difflib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, TypeVar

from edgewise.errors import PolicyError
from edgewise.policies import cards

DECISIONS = ("dispatch", "split", "place", "orchestrate", "defer")
STREAMS, REQUESTS = "streams", "requests"  # what there is to dispatch
GROUP = "edgewise.policies"
Kind = tuple[str, str | None]  # a decision, and of what where that is not said by the decision
Make = Callable[[], Any]
KINDS: tuple[Kind, ...] = (
    ("dispatch", STREAMS),
    ("dispatch", REQUESTS),
    ("split", None),
    ("place", None),
    ("orchestrate", None),
    ("defer", None),
)
METHODS = ("reset", "decide")  # of every policy
# Who decides in a system that is up, by the name that its store, its commands and its REST interface use.
RUNNING: Mapping[str, Kind] = {
    "dispatch": ("dispatch", STREAMS),
    "requests": ("dispatch", REQUESTS),
    "orchestrate": ("orchestrate", None),
    "split": ("split", None),
    "place": ("place", None),
    "defer": ("defer", None),
}
_known: dict[Kind, dict[str, type]] = {kind: {} for kind in KINDS}
_offered: dict[Kind, dict[str, Callable[[], Make]]] = {kind: {} for kind in KINDS}

P = TypeVar("P", bound=type)


def kind_of(decision: str, of: str | None = None) -> Kind:
    """A decision and of what; dispatch is of streams where nothing is said.

    Raises:
        PolicyError: there is no such decision.
    """
    kind = (decision, of or (STREAMS if decision == "dispatch" else None))
    if kind not in KINDS:
        what = decision if of is None else f"{decision} of {of}"
        raise PolicyError(f"no decision {what!r}{_near(decision, DECISIONS)} Have: {', '.join(DECISIONS)}")
    return kind


def policy(name: str) -> Callable[[P], P]:
    """A decorator that registers a class as `name` for what its attribute `decision` says.

    Raises:
        PolicyError: another class has that name, or this one says of no decision.
    """

    def register(cls: P) -> P:
        known = _known[_declared(name, cls)]
        other = known.get(name)
        if other is not None and other.__qualname__ != cls.__qualname__:
            raise PolicyError(f"policy name {name!r} is taken by {other.__module__}.{other.__qualname__}")
        cls.name = name  # type: ignore[attr-defined]
        known[name] = cls
        return cls

    return register


def offer(decision: str, name: str, of: str | None = None) -> Callable[[Callable[[], Make]], None]:
    """A decorator of a function that imports what makes a policy: it is called when the policy is asked for.

    For policies whose import takes long, and for those that lie above this layer.
    """

    def note(find: Callable[[], Make]) -> None:
        _offered[kind_of(decision, of)][name] = find

    return note


def names(decision: str, of: str | None = None, live: bool = False) -> list[str]:
    """Every policy that `load` finds by name, sorted; trained ones that ship and entry points among them.

    Args:
        live: leave out those that run in simulation only.
    """
    kind = kind_of(decision, of)
    _families(kind)
    known = {name for name, cls in _known[kind].items() if not live or getattr(cls, "live", True)}
    return sorted({*known, *_offered[kind], *cards.shipped(*kind), *(each.name for each in _entries(kind))})


def load(decision: str, name: str, of: str | None = None, live: bool = False) -> Any:
    """A new policy by its name, as `path/to/file.py:Class`, or by the path of a card.

    Args:
        of: which work a dispatcher is for, "streams" (also None) or "requests".
        live: refuse one that runs in simulation only.
    Raises:
        PolicyError: there is none of that name, its file or class is wrong, or it decides something else.
    """
    kind = kind_of(decision, of)
    _families(kind)
    card = Path(name) if name.endswith(".json") else cards.shipped(*kind).get(name)
    if card is not None and name not in _known[kind]:
        return cards.load(*kind, card)
    make = _from_file(name) if is_file(name) else _by_name(kind, name)
    try:
        made = make()
    except PolicyError:
        raise
    except (Exception, SystemExit) as error:  # foreign code
        raise PolicyError(f"policy {name!r}: {type(error).__name__} when created: {error}") from error
    cls = type(made)
    if not getattr(made, "name", "") or (".py:" in name and "name" not in vars(cls)):
        made.name = cls.__name__  # a subclass of a shipped policy is not that policy
    if _declared(name, cls) != kind:
        raise PolicyError(f"policy {name!r} decides {_said(_declared(name, cls))}, not {_said(kind)}")
    missing = [method for method in METHODS if not callable(getattr(made, method, None))]
    if missing:
        raise PolicyError(f"policy {name!r} lacks {', '.join(missing)}; see docs/tutorials/own-policy.md")
    if live and not getattr(made, "live", True):
        have = ", ".join(names(decision, of, live=True))
        raise PolicyError(f"policy {name!r} runs in simulation only; live: {have}")
    return made


def is_file(name: str) -> bool:
    """Whether a policy is named by its file: `path/to/file.py:Class`, or the path of a card."""
    return ".py:" in name or name.endswith((".py", ".json"))


def located(name: str) -> str:
    """A policy's name; that of a file from / on, for whoever loads it may be elsewhere."""
    return str(Path(name).absolute()) if is_file(name) else name


def _declared(name: str, cls: type) -> Kind:
    decision = getattr(cls, "decision", None)
    if decision not in DECISIONS:
        raise PolicyError(
            f"policy {name!r}: its class says decision = {decision!r}; say one of {', '.join(DECISIONS)}"
        )
    return kind_of(decision, getattr(cls, "of", None))


def _said(kind: Kind) -> str:
    return kind[0] if kind[1] is None else f"{kind[0]} of {kind[1]}"


def _word(kind: Kind) -> str:
    return {STREAMS: "policy", REQUESTS: "request policy", None: f"{kind[0]} policy"}[kind[1]]


def _families(kind: Kind) -> None:
    """Import what registers the shipped policies of a decision.

    Raises:
        PolicyError: they need a package that is not installed.
    """
    try:
        importlib.import_module(f"edgewise.policies.{'.'.join(_path(kind))}")
    except ModuleNotFoundError as error:
        raise PolicyError(f"{kind[0]} needs {error.name}: pip install 'edgewise[place]'") from error


def _path(kind: Kind) -> tuple[str, ...]:
    """Of the package of a decision's policies; dispatch is of streams where nothing is said."""
    return kind if kind == ("dispatch", REQUESTS) else kind[:1]


def _entries(kind: Kind) -> list[EntryPoint]:
    groups = [".".join((GROUP, *_path(kind)))]
    groups += [GROUP] if kind[1] == STREAMS else []
    return [each for group in groups for each in entry_points(group=group)]


def _by_name(kind: Kind, name: str) -> Make:
    if name in _known[kind]:
        return _known[kind][name]
    if name in _offered[kind]:
        return _offered[kind][name]()
    for entry in _entries(kind):
        if entry.name == name:
            try:
                loaded: Make = entry.load()
            except Exception as error:  # foreign code
                raise PolicyError(f"policy {name!r} from {entry.value}: {error}") from error
            return loaded
    have = names(*kind)
    raise PolicyError(
        f"no {_word(kind)} {name!r}{_elsewhere(name) or _near(name, have)} "
        f"Have: {', '.join(have)}, or file.py:Class"
    )


def _elsewhere(name: str) -> str:
    """Says of which other decision there is a policy of that name."""
    for kind in KINDS:
        with suppress(PolicyError):  # its extra is not installed
            if name in names(*kind):
                return f"; it decides {_said(kind)}" + ("." if kind[1] else f": write {kind[0]}={name}.")
    return ""


def _near(name: str, have: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, have, 1)
    return f"; did you mean {near[0]!r}?" if near else "."


def _from_file(name: str) -> type:
    file, _, cls_name = name.rpartition(":") if ".py:" in name else (name, "", "")
    path = Path(file)
    if not cls_name:
        raise PolicyError(f"policy {name!r}: name the class too, as {path}:Class")
    if not path.is_file():
        raise PolicyError(f"policy {name!r}: no file {path}")
    spec = importlib.util.spec_from_file_location(f"edgewise_user_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # foreign code
        raise PolicyError(f"policy {name!r}: {type(error).__name__} in {path}: {error}") from error
    classes = [key for key, value in vars(module).items() if isinstance(value, type)]
    if cls_name not in classes:
        near = difflib.get_close_matches(cls_name, classes, 1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(classes) or 'no class'}"
        raise PolicyError(f"policy {name!r}: no class {cls_name!r} in {path}{hint}")
    found: type = getattr(module, cls_name)
    return found
