"""A policy that decides in another process, as who asks sees it: like any other, but in time or not at all.

An answer that is not there within the budget costs the process its life, and it starts anew: at once where it
had answered before, though not more often than each `REST_S`, else after a rest that doubles each time, so
that a policy that never answers costs next to nothing. A question meanwhile is answered by nobody. One that
starts anew has forgotten all.
"""

import logging
import threading
import weakref
from functools import partial
from typing import Any

import numpy as np

from edgewise import policies
from edgewise.arrays import Floats
from edgewise.core.guard import Starting
from edgewise.core.keyed import Key
from edgewise.errors import PolicyError
from edgewise.runtime import clock
from edgewise.runtime.apart import messages
from edgewise.runtime.apart.process import PolicyProcess

log = logging.getLogger("edgewise.policies")
BEGIN_S = 60.0  # that a policy may take to be loaded, compiled and begun
AGAIN_S, TIMES = 10.0, 5.0  # when it starts anew: so long, or so many times what it took at first
REST_S, LONGEST_REST_S = 10.0, 640.0
ASKED = ("tick", "observe")  # hooks that are answered over there


class PolicyApart:
    """Stands for a policy that decides in a process of its own.

    Args:
        decision: of `policies.DECISIONS`.
        name: of the policy, as `policies.load` takes it.
        budget_s: for an answer.
    Attributes:
        name: as it calls itself, which others may, too.
        loaded_as: as `policies.load` takes it.
    Raises:
        PolicyError: it cannot be loaded.
    """

    batched = True  # those that see one world are asked for each over there

    def __init__(self, decision: str, name: str, budget_s: float) -> None:
        kept = self.kept = _Lasting(decision, name, budget_s)
        weakref.finalize(self, kept.close)  # nobody asks any more
        self.loaded_as = name
        self.name, self.max_age_s = str(kept.about["name"]), kept.about["max_age_s"]
        for method in ASKED:
            if method in kept.about["has"]:
                setattr(self, method, partial(kept.ask, method))
        if "renewed" in kept.about["has"]:
            self.renewed = partial(_renewed, kept)

    @property
    def pid(self) -> int | None:
        """Of its process; None while there is none."""
        return self.kept.pid

    def reset(self, world: Any, key: Key) -> None:
        """Start anew; nothing is to be done where it has just begun with the same.

        Raises:
            PolicyError: it cannot begin.
        """
        self.kept.begin(world, key)

    def decide(self, *seen: Any) -> Any:
        """Its decision.

        Raises:
            TimeoutError: there is none in time; see `core.guard`.
            Exception: what it raises.
        """
        return self.kept.ask("decide", *seen)


def load(decision: str, name: str, budget_s: float, *given: Any) -> Any:
    """A policy of a running system: one that does not ship decides in a process of its own.

    Args:
        decision: of `policies.DECISIONS`.
        budget_s: that it has for an answer.
        given: where it is known, world and key that it will begin with: then it has begun with them, which
            may take seconds, and costs nothing when it begins with them again.
    Raises:
        PolicyError: it cannot be loaded, or begin.
    """
    if policies.ships(decision, name):
        return policies.load(decision, name, live=True)
    made = PolicyApart(decision, name, budget_s)
    if given:
        made.reset(*given)
    return made


def _renewed(kept: "_Lasting", rates_qps: Floats) -> PolicyApart | None:
    """The same policy with a plan for other rates; it is made beside the one that decides."""
    made = PolicyApart(kept.decision, kept.name, kept.budget_s)
    made.kept.begin(*kept.given)
    return made if made.kept.renew(np.array(rates_qps)) else None


class _Lasting:
    """Keeps a process of a policy there, and asks it.

    It is not `PolicyApart` itself because a thread holds it, and that one goes when nobody asks any more.
    """

    def __init__(self, decision: str, name: str, budget_s: float) -> None:
        self.decision, self.name, self.budget_s = decision, name, budget_s
        self.given: tuple[Any, ...] = ()  # what it began with
        self.rates_qps: Floats | None = None  # that its plan is for, if not those
        self._lock = threading.Lock()  # over what it has begun with
        self._closed, self._rest_s, self._fresh, self._why = threading.Event(), REST_S, False, ""
        self._begin_s, self._answered = BEGIN_S, False
        self._asked: PolicyProcess | None = None  # that answers; None while none does
        self._asked, self.about = self._started()
        threading.Thread(target=self._keep, args=(self._asked,), daemon=True, name="policy kept").start()

    @property
    def pid(self) -> int | None:
        process = self._asked
        return None if process is None else process.pid

    def ask(self, method: str, *seen: Any) -> Any:
        """The policy's answer, within its budget."""
        process, self._fresh = self._asked, False
        if process is None:
            raise Starting(f"{self._why}; it starts anew")
        question = messages.question(method, seen, self.given[0] if self.given else None)
        try:
            answer = process.ask(question, self.budget_s)
        except TimeoutError as error:
            self._lost(process, str(error))
            raise type(error)(f"{error}; it starts anew") from None
        self._answered = True
        return answer

    def begin(self, *given: Any) -> None:
        """Have it begin, unless it has just begun with the same."""
        same = len(self.given) == len(given) and self.given[0] is given[0] and self.given[1:] == given[1:]
        if self._fresh and same:
            return
        with self._lock:
            self.given, self.rates_qps, self._fresh = given, None, True
            if self._asked is not None:
                self._tell(self._asked)
                took_s = clock.monotonic_s() - self._started_s
                self._begin_s = min(max(AGAIN_S, TIMES * took_s), BEGIN_S)

    def renew(self, rates_qps: Floats) -> bool:
        """Have it take its plan for other rates; False where there is none."""
        with self._lock:
            self.rates_qps = rates_qps
            return self._asked is not None and self._tell_rates(self._asked)

    def close(self) -> None:
        """Nobody asks any more."""
        self._closed.set()
        self.latest.kill()

    def _started(self) -> tuple[PolicyProcess, dict[str, Any]]:
        """A process that has loaded the policy, and what it says of itself."""
        self._started_s, process = clock.monotonic_s(), PolicyProcess(self.decision, self.name)
        self.latest = process
        if self._closed.is_set():
            process.kill()
        try:
            return process, self._slowly(process, None)
        except PolicyError:
            process.kill()
            process.wait()
            raise

    def _slowly(self, process: PolicyProcess, question: bytes | None) -> Any:
        """An answer that may take long.

        Raises:
            PolicyError: there is none.
        """
        try:
            return process.ask(question, self._begin_s)
        except TimeoutError as error:
            self._lost(process, str(error))
            raise PolicyError(f"policy {self.name!r}: {error}") from None

    def _tell(self, process: PolicyProcess) -> None:
        """Have a process begin as the policy should."""
        if self.given:
            self._slowly(process, messages.question("reset", self.given))
        if self.rates_qps is not None:
            self._tell_rates(process)

    def _tell_rates(self, process: PolicyProcess) -> bool:
        return bool(self._slowly(process, messages.question("renew", (self.rates_qps,))))

    def _lost(self, process: PolicyProcess, why: str) -> None:
        self._why = why
        if self._asked is process:
            self._asked = None

    def _pause_s(self) -> float:
        """Until it starts anew."""
        pause_s = self._rest_s
        self._rest_s = min(2.0 * pause_s, LONGEST_REST_S)
        if self._answered:
            self._rest_s, self._answered = REST_S, False
            pause_s = max(self._started_s + REST_S - clock.monotonic_s(), 0.0)
        return pause_s

    def _keep(self, process: PolicyProcess) -> None:
        """Start it anew whenever it has ended, until nobody asks any more."""
        while True:
            process.wait()
            process.close()
            if self._asked is process:
                self._lost(process, f"its process ended: {process.how()}")
            who = {"decision": self.decision, "policy": self.name}
            if not self._closed.is_set():
                log.error("policy's process ended", extra=who | {"why": self._why})
            if self._closed.wait(self._pause_s()):
                return
            try:
                process, _ = self._started()
                with self._lock:
                    self._tell(process)
                    self._asked = process
            except Exception as error:  # foreign code
                self._why = str(error)
                process.kill()
