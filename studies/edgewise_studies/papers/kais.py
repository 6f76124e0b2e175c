"""KaiS (Han et al.): decentralised dispatch and learned orchestration, on the frozen systems.

Requests come from the model of the Alibaba trace. *edgewise (evolved)* is our policy. A full
run searches it anew from a few seeds, as the card of the one that ships says, and trains the paper's own
networks for as long as `kais_trained` says; a quick run takes what ships.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from edgewise import policies
from edgewise.arrays import Floats, Ints
from edgewise.core.keyed import Key
from edgewise.core.orchestrate import HOLD, ReplicaPolicy, ReplicaView, RequestPolicy, hosts
from edgewise.model.orchestration import System
from edgewise.policies.cards import runner
from edgewise.policies.orchestrate.autoscale import Autoscaler
from edgewise.policies.orchestrate.learned import LearnedScaling
from edgewise.seeds import VALIDATION
from edgewise.sim.slots.replicas import ReplicaWorlds, ServiceOutcome
from edgewise_studies.claims import at_least, at_most, exact
from edgewise_studies.frozen import setting_text
from edgewise_studies.papers import field as field_rules
from edgewise_studies.run import Run, boxes, reproduction
from edgewise_studies.training.kais.settings import (
    AUTOSCALER_TARGET,
    SCARCE,
    TrainingSetting,
    evaluate,
    setting,
    whole_description,
)
from edgewise_studies.trainings import gained

SHIPPED = "kais-scarce"
OURS = "edgewise (evolved)"
PAPER_BASELINES = (("greedy", "autoscaler"), ("gsp-ss", "gsp-ss"), ("flow", "autoscaler"))
STRONG_BASELINES = (("flow", "gsp-ss"), ("flow", "marginal"), ("greedy", "marginal"), ("cloud-only", "none"))
FIELD = tuple((name, "autoscaler") for name in field_rules.FIELD_REQUESTS)
VALIDATED = VALIDATION[:8]

CLAIMS = {
    "learns": "K1: with the paper's networks, the rate grows by a point on each of P1-P4 (least gain)",
    "gap": "K1: after training, the rates on P1-P4 lie within 4.5 % of each other",
    "frames-raw": "K1: P4 takes at least 1.2 times the frames of P1-P3 (mean) until the rate settles (ratio)",
    "dispatch-delay": "K2: edgewise (evolved): a site's decision takes at most 1 ms (paper: about 10 ms)",
    "orchestration-delay": "K2: the paper's network scales 100 nodes in at most 10 ms (paper: 9 × dispatch)",
    "decentralised": "K2: edgewise (evolved) has at least 1.01 of its rate with dispatch in the cloud",
    "slot": "K3: edgewise (evolved): slots of 0.25 s have a rate 1 % above that of slots of 0.5 s (ratio)",
    "frame": "K3: edgewise (evolved): frames of 25 s have a rate 1 % above that of frames of 50 s (ratio)",
    "balance": "K4: ε = 1 has a higher rate than ε = 4 (ratio, paper's networks)",
    "both-halves": "K5: P1→P4: edgewise (evolved) has at least 1.036 of the best with half of it or none",
    "nodes": "K3: H = 2 nodes a frame have a rate of at least 0.98 of that of H = 4 (ratio, paper's network)",
    "graph": "K6: the graph network's rate is 1 % above that of stacked states (ratio)",
    "graph-complex": "K6: … on the complex size",
    "possible": "beyond: edgewise (evolved) has at least 0.9 of the rate with free stations everywhere",
    "rate": "K7: edgewise (evolved) has a rate at least 1.143 of the closest baseline of the paper",
    "cost": "K7: edgewise (evolved) costs at most 0.653 of that baseline's forwarded and image bytes",
    "rate-field": "beyond: edgewise (evolved) has a rate at least 1.01 of the field's best load balancer",
    "rate-strong": "beyond: edgewise (evolved) has a rate at least 1.01 of the best baseline of ours",
}


def frozen() -> str:
    """JSON of the settings that are measured on."""
    return setting_text({name: whole_description(name) for name in SCARCE})


@reproduction(
    "kais",
    paper="KaiS (Han et al., Tailored Learning-Based Scheduling for Kubernetes-Oriented Edge-Cloud System)",
    claims=CLAIMS,
    # "evolved" is ours; the paper's networks are trained by our recipe, but where weights do not matter
    ours=set(CLAIMS) - {"orchestration-delay"},
    seeds=(50, 5),
    look=4,
    setting=frozen,
    frozen_as="kais-scarce",
    needs="torch",
)
def kais(run: Run) -> None:
    """K2, K3, K5 and K7 with ours; a full run also measures delays, and trains for K1, K4, K6 and H."""
    evolved = _evolved(run)
    run.step("K7: 50 sequences")
    _sequences(run, evolved)
    run.step("K5: P1 to P4 in a row")
    _concatenated(run, evolved)
    run.step("K2: dispatch in the cloud")
    _central(run, evolved)
    run.step("K3: slots and frames")
    _lengths(run, evolved)
    if not run.quick:
        run.step("K2: delays of decisions")
        _delays(run)
        from edgewise_studies.papers.kais_trained import trained_claims  # imports torch

        trained_claims(run)


def _evolved(run: Run) -> list[str]:
    """Ours: the cards of several searches; in a quick run the one that ships."""
    if run.quick:
        return [SHIPPED]
    from edgewise_studies.papers.kais_trained import searched  # imports torch

    return searched(run)


def dispatch_named(name: str) -> RequestPolicy:
    """By a registered name or a card."""
    policy: RequestPolicy = field_rules.load_requests(name)
    return policy


def scale_named(name: str) -> ReplicaPolicy:
    """By a registered name or a card; the autoscaler with its tuned target."""
    if name == "autoscaler":
        return Autoscaler(target=AUTOSCALER_TARGET)
    policy: ReplicaPolicy = policies.load("orchestrate", name)
    return policy


def mean_frame_rate(outcome: ServiceOutcome) -> Floats:
    """(W,) mean of Φ_f, each frame weighed by its arrivals, which is Φ'.

    Unweighed, a frame in which three requests arrive and sixty earlier ones end would count twenty.
    """
    return outcome.throughput_rate


def cost(outcome: ServiceOutcome) -> Floats:
    """(W,) Φ_c of a world, bytes."""
    return np.asarray(outcome.cost_bytes.sum(axis=1))


def _sequences(run: Run, evolved: Sequence[str]) -> None:
    where = setting("scarce", "sequences")
    validated = {
        pair: mean_frame_rate(_pair(where, VALIDATED, pair))
        for pair in (*PAPER_BASELINES, *STRONG_BASELINES, *FIELD)
    }
    rivals = [
        run.rival({" + ".join(pair): validated[pair] for pair in group}, VALIDATED).split(" + ")
        for group in (PAPER_BASELINES, STRONG_BASELINES, FIELD)
    ]
    ours = [_pair(where, run.seeds, (name, name)) for name in evolved]
    rates, costs = _rates(ours), np.array([cost(outcome) for outcome in ours])
    closest, strong, field = (_pair(where, run.seeds, (a, b)) for a, b in rivals)
    found = f"{OURS} {', '.join(map(_words, ours))}"
    words = f"against {' + '.join(rivals[0])} {_words(closest)}; {found}"
    run.claim("rate", gained(rates / mean_frame_rate(closest), words), at_least(1.143))
    run.claim("cost", gained(costs / cost(closest), words), at_most(0.653))
    words = f"against {' + '.join(rivals[1])} {_words(strong)}; {found}"
    run.claim("rate-strong", gained(rates / mean_frame_rate(strong), words), at_least(1.01))
    words = ", ".join(f"{' + '.join(pair)} {validated[pair].mean():.4f}" for pair in FIELD)
    words = f"against {' + '.join(rivals[2])} {_words(field)}; validation: {words}"
    run.claim("rate-field", gained(rates / mean_frame_rate(field), words), at_least(1.01))
    limit = _pair(_unlimited(where), run.seeds, ("closest", "none"))
    run.claim("possible", gained(rates / mean_frame_rate(limit), _words(limit)), at_least(0.9))
    shown = {" + ".join(r): o for r, o in zip(rivals, (closest, strong, field), strict=True)}
    shown_rates = {OURS: rates.ravel()} | {n: mean_frame_rate(o) for n, o in shown.items()}
    run.figure("k7-rate", boxes(shown_rates, "Throughput rate of a sequence"))
    shown_costs = {OURS: costs.ravel() / 1e9} | {n: cost(o) / 1e9 for n, o in shown.items()}
    run.figure("k7-cost", boxes(shown_costs, "Φ_c of a sequence, GB"))


def _rates(outcomes: Sequence[ServiceOutcome]) -> Floats:
    """(searches, W)."""
    return np.array([mean_frame_rate(outcome) for outcome in outcomes])


def _unlimited(where: TrainingSetting) -> TrainingSetting:
    """The setting with idle replicas of every service on every node: what sites' queues alone let through."""
    system = where.system
    return where._replace(
        system=system._replace(
            initial=np.full_like(system.initial, 20),
            cpu_cores=np.full_like(system.cpu_cores, 1e6),
            memory_bytes=np.full_like(system.memory_bytes, 3.5e12),
        )
    )


def _pair(where: TrainingSetting, seeds: Sequence[int], pair: tuple[str, str]) -> ServiceOutcome:
    return evaluate(where, dispatch_named(pair[0]), scale_named(pair[1]), seeds)


def _words(outcome: ServiceOutcome) -> str:
    return f"{mean_frame_rate(outcome).mean():.4f} at {cost(outcome).mean() / 1e9:.2f} GB"


def _delays(run: Run) -> None:
    """One world, 100 nodes: time of a decision of all sites over the number of sites, and of GPG."""
    where = setting("scarce-complex", frames=1)
    worlds = ReplicaWorlds(where.system, where.draw(run.seeds[:1]), where.slots, run.seeds[:1])
    dispatch = dispatch_named(SHIPPED)
    dispatch.reset(where.system, Key(0))
    _graph_delay(run, worlds)
    sent = []
    while not worlds.done:
        took, stations = timed(lambda: dispatch.decide(worlds.view))
        if (worlds.view.head >= 0).any():
            sent.append(took / int((worlds.view.head >= 0).sum()))
        worlds.step(stations)
    words = f"median of {len(sent)} slots, {where.system.nodes} nodes, one thread"
    run.claim("dispatch-delay", exact(1e3 * float(np.median(sent)), f"ms; {words}"), at_most(1.0))


def _graph_delay(run: Run, worlds: ReplicaWorlds) -> None:
    """The paper's network with fresh weights, on which its time does not depend; without torch, no claim."""
    try:
        from edgewise_studies.training.kais.gpg import ScaleConfig, Scaler
    except ImportError:
        return
    system = worlds.system
    with TemporaryDirectory() as folder:
        Scaler(system, ScaleConfig(), 0).export(Path(folder) / "gpg")
        network = LearnedScaling(
            "gpg", runner(Path(folder) / "gpg.orchestrate.onnx"), False, True, (system.nodes, system.services)
        )
    network.reset(system, Key(0))
    took = [timed(lambda: network.decide(worlds.view))[0] for _ in range(50)]
    words = f"ms; median of {len(took)}, {worlds.system.nodes} nodes, the paper's network, fresh weights"
    run.claim("orchestration-delay", exact(1e3 * float(np.median(took)), words), at_most(10.0))


def timed(work: Callable[[], Ints]) -> tuple[float, Ints]:
    """Seconds that it took, and what it gave."""
    started = time.perf_counter()
    done = work()
    return time.perf_counter() - started, done


def _concatenated(run: Run, evolved: Sequence[str]) -> None:
    where = setting("scarce", "P1-P4", frames=20)
    seeds = run.seeds[:10]

    def rates(*pairs: tuple[str, str]) -> Floats:
        return _rates([_pair(where, seeds, pair) for pair in pairs])

    ours = rates(*((name, name) for name in evolved))
    halves = {
        "greedy + evolved": rates(*(("greedy", name) for name in evolved)),
        "evolved + autoscaler": rates(*((name, "autoscaler") for name in evolved)),
        "greedy + autoscaler": rates(("greedy", "autoscaler")),
    }
    best = max(halves, key=lambda name: float(halves[name].mean()))
    words = ", ".join(f"{name} {rate.mean():.4f}" for name, rate in halves.items())
    detail = f"{OURS} {ours.mean():.4f}; {words}; best: {best}"
    run.claim("both-halves", gained(ours / halves[best], detail), at_least(1.036))


def _central(run: Run, evolved: Sequence[str]) -> None:
    """Observations go up and decisions come down: two delays to the cloud before a request is sent."""
    where = setting("scarce")
    seeds = run.seeds[:10]
    lag = lag_to_cloud(where.system)
    here = _rates([_pair(where, seeds, (name, name)) for name in evolved])
    there = _rates(
        [
            evaluate(where, Centralised(dispatch_named(name), lag), scale_named(name), seeds)
            for name in evolved
        ]
    )
    detail = f"a decision in the cloud comes {lag} slots later; {here.mean():.4f}, {there.mean():.4f}"
    run.claim("decentralised", gained(here / there, detail), at_least(1.01))


def lag_to_cloud(system: System) -> int:
    """Slots in which an observation goes up and a decision comes down."""
    return int(np.ceil(2.0 * float(system.delay_s[:, 0].mean()) / system.slot_s))


def _lengths(run: Run, evolved: Sequence[str]) -> None:
    """The same policies with other slots and frames; 250 s each."""
    seeds = run.seeds[:10]
    lengths = {"0.25 s × 100": (0.25, 100), "0.5 s × 50": (0.5, 50), "0.25 s × 200": (0.25, 200)}
    lengths |= {"0.1 s × 250": (0.1, 250), "0.25 s × 50": (0.25, 50)} if not run.quick else {}
    rates: dict[str, Floats] = {}
    for name, (slot_s, slots) in lengths.items():
        where = setting("scarce", "P4", round(250.0 / slot_s / slots), slot_s, slots)
        rates[name] = _rates([_pair(where, seeds, (each, each)) for each in evolved])
    detail = "not searched anew; " + ", ".join(f"{n}: {r.mean():.4f}" for n, r in rates.items())
    base = rates["0.25 s × 100"]
    run.claim("slot", gained(base / rates["0.5 s × 50"], detail), at_least(1.01))
    run.claim("frame", gained(base / rates["0.25 s × 200"], detail), at_least(1.01))


class Centralised:
    """Asks a policy when a request becomes its site's head, and sends it `lag` slots later.

    If no replica is left where it was to go, it is asked again. What a site sees goes up with the request,
    so a decision is as old as its journey.

    Args:
        policy: that decides.
        lag: slots from the observation to the decision's arrival at the site.
    """

    batched = True

    def __init__(self, policy: RequestPolicy, lag: int) -> None:
        self.name, self._policy, self._lag = f"{policy.name} in the cloud", policy, lag

    def reset(self, world: System, key: Key) -> None:
        """Forget what is on its way."""
        self._policy.reset(world, key)
        self._head: Ints = np.zeros(0, dtype=np.int64)

    def decide(self, view: ReplicaView) -> Ints:
        """(W, B) decisions that have come down; HOLD for those on their way."""
        if self._head.shape != view.head.shape:
            self._head = np.full(view.head.shape, HOLD)
            self._station, self._left = np.full_like(self._head, HOLD), np.zeros_like(self._head)
        fresh = (view.head != self._head) & (view.head >= 0)
        possible = np.take_along_axis(hosts(view), np.maximum(self._station, 0)[:, :, None], axis=2)[:, :, 0]
        fresh |= (view.head >= 0) & ~possible
        self._station = np.where(fresh, self._policy.decide(view), self._station)
        self._left = np.where(fresh, self._lag, self._left - 1)
        self._head = view.head.copy()
        return np.where((view.head >= 0) & (self._left <= 0), self._station, HOLD)
