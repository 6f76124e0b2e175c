"""Gateways at sites, in one compiled loop: clients come and go, workers are asked, grant and refuse.

The loop is the way that messages take, and how long. What is decided, booked, granted, renewed and forgotten
is in kernels of `core`, which cores call when they handle one event. Where a decision needs Python (a policy
that is not compiled, or is at fault), the loop stops there, and goes on when it is told.
"""

from typing import Any

import numpy as np

from edgewise.core.dispatch.policy import CLOSE, Batch, choose
from edgewise.core.dispatch.state import (
    NONE,
    bind,
    is_final,
    item_of,
    reserve_elsewhere,
    share_of,
)
from edgewise.core.dispatch.views import Violation
from edgewise.core.grant_rules import (
    NOBODY,
    grant,
    hear,
    is_anew,
    is_over,
    others_qps,
    release as release_grant,
    renew,
)
from edgewise.core.grants import LEASE_S, RENEW_S
from edgewise.core.world import CLUSTER
from edgewise.kernels.compiled import held, kernel
from edgewise.sim.streams.desk_steps import (
    hold,
    leave,
    list_bound,
    send,
    settle,
    state_of,
    write,
)
from edgewise.sim.streams.mail import (
    ANSWER,
    ANSWERS,
    ASK,
    AT,
    COUNT,
    HEARING,
    RENEWAL,
    RENEWALS,
    RENEWED,
    ROW,
    THERE,
    TOLD,
    post,
    take,
)
from edgewise.sim.streams.site_arrays import (
    AFTER,
    ARRIVING,
    BOUND,
    CLOSED,
    COMING,
    DECIDE,
    FIRST,
    FULL,
    GOING,
    HEARD,
    LEFT,
    OVER,
    PLACE,
    PLAYED,
    QUESTIONS,
    REFUSALS,
    REFUSED,
    RENEWING,
    UNDECIDED,
    UNREAD,
    WRITTEN,
    SiteArrays,
)

POLICY = int(Violation.POLICY)


@kernel
def decide(scores: Any, x: SiteArrays, now_s: float, s: int, i: int) -> int:
    """Have a gateway decide a stream; -2 or less: it is Python's to decide."""
    which = x.cores.score[s]
    if which < 0:
        return -2
    state, item = held(state_of(x.cores, s)), item_of(x.rows, i)
    w, why = choose(scores[which], state, now_s, item, x.room)
    if w < -1:
        return w
    x.desks.figures[QUESTIONS] += why == NONE
    if w >= 0:
        bind(state, item.site, w, item.rate_qps, item.size_bytes)
    x.desks.why[i] = why if w >= 0 or why != NONE else POLICY
    return w


@kernel(allocates=False)
def decided(x: SiteArrays, now_s: float, s: int, i: int, w: int) -> None:
    """Note where a stream was bound, or why not; whose refusal is final goes."""
    d, why = x.desks, x.desks.why[i]
    d.open[i] = True
    write(d, now_s, BOUND if w >= 0 else REFUSED, s, i, w, why, 0.0)
    if w >= 0:
        list_bound(d, s, i, w)
    settle(x, now_s, s, i)
    if is_over(d.had[i], w < 0 and is_final(why, d.again[i])):
        write(d, now_s, OVER, s, i, NOBODY, 0, 0.0)
        d.open[i] = False


@kernel
def close(x: SiteArrays, now_s: float, s: int, i: int) -> None:
    """A client closes its stream, if that is still open; what it has sent is served."""
    if x.desks.open[i]:
        x.cores.now_s[s] = now_s
        leave(x, now_s, s, i, CLOSED)
        x.desks.open[i] = False
        settle(x, now_s, s, i)
        x.desks.had[i] = False


@kernel
def heard(x: SiteArrays, now_s: float, s: int, w: int, load_qps: float) -> None:
    """A gateway hears what others have of a worker."""
    x.cores.now_s[s], x.desks.others_qps[s, w] = now_s, load_qps
    load_qps += x.desks.requests_qps[s, w]
    reserve_elsewhere(held(state_of(x.cores, s)), w, load_qps)
    if x.desks.all_heard:
        write(x.desks, now_s, HEARD, s, NOBODY, w, 0, load_qps)


@kernel
def answered(x: SiteArrays, now_s: float, s: int, i: int, w: int, granted: bool) -> bool:
    """A gateway hears whether a worker has granted a stream; whether it is to decide it anew."""
    if is_anew(granted, x.desks.worker[i], w):
        x.desks.figures[REFUSALS] += 1
        x.cores.now_s[s] = now_s
        leave(x, now_s, s, i, LEFT)
        return True
    hold(x.desks, i, w)
    settle(x, now_s, s, i)
    return False


@kernel(allocates=False)
def asked(x: SiteArrays, now_s: float) -> None:
    """A worker is asked for a stream, or gets it back."""
    m, g = x.mail.taken[0], x.granted
    s, w, i = m.site, m.place, m.stream
    if not x.alive[w]:
        if m.kind == ASK:
            hold(x.desks, i, w)
        return
    hear(g, w, s, now_s, LEASE_S)
    release_grant(g, w, s, i)
    if m.kind == ASK:
        refused = not grant(g, w, s, i, m.qps)
        send(x, now_s, ANSWER, s, w, i, others_qps(g, w, s), int(refused))


@kernel(allocates=False)
def renew_all(x: SiteArrays, now_s: float) -> None:
    """Every gateway tells the workers of each cluster all that it has there."""
    d, mail = x.desks, x.mail
    mail.figures[RENEWED] += 1
    if mail.figures[RENEWALS] == 0:  # nobody needs any more what was told
        mail.figures[TOLD] = mail.figures[THERE] = 0
    for s in range(x.delay_s.shape[0]):
        for c in range(x.delay_s.shape[1]):
            if not x.delay_s[s, c] < np.inf:
                continue
            at, i = mail.figures[TOLD], d.ends[FIRST, s]
            m = mail.heap[post(mail, now_s + x.delay_s[s, c])]
            m.kind, m.site, m.place, m.first = RENEWAL, s, c, at
            while i >= 0:
                w = d.worker[i]
                if x.cores.whole[0, CLUSTER, w] == c:
                    mail.told.stream[at], mail.told.worker[at] = i, w
                    mail.told.load_qps[at] = share_of(
                        x.cores.real[s], w, x.rows.rate_qps[i], x.rows.size_bytes[i]
                    )
                    at += 1
                i = d.beside[AFTER, i]
            for w in range(x.alive.size):
                if d.requests_qps[s, w] > 0.0 and x.cores.whole[0, CLUSTER, w] == c:
                    mail.told.stream[at], mail.told.worker[at] = NOBODY, w
                    mail.told.load_qps[at] = d.requests_qps[s, w]
                    at += 1
            m.last, mail.figures[TOLD] = at, at
            mail.figures[RENEWALS] += 1


@kernel(allocates=False)
def renewed(x: SiteArrays, now_s: float) -> None:
    """Workers of a cluster hear all that a gateway has; not those that, as it knows, have granted nothing."""
    mail, g = x.mail, x.granted
    m = mail.taken[0]
    s, c, first, last = m.site, m.place, m.first, m.last
    begin = mail.figures[THERE]
    row = begin
    for w in range(x.alive.size):
        if x.cores.whole[0, CLUSTER, w] != c or not x.alive[w]:
            continue
        news = x.desks.others_qps[s, w] > 0.0 or g.entries[w] > 0 or others_qps(g, w, NOBODY) > 0.0
        for k in range(first, last):
            news = news or mail.told.worker[k] == w
        if news:
            hear(g, w, s, now_s, LEASE_S)
            renew(g, w, s, mail.told, first, last)
            mail.there[row], mail.others_qps[row] = w, others_qps(g, w, s)
            row += 1
    if row == begin or not x.delay_s[s, c] < np.inf:
        mail.figures[RENEWALS] -= 1
        return
    mail.figures[THERE] = row
    answer = mail.heap[post(mail, now_s + x.delay_s[s, c])]
    answer.kind, answer.site, answer.place, answer.first, answer.last = ANSWERS, s, c, first, last
    answer.there, answer.until = begin, row


@kernel
def all_answered(x: SiteArrays, now_s: float) -> int:
    """A gateway hears answers to its renewal, on from where it stopped; 1: there is more, later."""
    mail = x.mail
    m, f = mail.taken[0], mail.figures
    s, told = m.site, mail.told
    while f[ROW] < m.until:
        w = mail.there[f[ROW]]
        if f[AT] < 0:
            heard(x, now_s, s, w, mail.others_qps[f[ROW]])
            f[AT] = m.first
        while f[AT] < m.last:
            k = f[AT]
            f[AT] += 1
            i = told.stream[k]
            mine = told.worker[k] == w and i != NOBODY and x.desks.worker[i] == w
            if mine and answered(x, now_s, s, i, w, not told.refused[k]):
                x.desks.figures[PLACE] = i
                return 1
        f[ROW] += 1
        f[AT] = NOBODY
    f[RENEWALS] -= 1
    return 0


@kernel
def deliver(x: SiteArrays, now_s: float) -> int:
    """A message arrives, or goes on being heard; 1: there is more of it, after a decision."""
    m = x.mail.taken[0]
    if m.kind == ANSWERS:
        return all_answered(x, now_s)
    if m.kind == RENEWAL:
        renewed(x, now_s)
    elif m.kind != ANSWER:
        asked(x, now_s)
    else:
        if m.refused:
            heard(x, now_s, m.site, m.place, m.qps)
        if answered(x, now_s, m.site, m.stream, m.place, not m.refused):
            x.desks.figures[PLACE] = m.stream
    return 0


@kernel(allocates=False)
def room_for_message(x: SiteArrays) -> int:
    """Whether the next message finds room for what it leads to: PLAYED, FULL, or UNREAD notes."""
    m, mail = x.mail.heap[0], x.mail
    many = m.last - m.first if m.kind == ANSWERS or m.kind == RENEWAL else 1
    for w in range(x.alive.size if m.kind <= ASK or m.kind == RENEWAL else 0):
        if x.granted.entries[w] + many > x.granted.stream.shape[1]:
            return FULL
    if mail.figures[COUNT] + 2 * many + 2 > mail.heap.size:
        return FULL
    if m.kind == RENEWAL and mail.figures[THERE] + x.alive.size > mail.there.size:
        return FULL
    rows = 3 * many + (m.until - m.there if m.kind == ANSWERS else 1)
    return UNREAD if x.desks.figures[WRITTEN] + rows > x.desks.time_s.size else PLAYED


@kernel(allocates=False)
def room_for_renewals(x: SiteArrays) -> int:
    """Whether all that is bound can be told: PLAYED, or FULL."""
    bound = x.desks.requests_qps.size
    for s in range(x.delay_s.shape[0]):
        i = x.desks.ends[FIRST, s]
        while i >= 0:
            bound += 1
            i = x.desks.beside[AFTER, i]
    mail = x.mail
    used = mail.figures[TOLD] if mail.figures[RENEWALS] > 0 else 0
    full = used + bound > mail.told.stream.size or mail.figures[COUNT] + x.delay_s.size > mail.heap.size
    return FULL if full else PLAYED


@kernel(allocates=False)
def next_of(x: SiteArrays, events: Batch, played: int) -> tuple[float, int]:
    """When what happens; at one time: a client goes, comes, a message arrives, renewals."""
    time_s, what, f = np.inf, RENEWING, x.mail.figures
    if played < events.row.size:
        time_s, what = events.time_s[played], GOING if events.kind[played] == CLOSE else COMING
    if f[COUNT] > 0 and x.mail.heap[0].at_s < time_s:
        time_s, what = x.mail.heap[0].at_s, ARRIVING
    if f[RENEWED] < x.renewals and (f[RENEWED] + 1) * RENEW_S < time_s:
        time_s, what = (f[RENEWED] + 1) * RENEW_S, RENEWING
    return time_s, what


@kernel(allocates=False)
def room_for(x: SiteArrays, what: int) -> int:
    """Whether there is room for what is next and all that it leads to: PLAYED, FULL, or UNREAD notes."""
    if what == RENEWING:
        return room_for_renewals(x)
    if what == ARRIVING:
        return room_for_message(x)
    if x.mail.figures[COUNT] + 4 > x.mail.heap.size:
        return FULL
    return UNREAD if x.desks.figures[WRITTEN] + 4 > x.desks.time_s.size else PLAYED


@kernel
def exchange(
    scores: Any, whole: SiteArrays, events: Batch, played: int, limit_s: float, closings: bool, given: int
) -> tuple[int, int]:
    """Play all that happens before `limit_s`.

    Args:
        scores: policies that decide, compiled, see `Cores.score`.
        events: openings and closings; `played` of them have been.
        closings: those at `limit_s` itself are played too.
        given: what Python decided of the stream that waits for it, UNDECIDED: nothing.
    Returns:
        Why it ends, and how many of the events have been played.
    """
    x, e = held(whole), played
    f, d = x.mail.figures, x.desks.figures
    while True:
        if d[PLACE] >= 0:
            i = d[PLACE]
            s = x.rows.site[i]
            w = given if given != UNDECIDED else decide(scores, x, x.cores.now_s[s], s, i)
            given = UNDECIDED
            if w < -1:
                return DECIDE, e
            d[PLACE] = NOBODY
            decided(x, x.cores.now_s[s], s, i, w)
        if f[HEARING] > 0:
            f[HEARING] = deliver(x, x.mail.taken[0].at_s)
            continue
        time_s, what = next_of(x, events, e)
        if not (time_s < limit_s or (closings and what == GOING and time_s == limit_s)):
            return PLAYED, e
        why = room_for(x, what)
        if why != PLAYED:
            return why, e
        if what == RENEWING:
            renew_all(x, time_s)
        elif what == ARRIVING:
            take(x.mail)
            f[HEARING], f[ROW], f[AT] = 1, x.mail.taken[0].there, NOBODY
        else:
            i = events.row[e]
            s, e = x.rows.site[i], e + 1
            if what == GOING:
                close(x, time_s, s, i)
            else:
                x.cores.now_s[s], d[PLACE] = time_s, i
