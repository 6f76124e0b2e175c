"""A real Kubernetes on one machine: control plane and nodes in network namespaces."""

from beds.kubernetes.cluster import Cluster
from beds.processes import BedError

__all__ = ["BedError", "Cluster"]
