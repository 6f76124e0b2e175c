"""Where processes run: the contract in `base`, this machine in `local`."""

from edgewise.runtime.backends.base import Backend
from edgewise.runtime.backends.local import LocalBackend

__all__ = ["Backend", "LocalBackend"]
