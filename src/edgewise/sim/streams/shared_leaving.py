"""Over shared links: requests that come to workers, streams that move, workers that die; see `leaving`."""

from __future__ import annotations

import numpy as np

from edgewise.core.dispatch.state import Ways
from edgewise.kernels.compiled import kernel
from edgewise.sim.links.net import MESSAGES, forget
from edgewise.sim.streams.guests import ask
from edgewise.sim.streams.leaving import follow
from edgewise.sim.streams.lines import OnLinks, Senders, leave as leave_line, leave_all, stand
from edgewise.sim.streams.queues import lose_with, room_to_lose, send
from edgewise.sim.streams.shared import COME, post, send_no_more
from edgewise.sim.streams.state import ENDED, Streams, Tally, Workers


@kernel
def join(i: int, k: int, at_s: float, work_s: float, begin_by_s: float, s: Streams, carried: OnLinks) -> bool:
    """Request `i` comes to worker `k`, see `guests.ask`; whether there is room."""
    lines = carried.lines
    if lines.many[0] == lines.queries.size:
        return False
    h = lines.queries[stand(carried, k, i, 0, max(at_s, carried.now_s[0]))]  # who is here begins, or waits
    h.at_s, h.sent_s, h.back_s = at_s, 0.0, 0.0
    ask(s[i], at_s, work_s, begin_by_s)
    return True


@kernel
def leave(i: int, k: int, s: Streams, carried: OnLinks, tally: Tally) -> None:
    """Whatever stream `i` has in line at worker `k` is there no more."""
    leave_all(i, k, s, carried, tally)


@kernel
def stop(i: int, senders: Senders) -> None:
    """Stream `i` sends no more, if it did."""
    for at in range(senders.many[0]):
        if senders.sending[at] == i:
            send_no_more(at, senders)
            return


@kernel
def detach(i: int, k: int, s: Streams, carried: OnLinks, workers: Workers, tally: Tally) -> None:
    """Stream `i` sends no more to worker `k`; what it sent is lost, and what is held there is forgotten."""
    leave_all(i, k, s, carried, tally)
    carried.senders.each[i].epoch += 1
    carried.senders.each[i].came_s = s[i].before_s = 0.0
    for j in range(workers.each[k].held if s[i].answer_bytes > 0.0 else 0):
        if workers.batch[k, j].stream == i:
            forget(carried.net, workers.batch[k, j].slot)
    stop(i, carried.senders)


@kernel
def leave_behind(i: int, rest: int, s: Streams, carried: OnLinks) -> bool:
    """Stream `i` leaves its worker; what is on its way there is that of the stream in row `rest`.

    Returns:
        Whether there is something.
    """
    net, sender, found = carried.net, carried.senders.each[i], False
    for slot in range(net.messages.size):
        m = net.messages[slot]
        if m.number >= 0 and m.sink == COME and m.who == i and m.epoch == sender.epoch:
            m.who, found = rest, True
    if found:
        follow(s, rest, i, -np.inf)
        s[rest].state = ENDED
        after = carried.senders.each[rest]
        after.worker, after.epoch, after.came_s = sender.worker, sender.epoch, sender.came_s
    sender.came_s = s[i].before_s = 0.0
    stop(i, carried.senders)
    return found


@kernel
def fail(k: int, s: Streams, carried: OnLinks, workers: Workers, tally: Tally) -> None:
    """Worker `k` dies: what stands in line there is lost; there is `room_to_lose` it. Requests leave it."""
    line = carried.lines.each[k]
    at = line.first
    while at >= 0:
        h, behind = carried.lines.queries[at], carried.lines.queries[at].behind
        if s[h.who].size_bytes >= 0.0:
            lose_with(k, h.who, h.number, h.sent_s, s, workers, tally)
            if s[h.who].answer_bytes > 0.0:
                forget(carried.net, h.slot)
            leave_line(carried.lines, line, at)
        at = behind
    for j in range(workers.each[k].held):
        b = workers.batch[k, j]
        if s[b.stream].answer_bytes > 0.0:
            forget(carried.net, b.slot)


@kernel
def give_up(k: int, nobody: int, s: Streams, carried: OnLinks, workers: Workers, tally: Tally) -> bool:
    """Gateways hear that worker `k` is dead: what is on its way there is lost, and uses links to the end.

    Args:
        nobody: a row of no stream.
    Returns:
        Whether that is done; else there must be room for more that is lost to go on.
    """
    net = carried.net
    for slot in range(net.messages.size):
        m = net.messages[slot]
        if m.number < 0 or m.sink != COME or m.who == nobody:
            continue
        sender = carried.senders.each[m.who]
        if sender.worker == k and m.epoch == sender.epoch:
            if not room_to_lose(workers, 1):
                return False
            lose_with(k, m.who, m.number, m.sent_s, s, workers, tally)
            m.who = nobody
    return True


@kernel
def attach_again(
    i: int, rest: int, k: int, s: Streams, carried: OnLinks, workers: Workers, ways: Ways, seed: np.uint64
) -> bool:
    """Row `rest` sends its one query to worker `k`, where stream `i` is bound; that does not overtake it.

    Returns:
        Whether there is room on the links.
    """
    if carried.net.free[MESSAGES] < 0:
        return False
    q, cluster = s[rest], workers.each[k].cluster
    way = ways[q.site, cluster]
    carried.senders.each[rest].worker = k
    tx_s = send(q, way, seed)
    s[i].before_s = q.arrival_s
    post(carried, rest, q, way, q.site * ways.shape[1] + cluster, tx_s)
    q.state = ENDED
    return True
