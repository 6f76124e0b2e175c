"""What becomes of a request at its site, from what happened to what is to be done: compiled, for all who ask.

`RequestCore.handle` calls these kernels for live gateways, the loop of a simulation calls them for its sites.
Each takes in one thing that happened to request i and says what is to be done, one of

    ASK       the policy is to say where the head of the site's view goes; then `obey`
    SEND      to `asked[i].replica`
    WAIT      and ask again at `asked[i].until_s`
    GIVEN_UP  it is dropped: TRIES replicas were lost with it
    NOBODY    it is dropped: no replica is up
    TOO_LATE  it is dropped: it cannot end in time
    OVER      it has ended

Who carries it out says when it happened, what happened, and nothing else.
"""

from edgewise.core.dispatch.desks import DROPPED, FAILED, IN_TIME, LATE, Desks, clear_head, count_all, measure
from edgewise.core.dispatch.request_rules import CLOUD, TRIES, in_time, least_way_s, too_late
from edgewise.core.orchestrate import HOLD
from edgewise.kernels.compiled import held, inner, kernel

ASK, SEND, WAIT, GIVEN_UP, NOBODY, TOO_LATE, OVER = range(7)
HOW = ("answered", "lost", "dropped", "failed")  # a request came back from its replica; the last as OUTCOMES
ANSWERED, LOST = range(2)
WEIGHT = 0.2  # of a new measurement in a moving mean
STEP = 0.005  # of a quantile that follows measurements, as a part of their mean


@kernel
def come(
    x: Desks,
    i: int,
    place: tuple[int, int],
    times: tuple[float, float],
    size_bytes: float,
) -> int:
    """A request comes, a row of `asked` that was nobody's; what is to be done.

    Args:
        place: desk and service. times: it comes; its deadline.
    """
    a, (d, s), (now_s, deadline_s) = x.asked[i], place, times
    a.desk, a.service, a.deadline_s, a.size_bytes = d, s, deadline_s, size_bytes
    a.known, a.replica, a.lost, a.alone = 1, -1, 0, 0
    x.desk[d].undecided += 1
    x.arrived[d, s] += 1
    return again(x, i, now_s)


@kernel
def again(x: Desks, i: int, now_s: float) -> int:
    """A request asks, for the first time or anew; what is to be done."""
    x = held(x)
    said = look(x, i, now_s)
    if said != ASK:
        desk = x.desk[x.asked[i].desk]
        if x.asked[i].lost:
            desk.given_up += 1
        else:
            desk.refused += 1
        end(x, i, DROPPED)
    return said


@kernel
def obey(x: Desks, i: int, station: int, now_s: float) -> int:
    """The policy has said where a request goes; what is to be done.

    At that station, else anywhere, it goes to the replica with least to do.
    """
    a = x.asked[i]
    desk = x.desk[a.desk]
    clear_head(x, a.desk)
    if station == HOLD:
        a.until_s = now_s + x.system.slot_s
        desk.kept += 1
        return WAIT
    best = least_at(x, i, station)
    r = x.replica[a.desk, best]
    a.replica, a.sent_s, a.alone = best, now_s, r.mine + r.others == 0
    a.begin_by_s = a.deadline_s - x.least_s[a.desk, a.service] - back_of(x, i, r.station)
    r.mine += 1
    x.changed[a.desk, r.station] = True
    desk.undecided -= 1
    if a.lost:
        desk.resent += 1
    else:
        desk.sent += 1
    return SEND


@kernel
def come_back(x: Desks, i: int, now_s: float, how: int, took_s: float) -> int:
    """A request comes back from its replica, by HOW, or its replica is lost; what is to be done.

    One whose replica is lost asks anew; that replica counts as down until it is seen up. Any other is over.
    """
    x = held(x)
    learn(x, i, now_s, how == ANSWERED, took_s)
    a = x.asked[i]
    r = x.replica[a.desk, a.replica]
    a.replica = -1
    r.mine -= 1
    x.changed[a.desk, r.station] = True
    x.desk[a.desk].undecided += 1
    if how == LOST:
        r.up = 0
        a.lost += 1
        return again(x, i, now_s)
    if how == ANSWERED:
        how = IN_TIME if in_time(now_s, a.deadline_s) else LATE
    end(x, i, how)
    return OVER


@kernel
def leave(x: Desks, i: int) -> int:
    """Nobody waits for a request any more, which was not sent or has come back; what is to be done."""
    end(x, i, FAILED)
    return OVER


@kernel
def look(x: Desks, i: int, now_s: float) -> int:
    """Whether a policy is to be asked for a request, which is then the head of its view; else why not."""
    x = held(x)
    a = x.asked[i]
    d, s, found = a.desk, a.service, False
    if a.lost == TRIES:
        return GIVEN_UP
    for k in range(x.desk[d].replicas):
        r = x.replica[d, x.order[d, k]]
        found = bool(r.service == s and r.up and r.wanted)
        if found:
            break
    if not found:
        return NOBODY
    count_all(x, d, now_s)
    if too_late(x.system.drops, now_s + way_of(x, i), x.least_s[d, s], a.deadline_s):
        return TOO_LATE
    head = x.seen.site[d, x.desk[d].site]
    head.head, head.head_service, head.site_queue = 0, s, x.desk[d].undecided
    head.head_deadline_s, head.head_service_s = a.deadline_s, x.service_s[d, s]
    head.head_cpu_cores = x.system.service_cpu_cores[s] if x.asks_cores[s] else 0.0
    head.head_memory_bytes, head.head_payload_bytes = 0.0, a.size_bytes
    return ASK


@kernel
def back_of(x: Desks, i: int, station: int) -> float:
    """Time that the answer to a request needs from a station: its way, and to send it over a free link."""
    a = x.asked[i]
    return float(x.back_s[a.desk, station] + x.answer_s[a.desk, station, a.service])


@kernel
def way_of(x: Desks, i: int) -> float:
    """Least time in which a request gets to who serves it, by the view as it was counted last."""
    a = x.asked[i]
    return least_way_s(x.system, x.seen, a.desk, x.desk[a.desk].site, a.service, a.size_bytes, False)


@kernel
def least_at(x: Desks, i: int, station: int) -> int:
    """Of replicas that may be sent to at a station, else at the first that has one, who has least to do."""
    a = x.asked[i]
    d, best = a.desk, -1
    for k in range(x.desk[d].replicas):
        at = x.order[d, k]
        r = x.replica[d, at]
        if r.service != a.service or not (r.up and r.wanted):
            continue
        if best < 0:
            best = at
            continue
        b = x.replica[d, best]
        if (r.station == station) != (b.station == station):
            better = r.station == station
        elif r.station != b.station:
            better = r.station < b.station
        else:
            better = r.mine + r.others < b.mine + b.others
        if better:
            best = at
    return int(best)


@kernel
def learn(x: Desks, i: int, now_s: float, answered: bool, took_s: float) -> None:
    """How long requests take on replicas, and their way to the cloud, by one that was answered."""
    a = x.asked[i]
    d = a.desk
    if answered and a.alone and took_s > 0.0:
        mean_s = x.service_s[d, a.service]
        measure(x, d, a.service, mean_s + WEIGHT * (took_s - mean_s))
        x.least_s[d, a.service] = nine_of_ten(x.least_s[d, a.service], took_s, x.service_s[d, a.service])
    if answered and x.replica[d, a.replica].station == CLOUD:
        world = x.seen.world[d]
        sent_s = 8.0 * a.size_bytes / x.system.rate_bps[x.desk[d].site, CLOUD]
        ways_s = max(now_s - a.sent_s - took_s - sent_s, 0.0)
        world.cloud_delay_s += WEIGHT * (ways_s - world.cloud_delay_s)


@inner
def nine_of_ten(least_s: float, took_s: float, usual_s: float) -> float:
    """What nine of ten take at least, after one more took so long: up by one step, or down by nine."""
    step_s = STEP * usual_s
    if took_s < least_s:
        return float(max(least_s - 9.0 * step_s, took_s))
    return float(min(least_s + step_s, took_s))


@kernel
def end(x: Desks, i: int, outcome: int) -> None:
    """What became of a request, one of OUTCOMES; its row is nobody's."""
    a = x.asked[i]
    x.ended[a.desk, outcome, a.service] += 1
    x.desk[a.desk].undecided -= a.replica < 0
    a.known = 0
