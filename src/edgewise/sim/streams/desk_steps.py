"""What a gateway does with one stream, and notes of it: binds it, lets it go, asks workers for it."""

import numpy as np

from edgewise.core.dispatch.state import State, release, share_of
from edgewise.core.grant_rules import NOBODY, to_tell
from edgewise.core.world import CLUSTER
from edgewise.kernels.compiled import held, kernel
from edgewise.sim.streams.mail import ASK, GIVE_BACK, post
from edgewise.sim.streams.site_arrays import AFTER, BEFORE, FIRST, LAST, WRITTEN, Cores, SiteArrays, SiteDesks


@kernel
def state_of(c: Cores, s: int) -> State:
    """Of one site."""
    return State(c.real[s], c.whole[s], c.up[s], c.ways[s], c.link[s], c.path, c.measured_s[s], c.seed)


@kernel(allocates=False)
def write(d: SiteDesks, now_s: float, what: int, s: int, i: int, w: int, why: int, qps: float) -> None:
    """Note what was done; there is room."""
    k = d.figures[WRITTEN]
    d.time_s[k], d.qps[k] = now_s, qps
    d.what[0, k], d.what[1, k], d.what[2, k], d.what[3, k], d.what[4, k] = what, s, i, w, why
    d.figures[WRITTEN] = k + 1


@kernel(allocates=False)
def list_bound(d: SiteDesks, s: int, i: int, w: int) -> None:
    """A stream is bound, and the last of its site that was."""
    last = d.ends[LAST, s]
    d.worker[i], d.beside[BEFORE, i], d.beside[AFTER, i] = w, last, NOBODY
    if last < 0:
        d.ends[FIRST, s] = i
    else:
        d.beside[AFTER, last] = i
    d.ends[LAST, s] = i


@kernel(allocates=False)
def unlist(d: SiteDesks, s: int, i: int) -> None:
    """A stream is bound no more."""
    before, after = d.beside[BEFORE, i], d.beside[AFTER, i]
    if before < 0:
        d.ends[FIRST, s] = after
    else:
        d.beside[AFTER, before] = after
    if after < 0:
        d.ends[LAST, s] = before
    else:
        d.beside[BEFORE, after] = before
    d.worker[i] = NOBODY


@kernel(allocates=False)
def send(x: SiteArrays, now_s: float, kind: int, s: int, w: int, i: int, qps: float, refused: int) -> None:
    """Send a message about a stream between a site and a worker; what the way does not carry is lost."""
    delay_s = x.delay_s[s, x.cores.whole[0, CLUSTER, w]]
    if delay_s < np.inf:
        m = x.mail.heap[post(x.mail, now_s + delay_s)]
        m.kind, m.site, m.place, m.stream, m.qps, m.refused = kind, s, w, i, qps, refused
    elif kind != GIVE_BACK:
        hold(x.desks, i, w)


@kernel(allocates=False)
def hold(d: SiteDesks, i: int, w: int) -> None:
    """A worker has granted a stream, as far as its gateway knows."""
    d.held[i] = w
    d.had[i] = d.had[i] or d.open[i]  # else it was closed meanwhile


@kernel(allocates=False)
def settle(x: SiteArrays, now_s: float, s: int, i: int) -> None:
    """Tell workers what was bound to them, and what is given back."""
    former, asked = to_tell(x.desks.worker[i], x.desks.held[i])
    if former >= 0:
        x.desks.held[i] = NOBODY
        send(x, now_s, GIVE_BACK, s, former, i, 0.0, 0)
    if asked >= 0:
        qps = share_of(x.cores.real[s], asked, x.rows.rate_qps[i], x.rows.size_bytes[i])
        send(x, now_s, ASK, s, asked, i, qps, 0)


@kernel
def leave(x: SiteArrays, now_s: float, s: int, i: int, what: int) -> None:
    """A stream ends, or leaves its worker to be decided anew."""
    w = x.desks.worker[i]
    write(x.desks, now_s, what, s, i, w, 0, 0.0)
    if w >= 0:
        release(held(state_of(x.cores, s)), x.rows.site[i], w, x.rows.rate_qps[i], x.rows.size_bytes[i])
        unlist(x.desks, s, i)
