"""What is trained: the parameters of a right side, its data and its loss, the same for torch and for jax."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

Theta = Sequence[Any]  # arrays of torch or of jax


class Model(ABC):
    """`dy/dt = rate(torch, theta, t, y, ...)` from y0, looked at at `times`; the first of them belongs to y0.

    `rate` is written with what torch and jax.numpy have in common, so that all libraries solve one formula.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    lr: ClassVar[float]  # of Adam
    tol: ClassVar[float]  # of every solver

    y0: Tensor
    pieces: Tensor | None = None  # where dimension 0 of y0 holds pieces that do not know of each other: what differs
    times: Tensor
    size: Tensor = torch.ones((), dtype=torch.float64)  # of the components: errors are divided by it

    @abstractmethod
    def parameters(self, seed: int) -> list[Tensor]:
        """Where the training starts."""

    @abstractmethod
    def rate(self, xp: Any, theta: Theta, t: Any, y: Any, piece: Any, hold: Any) -> Any:
        """`piece` is `pieces`, or that of one of them with its y; `hold` how hard the model is held to the data."""

    @abstractmethod
    def targets(self) -> Tensor:
        """The data at `times[1:]`."""

    @abstractmethod
    def curves(self, theta: Theta) -> dict[str, list[float]]:
        """What a picture shows: the truth beside the model on its own, or beside nothing where it has no solution."""

    def hold(self, part: float) -> float:
        """The spring to the data when this part of the training is done."""
        return 0.0

    def loss(self, ys: Any) -> Any:
        """Of the states at `times[1:]`."""
        return (((ys - self.targets()) / self.size) ** 2).mean()


def dense(*sizes: int, seed: int, last: float = 1.0) -> list[Tensor]:
    """Weights and biases of fully connected layers, as torch starts them; the last layer times `last`."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for i in range(len(sizes) - 1):
        reach = sizes[i] ** -0.5
        for shape in ((sizes[i + 1], sizes[i]), (sizes[i + 1],)):
            made.append(reach * (2 * torch.rand(*shape, generator=generator, dtype=torch.float64) - 1))
    return [*made[:-2], last * made[-2], last * made[-1]]


def network(xp: Any, theta: Theta, x: Any) -> Any:
    """tanh between the layers of `dense`."""
    for i in range(0, len(theta), 2):
        x = (xp.tanh(x) if i else x) @ theta[i].T + theta[i + 1]
    return x


class Parameters(nn.Module):
    """theta as torch's optimisers and checkpoints know it."""

    def __init__(self, theta: Sequence[Tensor]) -> None:
        super().__init__()
        self.theta = nn.ParameterList([nn.Parameter(value.clone()) for value in theta])
