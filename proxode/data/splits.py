"""Random splits of the nodes of a graph, seeded."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Split(NamedTuple):
    """Indices of nodes."""

    train: Tensor
    validation: Tensor
    test: Tensor


def random_split(labels: Tensor, seed: int, *, per_class: int = 20, development: int = 1500) -> Split:
    """`per_class` nodes of each class to train with, out of `development` nodes, of which the others are for
    validation; all that are left are for the test.

    So the authors of GRAND split (https://arxiv.org/abs/2106.10934), with 5,000 for Coauthor-CS and 1,500 elsewhere;
    Planetoid's own splits have 20 of each class, 500 and 1,000.
    """
    if not 0 < development <= len(labels):
        raise ValueError(f"`development` must be from 1 to {len(labels)}, the number of nodes, not {development}")
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(labels), generator=generator)
    chosen, test = order[:development], order[development:]
    train = torch.zeros(development, dtype=torch.bool)
    for label in range(int(labels.max()) + 1):
        members = (labels[chosen] == label).nonzero().squeeze(1)
        if len(members) < per_class:
            raise ValueError(
                f"class {label} has {len(members)} nodes among {development}, fewer than `per_class`, {per_class}: "
                "raise `development` or lower `per_class`"
            )
        train[members[:per_class]] = True  # the order is random already
    return Split(chosen[train], chosen[~train], test)
