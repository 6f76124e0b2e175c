"""Q-networks: views in, one value for each action out. Normalisation lies inside.

Forbidden here: the engine.
"""

import torch
from torch import Tensor, nn

FILTERS = 32  # of each convolution; ASET does not say how many


class Normalised(nn.Module):
    """(x - mean) / deviation by feature; the figures are buffers, so the ONNX file has them."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("deviation", torch.ones(shape))

    def fit(self, states: Tensor, over: tuple[int, ...]) -> None:
        """Take mean and deviation over the dimensions `over` of a batch of states."""
        self.mean = states.mean(dim=over).reshape(self.mean.shape)
        self.deviation = states.std(dim=over).reshape(self.mean.shape).clamp_min(1e-3)

    def forward(self, x: Tensor) -> Tensor:
        """Normalised states, at most 10 deviations from the mean."""
        return ((x - self.mean) / self.deviation).clamp(-10.0, 10.0)


class ValueHead(nn.Module):
    """Values of actions; when dueling, Q = V + A - mean A                 (Wang et al. 2016, eq. 9)."""

    def __init__(self, width: int, actions: int, dueling: bool) -> None:
        super().__init__()
        self.advantage = nn.Linear(width, actions)
        self.value = nn.Linear(width, 1) if dueling else None

    def forward(self, x: Tensor) -> Tensor:
        """(B, actions)."""
        advantage: Tensor = self.advantage(x)
        if self.value is None:
            return advantage
        value: Tensor = self.value(x)
        return value + advantage - advantage.mean(dim=1, keepdim=True)


class PaperNetwork(nn.Module):
    """ASET's: workers as channels, three convolutions 4 x 4 over (feature, time), then 256.

    Each convolution is followed by ReLU and max-pooling by 2. Unpadded, three of them do not fit
    12 features x 25 seconds: each is padded by 1 before and 2 behind, so only pooling shrinks the
    map: 12 x 25, 6 x 12, 3 x 6, 1 x 3.
    """

    def __init__(self, shape: tuple[int, ...], actions: int, dueling: bool = False) -> None:
        super().__init__()
        workers, features, seconds = shape
        self.scale = Normalised((1, 1, features, 1))
        stages: list[nn.Module] = []
        for before, after in ((workers, FILTERS), (FILTERS, FILTERS), (FILTERS, FILTERS)):
            stages += [nn.ZeroPad2d((1, 2, 1, 2)), nn.Conv2d(before, after, 4), nn.ReLU(), nn.MaxPool2d(2)]
        width = FILTERS * (features // 8) * (seconds // 8)
        self.body = nn.Sequential(*stages, nn.Flatten(), nn.Linear(width, 256), nn.ReLU())
        self.head = ValueHead(256, actions, dueling)

    def fit(self, states: Tensor) -> None:
        """Normalise by (B, W, features, T) states."""
        self.scale.fit(states, (0, 1, 3))

    def forward(self, state: Tensor) -> Tensor:
        """(B, actions) of (B, W, features, T)."""
        return self.head(self.body(self.scale(state)))


class PooledNetwork(nn.Module):
    """One encoder for every worker, mean and maximum over the workers, then 128.

    The number and the order of the workers do not matter              (Zaheer et al. 2017).
    """

    def __init__(self, shape: tuple[int, ...], actions: int, dueling: bool = False) -> None:
        super().__init__()
        features = shape[-1]
        self.scale = Normalised((1, 1, features))
        self.encoder = nn.Sequential(nn.Linear(features, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.body = nn.Sequential(nn.Linear(128, 128), nn.ReLU())
        self.head = ValueHead(128, actions, dueling)

    def fit(self, states: Tensor) -> None:
        """Normalise by (B, W, features) states."""
        self.scale.fit(states, (0, 1))

    def forward(self, state: Tensor) -> Tensor:
        """(B, actions) of (B, W, features)."""
        each = self.encoder(self.scale(state))
        return self.head(self.body(torch.cat([each.mean(dim=1), each.amax(dim=1)], dim=1)))


# By the state that a network takes.
NETWORKS: dict[str, type[PaperNetwork] | type[PooledNetwork]] = {
    "history": PaperNetwork,
    "pooled": PooledNetwork,
}
