"""Streams that move and workers that die, naively: each query, each message and each failure is an event."""

import heapq
import itertools

import numpy as np
from naive_streams import Naive

from edgewise.core.dispatch.events import Bind
from edgewise.core.keyed import Purpose, normal
from joint_scenarios import queries_of

CHANGED, COMMAND, HEARD, FREE, ARRIVED, SENT = range(6)  # in this order at one time


class NaiveFailing(Naive):
    """What becomes of queries, given what a core has said and which nodes fail.

    Args:
        commands: (time, command) in order.
        timeline: changes of nodes. lag_s: after which gateways hear of them.
    """

    def __init__(self, world, trace, commands, timeline, lag_s, seed):
        self.world, self.trace, self.seed = world, trace, seed
        self.outcome = [{"ok": 0, "failed": 0, "rejected": 0} for _ in trace]
        self.events, self.order = [], itertools.count()
        self.where, self.before = [-1] * len(trace), {}
        self.up, self.life = [True] * world.workers, [0] * world.workers
        self.free = [int(n) for n in world.servers]
        self.waiting, self.under_way, self.lost = ([[] for _ in self.up] for _ in range(3))
        self.again = 0
        for stream in trace:
            for number, sent_s in queries_of(stream, seed):
                self.push(sent_s, SENT, (stream.id, number, sent_s, 0))
        for at_s, command in commands:
            self.push(at_s, COMMAND, command)
        for change in timeline:
            for w in np.flatnonzero(world.node == world.node_names.index(change.node)).tolist():
                self.push(change.at_s, CHANGED, (w, change.up))
                if not change.up:
                    self.push(change.at_s + lag_s, HEARD, w)

    def push(self, at_s, kind, what):
        heapq.heappush(self.events, (at_s, kind, next(self.order), what))

    def run(self):
        while self.events:
            now_s, kind, _, what = heapq.heappop(self.events)
            (self.changed, self.told, self.heard, self.freed, self.arrived, self.sent)[kind](now_s, what)
        for query, _ in itertools.chain(*self.lost):
            self.outcome[query[0]]["failed"] += 1
        return self.outcome

    def changed(self, now_s, what):
        w, up = what
        self.up[w], self.life[w], self.free[w] = up, self.life[w] + 1, int(self.world.servers[w])
        if not up:
            self.lost[w] += [each for each in self.under_way[w] if each[1] is not None]
            self.under_way[w] = [each for each in self.under_way[w] if each[1] is None]
            self.waiting[w] = []

    def told(self, now_s, command):
        self.where[command.stream_id] = command.worker if isinstance(command, Bind) else -1
        self.before.pop(command.stream_id, None)

    def sent(self, now_s, query):
        stream, number, _, lost = query
        w = self.where[stream]
        if w < 0:
            self.outcome[stream]["rejected"] += 1
            return
        there_s, _ = self.ways(self.trace[stream], number, w)
        at_s = self.before[stream] = max(self.before.get(stream, 0.0), now_s + there_s)
        self.under_way[w].append((query, None))
        self.push(at_s, ARRIVED, (query, w))

    def arrived(self, now_s, what):
        query, w = what
        if (query, None) not in self.under_way[w]:
            return
        self.under_way[w].remove((query, None))
        if not self.up[w]:
            self.lost[w].append((query, now_s))
            return
        self.under_way[w].append((query, now_s))
        self.waiting[w].append((query, now_s))
        self.serve(w, now_s)

    def serve(self, w, now_s):
        world = self.world
        while self.free[w] and self.waiting[w]:
            most = int(world.max_batch[w])
            batch, self.waiting[w] = self.waiting[w][:most], self.waiting[w][most:]
            largest = max(self.trace[query[0]].size_bytes for query, _ in batch)
            mean_s = (world.fixed_s[w] + world.per_byte_s[w] * largest) * (
                1 + world.batch_slope[w] * (len(batch) - 1)
            )
            noise = normal(self.seed, Purpose.SERVICE, batch[0][0][0], batch[0][0][1])
            self.free[w] -= 1
            self.push(
                now_s + mean_s * max(1 + world.deviation[w] * noise, 0.0), FREE, (w, self.life[w], batch)
            )

    def freed(self, now_s, what):
        w, life, batch = what
        if life != self.life[w]:
            return
        self.free[w] += 1
        for each in batch:
            self.under_way[w].remove(each)
            stream, number, sent_s, _ = each[0]
            _, back_s = self.ways(self.trace[stream], number, w)
            in_time = now_s + back_s - sent_s <= self.trace[stream].deadline_s
            self.outcome[stream]["ok" if in_time else "failed"] += 1
        self.serve(w, now_s)

    def heard(self, now_s, w):
        """What was lost, or cannot come, goes elsewhere: within its deadline, to three workers at most."""
        lost, self.lost[w] = self.lost[w], []
        if not self.up[w]:
            lost, self.under_way[w] = lost + self.under_way[w], []
        for (stream, number, sent_s, before), _ in sorted(lost):
            in_time = now_s < sent_s + self.trace[stream].deadline_s and now_s < self.trace[stream].close_s
            if before + 1 < 3 and in_time and self.where[stream] not in (-1, w):
                self.again += 1
                self.sent(now_s, (stream, number, sent_s, before + 1))
            else:
                self.outcome[stream]["failed"] += 1
