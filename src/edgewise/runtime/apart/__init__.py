"""Policies that do not ship with edgewise, in processes of their own.

Whatever such a policy does (it loops for ever, takes all memory, ends its interpreter) it does there: who
asks waits for an answer for a budget of time, then kills the process and starts it anew. `load` is how a
running system gets a policy: one that ships decides in the process that asks, others are a `PolicyApart`.
"""

from edgewise.runtime.apart.policy import BEGIN_S, PolicyApart, load

__all__ = ["BEGIN_S", "PolicyApart", "load"]
