"""Requests of services on the clock and links of `naive_joint`."""

import math
from dataclasses import dataclass, field

from naive_joint import Part

from edgewise.core.keyed import Purpose, normal

ROUNDING_S = 1e-9


@dataclass(eq=False)
class Replica:
    name: str
    service: int
    station: int
    serves: int = 1
    wanted: bool = True
    up: bool = False
    known: bool | None = None  # what sites were told: whether it is wanted
    mine: int = 0  # requests whose sites have not heard of their end
    life: int = 0
    work: set = field(default_factory=set)


class Requests(Part):
    """Requests to replicas, each station with a line by deadline, and images that come to nodes."""

    def __init__(self, clock, services, asked, seed, end_s, news):
        super().__init__(clock)
        self.services, self.system, self.asked, self.seed = services, services.system, asked, seed
        self.end_s, (self.period_s, self.lag_s) = end_s, news
        system, count = self.system, int(asked.count[0])
        self.cores = [asked.cpu_cores[0, i] * (system.replica_cpu_cores[asked.service[0, i]] == 0)
                      for i in range(count)]  # fmt: skip
        self.took_s, self.takes_s = asked.service_s()[0], [0.0] * count
        self.state, self.station = ["unseen"] * count, [None] * count
        self.ended, self.server, self.decided = (
            {},
            {},
            {k: list(v) for k, v in clock.decided.requests.items()},
        )
        self.lines = [[] for _ in range(system.stations)]
        self.in_work = [dict() for _ in range(system.stations)]
        self.replicas, self.made = {}, 0
        self.layers, self.pulls = [{} for _ in range(system.nodes)], [[] for _ in range(system.nodes)]
        self.down_free_s, self.pulled = 0.0, 0
        ways = {(way.site, way.cluster): way.bandwidth_bps for way in clock.scenario.topology.ways}
        self.private_bps = [
            [min(site.uplink_bps, ways[site.name, c.name]) for c in clock.scenario.topology.clusters]
            for site in clock.scenario.topology.sites
        ]
        if not clock.shared:
            self.lan = [clock.own_link(rate_bps[1]) for rate_bps in system.rate_bps]
            self.wan = clock.own_link(system.rate_bps[0, 0])
        for s in range(system.services):
            self.first(s)
        for server in self.replicas.values():
            server.known = True
        for i in range(count):
            clock.at(asked.arrival_s[0, i], self.arrive, i)
        for k in range(1, int(end_s / self.period_s) + 2):
            clock.at(k * self.period_s, self.gather)

    def first(self, s):
        needs = [max(self.system.service_cpu_cores[s], 1e-9), self.system.service_memory_bytes[s]]
        rooms = [
            math.floor(min(has[0] / needs[0], has[1] / needs[1]))
            for has in zip(self.system.cpu_cores, self.system.memory_bytes, strict=True)
        ][: self.system.first_machine[1]]
        name = f"cloud-{self.services.names[s]}"
        self.replicas[name] = Replica(name, s, 0, max(sum(rooms), 1), up=True)
        for n in range(self.system.nodes):
            for _ in range(int(self.system.initial[n, s])):
                self.layers[n] |= dict.fromkeys(self.needed(s), 0.0)
                self.new(n, s).up = True

    def new(self, n, s):
        name = f"{self.services.names[s]}-{self.services.nodes[n]}-{self.made}"
        self.made += 1
        self.replicas[name] = Replica(name, s, n + 1)
        return self.replicas[name]

    def needed(self, s):
        return [layer for layer, needs in enumerate(self.system.needs_layer[s]) if needs]

    # commands, failures, images

    def told(self, now_s, command):
        kind = type(command).__name__
        if kind == "StartReplica":
            self.fetch(now_s, self.new(command.node, command.service))
        elif kind == "KeepReplica":
            self.replicas[command.replica].wanted = True
        elif kind == "EndReplica":
            self.replicas[command.replica].wanted = False
            self.settle(self.replicas[command.replica])

    def on(self, node):
        if node not in self.services.nodes:
            return []
        n = self.services.nodes.index(node)
        return [server for server in self.replicas.values() if server.station == n + 1]

    def down(self, server):
        return server.station > 0 and self.services.nodes[server.station - 1] in self.clock.dead

    def failed(self, now_s, node):
        if node not in self.services.nodes:
            return
        n = self.services.nodes.index(node)
        for pull in self.pulls[n]:
            self.clock.cancel(now_s, pull)
        self.layers[n] = {layer: at_s for layer, at_s in self.layers[n].items() if at_s <= now_s}
        had = [i for _, i in self.lines[n + 1]] + list(self.in_work[n + 1])
        self.lines[n + 1], self.in_work[n + 1] = [], {}
        for server in self.on(node):
            server.up, server.life, server.work = False, server.life + 1, set()
        for i in had:
            self.leave(now_s, i, "lost")

    def repaired(self, now_s, node):
        for server in self.on(node):
            self.fetch(now_s, server)

    def fetch(self, now_s, server):
        if self.down(server):
            return
        n, layers = server.station - 1, self.layers[server.station - 1]
        lacks = [layer for layer in self.needed(server.service) if layer not in layers]
        way_s = float(self.system.delay_s[self.system.site_of[n], 0])
        self.pulled += len(lacks)
        if lacks and self.clock.shared:
            layers |= dict.fromkeys(lacks, math.inf)
            bits = 8.0 * sum(self.system.layer_bytes[layer] for layer in lacks)

            def come(at_s):
                layers_now = self.layers[n]
                layers_now |= dict.fromkeys(lacks, at_s + way_s)
                for each in self.replicas.values():
                    if each.station == n + 1 and not each.up:
                        self.start(at_s, each)

            chain = self.clock.way(self.system.site_of[n], self.services.clusters[0], back=True)
            self.pulls[n].append(self.clock.pull(now_s, chain, bits, come))
        for layer in [] if self.clock.shared else lacks:
            self.down_free_s = max(now_s, self.down_free_s)
            self.down_free_s += (
                8.0 * self.system.layer_bytes[layer] / self.system.rate_bps[self.system.site_of[n], 0]
            )
            layers[layer] = self.down_free_s + way_s
        self.start(now_s, server)

    def start(self, now_s, server):
        there_s = [self.layers[server.station - 1][layer] for layer in self.needed(server.service)]
        if max(there_s) < math.inf and not self.down(server):
            at_s = max(now_s, *there_s) + self.system.start_delay_s
            self.clock.at(at_s, self.ready, server, server.life)

    def ready(self, now_s, server, life):
        server.up |= server.life == life

    # news

    def gather(self, now_s):
        told = [(server, server.wanted) for server in self.replicas.values()]
        self.clock.at(now_s + self.lag_s, self.hear, told)

    def hear(self, now_s, told):
        for server, wanted in told:
            server.known = wanted
        for server in list(self.replicas.values()):
            self.settle(server)

    def settle(self, server):
        if not server.wanted and not server.known and not (server.known is not None and server.mine):
            self.replicas.pop(server.name, None)

    # requests

    def decision(self, now_s, i):
        if now_s >= self.end_s:
            return None
        at_s, command, self.takes_s[i] = self.decided[i].pop(0)
        assert abs(at_s - now_s) <= ROUNDING_S, (
            f"request {i} was decided on at {at_s}, and is here at {now_s}"
        )
        return command

    def arrive(self, now_s, i):
        self.state[i] = "waiting"
        self.act(now_s, i)

    def act(self, now_s, i):
        command = self.decision(now_s, i)
        kind = type(command).__name__
        if kind == "Wait":
            self.clock.at(now_s + self.system.slot_s, self.act, i)
        elif kind == "Drop":
            self.drop(now_s, i)
        elif kind == "Send":
            self.send(now_s, i, self.replicas[command.replica])

    def drop(self, now_s, i):
        self.state[i], self.ended[i] = "dropped", now_s

    def send(self, now_s, i, server):
        b, bits = int(self.asked.site[0, i]), 8.0 * float(self.asked.payload_bytes[0, i])
        delay_s = float(self.system.delay_s[b, server.station]) - self.back_s(i, server)
        if server.station == 0:
            slot = int(now_s / self.system.slot_s)
            noise = normal(self.seed, Purpose.NETWORK, 0, slot)
            delay_s = max(0.0, delay_s + self.system.deviation_s[b, 0] * noise)
        server.mine += 1
        self.server[i], self.station[i], self.state[i] = server, server.station, "sent"
        private_bps, chain = math.inf, None
        if self.clock.shared:
            cluster = self.services.clusters[server.station]
            private_bps, chain = self.private_bps[b][cluster], self.clock.way(b, cluster)
        else:
            chain = self.wan if server.station == 0 else self.lan[b]
        then = lambda at_s, lost: self.reach(at_s, i, lost)  # noqa: E731
        self.clock.post(chain, now_s, delay_s, bits, private_bps, then)

    def back_s(self, i, server):
        if not self.services.spec.answers:
            return 0.0
        return 0.5 * float(self.system.delay_s[int(self.asked.site[0, i]), server.station])

    def reach(self, now_s, i, lost):
        server = self.server[i]
        if now_s >= self.end_s:
            return
        if lost or not server.up:
            self.leave(now_s, i, "dropped" if lost else "lost")
            return
        self.lines[server.station].append((float(self.asked.deadline_s[0, i]), i))
        self.begin(now_s, server)

    def begin(self, now_s, looks):
        """One that looks at its own line drops what is late there; others of its node have room at most."""
        station = looks.station
        for deadline_s, i in sorted(self.lines[station]):
            server = self.server[i]
            machine = self.machine(server, i) if len(server.work) < server.serves else None
            if server is not looks and machine is None:
                continue
            soonest_s = (
                now_s + self.back_s(i, server) + self.takes_s[i] + self.bits(i) / self.rate_bps(i, server)
            )
            if self.system.drops and soonest_s > deadline_s + ROUNDING_S:
                self.lines[station].remove((deadline_s, i))
                self.leave(now_s, i, "dropped")
            elif machine is not None:
                self.lines[station].remove((deadline_s, i))
                server.work.add(i)
                self.in_work[station][i] = machine
                self.state[i] = "worked_on"
                self.clock.at(now_s + self.varied_s(i), self.done, i, server, server.life)

    def varied_s(self, i):
        deviation = self.system.service_deviation
        if deviation == 0.0:
            return self.took_s[i]
        variance = math.log(1.0 + deviation**2)
        z = normal(self.seed, Purpose.SERVICE, i, 0)
        return self.took_s[i] * math.exp(math.sqrt(variance) * z - variance / 2.0)

    def machine(self, server, i):
        """The first one with room, by all that is there."""
        station = server.station
        for m in range(self.system.first_machine[station], self.system.first_machine[station + 1]):
            has = self.system.cpu_cores[m], self.system.memory_bytes[m]
            there = [self.holds(server, i)]
            there += [self.holds(self.server[k], k) for k, at in self.in_work[station].items() if at == m]
            if station > 0:
                there += [self.replica_holds(each.service) for each in self.replicas.values()
                          if each.station == station]  # fmt: skip
            if all(
                sum(x) <= h * (1 + 1e-9) + 1e-9 for x, h in zip(zip(*there, strict=True), has, strict=True)
            ):
                return m
        return None

    def holds(self, server, i):
        own = self.cores[i], float(self.asked.memory_bytes[0, i])
        if server.station > 0:
            return own
        return tuple(a + b for a, b in zip(own, self.replica_holds(server.service), strict=True))

    def replica_holds(self, s):
        return float(self.system.replica_cpu_cores[s]), float(self.system.service_memory_bytes[s])

    def done(self, now_s, i, server, life):
        if server.life != life or now_s >= self.end_s:
            return
        server.work.discard(i)
        del self.in_work[server.station][i]
        if self.clock.shared and self.bits(i):
            self.state[i], b = "sent", int(self.asked.site[0, i])
            cluster = self.services.clusters[server.station]
            then = lambda at_s, lost: self.answered(at_s, i, lost)  # noqa: E731
            given = self.clock.way(b, cluster, back=True), now_s, self.back_s(i, server), self.bits(i)
            self.clock.post(*given, self.private_bps[b][cluster], then)
        else:
            there_s = now_s + self.bits(i) / self.rate_bps(i, server) + self.back_s(i, server)
            self.state[i] = "sent"
            if there_s < self.end_s:
                self.judge(there_s, i)
            self.clock.at(there_s, self.heard, i, server, "ended")
        self.begin(now_s, server)

    def bits(self, i):
        """Of the answer."""
        return 8.0 * float(self.services.answer_bytes[self.asked.service[0, i]])

    def rate_bps(self, i, server):
        return float(self.system.rate_bps[int(self.asked.site[0, i]), server.station])

    def judge(self, at_s, i):
        self.ended[i] = at_s
        late = at_s > float(self.asked.deadline_s[0, i]) + ROUNDING_S
        self.state[i] = "late" if late else "in_time"

    def answered(self, now_s, i, lost):
        if now_s < self.end_s:
            self.drop(now_s, i) if lost else self.judge(now_s, i)
            self.heard(now_s, i, self.server[i], "ended")

    def leave(self, now_s, i, how):
        if now_s >= self.end_s:
            return
        if how == "dropped":
            self.drop(now_s, i)
        elif how == "lost":
            self.state[i] = "sent"
        self.clock.at(now_s + self.back_s(i, self.server[i]), self.heard, i, self.server[i], how)

    def heard(self, now_s, i, server, how):
        if now_s >= self.end_s:
            return
        server.mine -= 1
        if how == "lost":
            self.arrive(now_s, i)
        self.settle(server)
