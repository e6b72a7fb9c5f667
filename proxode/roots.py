"""A root of one function between two points where its signs differ."""

from __future__ import annotations

import math
from collections.abc import Callable


def find_root(g: Callable[[float], float], a: float, b: float, ga: float, gb: float) -> float:
    """To the rounding of its place, by ITP (Oliveira & Takahashi 2020): a secant that is pushed towards the middle and
    kept where bisection could still be on time. It is fast on smooth functions, and on any other takes one evaluation
    more than bisection at the most. `ga` and `gb` are g at a and b, of different signs."""
    least = math.ulp(max(abs(a), abs(b)))
    rounds = max(math.ceil(math.log2((b - a) / (2.0 * least))), 0) + 1
    push = 0.05 / (b - a)
    for j in range(rounds + 1):
        if ga == 0.0 or gb == 0.0 or b - a <= 2.0 * least:
            break
        middle, half = 0.5 * (a + b), 0.5 * (b - a)
        secant = a + (b - a) * (ga / (ga - gb))
        if not a <= secant <= b:  # values beyond what floats can divide
            secant = middle
        side = math.copysign(1.0, middle - secant)
        move = max(push * (b - a) ** 2, least)  # less would leave the far end where it is
        t = secant + side * move if move <= abs(middle - secant) else middle
        late = max(least * 2.0 ** (rounds - j) - half, 0.0)  # how far from the middle is still on time
        t = t if abs(t - middle) <= late else middle - side * late
        value = g(t)
        if value == 0.0 or (value > 0.0) == (gb > 0.0):
            b, gb = t, value
        else:
            a, ga = t, value
    return a if abs(ga) < abs(gb) else b
