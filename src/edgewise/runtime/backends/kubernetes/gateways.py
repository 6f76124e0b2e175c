"""What gateways that are pods are told of the controller's store, and how they hand in what they write."""

import hashlib
import json
from contextlib import closing
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from edgewise.runtime.states import DONE, FAILED
from edgewise.runtime.store import DATABASE, LATEST_CHANGE, SCENARIO, Store, StoreError
from edgewise.runtime.store.handed import for_gateway, take_in

OF_GATEWAYS = "/gateways/"  # before the name of one


class AboutGateways:
    """Answers gateways of a system, for threads: each question opens the store anew.

    Args:
        folder: state of the system.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def said(self, path: str, known: str) -> tuple[int, bytes, str]:
        """Status, content and tag of an answer: what a gateway reads, where that is not what it knows.

        Args:
            path: /gateways/NAME?since=SECONDS.
            known: tag of what it knows.
        """
        gateway, asked = _asked(path)
        try:
            with closing(Store(self._folder / DATABASE)) as store:
                said = for_gateway(store, gateway, float(asked.get("since", "0")))
            said["scenario"] = (self._folder / SCENARIO).read_text()
        except (StoreError, OSError) as error:
            return 503, str(error).encode(), ""
        except ValueError:
            return 400, b"since: no number", ""
        content = json.dumps(said).encode()
        tag = hashlib.sha256(content).hexdigest()
        return (304, b"", tag) if tag == known else (200, content, tag)

    def taken_in(self, path: str, body: bytes) -> int:
        """Keep what a gateway hands in; the status of the answer.

        Args:
            path: /gateways/NAME?life=LIFE.
            body: rows, as JSON.
        """
        gateway, asked = _asked(path)
        try:
            with closing(Store(self._folder / DATABASE)) as store:
                take_in(store, gateway, asked["life"], json.loads(body))
        except StoreError:
            return 503
        except (KeyError, TypeError, ValueError):
            return 400
        return 200

    def ready(self) -> bool:
        """Whether all that is wanted is there: no change is under way."""
        try:
            with closing(Store(self._folder / DATABASE)) as store:
                return (store.get(LATEST_CHANGE) or {}).get("state") in (DONE, FAILED)
        except StoreError:
            return False


class Standby(AboutGateways):
    """A controller that waits: it is ready to, and has nothing to say; who asks meets another one next."""

    def ready(self) -> bool:
        """See `AboutGateways`."""
        return True


def _asked(path: str) -> tuple[str, dict[str, str]]:
    found = urlsplit(path)
    asked = {name: values[0] for name, values in parse_qs(found.query).items()}
    return unquote(found.path.removeprefix(OF_GATEWAYS)), asked
