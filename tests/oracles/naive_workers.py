"""Streams and requests at the same workers, naively: one list of events, and the real cores."""

import heapq
from itertools import count

import numpy as np
from naive_streams import queries_of

from edgewise.core.dispatch.events import (
    ReplicaChanged,
    ReplicaTold,
    RequestAgain,
    RequestArrived,
    RequestReturned,
    Send,
    Wait,
)
from edgewise.core.dispatch.requests import RequestCore
from edgewise.core.keyed import Purpose, normal, normal_pair_of
from edgewise.sim.slots.replica_kernels import varied_s

UP, FREE, DOWN, REACHED, SERVE, RETURNED, NEWS, CAME, AGAIN = range(9)  # at one time in this order


class NaiveWorkers:
    """Services that have nothing but workers, and streams that stay where they were bound.

    Args:
        world, trace, bound: streams, and the worker of each.
        sites: a run's services before it began; of them only what is given is read.
        requests: (R,) what arrives.
        outages: (worker, from, to).
    """

    def __init__(self, world, trace, bound, sites, requests, make, seed, outages=()):
        self.world, self.trace, self.seed, self.outages = world, trace, seed, outages
        self.services, self.system, self.news = sites.services, sites.system, sites.news
        self.end_s = len(sites.tally) * sites.frame_s
        self.cores = [RequestCore(self.services, b, make(), seed) for b in range(self.system.sites)]
        self.requests, self.at, self.came_s, self.least_s, self.outcome = requests, {}, {}, {}, {}
        self.queries = [{"ok": 0, "failed": 0, "rejected": 0} for _ in trace]
        self.waiting, self.working = ([[] for _ in range(world.workers)] for _ in range(2))
        self.down, self.most = set(), np.zeros(world.workers, dtype=int)
        self.free_s = {}  # the way from all sites to the cloud, or from one to nodes
        self.events, self.numbers = [], count()
        self.station = {world.worker_names.index(w.name): w.station for w in self.services.workers}
        self.workers = [(world.worker_names.index(each.name), each.service) for each in self.services.workers]
        for stream, w in zip(trace, bound, strict=True):
            self.enter(stream, w)
        for i, row in enumerate(requests):
            self.push(row.arrival_s, CAME, self.came, i)
        for w, from_s, to_s in outages:
            self.push(from_s, DOWN, self.fail, w)
            self.push(to_s, UP, self.down.discard, w)
        self.hear(0.0, self.told())
        self.gather(0.0, 0)

    def push(self, at_s, order, what, *arguments, rank=0.0):
        heapq.heappush(self.events, (at_s, order, rank, next(self.numbers), what, arguments))

    def run(self):
        while self.events:
            now_s, order, _, _, what, arguments = heapq.heappop(self.events)
            if order in (UP, DOWN):
                what(*arguments) if order == UP else what(now_s, *arguments)
            elif now_s < self.end_s or order in (FREE, REACHED, SERVE):
                what(now_s, *arguments)
        return self

    # workers

    def enter(self, stream, w):
        world, c, before = self.world, self.world.cluster[w], 0.0
        for number, sent_s in queries_of(stream, self.seed):
            if w < 0:
                self.queries[stream.id]["rejected"] += 1
                continue
            mean_s, deviation_s = world.delay_s[stream.site, c], world.deviation_s[stream.site, c]
            drawn = normal_pair_of(np.uint64(self.seed), int(Purpose.NETWORK), stream.id, number)
            there, back = (
                max(mean_s + deviation_s * x, 0.0) + world.access_delay_s[stream.site] for x in drawn
            )
            bps = min(world.uplink_bps[stream.site], world.bandwidth_bps[stream.site, c])
            before = max(before, sent_s + there + stream.size_bytes * 8 / bps)
            self.push(before, REACHED, self.query, w, stream.id, number, sent_s, back)

    def query(self, now_s, w, stream, number, sent_s, back):
        if w in self.down:
            self.queries[stream]["failed"] += 1
        else:
            self.join(now_s, w, [now_s, False, "query", stream, number, sent_s, back])

    def join(self, now_s, w, item):
        self.waiting[w].append(item)
        self.push(now_s, SERVE, self.serve, w)
        self.push(now_s + self.world.batch_timeout_s[w], SERVE, self.serve, w)

    def serve(self, now_s, w):
        world, most = self.world, int(self.world.max_batch[w])
        while w not in self.down and len(self.working[w]) < world.servers[w] and self.waiting[w]:
            hand = 0
            for item in list(self.waiting[w]):
                if hand == most:
                    break
                late = item[2] == "request" and not item[1] and now_s > self.begin_by_s(item[3])
                if late:
                    self.waiting[w].remove(item)
                    self.leave(now_s, w, item[3], "dropped")
                else:
                    item[1], hand = True, hand + 1
            if hand == 0 or (hand < most and now_s < self.waiting[w][0][0] + world.batch_timeout_s[w]):
                return
            batch, self.waiting[w] = self.waiting[w][:hand], self.waiting[w][hand:]
            self.working[w].append(batch)
            self.most[w] = max(self.most[w], len(self.working[w]))
            self.push(now_s + self.takes_s(w, batch), FREE, self.free, w, batch)

    def takes_s(self, w, batch):
        world, more = self.world, 1 + self.world.batch_slope[w] * (len(batch) - 1)
        queries, found = [item for item in batch if item[2] == "query"], [0.0]
        if queries:
            largest = max(self.trace[item[3]].size_bytes for item in queries)
            noise = normal(self.seed, Purpose.SERVICE, queries[0][3], queries[0][4])
            mean_s = (world.fixed_s[w] + world.per_byte_s[w] * largest) * more
            found.append(mean_s * max(1 + world.deviation[w] * noise, 0.0))
        for item in batch:
            if item[2] == "request":
                i = item[3]
                alone_s = varied_s(self.system.service_deviation, np.uint64(self.seed), i,
                                   self.requests[i].service_s)  # fmt: skip
                found.append(alone_s * more)
        return max(found)

    def free(self, now_s, w, batch):
        if batch not in self.working[w]:
            return  # it was lost
        self.working[w].remove(batch)
        for _, _, kind, who, *rest in batch:
            if kind == "query":
                _, sent_s, back = rest
                late = now_s + back - sent_s > self.trace[who].deadline_s
                self.queries[who]["failed" if late else "ok"] += 1
        self.serve(now_s, w)
        for _, _, kind, who, *_ in batch:
            if kind == "request":
                self.leave(now_s, w, who, "ended")

    def fail(self, now_s, w):
        self.down.add(w)
        had = self.waiting[w] + [item for batch in self.working[w] for item in batch]
        self.waiting[w], self.working[w] = [], []
        for _, _, kind, who, *_ in sorted(had, key=lambda item: item[0]):
            if kind == "query":
                self.queries[who]["failed"] += 1
            else:
                self.leave(now_s, w, who, "lost")

    def queued(self, w):
        return len(self.waiting[w]) + sum(map(len, self.working[w]))

    # requests

    def back_s(self, i):
        delay_s = self.system.delay_s[self.requests[i].site, self.station[self.at[i]]]
        return 0.5 * delay_s if self.services.spec.answers else 0.0

    def begin_by_s(self, i):
        return (
            self.requests[i].deadline_s + 1e-9 - self.least_s[i] - self.back_s(i)
            if self.system.drops
            else np.inf
        )

    def came(self, now_s, i):
        row = self.requests[i]
        event = RequestArrived(now_s, i, row.service, row.deadline_s, row.payload_bytes)
        self.obey(now_s, i, self.cores[row.site].handle(event))

    def again(self, now_s, i):
        self.obey(now_s, i, self.cores[self.requests[i].site].handle(RequestAgain(now_s, i)))

    def obey(self, now_s, i, commands):
        (command,), row = commands, self.requests[i]
        if isinstance(command, Wait):
            self.push(command.until_s, AGAIN, self.again, i)
        elif isinstance(command, Send):
            self.at[i] = w = self.world.worker_names.index(command.replica)
            way, station = row.site if self.station[w] else -1, self.station[w]
            send_s = 8 * row.payload_bytes / self.system.rate_bps[row.site, station]
            self.free_s[way] = max(now_s, self.free_s.get(way, 0.0)) + send_s
            there_s = self.system.delay_s[row.site, station] - self.back_s(i)
            self.least_s[i] = float(self.cores[row.site].least_s[row.service])
            self.push(self.free_s[way] + there_s, REACHED, self.reach, i)
        else:
            self.outcome[i] = ("dropped", now_s)

    def reach(self, now_s, i):
        if self.at[i] in self.down:
            self.leave(now_s, self.at[i], i, "lost")
        else:
            self.came_s[i] = now_s
            self.join(now_s, self.at[i], [now_s, False, "request", i])

    def leave(self, now_s, w, i, how):
        back_s = self.back_s(i)
        if now_s >= self.end_s:
            return  # nobody looks any more
        if how == "ended" and now_s + back_s < self.end_s:  # else it is on its way back when the run ends
            in_time = now_s + back_s <= self.requests[i].deadline_s + 1e-9
            self.outcome[i] = ("in_time" if in_time else "late", now_s + back_s)
        elif how == "dropped":
            self.outcome[i] = ("dropped", now_s)
        came_s = self.came_s.get(i, now_s)  # at one time the first that came is told of first
        took_s = now_s - came_s if how == "ended" else 0.0
        self.push(now_s + back_s, RETURNED, self.returned, w, i, how, took_s, self.queued(w), rank=came_s)

    def returned(self, now_s, w, i, how, took_s, queued):
        core, answered = self.cores[self.requests[i].site], how == "ended"
        commands = core.handle(RequestReturned(now_s, i, "answered" if answered else how, took_s))
        if answered:
            core.handle(ReplicaTold(now_s, self.world.worker_names[w], queued))
        if commands:
            self.obey(now_s, i, commands)

    # news

    def told(self):
        return [(w, s, w not in self.down, self.queued(w)) for w, s in self.workers]

    def gather(self, now_s, number):
        self.push(now_s + self.news.lag_s, NEWS, self.hear, self.told())
        self.push((number + 1) * self.news.period_s, NEWS, self.gather, number + 1)

    def hear(self, now_s, told):
        for core in self.cores:
            for w, s, up, queued in told:
                name, serves = self.world.worker_names[w], int(self.world.servers[w])
                core.handle(ReplicaChanged(now_s, name, s, self.station[w], True, up, serves))
                core.handle(ReplicaTold(now_s, name, queued))
