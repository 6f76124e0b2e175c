"""Fair shares of a service's replicas, by client.

A request goes on at once while fewer than there is room for are under way. Others wait in a line of their
client's own. When one ends, the client with the fewest under way goes next, and among equals the one
whose last turn is longest ago. So:

Of a client's own, the latest goes first: it has most of its time left. In the order in which they came, each
would begin when its time is nearly over, and all would be late.

1. No room idles while anybody waits: what one client does not use, others have.
2. Of n clients that all ask for more than there is, each has an n-th part of what is under way.
3. A client with nothing under way goes next, whatever others have in their lines.
4. A client is refused no more than so often in a second: beyond that it is told later. Hundreds of
   connections that ask again as soon as they are refused would keep a gateway busy with refusing them.

The room is what keeps replicas busy, and little more: what waits at a replica cannot be overtaken by another
client's share. Where there is one client alone there is nobody to be fair to, and the room is larger.

>>> shares = Shares()
>>> [shares.enter(0.0, client, number, 1) for number, client in enumerate("aaab")]
[True, False, False, False]
>>> shares.end("a", 0, 1)
[3]
>>> shares.end("b", 3, 1)
[2]
"""

from collections import deque
from dataclasses import dataclass, field

SHARED, ALONE = 3, 32  # under way for each replica, where several clients ask, and where one does
LATELY_S = 10.0  # a client is there for so long after its last request
MOST_WAITING = 64  # requests of a client; more are refused
REFUSED_QPS = 100.0  # refusals of a client in a second; others are told later
LONGEST_REFUSAL_S = 10.0
MANY = 1000  # clients that are remembered before those are forgotten that asked long ago
ROOM_S = 0.25  # the room is counted anew
MOST_DEEP = 256  # requests on their way to and from a replica


def room_at(depth: int, delay_s: float, served_s: float) -> int:
    """Requests of a service that may be under way for one replica: there, and on their ways.

    Args:
        depth: see `Shares.depth`. delay_s: of the way. served_s: a request takes.
    """
    return depth + min(int(delay_s / max(served_s, 1e-4)), MOST_DEEP)


@dataclass(slots=True)
class _Client:
    under_way: set[int] = field(default_factory=set)
    waiting: deque[int] = field(default_factory=deque)
    asked_s: float = 0.0
    told_s: float = 0.0  # its last refusal
    turn: int = 0  # its last one


class Shares:
    """Who goes next of those that ask for one service."""

    def __init__(self) -> None:
        self.clients: dict[str, _Client] = {}
        self._under_way = self._turns = 0

    def depth(self, now_s: float) -> int:
        """Requests that may be under way for each replica."""
        lately = [client for client in self.clients.values() if now_s - client.asked_s < LATELY_S]
        return SHARED if len(lately) > 1 else ALONE

    def enter(self, now_s: float, client: str, number: int, room: int) -> bool | None:
        """A request came: whether it goes at once, or waits; None: its client has too many that wait.

        Args:
            room: requests that may be under way.
        """
        if len(self.clients) > MANY:
            self._forget(now_s)
        found = self.clients.setdefault(client, _Client())
        found.asked_s = now_s
        if self._under_way < room and not any(each.waiting for each in self.clients.values()):
            self._go(found, number)
            return True
        if len(found.waiting) >= MOST_WAITING:
            return None
        found.waiting.append(number)
        return False

    def refuse(self, now_s: float, client: str) -> float:
        """A client has too many that wait; in how many seconds it is to be told so."""
        found = self.clients[client]
        wait_s = min(max(found.told_s - now_s, 0.0), LONGEST_REFUSAL_S)
        found.told_s = now_s + wait_s + 1.0 / REFUSED_QPS
        return wait_s

    def end(self, client: str, number: int, room: int) -> list[int]:
        """A request ended, or its client hung up; those that go now."""
        found = self.clients[client]
        if number in found.under_way:
            found.under_way.remove(number)
            self._under_way -= 1
        else:
            found.waiting.remove(number)
        return self.next(room)

    def next(self, room: int) -> list[int]:
        """Those that go now, as there is room."""
        went = []
        while self._under_way < room:
            waiting = [each for each in self.clients.values() if each.waiting]
            if not waiting:
                break
            first = min(waiting, key=lambda each: (len(each.under_way), each.turn))
            went.append(first.waiting.pop())
            self._go(first, went[-1])
        return went

    def _go(self, client: _Client, number: int) -> None:
        client.under_way.add(number)
        self._under_way += 1
        self._turns += 1
        client.turn = self._turns

    def _forget(self, now_s: float) -> None:
        self.clients = {
            name: each
            for name, each in self.clients.items()
            if each.under_way or each.waiting or now_s - each.asked_s < LATELY_S
        }

    def validate(self) -> None:
        """Check every invariant; tests call it at teardown."""
        assert self._under_way == sum(len(each.under_way) for each in self.clients.values())
