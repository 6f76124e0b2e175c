"""Messages on shared links, naively: one list of events, bits counted down, plain Python."""

import heapq
import math
from dataclasses import dataclass, field
from itertools import count

CHANGE, CHANGED, PASSED, COMES, CALL = range(5)


@dataclass
class Link:
    rate: float
    buffer: float = math.inf
    line: list = field(default_factory=list)  # of those that came; of FIFO the first one passes
    last_s: float = 0.0
    stamp: int = 0


@dataclass
class Entry:
    """A message on a link."""

    message: "Message"
    came_s: float
    bits: float
    passes: bool = False


@dataclass
class Message:
    number: int
    route: list  # of (link, share of the delay before it)
    leaves_s: float
    there_s: float
    bits: float
    tx_s: float = 0.0
    most_s: float = 0.0
    slowest: int = -1
    hop: int = 0
    wait_s: float = 0.0
    passed_s: list = field(default_factory=list)  # transmission on each link that it has passed
    done: int = 0
    lost: bool = False


class NaiveLinks:
    """Links, and when messages over them are there."""

    def __init__(self, links, sharing):
        self.links = [Link(*link) for link in links]
        self.sharing, self.events, self.order, self.there = sharing, [], count(), {}
        self.then = {}  # by number of a message what is called when it is there

    def run(self, messages, private_bps, changes=()):
        """(when, held up for how long) of each message; absent where it never comes.

        Args:
            messages: (route, leaves_s, there_s, bits) each.
            private_bps: of each message.
            changes: (at_s, link, rate).
        """
        for at_s, link, rate in changes:
            self.add(at_s, CHANGE, (link, rate))
        self.changes, self.private = sorted(changes, key=lambda c: c[0]), private_bps
        for number, given in enumerate(messages):
            self.leave(Message(number, *given))
        while self.events:
            self.step()
        return self.there

    def step(self):
        now_s, kind, _, what = heapq.heappop(self.events)
        if kind == CALL:
            what(now_s)
        elif kind == COMES:
            self.come(now_s, *what)
        elif kind == CHANGE:
            self.count_down(what[0], now_s)
            self.links[what[0]].rate = what[1]
            self.add(now_s, CHANGED, what[0])  # once all that change at once have changed
        elif kind == CHANGED:
            self.announce(what, now_s)
        elif what[1] == self.links[what[0]].stamp:
            self.passed(what[0], now_s)

    def add(self, at_s, kind, what):
        heapq.heappush(self.events, (at_s, kind, next(self.order), what))

    def leave(self, m):
        rates = {j: self.links[j].rate for j, _ in m.route}
        for at_s, link, rate in self.changes:
            if at_s <= m.leaves_s and link in rates:
                rates[link] = rate
        least = min([self.private[m.number], *(rate for rate in rates.values() if rate > 0)])
        m.slowest = next((k for k, (j, _) in enumerate(m.route) if rates[j] == least), -1)
        m.tx_s = m.most_s = m.bits / least
        for hop in range(len(m.route) if self.sharing == "ps" else 1):
            self.go(m, hop)

    def go(self, m, hop):
        at_s = m.leaves_s + m.there_s * m.route[hop][1]
        if self.sharing == "fifo":  # its head up to the slowest link, from then on its end
            at_s += m.wait_s + (m.most_s if hop > m.slowest else 0.0)
        self.add(at_s, COMES, (m, m.route[hop][0]))

    def count_down(self, j, now_s):
        link = self.links[j]
        gone, link.last_s = link.rate * (now_s - link.last_s), now_s
        for entry in link.line if self.sharing == "ps" else link.line[:1]:
            entry.bits -= gone / (len(link.line) if self.sharing == "ps" else 1)

    def come(self, now_s, m, j):
        self.count_down(j, now_s)
        link = self.links[j]
        if sum(max(entry.bits, 0.0) for entry in link.line) > link.buffer:
            m.lost = True
            self.finish(m, len(m.route) if self.sharing == "fifo" else 1)
            return
        link.line.append(Entry(m, now_s, m.bits))
        self.announce(j, now_s)

    def announce(self, j, now_s):
        link = self.links[j]
        link.stamp += 1
        if not link.line or link.rate == 0:
            return
        first = link.line[0]
        if self.sharing == "fifo" and not first.passes:
            first.passes = True
            first.message.wait_s += now_s - first.came_s
            self.transmit(first.message, first.bits / link.rate)
            first.message.hop += 1
            if first.message.hop < len(first.message.route):
                self.go(first.message, first.message.hop)
            else:
                self.finish(first.message, len(first.message.route))
        least = (
            min(entry.bits for entry in link.line) * len(link.line) if self.sharing == "ps" else first.bits
        )
        self.add(now_s + max(least, 0.0) / link.rate, PASSED, (j, link.stamp))

    def transmit(self, m, own_s):
        """A message begins to pass: it transmits as its slowest link does, at the rates that there are."""
        if own_s > m.most_s:
            m.most_s, m.slowest = own_s, min(m.slowest, m.hop)
        elif own_s < m.most_s and m.hop == m.slowest:
            ahead = [self.links[j].rate for j, _ in m.route[m.hop + 1 :]]
            parts = [own_s, *(m.bits / rate if rate > 0 else 0.0 for rate in ahead)]
            m.most_s = max(*parts, *m.passed_s, m.bits / self.private[m.number])
            m.slowest = m.hop + (parts.index(m.most_s) if m.most_s in parts else 0)
        m.passed_s.append(own_s)

    def passed(self, j, now_s):
        self.count_down(j, now_s)
        line = self.links[j].line
        entry = line.pop(min(range(len(line)), key=lambda k: line[k].bits) if self.sharing == "ps" else 0)
        if self.sharing == "ps":
            m = entry.message
            m.wait_s = max(m.wait_s, now_s - entry.came_s - m.tx_s)
            self.finish(m, 1)
        self.announce(j, now_s)

    def finish(self, m, links):
        m.done += links
        if m.done >= len(m.route):
            if self.sharing == "fifo":
                m.wait_s += m.most_s - m.tx_s
            at_s = m.leaves_s + m.there_s + m.tx_s + m.wait_s
            self.there[m.number] = (math.inf if m.lost else at_s, m.wait_s)
            if m.number in self.then:
                self.add(at_s, CALL, self.then[m.number])
