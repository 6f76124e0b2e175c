"""Policies that bind streams to workers."""

from edgewise.policies.dispatch import (
    aset as aset,
    meta as meta,
    static as static,
)
