"""A stream of a gateway, and what became of its queries: as a record, and as the store keeps it."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from edgewise.core.dispatch.policing import Bucket
from edgewise.core.world import World
from edgewise.model.work import Stream

OUTCOMES = ("ok", "failed", "rejected", "excess")
KEPT = (
    "queries", *OUTCOMES, "delay_mean_s", "delay_max_s", "reason", "variant", "cluster",
)  # fmt: skip


@dataclass(slots=True)
class Served:
    """What became of one stream's queries.

    Attributes:
        owner: the client who opened it, see `http.HttpRequest`.
        reason: why it was refused, or why it was closed, where its client did not.
        final: its refusal stands; it is closed.
        counts: queries by outcome; "excess" are those beyond its declared rate, in no other figure.
    """

    stream: Stream
    bucket: Bucket
    owner: str = ""
    close_s: float | None = None
    worker: int | None = None
    reason: str | None = None
    final: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    answered: int = 0
    delay_sum_s: float = 0.0
    delay_max_s: float = 0.0

    def go_on(self, outcome: dict[str, Any]) -> None:
        """It had queries in an earlier life of its gateway, which count."""
        self.counts.update({name: outcome[name] for name in OUTCOMES if outcome.get(name)})
        self.answered = int(outcome.get("answered") or 0)
        self.delay_sum_s = self.answered * float(outcome.get("delay_mean_s") or 0.0)
        self.delay_max_s = float(outcome.get("delay_max_s") or 0.0)

    def outcome(self, row: dict[str, Any]) -> dict[str, Any]:
        """What the store keeps of it: of its record, and what `go_on` needs beside that."""
        return {name: row[name] for name in KEPT} | {"answered": self.answered}

    def row(self, world: World, now_s: float) -> dict[str, Any]:
        """Its record; an open one ends now."""
        stream, w = self.stream, self.worker
        return {
            "stream": stream.id,
            "site": world.site_names[stream.site],
            "application": stream.application,
            "source": stream.source or None,
            "task": stream.task,
            "open_s": stream.open_s,
            "close_s": now_s if self.close_s is None else self.close_s,
            "rate_qps": stream.rate_qps,
            "size_bytes": stream.size_bytes,
            "deadline_s": stream.deadline_s,
            "min_accuracy": stream.min_accuracy,
            "worker": world.worker_names[w] if w is not None else None,
            "variant": world.variant_names[w] if w is not None else None,
            "cluster": world.cluster_names[world.cluster[w]] if w is not None else None,
            "reason": self.reason,
            "queries": sum(self.counts[name] for name in OUTCOMES[:3]),
            **{name: self.counts[name] for name in OUTCOMES},
            "delay_mean_s": self.delay_sum_s / self.answered if self.answered else None,
            "delay_max_s": self.delay_max_s if self.answered else None,
        }
