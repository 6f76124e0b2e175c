"""Policies that bind streams to workers."""

from edgewise.policies.dispatch import (
    chooser as chooser,
    harm as harm,
    meta as meta,
    static as static,
)
