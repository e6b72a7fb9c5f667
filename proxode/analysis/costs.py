"""What methods would cost, from the solve that was made and from what stability asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..gradients.direct_systems import DENSE
from ..gradients.direct_systems import SMALL as DENSE_BACKWARD
from ..methods.explicit_tableaus import EXPLICIT
from ..randomness import SAME
from .limits import LEEWAY, step_limit
from .places import integral

if TYPE_CHECKING:
    from .diagnosis import Diagnosis

EVALUATIONS = {"dopri5": 6, "bosh3": 3, "ralston4": 4}  # of a step; the last of a step is the first of the next
KRYLOV_BACKWARD = 1.6  # NFE of transposed solves without matrices over those of the equations: 1.2 to 2
FEW = 16  # products that make a Jacobian, up to which it is made for each equation

MEASURED = "forward measured, backward estimated"
BY_STABILITY = "about, by stability alone"


@dataclass(frozen=True)
class Cost:
    """Of one solve and one gradient through it. `basis` says what the number rests on."""

    method: str
    nfe_forward: float
    nfe_backward: float | None
    basis: str  # what was measured, "estimate", or what stability alone asks


def costs(d: Diagnosis, bound: str = "") -> tuple[Cost, ...]:
    """Of the solve that was made, of dopri5 if that is another, and of a method whose steps stability sets (`bound`);
    of a random f nothing is worth telling."""
    if d.randomness > SAME:
        return ()
    basis = MEASURED if d.ok else f"{MEASURED}, up to t = {d.reached:g}"
    found = [Cost("auto", float(d.nfe_solve), backward(d), basis)]
    explicit = 6 * d.stability_steps
    if d.path.shares.get("dopri5", 0) < d.steps:
        taken = 6.0 * d.steps if not d.path.by_bdf else 0.0
        nfe = max(explicit, taken)
        if nfe > 0:  # else every mode grows: stability asks for nothing, and what accuracy asks for was not measured
            found.append(Cost("dopri5", nfe, nfe, BY_STABILITY if explicit > taken else "estimate"))
    if bound in EXPLICIT and bound not in ("dopri5", *d.path.shares):
        nfe = stability_nfe(d, bound)
        found.append(Cost(bound, nfe, nfe, BY_STABILITY))
    return tuple(found)


def backward(d: Diagnosis) -> float:
    """NFE of a gradient through the solve that was made: a product for each evaluation of explicit steps; for each
    equation of BDF an evaluation and a transposed solve."""
    explicit = sum(EVALUATIONS.get(by, 6) * count for by, count in d.path.shares.items() if by != "bdf")
    if not d.path.by_bdf:
        return float(explicit)
    if d.n <= DENSE_BACKWARD:
        return float(explicit + d.path.by_bdf * (1 + d.jacobian_products))
    if d.jacobian_products <= FEW and (d.banded or d.n <= DENSE):
        return float(explicit + d.path.by_bdf * (2 + d.jacobian_products))
    return explicit + KRYLOV_BACKWARD * max(d.nfe_solve - explicit, d.path.by_bdf)


def memory(d: Diagnosis) -> float:
    """Bytes that gradient='implicit' keeps: a state for each equation, the graph of each explicit evaluation."""
    state = d.n * (4 if d.dtype == "float32" else 8)
    explicit = sum(EVALUATIONS.get(by, 6) * count for by, count in d.path.shares.items() if by != "bdf")
    return state * d.path.by_bdf + explicit * (d.graph.bytes + state)


def stability_nfe(d: Diagnosis, name: str) -> float:
    """Evaluations that an explicit method needs to be stable, whatever the tolerance."""
    steps = integral(d, lambda place: 1.0 / step_limit(place.spectrum.values, name, leeway=LEEWAY))
    tableau = EXPLICIT[name]
    return (tableau.stages - tableau.fsal) * steps
