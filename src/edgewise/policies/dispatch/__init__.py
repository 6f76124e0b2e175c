"""Policies that bind streams to workers."""

from edgewise.policies.dispatch import (
    aset as aset,
    harm as harm,
    meta as meta,
    static as static,
)
