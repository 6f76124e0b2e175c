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

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from edgewise.arrays import Bools, Floats, Ints
from edgewise.kernels.compiled import inner, kernel
from edgewise.model.ways import Routes

Records = Any  # a numpy record array; its fields are those of the dtype named in each docstring


def _records(**columns: str) -> np.dtype[Any]:
    return np.dtype(list(columns.items()), align=True)


# rate_bps is what reservations leave. free_s: when all that came is through. left_bits: of what has begun to
# pass, where the rate is 0. first, last: of those that wait in line; -1: none does. backlog_bits at
# backlog_s: what is still to be sent. served_bits at served_s: what each of `inside` messages has been given
# since the link was last empty; root: of their heap.
LINK = _records(
    capacity_bps="f8", reserved_bps="f8", rate_bps="f8", buffer_bits="f8", free_s="f8", left_bits="f8",
    backlog_bits="f8", backlog_s="f8", carried_bits="f8", dropped="i8", level="i8", loop="i8",
    first="i8", last="i8", root="i8", inside="i8", served_bits="f8", served_s="f8",
)  # fmt: skip
# private_bps: of what lies on the route and nobody else uses, before its links (or behind, on the way back).
# bps: of its slowest part, which is link number `slowest`; -1: the private part.
ROUTE = _records(length="i8", private_bps="f8", bps="f8", slowest="i8")
# who, number: whose it is, and which of theirs; -1: it is free. epoch: of its stream; its rider's number.
# place: link where it is, or what it came to. hop: number of that link on the route. slowest: as of its route
# when it left. begun: it is in the line of the link, and passes from start_s on. base_s: when it left;
# there_s: delay on the way; tx_s: transmission by its slowest link as of then; most_s: as it has become.
# passed_s: on what it has passed. answer_s: transmission that back_s reckons with. left: links not done with
# it; who stands behind it in a line; the next free one.
MESSAGE = _records(
    who="u4", number="i4", epoch="i4", route="u4", place="u4", left="i4", slowest="i2", hop="i2", sink="i1",
    begun="i1", lost="i1", at_s="f8", start_s="f8", base_s="f8", there_s="f8", tx_s="f8", due_s="f8",
    most_s="f8", wait_s="f8", passed_s="f8", bits="f8", sent_s="f8", back_s="f8", answer_s="f8",
)  # fmt: skip
# A message at one link, where all are served at once: it leaves when the link has given each `key` bits.
VISIT = _records(
    message="i8", who="i8", number="i8", place="i8", at_s="f8", alone="i8", key="f8", order="i8", left="i8",
    right="i8",
)  # fmt: skip
# A link of a route, its level, and the share of the delay of the route that lies before it.
HOP = _records(link="u4", level="u4", before="f8")
# What comes to a list, and when. A place without sign is found sooner: nobody asks whether it counts from the
# end.
ITEM = _records(slot="u4", at_s="f8")
# What is next in a loop of links. order: whether it comes (1) or passes (0), whose it is, which of theirs;
# neither number is above 2^31.
TURN_OF = _records(at_s="f8", order="i8", slot="i8")
# Of `Net.free`: first free record of each, how many joined a link, how many riders sent, how many looks.
MESSAGES, VISITS, TURN, SENT, LOOKED = range(5)
FIFO, PS = range(2)


class Net(NamedTuple):
    """L links, and what is on them.

    Attributes:
        links: (L,) LINK.
        routes: (R,) ROUTE.
        hops: (R, K) HOP.
        messages: a pool of MESSAGE.
        visits: a pool of VISIT.
        lists: (levels + sinks, room) ITEM, messages; visits at the levels of PS.
        many: (levels + sinks,) how many items of each list there are.
        done_s: (levels + sinks,) up to when items were taken out of each.
        free: see MESSAGES.
        ranked: (room,) ITEM, what was sorted last.
        spare: (room,) ITEM, for sorting.
        starts: for sorting.
        turns: (room,) TURN_OF, a heap, where links are in a loop.
        sharing: FIFO or PS.
        sinks: the first list of those who are there.
        looks_s: (T + 1,) when it is noted what links have carried; the last is infinity.
        seen: (T, 4, L) bits that each has sent, messages that it has dropped, its capacity, and what was
            reserved of it.
    """

    links: Records
    routes: Records
    hops: Records
    messages: Records
    visits: Records
    lists: Records
    many: Ints
    done_s: Floats
    free: Ints
    ranked: Records
    spare: Records
    starts: Ints
    turns: Records
    sharing: int
    sinks: int
    looks_s: Floats
    seen: Floats


ROOM = 1024  # messages that a net has room for at first


def new_net(
    routes: Routes,
    private_bps: Floats,
    order: tuple[Ints, Bools],
    sharing: int,
    sinks: int,
    looks_s: Sequence[float] = (),
) -> Net:
    """Idle links.

    Args:
        private_bps: (R,) of each route.
        order: of links, as `edgewise.model.ways.levels` gives it.
        sinks: how many lists of messages that are there.
        looks_s: moments at which it is noted what links have carried, in order.
    """
    count = len(routes.names)
    level, loop = order
    links = np.zeros(count, dtype=LINK).view(np.recarray)
    links.capacity_bps = links.rate_bps = routes.rate_bps
    links.buffer_bits, links.level, links.loop = 8.0 * routes.buffer_bytes, level, loop
    links.first = links.last = links.root = -1
    table = np.zeros(len(routes.link), dtype=ROUTE).view(np.recarray)
    table.length, table.private_bps = (routes.link >= 0).sum(axis=1), private_bps
    hops = np.zeros(routes.link.shape, dtype=HOP).view(np.recarray)
    hops.link, hops.level, hops.before = routes.link, level[routes.link], routes.before
    rows = int(level.max(initial=0)) + 1
    net = Net(
        links, table, hops,
        np.zeros(0, dtype=MESSAGE).view(np.recarray), np.zeros(0, dtype=VISIT).view(np.recarray),
        np.zeros((rows + sinks, 0), dtype=ITEM).view(np.recarray),
        np.zeros(rows + sinks, dtype=np.int64), np.zeros(rows + sinks), np.array([-1, -1, 0, 0, 0]),
        *_sorting(0, count), np.zeros(0, dtype=TURN_OF).view(np.recarray), sharing, rows,
        np.array([*looks_s, np.inf]), np.zeros((len(looks_s), 4, count)),
    )  # fmt: skip
    net = with_room(net, ROOM)
    set_rates(net)
    return net


def with_room(net: Net, more: int) -> Net:
    """The same net, with room for so many more messages."""
    hops = more * (net.hops.shape[1] if net.sharing == PS else 0)
    messages = longer(net.messages, more, net.free, MESSAGES)
    visits = longer(net.visits, hops, net.free, VISITS)
    room = max(messages.size, visits.size)
    lists = np.zeros((net.lists.shape[0], room), dtype=ITEM).view(np.recarray)
    lists[:, : net.lists.shape[1]] = net.lists
    ranked, spare, starts = _sorting(room, net.links.size)
    turns = np.zeros(messages.size if net.links.loop.any() else 0, dtype=TURN_OF).view(np.recarray)
    return net._replace(
        messages=messages, visits=visits, lists=lists, ranked=ranked, spare=spare, starts=starts, turns=turns
    )


def _sorting(room: int, places: int) -> tuple[Records, Records, Ints]:
    """Room to sort in; see `edgewise.sim.links.sort`."""
    items, others = np.zeros((2, room), dtype=ITEM).view(np.recarray)
    return items, others, np.zeros(max(2 * room, places + 2), dtype=np.int64)


def longer(pool: Records, more: int, free: Ints, which: int) -> Records:
    """The same records and more. Of free ones, `number` is -1 and `left` the next; `free[which]` is one."""
    size = pool.size
    if not more:
        return pool
    found = np.concatenate([pool, np.zeros(more, dtype=pool.dtype)]).view(np.recarray)
    found.number[size:] = -1
    found.left[size:] = np.arange(size + 1, size + more + 1)
    found.left[-1] = free[which]
    free[which] = size
    return found


@kernel
def set_rates(net: Net) -> None:
    """Work out the slowest part of every route, after rates have changed; links of rate 0 are none."""
    for r in range(net.routes.size):
        route = net.routes[r]
        route.bps, route.slowest = route.private_bps, -1
        for k in range(route.length):
            rate = net.links[net.hops[r, k].link].rate_bps
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
def append(net: Net, row: int, slot: int, at_s: float) -> None:
    """Add what comes to the end of a list."""
    item = net.lists[row, net.many[row]]
    item.slot, item.at_s = slot, at_s
    net.many[row] += 1


@inner
def depart(net: Net, slot: int, m: Any) -> None:
    """Message `m`, in `slot`, sets out; set are all that say whose it is, its times, bits, route and sink."""
    m.hop, m.begun, m.lost, m.wait_s, m.passed_s = 0, 0, 0, 0.0, 0.0
    m.slowest, m.most_s = net.routes[m.route].slowest, m.tx_s
    if net.sharing == FIFO:
        come(net, slot, m)
        return
    m.left = net.routes[m.route].length
    for k in range(m.left):  # its head is at every link before its end is through the first
        at = net.free[VISITS]
        v = net.visits[at]
        net.free[VISITS] = v.left
        hop = net.hops[m.route, k]
        v.message, v.who, v.number, v.place = slot, m.who, m.number, hop.link
        v.at_s = m.base_s + m.there_s * hop.before
        append(net, hop.level, at, v.at_s)


@inner
def comes_s(m: Any, hop: Any) -> float:
    """When a message comes to the next link of its route, which is `hop`, as it is now."""
    at_s = m.base_s + m.there_s * hop.before + m.wait_s
    # How its transmission has changed is in `wait_s`, and counts from the slowest link on.
    return float(at_s + (m.tx_s if m.hop > m.slowest else m.tx_s - m.most_s))


@inner
def come(net: Net, slot: int, m: Any) -> None:
    """Message `m`, in `slot`, comes to the next link of its route."""
    hop = net.hops[m.route, m.hop]
    m.place, m.at_s = hop.link, comes_s(m, hop)
    append(net, hop.level, slot, m.at_s)


@inner
def arrive(net: Net, slot: int, m: Any) -> None:
    """Message `m`, in `slot`, is there, or is lost."""
    m.at_s = m.due_s + m.wait_s
    append(net, net.sinks + m.sink, slot, m.at_s)


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


@inner
def next_look_s(net: Net) -> float:
    """When it is noted next what links have carried."""
    return float(net.looks_s[net.free[LOOKED]])


@inner
def look(net: Net, now_s: float) -> None:
    """Note what links have carried up to now, if it is to be noted now."""
    at = net.free[LOOKED]
    if at == net.seen.shape[0] or net.looks_s[at] > now_s:
        return
    net.free[LOOKED] = at + 1
    for j in range(net.links.size):
        link, seen = net.links[j], net.seen[at]
        seen[0, j], seen[1, j] = link.carried_bits - backlog_at(link, now_s), link.dropped
        seen[2, j], seen[3, j] = link.capacity_bps, link.reserved_bps
