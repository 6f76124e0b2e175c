"""Policies and how they are found: by name, by file, or by entry point."""

from edgewise.policies import dispatch
from edgewise.policies.registry import dispatch_policy, load, names

__all__ = ["dispatch", "dispatch_policy", "load", "names"]
