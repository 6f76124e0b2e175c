"""The state of a system in a Secret of its cluster: whoever is its controller next begins with that.

A write names the version that it follows; the API server refuses who read an older one. So of two controllers
one alone goes on.
"""

import base64
import gzip
from collections.abc import Mapping
from typing import Any

from lightkube import ApiError, Client
from lightkube.models.meta_v1 import ObjectMeta, OwnerReference
from lightkube.resources.core_v1 import Secret

from edgewise.errors import RunError
from edgewise.runtime.backends.kubernetes.backend import GONE, THERE

STATE = "state"  # of its data
MOST_BYTES = 1_000_000  # of what the API server takes


class Superseded(RunError):
    """Another controller wrote since this one read."""


class KeptState:
    """The Secret of one system.

    Args:
        client: of the namespace.
        owner: a reference to the Deployment whose system it is, and with which it goes.
    Raises:
        RunError: the API server does not answer, or refuses.
    """

    def __init__(self, client: Client, owner: Mapping[str, Any]) -> None:
        self._client, self._owner = client, owner
        self.name = name_of(owner)
        try:
            found = client.get(Secret, self.name)
        except ApiError as error:
            if error.status.code != GONE:
                raise RunError(f"kubernetes: secret {self.name}: {error}") from error
            found = None
        except Exception as error:  # whatever a connection can do
            raise RunError(f"kubernetes: secret {self.name}: {error}") from error
        self._version = None if found is None or found.metadata is None else found.metadata.resourceVersion
        data = (found.data or {}).get(STATE) if found is not None else None
        self.text = None if data is None else gzip.decompress(base64.b64decode(data)).decode()

    def write(self, text: str) -> None:
        """Keep a state.

        Raises:
            Superseded: another controller keeps one.
            RunError: it is too large.
            ApiError: it cannot be kept now.
        """
        data = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
        if len(data) > MOST_BYTES:
            raise RunError(f"secret {self.name}: the state is {len(data)} bytes, of {MOST_BYTES}")
        meta = ObjectMeta(
            name=self.name, namespace=self._client.namespace, resourceVersion=self._version,
            ownerReferences=[OwnerReference(**self._owner)],
        )  # fmt: skip
        secret = Secret(metadata=meta, data={STATE: data})
        try:
            made = self._client.create(secret) if self._version is None else self._client.replace(secret)
        except ApiError as error:
            if error.status.code not in (THERE, GONE):
                raise
            made = self._mine(data, error)
        assert made.metadata is not None
        self._version, self.text = made.metadata.resourceVersion, text

    def _mine(self, data: str, error: ApiError) -> Secret:
        """The Secret as this controller wrote it, where the answer to that was lost."""
        found = self._client.get(Secret, self.name) if error.status.code == THERE else None
        if found is None or (found.data or {}).get(STATE) != data:
            raise Superseded(f"secret {self.name}: another controller keeps the state") from error
        return found


def name_of(owner: Mapping[str, Any]) -> str:
    """Name of the Secret of a Deployment's system."""
    return f"{owner['name']}-state"
