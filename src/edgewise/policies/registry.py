"""The registry: a policy is added by one file and one decorator.

Three ways in: `@dispatch_policy("name")` on a class that is imported, `file.py:Class` on the
command line, or an entry point in the group `edgewise.policies` of an installed package.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
from importlib.metadata import entry_points
from pathlib import Path

from edgewise.core.policy import DispatchPolicy
from edgewise.errors import PolicyError
from edgewise.policies.names import Names

GROUP = "edgewise.policies"
_names = Names("policy")
# Shipped policies that lie above this layer or need an extra; imported when they are asked for.
_LATE = {"lookahead": "edgewise.sim.streams.lookahead", "aset": "edgewise.policies.dispatch.aset"}


dispatch_policy = _names.add


def names() -> list[str]:
    """Every policy that `load` finds by name, sorted."""
    return sorted({*_names, *_LATE} | set(entry_points(group=GROUP).names))


def load(name: str) -> DispatchPolicy:
    """A new policy, by registered name or as `path/to/file.py:Class`.

    Raises:
        PolicyError: nothing has that name, or the file or class is wrong.
    """
    from_file = ".py:" in name or name.endswith(".py")
    cls = _from_file(name) if from_file else _by_name(name)
    try:
        policy = cls()
    except Exception as error:
        raise PolicyError(f"policy {name!r}: {type(error).__name__} when created: {error}") from error
    if not getattr(policy, "name", "") or (from_file and "name" not in vars(cls)):
        policy.name = cls.__name__  # a subclass of a shipped policy is not that policy
    missing = [m for m in ("reset", "tick", "decide") if not callable(getattr(policy, m, None))]
    if missing:
        raise PolicyError(f"policy {name!r} lacks {', '.join(missing)}; subclass edgewise.ScorePolicy")
    checked: DispatchPolicy = policy
    return checked


def _by_name(name: str) -> type:
    if name in _LATE:
        _import_late(name)
    known = _names.get(name)
    if known is not None:
        return known
    for entry in entry_points(group=GROUP, name=name):
        try:
            loaded: type = entry.load()
        except Exception as error:
            raise PolicyError(f"policy {name!r} from {entry.value}: {error}") from error
        return loaded
    raise _names.unknown(name, names(), ", or file.py:Class")


def _import_late(name: str) -> None:
    try:
        importlib.import_module(_LATE[name])
    except ImportError as error:
        missing = error.name or "a package"
        raise PolicyError(f"policy {name!r} needs {missing}: pip install 'edgewise[live]'") from error


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
    except Exception as error:
        raise PolicyError(f"policy {name!r}: {type(error).__name__} in {path}: {error}") from error
    classes = [key for key, value in vars(module).items() if isinstance(value, type)]
    if cls_name not in classes:
        near = difflib.get_close_matches(cls_name, classes, 1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(classes) or 'no class'}"
        raise PolicyError(f"policy {name!r}: no class {cls_name!r} in {path}{hint}")
    found: type = getattr(module, cls_name)
    return found
