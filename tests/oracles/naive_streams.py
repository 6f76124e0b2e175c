"""Streams on workers, naively: one global event list, plain Python, no cleverness."""

import heapq

import numpy as np

from edgewise.core.keyed import Purpose, normal, normal_pair_of
from joint_scenarios import queries_of

ARRIVAL, FREE, TIMEOUT = 0, 1, 2


class Naive:
    """Every query as an event of its own in one list."""

    def __init__(self, world, trace, bound, seed):
        self.world, self.trace, self.seed = world, trace, seed
        self.events, self.waiting = [], [[] for _ in range(world.workers)]
        self.free = [int(n) for n in world.servers]
        self.outcome = [{"ok": 0, "failed": 0, "rejected": 0} for _ in trace]
        self.ended = [[] for _ in range(world.workers)]  # (when, sojourn) of each query
        for stream, w in zip(trace, bound, strict=True):
            self.enter(stream, w)

    def enter(self, stream, w):
        before = 0.0
        for number, sent_s in queries_of(stream, self.seed):
            if w < 0:
                self.outcome[stream.id]["rejected"] += 1
                continue
            there, back = self.ways(stream, number, w)
            before = max(before, sent_s + there)
            heapq.heappush(self.events, (before, ARRIVAL, stream.id, number, w, sent_s, back))

    def ways(self, stream, number, w):
        world, c = self.world, self.world.cluster[w]
        delay, deviation = world.delay_s[stream.site, c], world.deviation_s[stream.site, c]
        up, down = normal_pair_of(np.uint64(self.seed), int(Purpose.NETWORK), stream.id, number)
        access = world.access_delay_s[stream.site]
        slowest = min(world.uplink_bps[stream.site], world.bandwidth_bps[stream.site, c])
        there = max(delay + deviation * up, 0.0) + access + stream.size_bytes * 8 / slowest
        return there, max(delay + deviation * down, 0.0) + access

    def run(self):
        while self.events:
            self.happens(*heapq.heappop(self.events))
        return self.outcome

    def happens(self, now_s, kind, *rest):
        if kind == ARRIVAL:
            stream, number, w, sent_s, back = rest
            self.waiting[w].append((now_s, stream, number, sent_s, back))
            timeout_s = self.world.batch_timeout_s[w]
            if timeout_s > 0:
                heapq.heappush(self.events, (now_s + timeout_s, TIMEOUT, w))
        elif kind == FREE:
            (w,) = rest
            self.free[w] += 1
        else:
            (w,) = rest
        self.serve(w, now_s)

    def serve(self, w, now_s):
        world = self.world
        while self.free[w] and self.waiting[w]:
            most, oldest = int(world.max_batch[w]), self.waiting[w][0][0]
            if len(self.waiting[w]) < most and now_s < oldest + world.batch_timeout_s[w]:
                return
            batch, self.waiting[w] = self.waiting[w][:most], self.waiting[w][most:]
            largest = max(self.trace[q[1]].size_bytes for q in batch)
            mean = (world.fixed_s[w] + world.per_byte_s[w] * largest) * (
                1 + world.batch_slope[w] * (len(batch) - 1)
            )
            noise = normal(self.seed, Purpose.SERVICE, batch[0][1], batch[0][2])
            finish_s = now_s + mean * max(1 + world.deviation[w] * noise, 0.0)
            self.free[w] -= 1
            heapq.heappush(self.events, (finish_s, FREE, w))
            for arrival_s, stream, number, sent_s, back in batch:
                self.ended[w].append((finish_s, finish_s - arrival_s))
                if back == -np.inf:  # the answer goes over links
                    self.replied(stream, number, finish_s)
                    continue
                late = finish_s + back - sent_s > self.trace[stream].deadline_s
                self.outcome[stream]["failed" if late else "ok"] += 1
