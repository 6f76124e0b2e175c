"""Policies and how they are found: by name, by file, by card, or by entry point."""

from edgewise.policies.registry import (
    DECISIONS,
    RUNNING,
    is_file,
    load,
    located,
    names,
    offer,
    policy,
)

__all__ = ["DECISIONS", "RUNNING", "is_file", "load", "located", "names", "offer", "policy"]
