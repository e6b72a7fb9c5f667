"""The explicit pairs of `auto`, and what their steps tell.

`bosh3` is stable up to h rho = 2.5 with three evaluations a step, `ralston4` up to 2.8 with four, `dopri5` up to 3.3
with six. So where stability has a say in the step, or the tolerance is loose, a low order goes further with an
evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..interpolation import combine
from ..norms import two_norm
from ..recording import without_graph
from .base import Step
from .explicit import ContinuousExtension, ExplicitRungeKutta
from .explicit_tableaus import EXPLICIT
from .tableaus import ExplicitTableau

FINE, LOW, LOWEST = 0, -1, -2  # what the order of a step of each of these is called:
NAMES = {FINE: "dopri5", LOW: "ralston4", LOWEST: "bosh3"}
PAIRS = {code: ExplicitRungeKutta(EXPLICIT[name]) for code, name in NAMES.items()}
STABLE = {FINE: 3.3, LOW: 2.78, LOWEST: 2.5}  # the ends of the regions of stability on the negative axis
STEPS = {code: (pair.tableau.stages - 1) / 6 for code, pair in PAIRS.items()}  # what a step costs, in steps of dopri5
LIMIT = 0.67  # part of the region of stability from where a step is at its limit
SUSPECT = 0.36  # the same that an accurate step rarely needs; rho is often told too small
AT_LIMIT = 20.0  # suspects that a step at the limit counts for
NEAR, FAR = 4.0, 8.0  # rho times the length of the interval: a few steps only up to the first, many beyond the second
CRUDE = {NEAR: 1e-2, FAR: 2e-3}  # rtol from which a solve of that length begins with bosh3, and
LOOSE = 3e-4  # from which it does so with ralston4;
MODERATE = 1e-4  # and from which bosh3 is taken on the way
COARSE = {FINE: 1.3, LOW: 1.6}  # where h rho of another is above this,
SHORT = 0.42  # and dopri5 again where that of either falls below this
GROWING = 2.0  # times the step before: such a step says nothing about the length that errors allow
PAUSE = 20  # steps of dopri5 after a trial of a low order that was shorter than that; twice as many after the next


def first_pair(rtol: float, way: float) -> int:
    """What a solve begins with; `way` is rho times the length of the interval. Few steps are fewest at high order."""
    if way <= NEAR:
        return FINE
    return LOWEST if rtol >= CRUDE[FAR if way > FAR else NEAR] else LOW if rtol >= LOOSE else FINE


def told(reach: float, code: int) -> float:
    """What a step with this h rho says about stiffness, in steps of dopri5."""
    part = reach / STABLE[code]
    return STEPS[code] * (AT_LIMIT if part > LIMIT else 1.0 if part > SUSPECT else -AT_LIMIT)


def stretch(before: int, after: int) -> float:
    """What a change of the pair does to the step, which is about as long as its evaluations are many."""
    return STEPS[after] / STEPS[before]


@without_graph
def spectral_radius(step: Step, tableau: ExplicitTableau, h: float) -> float:
    """|sum d_i k_i| / |sum d_i y_i| over the stages (y_i, k_i = f(y_i)), for weights d that leave of the y_i little but
    what the fastest modes have put there (as Hairer & Wanner IV.2 do with the last two stages of DOPRI5)."""
    extension = step.interpolant
    if not isinstance(extension, ContinuousExtension):
        return 0.0
    d = DIFFERENCES[tableau.name]
    stages = [k.detach() for k in extension.stages[: len(d)]]
    of_y = [h * sum(d[i] * tableau.a[i][j] for i in range(j + 1, len(d))) for j in range(len(d) - 1)]
    apart = float(two_norm(combine(None, of_y, stages[:-1])).max())
    return float(two_norm(combine(None, list(d), stages)).max()) / apart if apart > 0.0 else 0.0


@without_graph
def careful_error(step: Step, code: int, h: float) -> Tensor | None:
    """The error of a step. On y' = l y the estimate of bosh3 is -z^3 (1 + z) / 48 with z = h l, and is blind where
    `auto` keeps its steps, at z = -1: there the part without that factor, of the first three stages, has the say."""
    extension = step.interpolant
    if code != LOWEST or step.error is None or not isinstance(extension, ContinuousExtension):
        return step.error
    other = combine(None, [h * w for w in UNBLINDED], [k.detach() for k in extension.stages[: len(UNBLINDED)]])
    return torch.maximum(step.error.abs(), other.abs())


def _divided_difference(ts: Sequence[float]) -> tuple[float, ...]:
    return tuple(1.0 / math.prod(t - other for other in ts if other != t) for t in ts)


UNBLINDED = (-1 / 36, 1 / 12, -1 / 18)
# The last two stages of most are at the same time; of bosh3 the third difference over the step is left.
DIFFERENCES = {
    name: (*[0.0] * (EXPLICIT[name].stages - 2), -1.0, 1.0) for name in ("ralston4", "dopri5")
} | {"bosh3": _divided_difference(EXPLICIT["bosh3"].c)}
