"""Faults and links of a cluster that stays, by command: its process listens on a private socket.

One line of JSON each way: {"do": "fault", "kind": "cut", "places": ["n3"]}, and {"said": …} or {"error": …}.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from beds.kubernetes.cluster import Cluster
from beds.processes import BedError

PATIENCE_S = 5.0  # for the one line of a client; a repair may take longer than that to answer
ANSWER_S = 120.0
# Fewest and most places that a fault names.
PLACES = {"cut": (1, 2), "kill": (1, 1), "freeze": (1, 1), "slow": (1, 1), "api-server": (0, 0)}
RATES_BPS = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
TIMES_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


class Faults:
    """Faults that hold, each under its own words, and links.

    Args:
        cluster: which has them.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.links: dict[str, str] = {}
        self._held: dict[tuple[str, ...], ExitStack] = {}

    def holding(self) -> dict[str, Any]:
        """What holds now, in the words of commands."""
        return {"faults": [" ".join(words) for words in self._held], "links": self.links}

    def fault(self, kind: str, places: Sequence[str], share: float = 0.2) -> str:
        """Let something go wrong until it is repaired.

        Raises:
            BedError: there is no such fault or place, or a node has one already that it contradicts.
        """
        _known(kind, PLACES, "fault")
        least, most = PLACES[kind]
        if not least <= len(places) <= most:
            wanted = {(0, 0): "no place", (1, 1): "one node or site"}.get((least, most), "one or two places")
            raise BedError(f"fault {kind}: {' '.join(places) or 'nothing'} is given, it takes {wanted}")
        words = (kind, *places)
        self._check_free(words)
        stack = ExitStack()
        stack.enter_context(self._block(kind, places, share))
        self._held[words] = stack
        return f"{' '.join(words)}: until `repair {' '.join(words)}`"

    def _block(self, kind: str, places: Sequence[str], share: float) -> AbstractContextManager[None]:
        cluster = self.cluster
        blocks: dict[str, Callable[..., AbstractContextManager[None]]] = {
            "cut": cluster.cut, "kill": cluster.lost, "freeze": cluster.frozen,
            "slow": lambda place: cluster.slow(place, share), "api-server": cluster.api_server_away,
        }  # fmt: skip
        return blocks[kind](*places)

    def _check_free(self, words: tuple[str, ...]) -> None:
        """One fault at a time of a node, and each cut once: the end of one would end the other, too."""
        if words in self._held:
            raise BedError(f"fault {' '.join(words)}: it holds already")
        ours = self._nodes(words)
        for held in self._held:
            if both := ours & self._nodes(held):
                raise BedError(
                    f"fault {' '.join(words)}: {min(both)} has `{' '.join(held)}`; "
                    f"`repair {' '.join(held)}` comes first"
                )

    def _nodes(self, words: tuple[str, ...]) -> set[str]:
        """Nodes that a fault is of; a cut between two places is of the way between them."""
        return {node.name for node in self.cluster.members(words[1])} if len(words) == 2 else set()

    def repair(self, words: Sequence[str]) -> str:
        """Repair the faults whose words begin so; without any, all of them.

        Raises:
            BedError: none holds.
        """
        chosen = [held for held in self._held if held[: len(words)] == tuple(words)]
        if words and not chosen:
            holding = ", ".join(" ".join(held) for held in self._held) or "nothing"
            raise BedError(f"repair {' '.join(words)}: that does not hold; what does: {holding}")
        for each in reversed(chosen):
            self._held.pop(each).close()
        return f"repaired: {', '.join(' '.join(each) for each in chosen) or 'nothing, all was well'}"

    def rest(self) -> None:
        """Do nothing to nodes any more: the cluster ends."""
        for held, stack in self._held.items():
            if held[0] == "slow":
                stack.close()

    def link(self, a: str, b: str, rate: str = "", delay: str = "", loss: str = "") -> str:
        """Set rate, delay and loss, each way, between two places; what is not given is taken away.

        Raises:
            BedError: there is no such place, or a figure is none.
        """
        self.cluster.link(
            a, b, quantity("rate", rate, RATES_BPS), quantity("delay", delay, TIMES_S) or 0.0, fraction(loss)
        )
        name = " ".join(sorted((a, b)))
        given = {"rate": rate, "delay": delay, "loss": loss}
        self.links[name] = ", ".join(f"{what} {value}" for what, value in given.items() if value)
        said = self.links[name] or "as fast as it is"
        if not self.links[name]:
            del self.links[name]
        return f"{a} – {b}: {said}"


def _known(name: str, among: Mapping[str, object], what: str) -> None:
    if name not in among:
        near = get_close_matches(name, among, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise BedError(f"{what} {name}: there is {', '.join(among)}{hint}")


def quantity(what: str, text: str, units: Mapping[str, float]) -> float | None:
    """A figure with its unit, written as for tc: 20mbit, 1.5s; None where nothing is written.

    Raises:
        BedError: it is none, or not above 0.
    """
    if not text:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([a-z]+)", text.lower())
    if found is None or found[2] not in units or not float(found[1]):
        raise BedError(
            f"--{what} {text}: a figure above 0 with its unit, {', '.join(units)}, as 20{_usual(units)}"
        )
    return float(found[1]) * units[found[2]]


def _usual(units: Mapping[str, float]) -> str:
    return "mbit" if "mbit" in units else "ms"


def fraction(text: str) -> float:
    """Of packets: 1% or 0.01; 0 where nothing is written.

    Raises:
        BedError: it is none.
    """
    with suppress(ValueError):
        value = float(text.removesuffix("%") or 0) / (100 if text.endswith("%") else 1)
        if 0 <= value < 1:
            return value
    raise BedError(f"--loss {text}: a share of packets below 1, as 1% or 0.01")


def serve(cluster: Cluster, where: Path, tell: Callable[[Mapping[str, Any]], None]) -> None:
    """Carry out commands, one after another, until a signal ends it.

    Args:
        where: the socket, which only this user may use.
        tell: is told what holds, after each command.
    """
    faults = Faults(cluster)
    with socket.socket(socket.AF_UNIX) as listening, ExitStack() as end:
        end.callback(faults.rest)
        before = os.umask(0o177)
        try:
            listening.bind(str(where))
        finally:
            os.umask(before)
        listening.listen()
        tell(faults.holding())
        while True:
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                connection.settimeout(PATIENCE_S)
                answer = _carry_out(faults, _line(connection))
                tell(faults.holding())
                connection.sendall(json.dumps(answer).encode() + b"\n")


def _carry_out(faults: Faults, line: bytes) -> dict[str, str]:
    try:
        asked: dict[str, Any] = json.loads(line)
        do = {"fault": faults.fault, "repair": faults.repair, "link": faults.link}[asked.pop("do")]
        return {"said": do(**asked)}
    except BedError as error:
        return {"error": str(error)}
    except Exception as error:  # a cluster outlives a command that fails
        return {"error": f"{line[:200].decode(errors='replace').strip()}: {error!r}"}


def _line(connection: socket.socket) -> bytes:
    read = b""
    while not read.endswith(b"\n") and (piece := connection.recv(65536)):
        read += piece
    return read


def ask(where: Path, command: Mapping[str, Any]) -> str:
    """Have the process that holds a cluster do something; what it says.

    Raises:
        BedError: it does not answer, or cannot do it.
    """
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_S)
            connection.connect(str(where))
            connection.sendall(json.dumps(command).encode() + b"\n")
            answer: dict[str, str] = json.loads(_line(connection))
    except (OSError, ValueError) as error:
        raise BedError(f"the cluster's process does not answer: {error}") from None
    if "error" in answer:
        raise BedError(answer["error"])
    return answer["said"]
