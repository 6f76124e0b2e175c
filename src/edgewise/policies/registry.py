"""One registry for the policies of all six decisions.

`load` is the one door: wherever a policy can be named, in simulation and live, these work:

- a name: of a class with `@policy("name")`, or of a trained policy that ships;
- `path/to/file.py:Class`;
- the path of a card, which `edgewise train` wrote;
- the name of an entry point of an installed package, in the group `edgewise.policies.DECISION`; dispatchers
  of streams may also stand in `edgewise.policies`.

In Python also a class, a function that makes a policy, or a policy itself, of which each run has a copy.

A class says what it decides by its attribute `decision`, one of `DECISIONS`.
"""

import difflib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, TypeVar

from edgewise.core import hooks
from edgewise.errors import PolicyError
from edgewise.policies import cards

DECISIONS: Mapping[str, str] = {
    "dispatch": "streams",
    "requests": "services",
    "split": "graphs",
    "place": "pipelines",
    "orchestrate": "services",
    "defer": "jobs",
}
"""Every decision, by the one name that it has everywhere, and the kind of work that it is about."""
Policy = Any
"""What `load` takes."""
GROUP = "edgewise.policies"
Make = Callable[[], Any]
RENAMED = {"aset": "chooser"}  # policies, and cards whose names begin so
METHODS = ("reset", "decide")  # of every policy
registered: dict[str, dict[str, type]] = {decision: {} for decision in DECISIONS}
_simulated: set[type] = set()  # that run in simulation only
_offered: dict[str, dict[str, Callable[[], Make]]] = {decision: {} for decision in DECISIONS}
# Policies that simulate lie above this layer: they are found by name, as those of other packages.
_offered["dispatch"]["lookahead"] = partial(resolve_name, "edgewise.sim.streams.lookahead:Lookahead")

P = TypeVar("P", bound=type)


def check_decision(decision: str) -> str:
    """The decision, where there is one of that name.

    Raises:
        PolicyError: there is none; the message has the one that may be meant.
    """
    if decision not in DECISIONS:
        raise PolicyError(
            f"unknown decision {decision!r}{_near(_renamed(decision), list(DECISIONS))} "
            f"Use one of {', '.join(DECISIONS)}, as dispatch=closest"
        )
    return decision


def _renamed(decision: str) -> str:
    """What WORK.DECISION, as it once was named, is called; anything else as it is."""
    work, _, name = decision.rpartition(".")
    of_work = [each for each, about in DECISIONS.items() if about == work]
    return name if name in of_work or not of_work else of_work[0]


def policy(name: str, live: bool = True) -> Callable[[P], P]:
    """A decorator that registers a class as `name` for what its attribute `decision` says.

    Args:
        live: False: what it takes as known no running system knows, so it and its subclasses run in
            simulation only.
    Raises:
        PolicyError: another class has that name, or this one says of no decision.
    """

    def register(cls: P) -> P:
        known = registered[declared(f"policy {name!r}", cls)]
        other = known.get(name)
        if other is not None and other.__qualname__ != cls.__qualname__:
            raise PolicyError(f"policy name {name!r} is taken by {other.__module__}.{other.__qualname__}")
        cls.name = name  # type: ignore[attr-defined]
        known[name] = cls
        if not live:
            _simulated.add(cls)
        return cls

    return register


def runs_live(cls: type) -> bool:
    """Whether policies of a class can decide in a running system, and at one site alone."""
    return _simulated.isdisjoint(cls.__mro__)


def offer(decision: str, name: str) -> Callable[[Callable[[], Make]], None]:
    """A decorator of a function that imports what makes a policy: it is called when the policy is asked for.

    For policies whose import takes long.
    """

    def note(find: Callable[[], Make]) -> None:
        _offered[check_decision(decision)][name] = find

    return note


def names(decision: str, live: bool = False) -> list[str]:
    """Every policy that `load` finds by name, sorted; trained ones that ship and entry points among them.

    Args:
        live: leave out those that run in simulation only.
    """
    _families(decision)
    known = {name for name, cls in registered[decision].items() if not live or runs_live(cls)}
    trained, foreign = cards.shipped(decision), (each.name for each in _entries(decision))
    return sorted({*known, *_offered[decision], *trained, *foreign})


def find(decision: str, policy: Policy, live: bool = False) -> Make:
    """What makes a policy, as `load` takes it. No policy is made: only the file that it is in is run.

    Raises:
        PolicyError: as for `load`, but for what shows when it is made.
    """
    _families(decision)
    if isinstance(policy, str | Path):
        make = _named(decision, str(policy))
    elif isinstance(policy, type):
        make = policy
    elif callable(getattr(policy, "decide", None)):
        _check_class(decision, policy, type(policy), live)
        return partial(_copied, policy)
    elif callable(policy):
        make = policy
    else:
        raise PolicyError(
            f"{decision}: {policy!r} is no policy; give a name, file.py:Class, the path of a card, a class, "
            "a function that makes a policy, or a policy itself"
        )
    if isinstance(make, type):
        _check_class(decision, policy, make, live)
    return make


def load(decision: str, policy: Policy, live: bool = False) -> Any:
    """A new policy, by whatever it can be given as.

    Args:
        decision: of `DECISIONS`.
        policy: a name, `path/to/file.py:Class`, the path of a card, a class, a function that makes a
            policy, or a policy itself, which is copied.
        live: refuse one that runs in simulation only.
    Raises:
        PolicyError: there is none of that name, its file or class is wrong, or it decides something else.
    """
    make = find(decision, policy, live)
    try:
        made = make()
    except PolicyError:
        raise
    except (Exception, SystemExit) as error:  # foreign code
        raise PolicyError(f"{_shown(policy)}: {type(error).__name__} when created: {error}") from error
    cls = type(made)
    _check_class(decision, policy, cls, live)
    if missing := [method for method in METHODS if not callable(getattr(made, method, None))]:
        raise PolicyError(f"{_shown(policy)} lacks {', '.join(missing)}; see docs/tutorials/own-policy.md")
    hooks.check(_shown(policy), decision, made)
    named = isinstance(policy, str | Path) and ".py:" not in str(policy)  # the name is the policy's
    own = getattr(made, "__dict__", {}).get("name") or vars(cls).get("name")
    if not (getattr(made, "name", "") if named else own):
        made.name = cls.__name__  # a subclass of a shipped policy is not that policy
    return made


def _check_class(decision: str, policy: Policy, cls: type, live: bool) -> None:
    """See that a class decides what it is to decide, live too where that is wanted.

    Raises:
        PolicyError: it does not.
    """
    if (decides := declared(_shown(policy), cls)) != decision:
        raise PolicyError(f"{_shown(policy)} decides {decides}, not {decision}")
    if live and not runs_live(cls):
        have = ", ".join(names(decision, live=True))
        raise PolicyError(f"{_shown(policy)} runs in simulation only; live: {have}")


def _shown(policy: Policy) -> str:
    """A policy as it was given, for messages."""
    named = policy if isinstance(policy, str | Path) else getattr(policy, "__qualname__", None)
    return f"policy {str(named or type(policy).__qualname__)!r}"


def _copied(policy: Any) -> Any:
    """A policy of its own for a run, so that none sees what another has learned.

    Raises:
        PolicyError: it cannot be copied.
    """
    try:
        return deepcopy(policy)
    except Exception as error:  # foreign code
        raise PolicyError(
            f"{_shown(policy)} cannot be copied for each run ({type(error).__name__}: {error}); "
            "give its class, or a function that makes it"
        ) from error


def _named(decision: str, name: str) -> Make:
    """What makes a policy by its name, its file or its card."""
    card = Path(name) if name.endswith(".json") else cards.shipped(decision).get(name)
    if card is not None and name not in registered[decision]:
        return partial(cards.load, decision, cards.read(decision, card).path)
    return _from_file(name) if is_file(name) else _by_name(decision, name)


def ships(decision: str, name: str) -> bool:
    """Whether a policy of this name is part of edgewise; also where there is none, which `load` refuses."""
    _families(decision)
    if is_file(name):
        return cards.SHIPPED in Path(name).absolute().parents
    named = name in registered[decision] or name in _offered[decision] or name in cards.shipped(decision)
    return named or all(entry.name != name for entry in _entries(decision))


def is_file(name: str) -> bool:
    """Whether a policy is named by its file: `path/to/file.py:Class`, or the path of a card."""
    return ".py:" in name or name.endswith((".py", ".json"))


def located(name: str) -> str:
    """A policy's name; that of a file from / on, for whoever loads it may be elsewhere."""
    return str(Path(name).absolute()) if is_file(name) else name


def declared(who: str, cls: type) -> str:
    """What a class says that it decides.

    Args:
        who: it is, for messages.

    Raises:
        PolicyError: it says nothing that there is.
    """
    decision, of = getattr(cls, "decision", None), getattr(cls, "of", None)
    if decision == "dispatch" and of == "requests":
        raise PolicyError(f"{who}: write decision = 'requests'; `of` says nothing any more")
    if decision not in DECISIONS:
        raise PolicyError(f"{who}: its class says decision = {decision!r}; say one of {', '.join(DECISIONS)}")
    return str(decision)


def _families(decision: str) -> None:
    """Import what registers the shipped policies of a decision.

    Raises:
        PolicyError: there is no such decision.
    """
    importlib.import_module(f"edgewise.policies.{check_decision(decision)}")


def _entries(decision: str) -> list[EntryPoint]:
    groups = (f"{GROUP}.{decision}", *([GROUP] if decision == "dispatch" else []))
    return [each for group in groups for each in entry_points(group=group)]


def _by_name(decision: str, name: str) -> Make:
    if name in registered[decision]:
        return registered[decision][name]
    if name in _offered[decision]:
        return _offered[decision][name]()
    for entry in _entries(decision):
        if entry.name == name:
            try:
                loaded: Make = entry.load()
            except Exception as error:  # foreign code
                raise PolicyError(f"policy {name!r} from {entry.value}: {error}") from error
            return loaded
    have = names(decision)
    raise PolicyError(
        f"no {decision} policy {name!r}{_elsewhere(name) or _since(name, have) or _near(name, have)} "
        f"Have: {', '.join(have)}, or file.py:Class"
    )


def _elsewhere(name: str) -> str:
    """Says of which other decision there is a policy of that name."""
    for decision in DECISIONS:
        if name in names(decision):
            return f"; it decides {decision}: write {decision}={name}."
    return ""


def _since(name: str, have: Sequence[str]) -> str:
    """Says what a policy that was once called so is called."""
    first, dash, rest = name.partition("-")
    now = f"{RENAMED.get(first, first)}{dash}{rest}"
    return f"; it is called {now!r} now." if now != name and now in have else ""


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
