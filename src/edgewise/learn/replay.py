"""The ring of past windows that DQN learns from.

Forbidden here: torch, the engine.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgewise.arrays import Floats32, Ints

Halves = NDArray[np.float16]


class Transitions(NamedTuple):
    """M transitions: state (M, …), action, n-step reward, discount of what follows, next state (M, …).

    States are in half precision, as they are kept. `discount` is 0 where the episode was lost; a time-out
    bootstraps. `place` is where they lie in the ring and `weight` corrects for prioritised sampling (1
    without).
    """

    state: Halves
    action: Ints
    reward: Floats32
    discount: Floats32
    following: Halves
    place: Ints
    weight: Floats32


class Replay:
    """A ring of frames; a transition points to its frame and to the one n windows later.

    Args:
        room: frames kept; an episode of K windows takes K + 1.
        shape: of a state; kept in half precision.
        gamma, steps: of n-step returns.
        exponent: 0 samples evenly, else in proportion to priority ** exponent  (Schaul et al. 2016).
    """

    KEPT = ("states", "action", "following", "reward", "discount", "priority", "next")  # of a saved training

    def __init__(
        self, room: int, shape: tuple[int, ...], gamma: float, steps: int = 1, exponent: float = 0.0
    ) -> None:
        self.gamma, self.steps, self.exponent, self.next = gamma, steps, exponent, 0
        self.states = np.zeros((room, *shape), dtype=np.float16)
        self.action = np.full(room, -1, dtype=np.int64)  # -1: the last frame of an episode, or empty
        self.following = np.zeros(room, dtype=np.int64)
        self.reward = np.zeros(room, dtype=np.float32)
        self.discount = np.zeros(room, dtype=np.float32)
        self.priority = np.zeros(room, dtype=np.float32)

    def __len__(self) -> int:
        return int((self.action >= 0).sum())

    def add(self, states: list[Floats32], actions: list[int], rewards: list[float], lost: bool) -> None:
        """Add an episode of K windows: K + 1 states, K actions and rewards.

        G_k = Σ_{j<m} gamma^j r_{k+j},  then  gamma^m max Q(s_{k+m}),  m = min(n, K - k)
        """
        room, windows = self.action.size, len(actions)
        frame = (self.next + np.arange(windows + 1)) % room
        self.action[np.isin(self.following, frame)] = -1  # their next state is being overwritten
        most = float(self.priority.max(initial=1.0)) or 1.0
        for k in range(windows + 1):
            self.states[frame[k]] = np.clip(states[k], -6e4, 6e4)
            self.action[frame[k]] = -1
        for k in range(windows):
            m = min(self.steps, windows - k)
            at = frame[k]
            self.action[at], self.following[at], self.priority[at] = actions[k], frame[k + m], most
            self.reward[at] = sum(self.gamma**j * rewards[k + j] for j in range(m))
            self.discount[at] = 0.0 if lost and k + m == windows else self.gamma**m
        self.following[frame[windows]] = frame[windows]
        self.next = int((self.next + windows + 1) % room)

    def sample(self, count: int, rng: np.random.Generator, correction: float = 1.0) -> Transitions:
        """`count` transitions; weights (N P)^-correction, the largest of the batch 1."""
        known = np.flatnonzero(self.action >= 0)
        if self.exponent > 0.0:
            share = self.priority[known].astype(np.float64) ** self.exponent
            share /= share.sum()
            chosen = rng.choice(known.size, count, p=share)
            weight = (known.size * share[chosen]) ** -correction
            weight /= weight.max()
        else:
            chosen, weight = rng.integers(known.size, size=count), np.ones(count)
        at = known[chosen]
        return Transitions(
            state=self.states[at],
            action=self.action[at],
            reward=self.reward[at],
            discount=self.discount[at],
            following=self.states[self.following[at]],
            place=at,
            weight=weight.astype(np.float32),
        )

    def judge(self, index: Ints, error: Floats32) -> None:
        """New priorities: |temporal-difference error|."""
        self.priority[index] = np.abs(error) + 1e-3
