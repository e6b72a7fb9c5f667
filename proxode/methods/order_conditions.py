"""Order conditions of Runge-Kutta methods from rooted trees.

A method `(A, b)` has order p when `sum_i b_i Phi_i(t) = 1 / gamma(t)` for every rooted tree t with at most p
nodes; gamma is the density of the tree and `Phi_i` its elementary weight at stage i. A continuous method with
weights `b_i(theta)` has order p when `sum_i b_i(theta) Phi_i(t) = theta**rho(t) / gamma(t)` for all theta.
Source: Hairer, Norsett, Wanner, Solving Ordinary Differential Equations I, sections II.2 and II.6.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from operator import mul
from typing import NamedTuple

Row = tuple[float, ...]
Matrix = tuple[Row, ...]


class Tree(NamedTuple):
    """A rooted tree: the trunk tree with one more branch grafted to its root (the Butcher product).

    `trunk` and `branch` are positions in the sequence of all trees; the single node has -1 for both.
    The branches of a tree are grafted in ascending position, so every tree occurs once.
    """

    order: int
    density: int
    trunk: int
    branch: int


@cache
def rooted_trees(order: int) -> tuple[Tree, ...]:
    """All rooted trees with at most `order` nodes, small ones first: 1, 1, 2, 4, 9, 20, 48, 115 per order."""
    if order <= 1:
        return (Tree(1, 1, -1, -1),)
    smaller = rooted_trees(order - 1)
    largest = tuple(
        # gamma(t) is the order of t times the densities of its branches.
        Tree(order, order * (trunk.density // trunk.order) * branch.density, u, v)
        for u, trunk in enumerate(smaller)
        for v, branch in enumerate(smaller)
        if trunk.order + branch.order == order and v >= trunk.branch
    )
    return smaller + largest


def elementary_weights(a: Sequence[Row], order: int) -> list[Row]:
    """`Phi_i(t)` of every tree with at most `order` nodes; rows of `a` may be ragged (lower triangular)."""
    trees = rooted_trees(order)
    weights: list[Row] = [(1.0,) * len(a)]
    images: dict[int, Row] = {}
    for tree in trees[1:]:
        image = images.get(tree.branch)
        if image is None:
            phi = weights[tree.branch]
            image = images[tree.branch] = tuple([sum(map(mul, row, phi)) for row in a])
        weights.append(tuple(map(mul, weights[tree.trunk], image)))
    return weights


def order_residuals(b: Row, weights: Sequence[Row], order: int) -> Iterator[float]:
    """`sum_i b_i Phi_i(t) - 1 / gamma(t)` for every tree with at most `order` nodes."""
    trees = rooted_trees(order)
    for tree, phi in zip(trees, weights[: len(trees)], strict=True):
        yield sum(map(mul, b, phi)) - 1 / tree.density


def dense_residuals(dense: Matrix, weights: Sequence[Row], order: int) -> Iterator[float]:
    """The same for `b_i(theta) = sum_j dense[i][j] theta**(j+1)`: one per tree and power of theta."""
    trees = rooted_trees(order)
    columns = list(zip(*dense, strict=True))
    columns += [(0.0,) * len(dense)] * (order - len(columns))
    for tree, phi in zip(trees, weights[: len(trees)], strict=True):
        for power, column in enumerate(columns, 1):
            yield sum(map(mul, column, phi)) - (1 / tree.density if power == tree.order else 0.0)
