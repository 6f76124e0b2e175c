"""Policies that send the request at the head of each site's queue to a node or the cloud."""

from edgewise.policies.requests import flow as flow, gsp as gsp, rules as rules
from edgewise.policies.requests.rules import (
    KernelDispatch as KernelDispatch,
    RequestDispatch as RequestDispatch,
)
