"""python -m beds.envoy: a bed until Ctrl-C, or figures of the baselines (--figures)."""

from __future__ import annotations

import argparse
import json
import signal
from dataclasses import replace

from beds.envoy.bed import Bed
from beds.envoy.load import Load, closed_loop
from beds.envoy.settings import Body, Settings
from beds.processes import BedError, end_by_signals

PATH = "/v2/models/m/infer"
BASELINES = {
    "Envoy alone, round robin": Settings(picker=None),
    "Envoy alone, least request": Settings(picker=None, balance="LEAST_REQUEST"),
    "plain picker, headers only": Settings(),
    "plain picker, buffered": Settings(body=Body.BUFFERED),
    "plain picker, full duplex": Settings(body=Body.FULL_DUPLEX),
}


def figures(seconds: float, connections: int) -> dict[str, Load]:
    """Requests per second and delays of each baseline, one after another, and a table of them."""
    found: dict[str, Load] = {}
    print(f"{connections} connections{'':15} requests/s   p50 ms   p99 ms added ms   p50 ms of one")
    for name, settings in BASELINES.items():
        with Bed(settings) as bed:
            closed_loop(bed.url + PATH, connections, 0.5)  # connections are made, code is warm
            full = found[name] = closed_loop(bed.url + PATH, connections, seconds)
            one = closed_loop(bed.url + PATH, 1, seconds / 2)
        added_s = full.p50_s - found["Envoy alone, round robin"].p50_s
        print(
            f"{name:28} {full.per_s:10.0f} {1e3 * full.p50_s:8.2f} {1e3 * full.p99_s:8.2f}"
            f" {1e3 * added_s:8.2f}   {1e3 * one.p50_s:.2f}", flush=True,
        )  # fmt: skip
    return found


def main() -> None:
    """Start a bed, or measure."""
    parser = argparse.ArgumentParser(
        prog="python -m beds.envoy", description="Envoy with an endpoint picker and fake inference servers.",
        epilog="examples:  python -m beds.envoy --body FULL_DUPLEX_STREAMED  python -m beds.envoy --figures",
    )  # fmt: skip
    parser.add_argument("--backends", type=int, default=3)
    parser.add_argument("--picker", default="plain", help='"plain", "none", or the address of yours')
    parser.add_argument("--body", choices=[each.value for each in Body], default="NONE")
    parser.add_argument("--fail-open", action="store_true")
    parser.add_argument("--figures", action="store_true", help="measure the baselines")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--connections", type=int, default=16)
    said = parser.parse_args()
    end_by_signals()
    try:
        if said.figures:
            figures(said.seconds, said.connections)
            return
        picker = None if said.picker == "none" else said.picker
        wanted = replace(
            Settings(), backends=said.backends, picker=picker, body=Body(said.body), fail_open=said.fail_open
        )
        with Bed(wanted) as bed:
            print(
                json.dumps(
                    {"envoy": bed.url, "admin": bed.admin_url, "servers": bed.servers, "picker": bed.picker}
                )
            )
            print(f"curl -d '{{}}' {bed.url}{PATH}    Ctrl-C ends it", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        return
    except BedError as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()
