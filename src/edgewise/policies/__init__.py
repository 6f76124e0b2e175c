"""Policies and how they are found: by name, by file, by card, or by entry point."""

from edgewise.policies.registry import (
    DECISIONS as DECISIONS,
    RUNNING as RUNNING,
    is_file as is_file,
    load as load,
    located as located,
    names as names,
    offer as offer,
    policy as policy,
)
