"""Policies and how they are found: by name, by file, by card, or by entry point."""

from edgewise.policies.registry import DECISIONS, load, names, offer, policy

__all__ = ["DECISIONS", "load", "names", "offer", "policy"]
