"""Links, messages and the lists they wait in, as arrays; and how messages come, go on and get there.

A message is a payload, an answer or anything else that is sent whole. It carries when it would be there with
every link to itself (`due_s`), and for how long others held it up (`wait_s`): it is there at their sum. So
where nothing waits, times are those without sharing, to the last digit. Its transmission counts once, at the
slowest part of its route: until then its head passes links, from then on its end.

Lists of messages: one for each level of links, and last one for those who are there (`sinks`). Messages that
come to a level are appended to its list; what cannot be decided before the end of a window stays there.
Forbidden here: any idea of what a message is for.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from edgewise.arrays import Bools, Floats, Ints
from edgewise.core.compiled import inner, kernel
from edgewise.model.routes import Routes

Records = Any  # a numpy record array; its fields are those of the dtype named in each docstring


def _records(**columns: str) -> np.dtype[Any]:
    return np.dtype(list(columns.items()), align=True)


# rate_bps is what reservations leave. free_s: when all that came is through. passing_s: when what has begun
# is; left_bits of it where the rate is 0. backlog_bits at backlog_s: what is still to be sent. served_bits at
# served_s: what each of `inside` messages has been given since the link was last empty; root: of their heap.
LINK = _records(
    capacity_bps="f8", reserved_bps="f8", rate_bps="f8", buffer_bits="f8", free_s="f8", passing_s="f8",
    left_bits="f8", backlog_bits="f8", backlog_s="f8", carried_bits="f8", dropped="i8", level="i8", loop="i8",
    root="i8", inside="i8", served_bits="f8", served_s="f8",
)  # fmt: skip
# private_bps: of what lies on the route and nobody else uses, before its links (or behind, on the way back).
# bps: of its slowest part, which is link number `slowest`; -1: the private part.
ROUTE = _records(length="i8", private_bps="f8", bps="f8", slowest="i8")
# who, number: whose it is, and which of theirs; -1: it is free. epoch: of its stream; its rider's number.
# place: link where it is, or what it came to. hop: number of that link on the route. slowest: as of its route
# when it left. begun: it is in the line of the link, and passes from start_s on. base_s: when it left;
# there_s: delay on the way; tx_s: transmission by its slowest link as of then; most_s: as it has become.
# answer_s: transmission that back_s reckons with. left: links not done with it; the next free one.
MESSAGE = _records(
    who="i4", number="i4", epoch="i4", route="i4", place="i4", left="i4", hop="i2", slowest="i2", sink="i1",
    begun="i1", lost="i1", at_s="f8", start_s="f8", base_s="f8", there_s="f8", tx_s="f8", due_s="f8",
    wait_s="f8", most_s="f8", own_s="f8", bits="f8", sent_s="f8", back_s="f8",
    answer_s="f8",
)  # fmt: skip
# A message at one link, where all are served at once: it leaves when the link has given each `key` bits.
VISIT = _records(
    message="i8", who="i8", number="i8", place="i8", at_s="f8", alone="i8", key="f8", order="i8", left="i8",
    right="i8",
)  # fmt: skip
# Of `Net.free`: first free record of each, how many joined a link, and how many riders sent.
MESSAGES, VISITS, TURN, SENT = range(4)
FIFO, PS = range(2)


class Net(NamedTuple):
    """L links, and what is on them.

    links: (L,) LINK. routes: (R,) ROUTE. hop: (R, K) links of a route. before: (R, K) share of its delay that
    lies before each. messages, visits: pools of MESSAGE and VISIT. lists: (levels + sinks, room) messages;
    visits at the levels of PS. where, when: places and times of what is in lists. many: (levels + sinks,) how
    many. free: see MESSAGES. starts: (places + 2,), slots and keys: (room,) of the list that was sorted last.
    sharing: FIFO or PS. sinks: the first list of those who are there.
    """

    links: Records
    routes: Records
    hop: Ints
    before: Floats
    messages: Records
    visits: Records
    lists: Ints
    where: Ints
    when: Floats
    many: Ints
    free: Ints
    starts: Ints
    slots: Ints
    keys: Floats
    sharing: int
    sinks: int


ROOM = 1024  # messages that a net has room for at first


def new_net(
    routes: Routes, private_bps: Floats, order: tuple[Ints, Bools], sharing: int, sinks: int, places: int = 0
) -> Net:
    """Idle links.

    Args:
        private_bps: (R,) of each route.
        order: of links, as `edgewise.model.routes.levels` gives it.
        sinks: how many lists of messages that are there.
        places: most places that those may be sorted by.
    """
    count = len(routes.names)
    level, loop = order
    links = np.zeros(count, dtype=LINK).view(np.recarray)
    links.capacity_bps = links.rate_bps = routes.rate_bps
    links.buffer_bits, links.level, links.loop, links.root = 8.0 * routes.buffer_bytes, level, loop, -1
    table = np.zeros(len(routes.link), dtype=ROUTE).view(np.recarray)
    table.length, table.private_bps = (routes.link >= 0).sum(axis=1), private_bps
    rows = int(level.max(initial=0)) + 1
    net = Net(
        links, table, routes.link, routes.before,
        np.zeros(0, dtype=MESSAGE).view(np.recarray), np.zeros(0, dtype=VISIT).view(np.recarray),
        np.zeros((rows + sinks, 0), dtype=np.int64), np.zeros((rows + sinks, 0), dtype=np.int64),
        np.zeros((rows + sinks, 0)),
        np.zeros(rows + sinks, dtype=np.int64),
        np.array([-1, -1, 0, 0]), np.zeros(max(count, places) + 2, dtype=np.int64),
        np.zeros(0, dtype=np.int64), np.zeros(0), sharing, rows,
    )  # fmt: skip
    net = with_room(net, ROOM)
    set_rates(net)
    return net


def with_room(net: Net, more: int) -> Net:
    """The same net, with room for so many more messages."""
    hops = more * (net.hop.shape[1] if net.sharing == PS else 0)
    messages = _longer(net.messages, more, net.free, MESSAGES)
    visits = _longer(net.visits, hops, net.free, VISITS)
    room = max(messages.size, visits.size)
    wider = [np.zeros((old.shape[0], room), dtype=old.dtype) for old in (net.lists, net.where, net.when)]
    for new, old in zip(wider, (net.lists, net.where, net.when), strict=True):
        new[:, : old.shape[1]] = old
    lists, where, when = wider
    slots, keys = np.zeros(room, dtype=np.int64), np.zeros(room)
    return net._replace(
        messages=messages, visits=visits, lists=lists, where=where, when=when, slots=slots, keys=keys
    )


def _longer(pool: Records, more: int, free: Ints, which: int) -> Records:
    size = pool.size
    if not more:
        return pool
    longer = np.concatenate([pool, np.zeros(more, dtype=pool.dtype)]).view(np.recarray)
    longer.number[size:] = -1
    longer.left[size:] = np.arange(size + 1, size + more + 1)
    longer.left[-1] = free[which]
    free[which] = size
    return longer


@kernel
def set_rates(net: Net) -> None:
    """Work out the slowest part of every route, after rates have changed; links of rate 0 are none."""
    for r in range(net.routes.size):
        route = net.routes[r]
        route.bps, route.slowest = route.private_bps, -1
        for k in range(route.length):
            rate = net.links[net.hop[r, k]].rate_bps
            if 0.0 < rate < route.bps or (rate == route.bps and route.slowest < 0):
                route.bps, route.slowest = rate, k


@inner
def new_message(net: Net) -> int:
    """Take a free message; -1 where there is none."""
    slot = net.free[MESSAGES]
    if slot >= 0:
        net.free[MESSAGES] = net.messages[slot].left
    return int(slot)


@inner
def forget(net: Net, slot: int) -> None:
    """Give a message back."""
    net.messages[slot].left, net.messages[slot].number = net.free[MESSAGES], -1
    net.free[MESSAGES] = slot


@inner
def append(net: Net, row: int, slot: int, place: int, at_s: float) -> None:
    """Add what comes to a place to the end of a list."""
    at = net.many[row]
    net.lists[row, at], net.where[row, at], net.when[row, at] = slot, place, at_s
    net.many[row] = at + 1


@inner
def depart(net: Net, slot: int) -> None:
    """A message sets out. Set are who, number, route, sink, base_s, there_s, tx_s, due_s and bits."""
    m = net.messages[slot]
    m.wait_s, m.hop, m.lost, m.begun, m.slowest = 0.0, 0, 0, 0, net.routes[m.route].slowest
    m.most_s = m.tx_s
    if net.sharing == FIFO:
        come(net, slot)
        return
    m.left = net.routes[m.route].length
    for k in range(m.left):  # its head is at every link before its end is through the first
        at = net.free[VISITS]
        v = net.visits[at]
        net.free[VISITS] = v.left
        v.message, v.who, v.number, v.place = slot, m.who, m.number, net.hop[m.route, k]
        v.at_s = m.base_s + m.there_s * net.before[m.route, k]
        append(net, net.links[v.place].level, at, v.place, v.at_s)


@inner
def comes_s(net: Net, m: Any) -> float:
    """When a message comes to the next link of its route, as it is now."""
    at_s = m.base_s + m.there_s * net.before[m.route, m.hop] + m.wait_s
    return float(at_s + m.tx_s if m.hop > m.slowest else at_s)


@inner
def come(net: Net, slot: int) -> None:
    """A message comes to the next link of its route."""
    m = net.messages[slot]
    m.place = net.hop[m.route, m.hop]
    m.at_s = comes_s(net, m)
    m.begun = 0
    append(net, net.links[m.place].level, slot, m.place, m.at_s)


@inner
def arrive(net: Net, slot: int) -> None:
    """A message is there, or is lost."""
    m = net.messages[slot]
    m.at_s = m.due_s + m.wait_s
    append(net, net.sinks + m.sink, slot, m.place, m.at_s)


@inner
def admit(link: Any, at_s: float, bits: float) -> bool:
    """Whether a message that comes finds room; it is then part of the backlog."""
    link.backlog_bits, link.backlog_s = backlog_at(link, at_s), at_s
    if link.backlog_bits > link.buffer_bits:
        link.dropped += 1
        return False
    link.backlog_bits += bits
    link.carried_bits += bits
    return True


@inner
def backlog_at(link: Any, now_s: float) -> float:
    """Bits that a link has still to send."""
    return float(max(link.backlog_bits - link.rate_bps * (now_s - link.backlog_s), 0.0))
