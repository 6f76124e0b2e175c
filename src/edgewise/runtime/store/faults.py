"""What policies failed at, as it is kept."""

from collections.abc import Sequence
from typing import NamedTuple

from edgewise.runtime.store.database import StorePart


class Fault(NamedTuple):
    """Faults of a policy that are alike, since they were written down last.

    Attributes:
        since_s, at_s: when the first and the last of them were, Unix time.
        process: where.
        decision: of which policy.
        policy: its name.
        shadow: it only watches.
        kind: of few.
        why: the last of them, in more words.
        waited_s: for the answer, where none came in time; else 0.
        times: how many.
        instead: what was done.
    """

    since_s: float
    at_s: float
    process: str
    decision: str
    policy: str
    shadow: bool
    kind: str
    why: str
    waited_s: float
    times: int
    instead: str


class FaultTable(StorePart):
    """Faults of policies, of all processes of a system."""

    SCHEMA = """
CREATE TABLE IF NOT EXISTS fault (
    id INTEGER PRIMARY KEY, since_s REAL NOT NULL, at_s REAL NOT NULL, process TEXT NOT NULL,
    decision TEXT NOT NULL, policy TEXT NOT NULL, shadow INTEGER NOT NULL, kind TEXT NOT NULL,
    why TEXT NOT NULL, waited_s REAL NOT NULL, times INTEGER NOT NULL, instead TEXT NOT NULL
);
"""

    def note(self, rows: Sequence[Fault]) -> None:
        """Keep faults: what took too long one by one, others that are alike in one row."""
        if rows:
            self.db.later(("faults", rows[0]), lambda: self._note(rows), lossy=True)

    def _note(self, rows: Sequence[Fault]) -> None:
        with self.db.at_once():
            for row in rows:
                same = row.process, row.decision, row.policy, row.shadow, row.kind
                more = self.db.run(
                    "UPDATE fault SET at_s = ?, why = ?, times = times + ? WHERE waited_s = 0 AND ? = 0 AND"
                    " id = (SELECT MAX(id) FROM fault WHERE"
                    " (process, decision, policy, shadow, kind) = (?, ?, ?, ?, ?))",
                    (row.at_s, row.why, row.times, row.waited_s, *same),
                )
                if not more.rowcount:
                    self.db.keep("fault", [row])

    def since(self, since_s: float = 0.0) -> list[Fault]:
        """What policies failed at since then, the latest last."""
        read = "fault WHERE at_s >= ? ORDER BY at_s"
        return self.db.read_or(lambda: self.db.kept(Fault, read, (since_s,)), [])
