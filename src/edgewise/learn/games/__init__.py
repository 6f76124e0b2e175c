"""Games over the simulators for `edgewise.learn.joint`, for each decision that several agents take at once.

| game | agents | a choice | a step | features of an agent |
|---|---|---|---|---|
| `RequestsGame` | sites | 0: the cloud, n + 1: node n | a slot | `features.local_state` |
| `OrchestrateGame` | nodes | l + S, l = -S … S: remove, nothing, add | a frame | `features.node_state` |
| `DeferGame` | places of the pool | 1: start the job there | a slot | `job_features`, `summary_features` |
| `SplitGame` | tasks of a query | its server | a query | see the class |
| `PlaceGame` | tasks of a pipeline | its node | a pipeline | see the class |

Forbidden here: torch.
"""

from collections.abc import Mapping
from typing import Any

import gymnasium

from edgewise.learn.games.defer import DeferGame
from edgewise.learn.games.place import PlaceGame
from edgewise.learn.games.services import OrchestrateGame, RequestsGame
from edgewise.learn.games.split import SplitGame
from edgewise.learn.joint import Game, JointEnv

__all__ = ["GAMES", "DeferGame", "OrchestrateGame", "PlaceGame", "RequestsGame", "SplitGame", "make"]

GAMES: Mapping[str, type[Game]] = {
    "Requests": RequestsGame,
    "Orchestrate": OrchestrateGame,
    "Defer": DeferGame,
    "Split": SplitGame,
    "Place": PlaceGame,
}


def make(game: str, penalty: float | None = 1.0, **options: Any) -> JointEnv:
    """One world of a game as Gymnasium makes it, `gymnasium.make("edgewise.learn.games:edgewise/Defer-v1")`.

    Args:
        game: its name, as in `edgewise/NAME-v1`.
        penalty: see `JointEnv`.
        options: of the game.
    """
    return JointEnv(GAMES[game](**options), penalty)


for _name in GAMES:
    gymnasium.register(
        f"edgewise/{_name}-v1", entry_point="edgewise.learn.games:make", kwargs={"game": _name}
    )
