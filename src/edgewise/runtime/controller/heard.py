"""Which gateways have said what they hold: whoever serves ends only once all that run have."""

from collections.abc import Iterable, Mapping

# For which a gateway's silence is waited for; who is stuck has been killed by then, see `health`.
AWAITED_S = 60.0


class Heard:
    """What was heard in the latest pass; gateways are known by the handles of their processes."""

    def __init__(self) -> None:
        self._heard = set[str]()
        self._silent_s: dict[str, float] = {}  # since when

    def note(self, answered: Mapping[str, bool], now_s: float) -> None:
        """Whether each gateway that was asked has answered."""
        self._heard = {handle for handle, has in answered.items() if has}
        self._silent_s = {
            handle: self._silent_s.get(handle, now_s) for handle, has in answered.items() if not has
        }

    def misses(self, running: Iterable[str], now_s: float) -> bool:
        """Whether one of those that run now has not answered, and is not silent for too long."""
        silent_s = [self._silent_s.get(handle, now_s) for handle in running if handle not in self._heard]
        return any(now_s - since_s < AWAITED_S for since_s in silent_s)
