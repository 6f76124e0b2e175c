"""What commands of a policy come to, one after the other, on replicas as they are. Forbidden here: I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from edgewise.core.ledger import NodeLedger
from edgewise.core.orchestrate.counting import NOTHING, keeps, removal
from edgewise.core.orchestrate.events import (
    EndReplica,
    KeepReplica,
    OrchestrateCommand,
    ReplicaSeen,
    StartReplica,
)
from edgewise.model.orchestration import Pools
from edgewise.model.topology import Resources
from edgewise.model.work import INFERENCE


class Fleet(NamedTuple):
    """Where replicas may be, and what one needs there.

    nodes, rows: (N,) names of nodes in the ledger, and their rows.
    needs: (S,) of a new replica.
    """

    ledger: NodeLedger
    nodes: Sequence[str]
    rows: Sequence[int]
    needs: Sequence[Resources]
    pools: Pools


class ReplicaDraft:
    """Replicas as they are while commands are carried out.

    Args:
        replicas: by name, oldest first, before the first command; they stay as they are.
        most: replicas that may start.
    Attributes:
        commands: so far.
        gone: replicas that hold nothing any more.
    """

    def __init__(self, fleet: Fleet, replicas: Mapping[str, ReplicaSeen], most: int) -> None:
        self.fleet, self.replicas, self.most = fleet, dict(replicas), most
        self.commands: list[OrchestrateCommand] = []
        self.gone: list[str] = []
        self.added = 0
        self._freed = fleet.ledger.gives_way(INFERENCE)

    def add(self, n: int, s: int) -> bool:
        """Keep a replica that was to go, or start one where there is room; False if nothing is done."""
        to_go = [r for r in self._at(n, s) if not r.wanted]
        if keeps(len(to_go)):
            self.replicas[to_go[0].replica] = to_go[0]._replace(wanted=True)
            self._say(KeepReplica(to_go[0].replica), instead_of=EndReplica)
            return True
        fleet, needs = self.fleet, self.fleet.needs[s]
        if not self._may_have(n, s, 1):
            return False
        if self.added >= self.most or not fleet.ledger.fits(fleet.nodes[n], needs, self._freed):
            return False
        name = f"new {self.added}"  # until whoever starts it names it
        self.added += 1
        self._freed[fleet.rows[n]] -= needs.as_tuple()
        self.replicas[name] = ReplicaSeen(name, n, s, started=False)
        self.commands.append(StartReplica(n, s))
        return True

    def remove(self, n: int, s: int) -> bool:
        """Let an idle replica go, else the one with least to do; False where there is none."""
        here = self._at(n, s)
        up = [r for r in here if r.up]
        busy, to_go = sum(r.held > 0 for r in up), sum(not r.wanted for r in here)
        if removal(len(up), busy, len(here) - len(up), to_go) == NOTHING or not self._may_have(n, s, -1):
            return False
        wanted = reversed([r for r in here if r.wanted])
        gone = min(wanted, key=lambda r: (r.held, not r.up))
        held = self.fleet.ledger.of(gone.replica)
        if held is None:  # of this frame
            self.commands.remove(StartReplica(n, s))
        else:
            self._say(EndReplica(gone.replica), instead_of=KeepReplica)
        if not gone.started:
            self._freed[self.fleet.rows[n]] += (held.resources if held else self.fleet.needs[s]).as_tuple()
            self.gone += [gone.replica] if held else []
            del self.replicas[gone.replica]
        else:
            self.replicas[gone.replica] = gone._replace(wanted=False)
        return True

    def _say(self, command: KeepReplica | EndReplica, instead_of: type) -> None:
        """Say it, or take back the contrary where that was said in this frame."""
        said = [k for k, c in enumerate(self.commands) if type(c) is instead_of and c[0] == command.replica]
        if said:
            del self.commands[said[0]]
        else:
            self.commands.append(command)

    def _may_have(self, n: int, s: int, more: int) -> bool:
        """Whether a pool may have one more or less, and there; a service of requests may always."""
        pools, p = self.fleet.pools, s - self.fleet.pools.first
        if p < 0 or not pools.may[n, s]:
            return bool(pools.may[n, s])
        count = sum(r.service == s and r.wanted for r in self.replicas.values()) + more
        return bool(count <= pools.most[p] if more > 0 else count >= pools.least[p])

    def _at(self, n: int, s: int) -> list[ReplicaSeen]:
        return [r for r in self.replicas.values() if (r.node, r.service) == (n, s) and r.stays]
