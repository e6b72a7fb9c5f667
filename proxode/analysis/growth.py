"""How a small perturbation grows along the way, measured: v' = J(t, y(t)) v with the steps that were taken.

Eigenvalues at single places do not tell: those of Kepler's problem have positive real parts everywhere, and errors grow
like t; those of Vinograd's are negative, and its solutions grow. Here exponentials of J over each step follow one
another, which is stable however stiff J is. Logarithms are kept, for what is damped is soon less than the least float.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..vector_field import VectorField
from .directions import rough
from .exponential import exp_times

WHOLE = 16  # unknowns up to which the whole derivative of the flow is multiplied up; of more, one vector is carried
MOST = 2_000  # steps up to which that is done; of more, J is taken in every second, fourth ...
NODES = 128  # places at which J is taken for a vector, at most
LONGER = 16  # pieces on the way back
AGREE = 0.5  # orders of magnitude by which two resolutions may differ
LEAST = 400  # products that may be made in each direction, however cheap the solve was
THINNED = 4.5  # steps for each of these beyond which they do not follow the solution any more
LOW, HIGH = 0.5 - math.sqrt(3) / 6, 0.5 + math.sqrt(3) / 6  # Gauss' points of a step
NEAR, FAR = 0.25 + math.sqrt(3) / 6, 0.25 - math.sqrt(3) / 6  # weights of the fourth order without commutators
UNRESOLVED = 0.1  # part of the way over which the exponential of a vector may not have settled


class Bit(NamedTuple):
    """A piece of the way: its length, and a state in it, or two at Gauss' points of a step."""

    h: float
    ts: tuple[float, ...]  # in the solver's time
    ys: tuple[Tensor, ...]


class Growth(NamedTuple):
    """In orders of magnitude. Of the largest perturbation for small states, of a random one for others."""

    end: float  # at the last time, over the first
    peak: float  # at the worst time
    back: float  # integrated backwards, from the last time to the first; nan where that takes too many products


class Along(NamedTuple):
    """What was found all along the way: the growth, where it could be measured, and Jacobians, where they were made."""

    growth: Growth | None = None
    lengths: Tensor | None = None  # of the pieces
    matrices: Tensor | None = None  # one for each of them


def measure(f: VectorField, bits: Sequence[Bit], steps: int, nfe: int) -> Along:
    """Along these pieces, for about as many products as the `nfe` of the solve. Growth is not told where they are too
    few for the steps, or a value was not finite, or it would take more."""
    if not bits:
        return Along()
    if bits[0].ys[0].numel() <= WHOLE:
        return _whole(f, bits, followed=len(bits) == steps)
    return Along(_vector(f, bits, max(nfe, LEAST)) if len(bits) * THINNED >= steps else None)


def _whole(f: VectorField, bits: Sequence[Bit], *, followed: bool) -> Along:
    """Magnus' method of fourth order in the form without commutators (Blanes & Moan 2006), which stiff J admit."""
    used = (0, 1) if followed else (0,)
    at = [torch.stack([f.jacobian(bit.ts[i], bit.ys[i]).detach().double().cpu() for bit in bits]) for i in used]
    lengths = torch.tensor([bit.h for bit in bits], dtype=torch.float64)
    if not all(bool(torch.isfinite(matrices).all()) for matrices in at):
        return Along()
    if not followed:
        return Along(None, lengths, at[0])
    h = lengths[:, None, None]
    first, second = h * (NEAR * at[0] + FAR * at[1]), h * (FAR * at[0] + NEAR * at[1])
    halves = torch.stack([first, second], 1).flatten(0, 1)
    forwards, backwards = _multiplied(halves), _multiplied(-halves.flip(0))
    growth = None
    if forwards is not None and backwards is not None:
        growth = Growth(forwards[-1], max(0.0, *forwards), backwards[-1])
    return Along(growth, lengths, at[0])


def _multiplied(exponents: Tensor) -> list[float] | None:
    """log10 of the norms of the products of their exponentials, each from the left."""
    shifts = torch.linalg.eigvals(exponents).real.amax(-1)  # so that nothing overflows
    eye = torch.eye(exponents.shape[-1], dtype=torch.float64)
    factors = torch.linalg.matrix_exp(exponents - shifts[:, None, None] * eye)
    if not bool(torch.isfinite(factors).all()):
        return None
    product, log, found = eye, 0.0, []
    for factor, shift in zip(factors, shifts.tolist(), strict=True):
        product = factor @ product
        size = float(torch.linalg.matrix_norm(product))
        if size == 0 or not math.isfinite(size):
            return None
        product, log = product / size, log + math.log(size) + shift
        found.append((log + math.log(float(torch.linalg.matrix_norm(product, 2)))) / math.log(10))
    return found


def _vector(f: VectorField, bits: Sequence[Bit], budget: int) -> Growth | None:
    """One vector by exponentials of products, J of every piece frozen. Backwards it soon is the most damped mode,
    which a few long pieces find where J is symmetric."""
    start = rough(bits[0].ys[0], 11)
    single = [bit._replace(ts=bit.ts[:1], ys=bit.ys[:1]) for bit in bits]
    frozen = _carried(f, single, start, 1.0, budget)
    if frozen is None:
        return None
    forwards = _agreeing(frozen, _carried(f, _joined(single, math.ceil(len(bits) / 4)), start, 1.0, budget))
    if forwards is None and all(len(bit.ys) == 2 for bit in bits):  # J turns: beside the first order the fourth
        forwards = _agreeing(_carried(f, bits, start, 1.0, 2 * budget), frozen)
    if forwards is None:
        return None
    long, longer = (_joined(single, pieces)[::-1] for pieces in (LONGER, LONGER // 2))
    backwards = _carried(f, long, start, -1.0, budget)
    if backwards is not None:
        backwards = _agreeing(backwards, _carried(f, longer, start, -1.0, budget))
    return Growth(forwards[-1], max(0.0, *forwards), math.nan if backwards is None else backwards[-1])


def _agreeing(found: list[float] | None, beside: list[float] | None) -> list[float] | None:
    """The growth along pieces of the way, if that along others, or to another order, is about the same: where J turns
    within a piece (of an orbit, say) frozen ones are wrong, and differ."""
    if found is None or beside is None:
        return None
    apart = max(abs(found[-1] - beside[-1]), abs(max(found) - max(beside)))
    return found if apart <= AGREE + 0.05 * abs(found[-1]) else None


def _joined(bits: Sequence[Bit], most: int) -> list[Bit]:
    """At most so many pieces of these."""
    size = math.ceil(len(bits) / most)
    groups = [bits[i : i + size] for i in range(0, len(bits), size)]
    return [group[len(group) // 2]._replace(h=sum(bit.h for bit in group)) for group in groups]


def _carried(f: VectorField, bits: Sequence[Bit], v: Tensor, sign: float, budget: int) -> list[float] | None:
    """log10 of the growth after each piece; None where too much of it does not settle, or the budget is spent."""
    log, found, open_ended, spent = 0.0, [], 0.0, 0
    whole = sum(bit.h for bit in bits)
    for bit in bits:
        for product in _exponents(f, bit):
            moved = exp_times(product, v, sign * bit.h)
            if moved is None:
                return None
            v, log, spent = moved.vector, log + moved.log, spent + moved.products * len(bit.ys)
            open_ended += 0.0 if moved.settled else bit.h / len(bit.ys)
            if spent > budget or open_ended > UNRESOLVED * whole:
                return None
        found.append(log / math.log(10))
    return found


def _exponents(f: VectorField, bit: Bit) -> list[Callable[[Tensor], Tensor]]:
    """Products with what is exponentiated for a piece, over its length: J, or one after the other the two
    combinations of J at Gauss' points that `_whole` takes too."""

    def times(i: int) -> Callable[[Tensor], Tensor]:
        t, y = bit.ts[i], bit.ys[i]
        f0 = f(t, y) if not f.ladder else None
        return lambda v: f.jvp(t, y, v, f0)

    if len(bit.ys) == 1:
        return [times(0)]
    first, second = times(0), times(1)
    return [lambda v: NEAR * first(v) + FAR * second(v), lambda v: FAR * first(v) + NEAR * second(v)]
