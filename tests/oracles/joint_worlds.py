"""Tiny worlds with all kinds of work on a few nodes and cables, drawn at random, and what decides in them."""

import numpy as np

from edgewise.core.orchestrate import HOLD, AddReplica, RemoveReplica
from edgewise.core.place import Placement
from edgewise.core.split import closed

DURATION_S = 24
GB = 1e9


def drawn(number, sharing=None):
    """(scenario, policies) of a world; most have all kinds of work, failures, and messages that wait."""
    draw = np.random.default_rng(number)
    sharing = sharing or ("none", "fifo", "ps")[number % 3]
    world = World(draw, sharing)
    data = world.places() | world.streams() | world.services() | world.pipelines() | world.graphs()
    data |= world.jobs() | {"timeline": world.timeline(), "sharing": sharing}
    start(data, np.random.default_rng([number, 1]))
    policies = {
        "dispatch": str(draw.choice(["closest", "power-of-two", "load-balancing", "least-impedance"])),
        "requests": InTurn,
        "orchestrate": [Shuffle0, Shuffle1, Shuffle2][number % 3],
        "split": Apart,
        "place": Wander if number % 4 else str(draw.choice(["otfa", "otfs", "joint", "tp"])),
        "defer": str(draw.choice(["fifo", "horizon"])),
    }
    return data, policies


def start(data, draw):
    """Let work take its time to start, and fetch images, in two of three worlds."""
    if draw.random() < 1 / 3:
        return
    for variant in data["catalog"]["variants"][:2]:
        variant["start_s"] = float(draw.uniform(0.1, 2.0)) * (draw.random() < 0.7)
    for each in [*data.get("graphs", ()), *data.get("pipelines", ())]:
        each["start_s"] = float(draw.uniform(0.1, 2.0)) * (draw.random() < 0.7)
    for each in data.get("pipelines", ()):
        each["image_bytes"] = float(draw.uniform(1e5, 1e6)) * (draw.random() < 0.7)


class World:
    """Draws the parts of a scenario."""

    def __init__(self, draw, sharing):
        self.draw, self.sharing = draw, sharing
        self.nodes, self.sites = int(draw.integers(2, 4)), int(draw.integers(1, 3))

    def within(self, low, high):
        return float(self.draw.uniform(low, high))

    def chance(self, share):
        return bool(self.draw.random() < share)

    def places(self):
        cores, memory = self.within(4, 7), self.within(3, 4.5) * GB
        near = [{"name": "near", "count": self.nodes, "speed_ops": 1e9}]
        near[0]["resources"] = {"cpu_cores": cores, "memory_bytes": memory}
        cloud = [{"name": "cloud", "resources": {"cpu_cores": 4, "memory_bytes": 33 * GB}}]
        sites = [
            {"name": f"site-{b}", "access_delay_s": self.within(0, 0.003), "uplink_bps": "1e18"}
            for b in range(self.sites)
        ]
        lan, wan = self.within(1.5e6, 6e6), self.within(0.8e6, 4e6)
        cable = {"buffer_bytes": self.within(3e4, 9e4)} if self.sharing != "none" and self.chance(0.3) else {}
        late = {"deviation_s": self.within(0, 0.01) * self.chance(0.5)}
        links = [
            {"name": "lan-{site}", "bandwidth_bps": lan, "delay_s": self.within(0, 0.002)} | cable,
            {"name": "wan", "bandwidth_bps": wan, "delay_s": self.within(0.001, 0.01)} | cable | late,
            {"name": "own", "bandwidth_bps": self.within(2e6, 8e6)},
            {"name": "trunk", "bandwidth_bps": self.within(3e6, 9e6), "delay_s": self.within(0, 0.002)}
            | cable,
            {"site": "*", "cluster": "near", "over": ["lan-{site}", "trunk"][: 1 + self.chance(0.4)]},
            {"site": "*", "cluster": "cloud", "over": "wan", "delay_s": self.within(0, 0.01)},
        ]
        between = {"over": str(self.draw.choice(["lan-site-0", "own"]))}
        if self.chance(0.2):
            between = {"bandwidth_bps": self.within(2e6, 8e6), "shared": "both"}
        links.append({"between": ["near", "near"]} | between)
        cables = list(self.draw.permutation(["lan-site-0", "own", "wan"]))
        for k in range(self.nodes - 1):
            links.append({"between": [f"near-{k}", f"near-{k + 1}"], "over": [str(cables[k])]})
        workers = [
            {"variant": f"v{int(self.draw.integers(2))}", "node": f"near-{n}"} for n in range(self.nodes)
        ]
        workers.append({"variant": "served", "cluster": "cloud"})
        if self.chance(0.5):
            workers.append({"variant": "v1", "node": "near-0"})
        if self.chance(0.5):
            workers.append({"variant": "v0", "node": "cloud"})
        return {
            "name": "drawn", "duration_s": DURATION_S, "window_s": 4,
            "telemetry": {"period_s": 1, "lag_s": float(self.draw.choice([0.0, 0.37, 1.3]))},
            "catalog": self.catalog(), "links": links, "workers": workers, "sites": sites,
            "clusters": [
                {"name": "near", "tier": 0, "nodes": near}, {"name": "cloud", "tier": 1, "nodes": cloud},
            ],
        }  # fmt: skip

    def catalog(self):
        held = {"cpu_cores": self.within(0.5, 1.5), "memory_bytes": self.within(0.3, 0.8) * GB}
        variants = [
            {
                "name": f"v{v}", "model": "small", "resources": held, "largest_bytes": "30kB",
                "profile": {
                    "fixed_s": self.within(0.01, 0.06), "per_byte_s": self.within(0, 1e-6),
                    "deviation": self.within(0, 0.3) * self.chance(0.5), "batch_slope": 0.4,
                    "source": "drawn for tests",
                },
                "max_batch": int(self.draw.integers(1, 4)), "servers": int(self.draw.integers(1, 3)),
                "batch_timeout_s": self.within(0, 0.03) * self.chance(0.5),
            }
            for v in range(2)
        ]  # fmt: skip
        served = {"cpu_cores": self.within(0.5, 1.2), "memory_bytes": self.within(0.3, 0.7) * GB}
        profile = {"fixed_s": "50ms", "source": "drawn for tests"}
        variants.append(
            {"name": "served", "model": "other", "resources": served, "largest_bytes": "30kB"}
            | {"profile": profile}
        )
        models = [{"name": "small", "task": "detection", "accuracy": 30}]
        return {
            "models": [*models, {"name": "other", "task": "segmentation", "accuracy": 30}],
            "variants": variants,
        }

    def streams(self):
        kinds = [
            {
                "name": f"kind-{k}", "task": "detection", "rate_qps": self.within(2, 9),
                "size_bytes": self.within(3e3, 3e4), "deadline_s": self.within(0.05, 0.4),
                "answer_bytes": self.within(1e3, 2e4) * self.chance(0.7), "length_s": [2, 12],
                "arrivals": ("periodic", "poisson")[k],
            }
            for k in range(2)
        ]  # fmt: skip
        return {"streams": {"applications": kinds, "arrivals": {"clients_per_min": self.within(10, 35)}}}

    def services(self):
        offered = [
            {"variant": "served", "deadline_s": "400ms", "initial": int(self.draw.integers(1, 3))}
            | {"image_bytes": self.within(1e5, 2e6)}
        ]
        if self.chance(0.5):
            plain = {"name": "plain", "memory_bytes": self.within(0.2, 0.5) * GB, "cpu_cores": 0.5}
            offered.append(plain | {"image_bytes": self.within(1e5, 1e6), "base_bytes": 3e5})
        for each in offered:
            each["answer_bytes"] = self.within(500, 1e4) * self.chance(0.6)
        asked = {
            "rate_qps": self.within(2, 8), "service_s": [0.03, 0.3], "slack": [1.5, 5],
            "payload_bytes": self.within(2e3, 2e4), "memory_share": 0.3 * self.chance(0.5),
        }  # fmt: skip
        spec = {
            "cloud": "cloud", "cloud_has": "pool", "frame_s": 4, "cores_held": "life", "gateways": "per_site",
            "offered": offered,
            "requests": asked, "start_delay_s": self.within(0, 0.6), "service_deviation": 0.2,
            "drops": self.chance(0.8), "slot_s": 0.01,
        }  # fmt: skip
        return {"services": spec} if self.chance(0.9) else {}

    def pipelines(self):
        found = []
        for k in range(int(self.draw.integers(1, 4))):
            frames, length_s = {"frames": int(self.draw.integers(20, 300))}, {"length_s": self.within(3, 9)}
            tasks = [
                {
                    "name": f"t{n}", "memory_bytes": self.within(0.3, 1.3) * GB,
                    "work_ops": self.within(5e6, 6e7),
                    "output_bytes": self.within(500, 6e3), "downstream": [f"t{n + 1}"] if n < 2 else [],
                }
                for n in range(3)
            ]  # fmt: skip
            found.append(
                {"name": f"p{k}", "source": f"near-{int(self.draw.integers(self.nodes))}", "tasks": tasks}
                | {"input_bytes": self.within(500, 6e3), "arrive_s": self.within(0, 15)}
                | (frames if self.chance(0.7) else length_s)
            )
        return {"pipelines": found} if self.chance(0.9) else {}

    def graphs(self):
        names = ["one", "two", "three", "four"][: int(self.draw.integers(2, 5))]
        operators = [{"name": name, "work_ops": self.within(2e7, 8e7)} for name in names]
        tensors = [
            {"source": names[0], "target": name, "size_bytes": self.within(1e3, 2e4)} for name in names[1:3]
        ]
        if len(names) == 4:
            tensors += [
                {"source": x, "target": "four", "size_bytes": 3e3 * self.chance(0.8)} for x in names[1:3]
            ]
        graph = {"name": "fan", "rate_qps": self.within(2, 6), "operators": operators, "tensors": tensors}
        return {"graphs": [graph | {"memory_bytes": 0.1 * GB}]} if self.chance(0.9) else {}

    def jobs(self):
        listed = []
        for k in range(int(self.draw.integers(1, 5))):
            submitted_s = 2.0 * int(self.draw.integers(0, 5))
            listed.append(
                {
                    "name": f"job-{k}", "cores": self.within(0.5, 4), "submitted_s": submitted_s,
                    "memory_bytes": self.within(0.1, 1.8) * GB,
                    "duration_s": 2.0 * int(self.draw.integers(1, 6)),
                    "earliest_s": submitted_s, "latest_s": submitted_s + 2.0 * int(self.draw.integers(1, 8)),
                    "when_evicted": str(self.draw.choice(["pause", "restart"])),
                    "priority": int(self.draw.integers(0, 3)),
                    "checkpoint_s": None if k % 3 else 0.7 + 0.6 * k,
                }
            )  # fmt: skip
        return {"jobs": {"slot_s": 2, "room": "nodes", "submitted": listed}} if self.chance(0.9) else {}

    def timeline(self):
        found = []
        for n in range(self.nodes):
            at_s = 0.0
            while self.chance(0.6) and (at_s := at_s + self.within(1, 15)) < DURATION_S - 6:
                found.append({"at_s": at_s, "node": f"near-{n}", "up": False})
                at_s += self.within(0.3, 5)
                if self.chance(0.9):
                    found.append({"at_s": at_s, "node": f"near-{n}", "up": True})
                else:
                    break
        return sorted(found, key=lambda change: change["at_s"])


class InTurn:
    """Requests of a site go to stations in turn, and now and then wait."""

    decision, name = "requests", "in-turn"

    def reset(self, world, key):
        self.count = 0

    def decide(self, view):
        found = np.full(view.site.shape, HOLD)
        for b in np.flatnonzero(view.site["head"] >= 0).tolist():
            self.count += 1
            replicas = view.replicas[:, int(view.site["head_service"][b])]
            there = [0, *np.flatnonzero(replicas["ready"] > replicas["removing"]).tolist()]
            found[b] = HOLD if self.count % 7 == 0 else there[self.count % len(there)]
        return found


class Shuffle:
    """In each frame a replica more somewhere and one less elsewhere, whatever there is to do."""

    decision, name, by = "orchestrate", "shuffle", 0

    def reset(self, world, key):
        self.nodes, self.services, self.frame = world.nodes, world.services, 0

    def decide(self, view):
        self.frame += 1
        n, s = (self.frame + self.by) % self.nodes, (self.frame // 2) % self.services
        return [AddReplica(n, s), RemoveReplica((n + 1) % self.nodes, s)][: 1 + self.frame % 2]


Shuffle0 = Shuffle
Shuffle1, Shuffle2 = (type(f"Shuffle{by}", (Shuffle,), {"by": by}) for by in (1, 2))


class Apart:
    """The tasks of a query on servers in turn, two neighbours together now and then."""

    decision, name = "split", "apart"

    def reset(self, program, key):
        self.servers = len(program.server_ops)
        self.tasks = [len(closed(job.graph).tasks) for job in program.classes]

    def decide(self, view):
        return (view.query + np.arange(self.tasks[view.job]) * (1 + view.query) // 2) % self.servers


class Wander:
    """Pipelines on two nodes; whenever something is decided, the oldest one goes on to the next two."""

    decision, name = "place", "wander"

    def reset(self, network, key):
        self.count = 0

    def decide(self, view):
        self.count += 1
        free = view.free_memory_bytes.copy()
        runs = [placed.pipeline for placed in view.running[:1]]
        for pipeline in [*runs, *view.waiting] if self.count % 2 else [*view.waiting, *runs]:
            placed = self.placed(view, pipeline)
            used = np.bincount(placed.node, pipeline.memory_bytes, len(free))
            if (used <= free).all() and placed.bandwidth_bps.min() > 0:
                return [placed]  # one at a time: it may be all that is free
        return []

    def placed(self, view, pipeline):
        """Nodes are in a row, so a path takes all links between its ends."""
        nodes = len(view.network.names)
        node = (self.count + np.arange(pipeline.work_ops.size) // 2) % nodes
        tails = [pipeline.source if tail < 0 else int(node[tail]) for tail in pipeline.tail]
        paths = []
        for a, b in zip(tails, node[pipeline.head].tolist(), strict=True):
            paths.append(list(range(a, b)) if a <= b else list(range(a - 1, b - 1, -1)))
        bps = [float(view.free_bps[path].min()) / 4 if path else np.inf for path in paths]
        start = np.cumsum([0, *map(len, paths)])
        links = np.array([link for path in paths for link in path], dtype=np.int64)
        return Placement(pipeline, node, start, links, np.array(bps))
