"""The backend of a Kubernetes cluster: workers are Deployments, watched as their owners are used to."""

from edgewise.runtime.backends.kubernetes.backend import KubernetesBackend
from edgewise.runtime.backends.kubernetes.manifest import PodPlace, Pods
from edgewise.runtime.backends.kubernetes.seen import client_of

__all__ = ["KubernetesBackend", "PodPlace", "Pods", "client_of"]
