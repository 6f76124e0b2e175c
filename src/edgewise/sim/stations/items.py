"""Items and the queries they belong to: made, logged, drawn for, counted, given back.

An item is one task or one transfer at one station. All kernels change the world in place.
"""

import math

import numpy as np

from edgewise.arrays import Records
from edgewise.core.keyed import Purpose, exponential_of, normal_of
from edgewise.kernels.compiled import kernel
from edgewise.sim.stations.events import push_event
from edgewise.sim.stations.state import (
    DONE,
    DOWN,
    EXPONENTIAL,
    FIXED,
    LOGNORMAL,
    NONE,
    OPEN,
    WAKE,
    StationWorld,
)

NETWORK, SERVICE = int(Purpose.NETWORK), int(Purpose.SERVICE)


@kernel
def new_item(world: StationWorld, flight: int, what: int, hop: int, amount: float) -> int:
    """Take an item from the free list; the caller has made sure of room."""
    c = world.clock[0]
    i = c.item_free
    item = world.items[i]
    c.item_free = item.next
    c.items += 1
    world.flights[flight].refs += 1
    item.flight, item.what, item.hop, item.amount = flight, what, hop, amount
    item.route, item.holder, item.next, item.gone = -1, -1, -1, 0
    return int(i)


@kernel
def discard(world: StationWorld, i: int) -> None:
    """Give an item back; its query ends with its last item."""
    item, c = world.items[i], world.clock[0]
    item.stamp += 1
    item.next = c.item_free
    c.item_free = i
    c.items -= 1
    release_flight(world, item.flight)


@kernel
def release_flight(world: StationWorld, f: int) -> None:
    """Drop one reference to a flight; without any the query is done and the flight free."""
    flight = world.flights[f]
    flight.refs -= 1
    if flight.refs == 0:
        end(world, f, DONE)
        c = world.clock[0]
        flight.next = c.flight_free
        c.flight_free = f
        c.flights -= 1


@kernel
def end(world: StationWorld, f: int, outcome: int) -> None:
    """Write how and when a query ended; only the first end counts.

    Other work of a failed query is thrown away when its turn comes, or runs out if it is in service.
    """
    flight = world.flights[f]
    if flight.outcome == OPEN:
        flight.outcome = outcome
        query = world.queries[flight.query]
        query.outcome = outcome
        query.done_s = world.clock[0].now_s


@kernel
def write_log(world: StationWorld, i: int, start_s: float) -> None:
    """Log one service that ends now."""
    c = world.clock[0]
    if c.logging:
        item, row = world.items[i], world.log[c.logged]
        c.logged += 1
        row.enter_s, row.start_s, row.finish_s = item.enter_s, start_s, c.now_s
        row.query, row.what = world.flights[item.flight].query, item.what
        row.hop, row.station = item.hop, item.station


@kernel
def draw_of(item: Records) -> int:
    """Counter of an item's draws, unique within its query."""
    if item.hop < 0:
        return int(item.what)
    return int(((np.int64(item.what) + 1) << 20) + np.int64(item.hop))


@kernel
def noise(world: StationWorld, s: int, i: int) -> float:
    """Factor on the work of an item: mean 1, by the station's law."""
    st = world.stations[s]
    if st.law == FIXED:
        return 1.0
    item, seed = world.items[i], world.clock[0].seed
    query = world.flights[item.flight].query
    if st.law == EXPONENTIAL:
        return float(exponential_of(seed, SERVICE, query, draw_of(item)))
    z = normal_of(seed, SERVICE, query, draw_of(item))
    if st.law == LOGNORMAL:
        return math.exp(st.log_deviation * z - 0.5 * st.log_deviation**2)
    return float(max(1.0 + st.deviation * z, 0.0))


@kernel
def propagation(world: StationWorld, s: int, i: int) -> float:
    """Delay of an item after the station has served it: normal, truncated at 0."""
    st = world.stations[s]
    if st.delay_deviation_s == 0.0:
        return float(st.delay_s)
    item = world.items[i]
    z = normal_of(world.clock[0].seed, NETWORK, world.flights[item.flight].query, draw_of(item))
    return float(max(st.delay_s + st.delay_deviation_s * z, 0.0))


@kernel
def account(st: Records, now_s: float) -> None:
    """Bring the time integrals of a station up to now; before any number changes."""
    gap = now_s - st.area_s
    if gap > 0.0:
        st.number_s += gap * st.inside
        st.busy_s += gap * min(st.serving, st.servers)
        st.area_s = now_s


@kernel
def speed(st: Records) -> float:
    """Work per second of one server: nothing while the station is down."""
    return 0.0 if st.mode == DOWN else float(st.rate)


@kernel
def wake(world: StationWorld, s: int) -> None:
    """See to it, in this same instant, that those outside enter if there is room."""
    st = world.stations[s]
    if st.outside_head >= 0 and not st.waking:
        st.waking = 1
        push_event(world.clock, world.events, world.clock[0].now_s, WAKE, s, NONE)
