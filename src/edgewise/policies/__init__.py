"""Policies and how they are found: by name, by file, by card, or by entry point."""

from edgewise.policies.registry import (
    DECISIONS as DECISIONS,
    Policy as Policy,
    check_decision as check_decision,
    declared as declared,
    find as find,
    is_file as is_file,
    load as load,
    located as located,
    names as names,
    offer as offer,
    policy as policy,
    runs_live as runs_live,
    ships as ships,
)
from edgewise.policies.usual import USUAL as USUAL, deciding as deciding
