"""Policies that send the request at the head of each site's queue to a node or the cloud."""

from edgewise.policies.dispatch.requests import flow as _flow, rules as _rules, shadow as _shadow
from edgewise.policies.dispatch.requests.base import KernelDispatch, RequestDispatch

__all__ = ["KernelDispatch", "RequestDispatch"]
_registers = (_flow, _rules, _shadow)  # imported for their policies
