"""What a gateway writes into the store while it runs: where streams are, and the records of what it serves.

Each `step` writes what came since the last one; what could not be written is written by the next one.
"""

from edgewise.core.dispatch.policy import ChoosingPolicy
from edgewise.runtime import clock
from edgewise.runtime.gateway.gateway import Gateway
from edgewise.runtime.store.records import Request
from edgewise.runtime.store.steady import SteadyStore

OUTCOMES_AT_ONCE = 400  # streams, whose turn comes in the next steps where there are more
COUNTS_S = 1.0  # between two times that what is counted is written: of windows, and of streams


class Writing:
    """Writes.

    Args:
        gateway: of the scenario.
        store: may be out of order for a while.
    """

    def __init__(self, gateway: Gateway, store: SteadyStore) -> None:
        self.gateway, self.store = gateway, store
        self._bound: dict[int, int] = {}
        self._counted_s = -COUNTS_S
        self._life_s, self._began_s = clock.unix_s(), store.get("began_s", clock.unix_s())

    def step(self, last: bool = False) -> None:
        """Write what came since; counts, which are written anew each time, more seldom.

        Args:
            last: there will be no other.
        Raises:
            StoreError: it cannot be written now.
        """
        self._note_streams()
        self._note_requests()
        now_s = clock.monotonic_s()
        if last or now_s - self._counted_s >= COUNTS_S:
            while self._note_outcomes() and last:
                pass
            self._note_windows()
            self._counted_s = now_s
        self.store.faults.note(self.gateway.session.faults.drain())

    def _note_streams(self) -> None:
        session = self.gateway.session
        names, bound = session.world.worker_names, session.core.bindings
        if bound != self._bound:
            here = {s for s, w in bound.items() if self._bound.get(s) != w}
            changed = here | self._bound.keys() - bound.keys()
            self.store.records.bind({s: names[bound[s]] if s in bound else None for s in changed})
            self._bound = dict(bound)

    def _note_outcomes(self) -> bool:
        """Write what became of some streams; whether there were any."""
        session = self.gateway.session
        if outcomes := session.outcomes(OUTCOMES_AT_ONCE):
            self.store.records.note_outcomes(outcomes)
            session.noted(outcomes)
        return bool(outcomes)

    def _note_requests(self) -> None:
        services = self.gateway.services
        queues = [group.over for group in self.gateway.splits] + ([services.over] if services else [])
        site = str(self.gateway.site)
        if over := [Request(at_s, site, *rest) for queue in queues for at_s, rest in queue]:
            self.store.records.note_requests(over)
            for queue in queues:  # only now: where the store is held, they are written the next time
                queue.clear()
        if services is not None and services.answered:
            self.store.records.note_answers((name, *sums) for name, sums in services.answered.items())
            services.answered = {}

    def _note_windows(self) -> None:
        session, policy = self.gateway.session, self.gateway.session.core.policy
        active = policy.current.name if isinstance(policy, ChoosingPolicy) else policy.name
        name = self.gateway.name or ""
        if rows := session.tally.changed(self._began_s, name, self._life_s, active):
            self.store.records.note_windows(rows)
            session.tally.written()
