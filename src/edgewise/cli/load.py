"""`edgewise load`: requests of a service, to see replicas come and go."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import typer

from edgewise.cli.live import DEFAULT, Folder, _import, say_busy
from edgewise.cli.output import out, show


def load(
    service: Annotated[str, typer.Argument(help="A service of the scenario's orchestration.")],
    rate_qps: Annotated[float, typer.Option("--rate-qps", help="Requests/s, Poisson.", min=0.01)] = 10.0,
    seconds: Annotated[float, typer.Option(help="How long.", min=0.1)] = 20.0,
    deadline_s: Annotated[
        float | None,
        typer.Option("--deadline-s", help="Of each request; the service's own by default.", min=0.001),
    ] = None,
    site: Annotated[str | None, typer.Option(help="Where they enter; all sites in turn by default.")] = None,
    seed: Annotated[int, typer.Option(help="Keys the gaps between requests.")] = 0,
    folder: Folder = DEFAULT,
) -> None:
    """Send requests to the live system that is up, and say what became of them."""
    seen = _import("clients.traffic").load(folder, service, rate_qps, seconds, deadline_s, site, seed)
    headings = ("requests", "in time", "late", "refused", "dropped", "failed", "median ms", "95 % ms")
    counts = [seen.in_time, seen.late, seen.refused, seen.dropped, seen.failed]
    delays = np.quantile(seen.delays_s, [0.5, 0.95]) * 1e3 if seen.delays_s else []
    show(headings, [(sum(counts), *counts, *(f"{delay:.0f}" for delay in delays))])
    out.print(f"in time: within {seen.deadline_s:g} s")
    if seen.why:
        out.print(f"last error: {seen.why}", markup=False)
    say_busy(seen.busy)
