"""Streams, requests and tensors on the same links, naively: one list of events for all of them."""

from naive_links import CALL, Message, NaiveLinks
from naive_shared import NaiveShared


class NaiveRiders(NaiveShared):
    """`NaiveShared` whose payloads share links with messages that wait for others.

    Args:
        asked: (at_s, route, bits, took_s) of requests; they are served one by one, and answered back.
        bounced: (at_s, routes, bits, thinks_s) of tensors that go over each route in turn.
        delays: of routes: (links with their shares of the delay, delay, private bandwidth).
    """

    def __init__(self, world, trace, bound, seed, routes, sharing, asked, bounced, delays):
        self.asked, self.bounced, self.delays = asked, bounced, delays
        self.answered_s, self.bounced_s = {}, {}
        super().__init__(world, trace, bound, seed, routes, sharing)

    def carried(self, messages):
        if messages is not self.payloads:
            return super().carried(messages)
        self.net = NaiveLinks(
            list(zip(self.routes.rate_bps, self.routes.buffer_bytes * 8.0, strict=True)), self.sharing
        )
        self.private = [m[4] for m in messages.values()]
        self.number = len(messages)
        self.busy_s = 0.0
        for k, (at_s, route, bits, took_s) in enumerate(self.asked):
            self.later(at_s, lambda now_s, k=k, r=route, b=bits, t=took_s: self.ask(now_s, k, r, b, t))
        for k, (at_s, route, bits, thinks_s) in enumerate(self.bounced):
            self.later(
                at_s, lambda now_s, k=k, r=route, b=bits, t=thinks_s: self.bounce(now_s, k, 0, r, b, t)
            )
        found = self.net.run([m[:4] for m in messages.values()], self.private)
        return {key: found[k][0] for k, key in enumerate(messages)}

    def later(self, at_s, what):
        self.net.add(at_s, CALL, what)

    def post(self, now_s, route, bits, then):
        chain, there_s, private_bps = self.delays[route]
        self.private.append(private_bps)
        self.net.then[self.number] = then
        self.net.leave(Message(self.number, chain, now_s, there_s, bits))
        self.number += 1

    def ask(self, now_s, k, route, bits, took_s):
        self.post(now_s, route[0], bits, lambda at_s: self.work(at_s, k, route, bits, took_s))

    def work(self, now_s, k, route, bits, took_s):
        self.busy_s = max(self.busy_s, now_s) + took_s
        self.later(
            self.busy_s,
            lambda at_s: self.post(at_s, route[1], bits, lambda end_s: self.answered_s.update({k: end_s})),
        )

    def bounce(self, now_s, k, hop, routes, bits, thinks_s):
        if hop == len(routes):
            self.bounced_s[k] = now_s
            return
        self.post(
            now_s, routes[hop], bits,
            lambda at_s: self.later(
                at_s + thinks_s, lambda then_s: self.bounce(then_s, k, hop + 1, routes, bits, thinks_s)
            ),
        )  # fmt: skip
