"""What a stream may send: the rate that it declared, policed by a token bucket.

The ledger books a stream at its declared rate ρ. One that sends more takes what others have reserved, so
every query costs a token:

    tokens ← min(B, tokens + 1.1 ρ Δt),    B = max(burst, ρ · 1 s)

The bucket is full at first. Clocks, networks and Poisson arrivals bunch the queries of honest clients. At
exactly ρ the tokens would be a random walk without drift, which refuses about 1 in 2B Poisson queries
whatever B is; a tenth more makes that exp(-0.18 B) / 10, about 0.3 % at B = 20. A second's worth lets a
client that was held up for a second send what it owes. Forbidden here: clocks; times are handed in.
"""

from __future__ import annotations

BURST = 20.0  # queries
BURST_S = 1.0  # or what a stream declares for so long, where that is more
OVER = 1.1  # tokens come at this times the declared rate


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
        passed_s, self._at_s = max(now_s - self._at_s, 0.0), max(now_s, self._at_s)
        self._tokens = min(self._most, self._tokens + self._rate_qps * passed_s)
        if self._tokens < 1.0:
            return (1.0 - self._tokens) / self._rate_qps
        self._tokens -= 1.0
        return 0.0

    def give_back(self) -> None:
        """A query was not served through no fault of its client, who may send it again."""
        self._tokens = min(self._most, self._tokens + 1.0)
