"""Streams over shared links, naively: links one event at a time, then workers, then links back."""

import heapq

import numpy as np
from naive_links import CALL, Message, NaiveLinks
from naive_streams import ARRIVAL, Naive

from edgewise.core.keyed import Purpose, normal_pair_of
from joint_scenarios import queries_of


class NaiveShared(Naive):
    """`Naive` with payloads and answers on links; what comes back changes nothing of what is sent."""

    def __init__(self, world, trace, bound, seed, routes, sharing):
        self.routes, self.sharing, self.backs = routes, sharing, {}
        super().__init__(world, trace, bound, seed)
        self.send()

    def enter(self, stream, w):
        world, c = self.world, self.world.cluster[w]
        delay, deviation = world.delay_s[stream.site, c], world.deviation_s[stream.site, c]
        access = world.access_delay_s[stream.site]
        bps = min(world.uplink_bps[stream.site], world.bandwidth_bps[stream.site, c])
        due_s = 0.0
        for number, sent_s in queries_of(stream, self.seed):
            if w < 0:
                self.outcome[stream.id]["rejected"] += 1
                continue
            up, down = normal_pair_of(np.uint64(self.seed), int(Purpose.NETWORK), stream.id, number)
            there, back = (max(delay + deviation * x, 0.0) for x in (up, down))
            leaves_s, tx_s = sent_s + access, stream.size_bytes * 8 / bps
            due_s = max(due_s, leaves_s + there + tx_s)
            key = stream.id, number
            self.backs[key] = (sent_s, back, access, w)
            self.payloads = getattr(self, "payloads", {})
            self.payloads[key] = (self.chain(stream.site, c, 0), leaves_s, due_s - leaves_s - tx_s,
                                  stream.size_bytes * 8, bps)  # fmt: skip

    def chain(self, site, cluster, direction):
        row = site * len(self.world.cluster_names) + cluster
        row += direction * len(self.routes.link) // 2
        pairs = zip(self.routes.link[row], self.routes.before[row], strict=True)
        return [(int(j), float(share)) for j, share in pairs if j >= 0]

    def carried(self, messages):
        links = NaiveLinks(
            list(zip(self.routes.rate_bps, self.routes.buffer_bytes * 8.0, strict=True)), self.sharing
        )
        found = links.run([m[:4] for m in messages.values()], [m[4] for m in messages.values()])
        return {key: found[k][0] for k, key in enumerate(messages)}

    def send(self):
        before = {}
        for (stream, number), at_s in sorted(self.carried(self.payloads).items()):
            sent_s, _, _, w = self.backs[stream, number]
            if np.isinf(at_s):
                self.outcome[stream]["failed"] += 1
                continue
            before[stream] = at_s = max(before.get(stream, 0.0), at_s)
            heapq.heappush(self.events, (at_s, ARRIVAL, stream, number, w, sent_s, -np.inf))

    def run(self):
        self.answers = {}
        super().run()
        judged = {s: {"ok": 0, "failed": 0} for s in range(len(self.trace))}
        for (stream, number), at_s in self.carried(self.answers).items():
            late = (
                at_s + self.backs[stream, number][2] - self.backs[stream, number][0]
                > self.trace[stream].deadline_s
            )
            judged[stream]["failed" if late else "ok"] += 1
        for stream, counts in judged.items():
            self.outcome[stream]["ok"] = counts["ok"]
            self.outcome[stream]["failed"] += counts["failed"]
        return self.outcome

    def replied(self, stream, number, finish_s):
        _, back, access, w = self.backs[stream, number]
        of, world = self.trace[stream], self.world
        bps = min(world.uplink_bps[of.site], world.bandwidth_bps[of.site, world.cluster[w]])
        chain = self.chain(of.site, world.cluster[w], 1)
        self.answers[stream, number] = (chain, finish_s, back, of.answer_bytes * 8, bps)


class NaiveBoth(NaiveShared):
    """Answers share links with payloads, so links and workers have one list of events."""

    def send(self):
        self.net = NaiveLinks(
            list(zip(self.routes.rate_bps, self.routes.buffer_bytes * 8.0, strict=True)), self.sharing
        )
        self.net.changes, self.net.private, self.before = [], [], {}
        for key, message in self.payloads.items():
            self.net.add(message[1], CALL, lambda _, k=key, m=message: self.post(k, m, self.came))

    def post(self, key, message, then):
        number = len(self.net.private)
        self.net.private.append(message[4])
        self.net.then[number] = lambda at_s: then(key, at_s)
        self.net.leave(Message(number, *message[:4]))

    def came(self, key, at_s):
        (stream, number), (sent_s, _, _, w) = key, self.backs[key]
        at_s = self.before[stream] = max(self.before.get(stream, 0.0), at_s)
        heapq.heappush(self.events, (at_s, ARRIVAL, stream, number, w, sent_s, -np.inf))

    def replied(self, stream, number, finish_s):
        super().replied(stream, number, finish_s)
        batch = self.batches.setdefault(finish_s, [])
        if not batch:
            self.net.add(finish_s, CALL, lambda _: self.leave(finish_s))
        batch.append((stream, number))

    def leave(self, finish_s):
        """At one time by stream, as links take them."""
        for key in sorted(self.batches.pop(finish_s)):
            self.post(key, self.answers.pop(key), self.judge)

    def judge(self, key, at_s):
        sent_s, _, access, _ = self.backs[key]
        late = at_s + access - sent_s > self.trace[key[0]].deadline_s
        self.outcome[key[0]]["failed" if late else "ok"] += 1
        self.took.setdefault(key[0], []).append(at_s + access - sent_s)

    def run(self):
        self.answers, self.took, self.batches = {}, {}, {}
        while self.events or self.net.events:
            if self.net.events and (not self.events or self.net.events[0][0] <= self.events[0][0]):
                self.net.step()
            else:
                self.happens(*heapq.heappop(self.events))
        return self.outcome
