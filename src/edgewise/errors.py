"""Every error a user can meet.

    EdgewiseError
    ├── ScenarioError      a scenario or catalog file is wrong: field, value, fix
    ├── PolicyError        a policy cannot be found, loaded, or broke its contract
    ├── CapacityError      a reservation would exceed what a node has
    ├── ProtocolError      a request or response breaks the Open Inference Protocol
    ├── ProfileError       a network cannot be read, built or measured
    └── RunError           a run folder cannot be written or read
        └── UnansweredError    a live system does not answer

The command line prints the message of any of these and exits with 2; anything
else is a bug and shows its traceback.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class EdgewiseError(Exception):
    """Base of all errors meant for the user."""


class ScenarioError(EdgewiseError):
    """A scenario or catalog is wrong; the message names field, value and fix."""


class PolicyError(EdgewiseError):
    """A policy cannot be found or loaded, or it broke its contract."""


class CapacityError(EdgewiseError):
    """A reservation would exceed what a node has."""


class ProtocolError(EdgewiseError):
    """A request or response breaks the Open Inference Protocol.

    Attributes:
        status: HTTP status that answers it.
    """

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class ProfileError(EdgewiseError):
    """A network cannot be read, built or measured."""


class RunError(EdgewiseError):
    """A run folder cannot be written or read."""


class UnansweredError(RunError):
    """A part of a live system does not answer; the message says whether it can be reached."""


@contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """Around imports that `what` needs the extra `name` for.

    Raises:
        EdgewiseError: one of them is missing; says what to install.
    """
    try:
        yield
    except ImportError as error:
        if (error.name or "").startswith("edgewise"):
            raise  # a fault of ours, which no installing mends
        raise EdgewiseError(f"{what} cannot import {error.name}: pip install 'edgewise[{name}]'") from error
