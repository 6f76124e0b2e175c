"""Streams and queries of split models on the clock and links of `naive_joint`."""

import math

import numpy as np
from naive_joint import Part

from edgewise.core.keyed import Purpose, normal, normal_pair_of
from joint_scenarios import queries_of

ROUNDING_S = 1e-9


class Streams(Part):
    """Queries to workers, which serve them in batches, and answers back.

    What a dead worker lost goes to where its stream is bound once that is heard: within its deadline, and to
    three workers at most. A query is (sent, stream, number, worker, way back, visit, workers lost so far).
    """

    def __init__(self, clock, world, trace, seed):
        super().__init__(clock)
        self.world, self.trace, self.seed = world, trace, seed
        self.worker, self.visit = [None] * len(trace), [0] * len(trace)
        self.due, self.flying, self.early = {}, {}, {}  # by stream and visit: they do not overtake
        self.waiting, self.serving = [[] for _ in range(world.workers)], [[] for _ in range(world.workers)]
        self.life, self.under_way, self.lost = [0] * world.workers, [[] for _ in self.waiting], {}
        self.from_s = [0.0] * world.workers  # from when on one answers, on a node that is there
        self.outcome = [{"ok": 0, "failed": 0, "rejected": 0} for _ in trace]
        self.delays = [[] for _ in trace]
        self.sent, self.last, self.tied = [0] * len(trace), {}, False  # tied: rounding says who is first
        self.otherwise = False  # and said something else
        for stream in trace:
            for number, sent_s in queries_of(stream, seed):
                self.sent[stream.id] += 1
                clock.at(sent_s, self.send, stream.id, number, sent_s, 0)

    def told(self, now_s, command):
        kind, i = type(command).__name__, getattr(command, "stream_id", None)
        if kind == "Bind":
            self.worker[i] = command.worker
        elif kind == "Refuse" or (kind == "Release" and now_s < self.trace[i].close_s):
            self.worker[i] = None
        if kind in ("Bind", "Refuse", "Release"):
            self.visit[i] += 1

    def up(self, w):
        node = self.world.node_names[self.world.node[w]]
        return node not in self.clock.dead and self.clock.now_s >= self.from_s[w]

    def repaired(self, now_s, node):
        for w in self.workers_on(node):
            self.from_s[w] = now_s + float(self.world.start_s[w])

    def workers_on(self, node):
        return [w for w, n in enumerate(self.world.node) if self.world.node_names[n] == node]

    def failed(self, now_s, node):
        for w in self.workers_on(node):
            self.life[w] += 1
            batches = [each for batch in self.serving[w] for each in batch]
            self.lost.setdefault(w, []).extend(query for _, _, query in [*self.waiting[w], *batches])
            self.waiting[w], self.serving[w] = [], []
            self.clock.at(now_s + self.clock.scenario.telemetry.lag_s, self.heard, w)

    def heard(self, now_s, w):
        lost = self.lost.pop(w, [])
        if not self.up(w):
            lost, self.under_way[w] = lost + self.under_way[w], []
        for sent_s, i, number, *_, before in sorted(lost):  # oldest first
            of, bound = self.trace[i], self.worker[i]
            in_time = now_s < sent_s + of.deadline_s and now_s < of.close_s
            if before + 1 < 3 and in_time and bound not in (None, w):
                self.send(now_s, i, number, sent_s, before + 1)
            else:
                self.outcome[i]["failed"] += 1

    def send(self, now_s, i, number, sent_s, before):
        of, w, world = self.trace[i], self.worker[i], self.world
        if w is None:
            self.outcome[i]["rejected"] += 1
            return
        c = world.cluster[w]
        up, down = normal_pair_of(np.uint64(self.seed), int(Purpose.NETWORK), i, number)
        mean_s, deviation_s = world.delay_s[of.site, c], world.deviation_s[of.site, c]
        there_s, back_s = (max(mean_s + deviation_s * x, 0.0) for x in (up, down))
        access_s, private_bps = world.access_delay_s[of.site], self.bps(of.site, c)
        query = (sent_s, i, number, w, back_s, (i, self.visit[i]), before)
        self.under_way[w].append(query)
        if self.clock.shared:
            self.clock.at(now_s + access_s, self.leave, query, there_s, private_bps)
        else:
            at_s = now_s + access_s + there_s + 8.0 * of.size_bytes / private_bps
            self.due[query[5]] = max(at_s, self.due.get(query[5], 0.0))
            self.clock.at(self.due[query[5]], self.come, query, False)

    def leave(self, now_s, query, there_s, private_bps):
        _, i, number, w, _, visit, _ = query
        of, came = self.trace[i], lambda at_s, lost: self.come(at_s, query, lost)
        chain = self.clock.way(of.site, self.world.cluster[w])
        given = chain, now_s, there_s, 8.0 * of.size_bytes, private_bps
        sent = self.clock.post(*given, came, self.due.get(visit, 0.0), turn=(0, i, number))
        self.due[visit] = sent.leaves_s + sent.there_s + sent.tx_s
        of = visit if query[6] == 0 else (*visit, number)
        self.flying.setdefault(of, {})[number] = sent

    def bps(self, site, cluster):
        return min(self.world.uplink_bps[site], self.world.bandwidth_bps[site, cluster])

    def come(self, now_s, query, lost):
        _, i, number, _, _, visit, _ = query
        of = visit if query[6] == 0 else (*visit, number)  # what is sent again waits for no older one
        flying, early = self.flying.setdefault(of, {}), self.early.setdefault(of, [])
        flying.pop(number, None)  # where links are not shared none is there
        if not lost:
            early.append(query)
        elif self.arrives(query):
            self.outcome[i]["failed"] += 1
        for each in sorted(early, key=lambda each: each[2]):  # those of a stream do not overtake
            if not any(k < each[2] and not sent.lost for k, sent in flying.items()):
                early.remove(each)
                self.wait(now_s, each)

    def arrives(self, query):
        """Whether it is still under way: it may have been sent elsewhere meanwhile."""
        there = query in self.under_way[query[3]]
        if there:
            self.under_way[query[3]].remove(query)
        return there

    def wait(self, now_s, query):
        i, w = query[1], query[3]
        if not self.arrives(query):
            return
        if not self.up(w):
            self.lost.setdefault(w, []).append(query)
            return
        self.tied |= now_s - self.last.get(w, -1.0) < ROUNDING_S
        self.last[w] = now_s
        self.waiting[w].append((now_s, i, query))
        if (timeout_s := self.world.batch_timeout_s[w]) > 0:
            self.clock.at(now_s + timeout_s, self.serve, w)
        self.serve(now_s, w)

    def serve(self, now_s, w):
        world = self.world
        while len(self.serving[w]) < world.servers[w] and self.waiting[w]:
            most, oldest_s = int(world.max_batch[w]), self.waiting[w][0][0]
            if len(self.waiting[w]) < most and now_s < oldest_s + world.batch_timeout_s[w]:
                return
            batch, self.waiting[w] = self.waiting[w][:most], self.waiting[w][most:]
            largest = max(self.trace[i].size_bytes for _, i, _ in batch)
            mean_s = (world.fixed_s[w] + world.per_byte_s[w] * largest) * (
                1 + world.batch_slope[w] * (len(batch) - 1)
            )
            noise = normal(self.seed, Purpose.SERVICE, batch[0][1], batch[0][2][2])
            took_s = mean_s * max(1 + world.deviation[w] * noise, 0.0)
            self.serving[w].append(batch)
            self.clock.at(now_s + took_s, self.served, w, batch, self.life[w])

    def served(self, now_s, w, batch, life):
        if life != self.life[w]:
            return  # it was lost with its node
        self.serving[w] = [each for each in self.serving[w] if each is not batch]
        for _, i, query in sorted(batch, key=lambda each: each[2][1:3]):  # at once: streams in their order
            self.answer(now_s, w, i, query)
        self.serve(now_s, w)

    def answer(self, now_s, w, i, query):
        of, c, back_s = self.trace[i], self.world.cluster[w], query[4]
        access_s, bits = self.world.access_delay_s[of.site], 8.0 * of.answer_bytes
        if not bits:
            self.judge(now_s + back_s + access_s, i, query, False)
        elif self.clock.shared:
            chain = self.clock.way(of.site, c, back=True)
            then = lambda at_s, lost: self.judge(at_s + access_s, i, query, lost)  # noqa: E731
            self.clock.post(chain, now_s, back_s, bits, self.bps(of.site, c), then)
        else:
            self.judge(now_s + back_s + access_s + bits / self.bps(of.site, c), i, query, False)

    def finish(self):
        """What links that carry nothing still hold is lost."""
        for i, counts in enumerate(self.outcome):
            counts["failed"] += self.sent[i] - sum(counts.values())

    def judge(self, at_s, i, query, lost):
        if not lost:
            self.delays[i].append(at_s - query[0])
        ok = not lost and at_s - query[0] <= self.trace[i].deadline_s
        self.outcome[i]["ok" if ok else "failed"] += 1


class Queries(Part):
    """Queries of split models: a server takes of the oldest query that waits, links the first that came.

    What a dead server has goes elsewhere when that is heard, as another try, and what was done is in vain.
    """

    def __init__(self, clock, graphs, sent_s, jobs, nodes, server_ops, link, start_s):
        super().__init__(clock)
        self.start_s, self.down = start_s, set()
        self.graphs, self.sent_s, self.jobs, self.nodes, self.ops = graphs, sent_s, jobs, nodes, server_ops
        self.chain = link  # of the one link between servers
        self.lines, self.now = [[] for _ in nodes], [None] * len(nodes)
        self.life, self.order, self.anew = [0] * len(nodes), 0, 0
        self.missing, self.open, self.ended, self.lost = {}, {}, {}, set()
        self.tries, self.placed, self.left, self.elsewhere = {}, {}, {}, 0
        for q, at_s in enumerate(sent_s):
            clock.at(at_s, self.launch, q)

    def launch(self, now_s, q):
        graph = self.graphs[self.jobs[q]]
        names = [task.name for task in graph.tasks]
        self.missing[q] = [sum(edge.target == name for edge in graph.edges) for name in names]
        self.open[q], self.left[q] = len(names), set(range(len(names)))
        self.tries[q] = self.tries.get(q, -1) + 1
        self.placed[q] = [self.clock.decided.queries[q], *self.clock.decided.again.get(q, ())][self.tries[q]]
        for t, count in enumerate(list(self.missing[q])):
            if count == 0:
                self.submit(now_s, q, t)
        self.choose(now_s)

    def submit(self, now_s, q, t):
        server = self.placed[q][t]
        if self.graphs[self.jobs[q]].tasks[t].work_ops == 0.0 and server not in self.down:
            self.complete(now_s, q, t)
            return
        self.order += 1
        self.lines[server].append((q, self.order, t, self.tries[q]))

    def complete(self, now_s, q, t):
        graph, placed, tried = self.graphs[self.jobs[q]], self.placed[q], self.tries[q]
        names = [task.name for task in graph.tasks]
        self.open[q] -= 1
        self.left[q].discard(t)
        if q in self.lost:
            return
        if self.open[q] == 0:
            self.ended[q] = now_s
        for edge in [edge for edge in graph.edges if edge.source == names[t]]:
            to = names.index(edge.target)
            if edge.size_bytes == 0 or placed[t] == placed[to]:
                self.deliver(now_s, q, to)
                continue
            then = lambda at_s, lost, to=to: self.come(at_s, q, to, lost, tried)  # noqa: E731
            self.clock.post(self.chain, now_s, 0.0, 8.0 * edge.size_bytes, math.inf, then)

    def come(self, now_s, q, to, lost, tried):
        if tried != self.tries[q]:
            return
        if lost:
            self.lost.add(q)
        elif q not in self.lost:
            self.deliver(now_s, q, to)
            self.choose(now_s)

    def deliver(self, now_s, q, t):
        self.missing[q][t] -= 1
        if self.missing[q][t] == 0:
            self.submit(now_s, q, t)

    def choose(self, now_s):
        """Every idle server takes a task of the oldest query that waits there."""
        for server in range(len(self.nodes)):
            line = [each for each in self.lines[server] if each[0] not in self.lost]
            self.lines[server] = [each for each in line if each[3] == self.tries[each[0]]]
            if server in self.down or self.now[server] is not None or not self.lines[server]:
                continue
            self.now[server] = min(self.lines[server])
            self.lines[server].remove(self.now[server])
            self.work(now_s, server)

    def work(self, now_s, server):
        q, _, t, _ = self.now[server]
        took_s = self.graphs[self.jobs[q]].tasks[t].work_ops / self.ops[server]
        self.clock.at(now_s + took_s, self.done, server, self.life[server])

    def done(self, now_s, server, life):
        if life == self.life[server]:
            (q, _, t, tried), self.now[server] = self.now[server], None
            self.life[server] += 1
            if tried == self.tries[q]:
                self.complete(now_s, q, t)
            self.choose(now_s)

    def failed(self, now_s, node):
        for server in [k for k, name in enumerate(self.nodes) if name == node]:
            self.life[server] += 1
            if server not in self.down:
                self.clock.at(now_s + self.clock.scenario.telemetry.lag_s, self.heard, server)
            self.down.add(server)

    def heard(self, now_s, server):
        if server not in self.down:
            return
        for q in sorted(q for q, left in self.left.items() if left and q not in self.lost):
            if any(self.placed[q][t] == server for t in self.left[q]):
                self.elsewhere += 1
                if self.now[server] is not None and self.now[server][0] == q:
                    self.now[server] = None
                self.launch(now_s, q)

    def repaired(self, now_s, node):
        for server in [k for k, name in enumerate(self.nodes) if name == node]:
            self.clock.at(now_s + self.start_s, self.begun, server, self.life[server])

    def begun(self, now_s, server, life):
        if life == self.life[server]:
            self.down.discard(server)
            if self.now[server] is not None:
                self.anew += 1
                self.work(now_s, server)
        self.choose(now_s)
