"""Where pipelines run: nodes and links on this machine.

netns   a network namespace for each node, veth links, real shaping and routing; needs root
local   everything on localhost; senders pace themselves, so nothing but Python is needed

`open_backend` makes one by name. Both keep to `Testbed`.
"""

from __future__ import annotations

from edgewise.errors import ScenarioError
from edgewise.model.network import Network
from edgewise.model.problems import nearest
from edgewise.runtime.testbeds.base import Flow, LocalTestbed, Testbed
from edgewise.runtime.testbeds.netns import NetnsTestbed

BACKENDS: dict[str, type] = {"netns": NetnsTestbed, "local": LocalTestbed}

__all__ = ["BACKENDS", "Flow", "Testbed", "open_backend"]


def open_backend(name: str, network: Network) -> Testbed:
    """Nodes and links of `network` on a backend, ready to run processes.

    Raises:
        ScenarioError: no such backend.
        RunError: it cannot work here; the message says what is missing.
    """
    if name not in BACKENDS:
        raise ScenarioError(f"backend {name!r}: is not known; {nearest(name, BACKENDS)}")
    made: Testbed = BACKENDS[name](network)
    return made
