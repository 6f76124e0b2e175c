"""Messages on a link all at once: n of them get (C - R) / n each.

A link gives all of them alike, so one number, what each was given since it was last empty, says how far all
are: a message leaves when it has been given all its bits (its virtual finish). Nobody waits for a turn, so
the head of a message comes to every link of its route as if nobody else were there, each link serves it by
itself, and it is there when the last one is done: held up by the largest sojourn - transmission of its links.
"""

from __future__ import annotations

import numpy as np

from edgewise.kernels.compiled import inner
from edgewise.sim.heap import merge, without_root
from edgewise.sim.links.net import TURN, VISITS, Net, admit, arrive
from edgewise.sim.links.sort import by_place, take_sorted


@inner
def share_level(net: Net, row: int, until_s: float) -> None:
    """Bring every link of a level up to `until_s`."""
    by_place(net, net.visits, take_sorted(net, net.visits, row, until_s), net.links.size)
    for j in range(net.links.size):
        link, at, end = net.links[j], net.starts[j], net.starts[j + 1]
        if link.level != row:
            continue
        while True:
            coming_s = net.spare[at].at_s if at < end else np.inf
            done_s = finish_s(net, j)
            if done_s <= coming_s and done_s < until_s:
                leave(net, j, done_s)
            elif at < end:
                join(net, j, net.spare[at].slot)
                at += 1
            else:
                break


@inner
def finish_s(net: Net, j: int) -> float:
    """When the next message leaves if none comes before."""
    link = net.links[j]
    if link.inside == 0 or link.rate_bps == 0.0:
        return np.inf
    left = max(net.visits[link.root].key - link.served_bits, 0.0)
    return float(link.served_s + left * link.inside / link.rate_bps)


@inner
def progress(net: Net, j: int, now_s: float) -> None:
    """Note what each message has been given up to now."""
    link = net.links[j]
    if link.inside > 0:
        link.served_bits += (now_s - link.served_s) * link.rate_bps / link.inside
    else:
        link.served_bits = 0.0
    link.served_s = now_s


@inner
def join(net: Net, j: int, visit: int) -> None:
    """A message comes to a link, or is dropped there; its other links serve it all the same."""
    link, v = net.links[j], net.visits[visit]
    m = net.messages[v.message]
    if not admit(link, v.at_s, m.bits):
        m.lost = 1
        done(net, visit)
        return
    progress(net, j, v.at_s)
    v.alone = link.inside == 0
    if link.inside == 1:
        net.visits[link.root].alone = 0
    v.key, v.order, v.left, v.right = link.served_bits + m.bits, net.free[TURN], -1, -1
    net.free[TURN] += 1
    link.root = merge(net.visits, link.root, visit)
    link.inside += 1


@inner
def leave(net: Net, j: int, now_s: float) -> None:
    """A message has been given all its bits."""
    link = net.links[j]
    visit = link.root
    v = net.visits[visit]
    m = net.messages[v.message]
    link.served_bits, link.served_s = v.key, now_s
    link.root = without_root(net.visits, visit)
    link.inside -= 1
    # By itself it took just its transmission, whatever rounding says.
    m.wait_s = max(m.wait_s, (m.bits / link.rate_bps if v.alone else now_s - v.at_s) - m.tx_s)
    done(net, visit)


@inner
def done(net: Net, visit: int) -> None:
    """A link is done with a message; after the last one it is there."""
    v = net.visits[visit]
    m = net.messages[v.message]
    m.left -= 1
    if m.left == 0:
        arrive(net, v.message, m)
    v.left = net.free[VISITS]
    net.free[VISITS] = visit


@inner
def change_share(net: Net, j: int, now_s: float, rate_bps: float) -> None:
    """Link `j` has another rate from now on, and is up to now."""
    link = net.links[j]
    progress(net, j, now_s)
    if link.inside == 1:
        net.visits[link.root].alone = 0
    link.rate_bps = rate_bps
