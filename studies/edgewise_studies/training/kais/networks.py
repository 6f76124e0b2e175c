"""Networks of KaiS (sections III-A, III-B, IV-C) and of what improves on them.

Actor      cMMAC's policy: a site's local state → one positive number per station
Critic     cMMAC's value: global state and a site's own → one value
Scorer     ours: features of one station (or one change) → its score; any number of them
GraphBody  GPG's embeddings of nodes, sites and cluster
StackedBody  the same from one long vector of all nodes, for comparison (figure 11b)
Heads      GPG's g (which node) and q (which change)
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from edgewise.learn.harness import write_network

MASKED = -1e9


def layers(inputs: int, hidden: Sequence[int], outputs: int) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    sizes = [inputs, *hidden]
    stages: list[nn.Module] = []
    for before, after in pairwise(sizes):
        stages += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*stages, nn.Linear(sizes[-1], outputs))


class Actor(nn.Module):
    """p = ReLU(…) + 1 over stations; π(j) = p_j F_j / Σ p F. Hidden layers 256, 128, 32."""

    def __init__(self, state: int, sites: int, stations: int) -> None:
        super().__init__()
        self.sites = sites
        self.body = layers(state + sites, (256, 128, 32), stations)

    def forward(self, state: Tensor) -> Tensor:
        """(R, D + B), a state and its site one-hot → (R, N + 1) log p."""
        return torch.log(torch.relu(self.body(state)) + 1.0)


class Critic(nn.Module):
    """V of each site. Hidden layers 256, 128, 64, 32."""

    def __init__(self, state: int, sites: int, extra: int) -> None:
        super().__init__()
        self.body = layers(state * (sites + 1) + extra + sites, (256, 128, 64, 32), 1)

    def forward(self, local: Tensor, cloud: Tensor) -> Tensor:
        """(R, B, D) local states and (R, E) the cloud's → (R, B).

        The first layer's product with what all sites share is taken once, not for each of them.
        """
        first = self.body[0]
        assert isinstance(first, nn.Linear)
        shared = torch.cat([local.flatten(1), cloud], dim=1)
        widths = [shared.shape[1], local.shape[2], local.shape[1]]
        of_all, of_own, of_site = torch.split(first.weight, widths, dim=1)
        hidden = nn.functional.linear(shared, of_all, first.bias)[:, None]
        hidden = hidden + nn.functional.linear(local, of_own) + of_site.t()
        return self.body[1:](hidden).squeeze(2)


class Scorer(nn.Module):
    """Score of one row of features."""

    def __init__(self, features: int, hidden: Sequence[int] = (64, 32)) -> None:
        super().__init__()
        self.body = layers(features, hidden, 1)

    def forward(self, rows: Tensor) -> Tensor:
        """(…, F) → (…)."""
        return self.body(rows).squeeze(-1)


class GraphBody(nn.Module):
    """x_n = h1[Σ_{n' ≠ n} f1(x_n')] + s_n, then y_b and z in the same way     (KaiS eq. 8).

    f and h have hidden layers 64 and 32. Nodes of a site are visited in order; those done pass on
    their embedding, the others what they started with, s. Summary nodes have s = 0.
    """

    def __init__(self, state: int, own: Sequence[Sequence[int]]) -> None:
        super().__init__()
        width, hidden = 16, (64, 32)
        self.own = [list(nodes) for nodes in own]
        self.f1, self.h1 = layers(state, hidden, width), layers(width, hidden, state)
        self.f2, self.h2 = layers(state, hidden, width), layers(width, hidden, state)
        self.f3, self.h3 = layers(state, hidden, width), layers(width, hidden, state)
        most = max(map(len, self.own))
        padded = [nodes + [0] * (most - len(nodes)) for nodes in self.own]
        self.register_buffer("table", torch.tensor(padded), persistent=False)
        present = torch.tensor([[i < len(nodes) for i in range(most)] for nodes in self.own])
        self.register_buffer("present", present.float(), persistent=False)
        flat = {node: b * most + i for b, nodes in enumerate(self.own) for i, node in enumerate(nodes)}
        self.register_buffer("back", torch.tensor([flat[n] for n in range(len(flat))]), persistent=False)
        site = {node: b for b, nodes in enumerate(self.own) for node in nodes}
        self.register_buffer("site", torch.tensor([site[n] for n in range(len(site))]), persistent=False)
        self.table: Tensor
        self.present: Tensor
        self.back: Tensor
        self.site: Tensor
        self.outputs = 3 * state

    def forward(self, state: Tensor) -> Tensor:
        """(R, N, D) → (R, N, 3D): x_n, y_b of its site, z."""
        own = state[:, self.table] * self.present[:, :, None]  # (R, B, K, D)
        x = list(own.unbind(dim=2))
        told = list((self.f1(own) * self.present[:, :, None]).unbind(dim=2))
        total = torch.stack(told).sum(dim=0)
        for i, start in enumerate(x):
            others = total - told[i]
            x[i] = self.h1(others) + start
            total = others + self.f1(x[i]) * self.present[:, i, None]
        nodes = torch.stack(x, dim=2)
        y = self.h2((self.f2(nodes) * self.present[:, :, None]).sum(dim=2))  # (R, B, D)
        z = self.h3(self.f3(y).sum(dim=1))
        flat = nodes.flatten(1, 2)[:, self.back]
        return torch.cat([flat, y[:, self.site], z[:, None].expand_as(flat)], dim=2)


class StackedBody(nn.Module):
    """Every node gets the same vector, all states in a row, and its own number."""

    def __init__(self, state: int, nodes: int, width: int = 64) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(state * nodes, width), nn.ReLU())
        self.nodes, self.outputs = nodes, width + nodes

    def forward(self, state: Tensor) -> Tensor:
        """(R, N, D) → (R, N, 64 + N)."""
        whole = self.body(state.flatten(1))[:, None].expand(-1, self.nodes, -1)
        return torch.cat([whole, torch.eye(self.nodes).expand(state.shape[0], -1, -1)], dim=2)


class Heads(nn.Module):
    """g values nodes, q values changes l of a node. Hidden layers 128, 64, 32   (section III-B2)."""

    def __init__(self, inputs: int, services: int) -> None:
        super().__init__()
        self.changes = 2 * services + 1
        self.g = layers(inputs, (128, 64, 32), 1)
        self.q = layers(inputs + self.changes, (128, 64, 32), 1)

    def nodes(self, embedded: Tensor) -> Tensor:
        """(R, N, E) → (R, N)."""
        return self.g(embedded).squeeze(2)

    def scales(self, embedded: Tensor) -> Tensor:
        """(R, E) of chosen nodes → (R, 2S + 1)."""
        rows = embedded[:, None].expand(-1, self.changes, -1)
        change = torch.eye(self.changes).expand(embedded.shape[0], -1, -1)
        return self.q(torch.cat([rows, change], dim=2)).squeeze(2)


class Orchestrator(nn.Module):
    """GPG: embeddings and both heads in one module; `forward` is what is exported.

    Args:
        chosen: H, nodes that change in a frame.
    """

    def __init__(self, body: GraphBody | StackedBody, services: int, chosen: int) -> None:
        super().__init__()
        self.body, self.heads, self.chosen = body, Heads(body.outputs, services), chosen

    def forward(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """(R, N, D + 1) → H nodes (R, H), the values of their changes (R, H, 2S + 1).

        The last feature is added to the node's value. With Gumbel draws there, the H most valuable are
        drawn from π without replacement.
        """
        embedded = self.body(state[:, :, :-1])
        nodes = (self.heads.nodes(embedded) + state[:, :, -1]).topk(self.chosen, dim=1).indices
        return nodes, self.scales(embedded, nodes)

    def scales(self, embedded: Tensor, nodes: Tensor) -> Tensor:
        """(R, N, E), chosen nodes (R, H) → (R, H, 2S + 1)."""
        rows = embedded.gather(1, nodes[:, :, None].expand(-1, -1, embedded.shape[2]))
        values = self.heads.scales(rows.flatten(0, 1))
        return values.reshape(nodes.shape[0], nodes.shape[1], -1)


class Pairs(nn.Module):
    """Ours: for every node, values of removing or adding a replica of each service; doing nothing is 0.

    The same weights for each (node, service): any number of nodes and services.
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        self.body = layers(features, (64, 32), 2)

    def forward(self, rows: Tensor) -> Tensor:
        """(R, N, S, F) → (R, N, 2S + 1), l = -S … S."""
        remove, add = self.body(rows).unbind(dim=-1)
        return torch.cat([remove.flip(2), torch.zeros_like(add[:, :, :1]), add], dim=2)


def write_half(
    network: nn.Module, stem: Path, half: str, shape: tuple[int, ...], outputs: Sequence[str]
) -> dict[str, Any]:
    """STEM.HALF.onnx; what the card says of the file.

    Args:
        shape: of one input; any number of nodes and services where they are dimensions of their own.
    """
    rows = {0: "rows"}
    free = {name: rows for name in outputs} | {"features": rows}
    if len(shape) == 3:
        free["features"] = rows | {1: "nodes", 2: "services"}
    features = np.random.default_rng(0).random((16, *shape)).astype(np.float32)
    file = stem.with_name(f"{stem.name}.{half}.onnx")
    return {"onnx_sha256": write_network(network, file, {"features": features}, outputs, free)[0]}
