"""A slow, obvious simulator of task graphs over stations: lists, sorting, one event at a time."""

import heapq
import itertools


def simulate(stations, graphs, route, queries, placement):
    """Completion time of every query.

    Args:
        stations: per station (rate, servers, "fifo", "edf" or "oldest", propagation).
        graphs: per class (work per task, edges (source, target, bits)).
        route: (from station, to station) -> list of stations on the way.
        queries: (sent_s, class, deadline_s after it), ascending.
        placement: station of every task, per query.
    Returns:
        Completion times, and for each station the (start, finish) of every service.
    """
    count = itertools.count()
    heap, idle, lines = [], [], [[] for _ in stations]
    busy = [0] * len(stations)
    served = [[] for _ in stations]
    missing, left, done = {}, {}, [None] * len(queries)

    def at(time, action, *args):
        heapq.heappush(heap, (time, next(count), action, args))

    def enter(now, s, query, work, after):
        sent, _, deadline = queries[query]
        key = {"fifo": (), "edf": (sent + deadline,), "oldest": (sent, query)}[stations[s][2]]
        lines[s].append((key, next(count), work, after))
        start(now, s)

    def start(now, s):
        rate, servers, _, _ = stations[s]
        lines[s].sort(key=lambda entry: entry[:2])
        while lines[s] and busy[s] < servers:
            _, _, work, after = lines[s].pop(0)
            busy[s] += 1
            served[s].append((now, now + work / rate))
            at(now + work / rate, finish, s, after)

    def finish(now, s, after):
        delay = stations[s][3]
        if delay:
            at(now + delay, lambda later: after(later))
        else:
            after(now)
            pass_on(now)  # what follows is in line before the next is chosen
        busy[s] -= 1
        start(now, s)

    def task_done(now, query, t):
        cls = queries[query][1]
        for source, target, bits in graphs[cls][1]:
            if source == t:
                ways = route(placement[query][source], placement[query][target])
                travel(now, query, target, bits, ways)
        left[query] -= 1
        if left[query] == 0:
            done[query] = now

    def travel(now, query, target, bits, ways):
        if ways:
            enter(now, ways[0], query, bits, lambda later: travel(later, query, target, bits, ways[1:]))
            return
        missing[query, target] -= 1
        if missing[query, target] == 0:
            begin(now, query, target)

    def begin(now, query, t):
        work = graphs[queries[query][1]][0][t]
        if work == 0.0:
            idle.append((query, t))
            return
        enter(now, placement[query][t], query, work, lambda later: task_done(later, query, t))

    def pass_on(now):
        while idle:
            task_done(now, *idle.pop(0))

    def launch(now, query):
        works, edges = graphs[queries[query][1]]
        left[query] = len(works)
        for t in range(len(works)):
            missing[query, t] = sum(target == t for _, target, _ in edges)
        for t in range(len(works)):
            if missing[query, t] == 0:
                begin(now, query, t)

    for q, (sent_s, _, _) in enumerate(queries):
        at(sent_s, launch, q)
    while heap:
        now, _, action, args = heapq.heappop(heap)
        action(now, *args)
        pass_on(now)
    return done, served
