"""What a stream may send: the rate that it declared, policed by a token bucket.

The ledger books a stream at its declared rate ρ. One that sends more takes what others have reserved, so
every query costs a token:

    tokens ← min(B, tokens + 1.1 ρ Δt),    B = max(burst, ρ · 1 s)

The bucket is full at first. Clocks, networks and Poisson arrivals bunch the queries of honest clients. At
exactly ρ the tokens would be a random walk without drift, which refuses about 1 in 2B Poisson queries
whatever B is; a tenth more makes that exp(-0.18 B) / 10, about 0.3 % at B = 20. A second's worth lets a
client that was held up for a second send what it owes. Who closes a stream and opens another one gets no
full bucket: it owes what the latest closed one of its kind does. Forbidden here: clocks; times are handed in.
"""

from collections import deque
from collections.abc import Hashable

BURST = 20.0  # queries
BURST_S = 1.0  # or what a stream declares for so long, where that is more
OVER = 1.1  # tokens come at this times the declared rate
MOST_CLOSED = 1000  # that are remembered of a kind


class Bucket:
    """The tokens of one stream.

    Args:
        rate_qps: declared, greater than 0.
        now_s: when it is opened.
        burst: queries that any stream may send at once.
    """

    __slots__ = ("_at_s", "_most", "_rate_qps", "_tokens")

    def __init__(self, rate_qps: float, now_s: float, burst: float = BURST) -> None:
        self._rate_qps, self._most = OVER * rate_qps, max(burst, BURST_S * rate_qps)
        self._tokens, self._at_s = self._most, now_s

    def take(self, now_s: float) -> float:
        """Take a query's token; 0 when there was one, else the time in s until there is."""
        self._fill(now_s)
        if self._tokens < 1.0:
            return (1.0 - self._tokens) / self._rate_qps
        self._tokens -= 1.0
        return 0.0

    def give_back(self) -> None:
        """A query was not served through no fault of its client, who may send it again."""
        self._tokens = min(self._most, self._tokens + 1.0)

    def owed(self, now_s: float) -> float:
        """Tokens that are missing."""
        self._fill(now_s)
        return self._most - self._tokens

    def owe(self, tokens: float) -> None:
        """Have so many less, if there are so many."""
        self._tokens = max(self._tokens - tokens, 0.0)

    def _fill(self, now_s: float) -> None:
        passed_s, self._at_s = max(now_s - self._at_s, 0.0), max(now_s, self._at_s)
        self._tokens = min(self._most, self._tokens + self._rate_qps * passed_s)


class Buckets:
    """Makes the buckets of streams, and remembers those of closed ones until they would be full.

    Args:
        burst: see `Bucket`.
    """

    def __init__(self, burst: float = BURST) -> None:
        self._burst = burst
        self.remembered: dict[Hashable, deque[Bucket]] = {}

    def opened(self, kind: Hashable, rate_qps: float, now_s: float) -> Bucket:
        """The bucket of a new stream.

        Args:
            kind: what a client cannot change at will, so that it goes on with what it owes.
        """
        made, closed = Bucket(rate_qps, now_s, self._burst), self.remembered.get(kind)
        while closed:
            if (owed := closed.pop().owed(now_s)) > 0.0:
                made.owe(owed)
                break
        return made

    def closed(self, kind: Hashable, bucket: Bucket, now_s: float) -> None:
        """Its stream is closed."""
        if bucket.owed(now_s) > 0.0:
            self.remembered.setdefault(kind, deque(maxlen=MOST_CLOSED)).append(bucket)
