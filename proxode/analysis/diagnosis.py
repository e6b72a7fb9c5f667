"""What was found out about an equation: numbers, words, a picture."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

import torch

from .advice import Advice, advise
from .clock import Clock
from .findings import find
from .growth import Along, Growth
from .independence import Samples
from .limits import LEEWAY, step_limits
from .path import Path
from .places import Place, finite, integral
from .probes import Graph

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AUTONOMOUS = 1e-6  # relative change of f with t alone that rounding may make


@dataclass(frozen=True)
class Diagnosis:
    """Of `dy/dt = f(t, y)` along one trajectory. `print(diagnosis)` says it in words, `plot` shows it.

    Spectra are those of the equation as it is integrated: of -df/dy where t1 is before t0. What is said about the way
    is an integral over the places, and no more than they show, unless it was measured along all of it (`along`).
    """

    n: int
    dtype: str
    t0: float
    t1: float
    rtol: float
    atol: float
    path: Path  # the solve
    places: tuple[Place, ...]
    randomness: float  # by which two values of f at the same place differ, relative
    disagreement: float  # between a product with the Jacobian and a difference of f, relative
    products: str  # how products are made: "forward", "double_backward" or "difference"
    jacobian_products: int  # that make a dense Jacobian, fewer than n where its zeros allow it
    banded: bool  # is the Jacobian that of a grid, so that a few products make all of it?
    graph: Graph
    samples: Samples | None
    along: Along
    clock: Clock
    nfe_probes: int
    layer: str = ""  # the method that a NeuralODE is set to, where one was given
    named: str = ""  # the method that was asked for, which a diagnosis does not take

    @cached_property
    def advice(self) -> Advice:
        """Which method, inner solver and gradient fit, why, and what they cost."""
        return advise(self)

    @cached_property
    def findings(self) -> tuple[str, ...]:
        """What needs attention before anything else, in words."""
        return tuple(find(self))

    # The solve

    @property
    def ok(self) -> bool:
        """Whether the solve reached its end."""
        return self.path.failure is None

    @property
    def reached(self) -> float:
        """The time that the solve came to."""
        return self.path.reached if self.path.strides else self.t0

    @property
    def part(self) -> float:
        """The part of the way that the solve has come, from 0 to 1."""
        return abs(self.reached - self.t0) / self.span

    @property
    def steps(self) -> int:
        """Steps that the solve took."""
        return len(self.path.strides)

    @property
    def nfe_solve(self) -> int:
        """NFE of the solve."""
        return self.path.stats.nfe_forward

    @property
    def nfe(self) -> int:
        """All that the diagnosis has spent."""
        return self.nfe_solve + self.nfe_probes

    # The spectrum, over all places

    @property
    def radius(self) -> float:
        """The largest |lambda| of all places."""
        return max((place.spectrum.radius for place in self.places), default=math.nan)

    @property
    def left(self) -> float:
        """The most negative real part of all places."""
        return min((place.spectrum.left for place in self.places), default=math.nan)

    @property
    def right(self) -> float:
        """The most positive real part of all places."""
        return max((place.spectrum.right for place in self.places), default=math.nan)

    @property
    def imaginary(self) -> float:
        """The largest imaginary part of all places."""
        return max((place.spectrum.imaginary for place in self.places), default=math.nan)

    @property
    def stiffness_ratio(self) -> float | None:
        """The largest Q of the places; a lower bound where not all eigenvalues were computed and J is normal."""
        found = [place.spectrum.ratio for place in self.places]
        return max((q for q in found if q is not None), default=None)

    @property
    def exact(self) -> bool:
        """Whether all eigenvalues were computed, and not only the rim of them."""
        return all(place.spectrum.exact for place in self.places)

    @property
    def normal(self) -> bool:
        """Whether J J^T = J^T J at all places, as far as was asked: only then Ritz values are near eigenvalues."""
        return all(place.spectrum.normal for place in self.places)

    @property
    def asymmetry(self) -> float:
        """|J - J^T| / |J| where it is largest: 0 symmetric, 2 antisymmetric. Where it is only estimated, the root mean
        square of all places: the largest of several estimates would mostly be the one that is furthest off."""
        found = [place.spectrum.asymmetry for place in self.places]
        if self.exact:
            return max(found, default=math.nan)
        return math.sqrt(sum(each**2 for each in found) / len(found))

    @property
    def gradient_field(self) -> bool:
        """Was the Jacobian symmetric wherever it was probed? Then f may be the gradient of a function of y."""
        return bool(self.places) and all(place.spectrum.symmetric for place in self.places)

    @property
    def autonomous(self) -> bool:
        """Whether f does not depend on t, as far as was seen."""
        return not self.clock.varies and all(place.drift <= AUTONOMOUS for place in self.places)

    # Along the way

    @property
    def span(self) -> float:
        """The length of the interval that was asked for."""
        return abs(self.t1 - self.t0)

    @cached_property
    def way(self) -> float:
        """|lambda|_max times the length of the interval, as an integral: what an explicit method has to walk."""
        return integral(self, lambda place: place.spectrum.radius)

    @property
    def motion(self) -> float:
        """The length of the way that the solution itself has gone, in units of its largest size."""
        largest = float(torch.linalg.vector_norm(self.path.largest.double()))
        return self.path.length / largest if largest > 0 else 0.0

    @cached_property
    def stability_steps(self) -> float:
        """About the steps that dopri5 needs to be stable, whatever the tolerance."""
        h, matrices = self.along.lengths, self.along.matrices
        if h is None or matrices is None:
            return integral(self, lambda place: 1.0 / place.limit)
        limits = step_limits(torch.linalg.eigvals(matrices), leeway=LEEWAY)
        return float((h / limits).sum() * self.span / h.sum())

    @property
    def growth(self) -> Growth | None:
        """Of perturbations along the way; None where it could not be measured."""
        return self.along.growth

    @property
    def backward_orders(self) -> float:
        """Orders of magnitude by which an error grows if the state is integrated backwards. Where that could not be
        measured, as if the eigenvalues at the places told it."""
        if self.growth is not None and math.isfinite(self.growth.back):
            return max(self.growth.back, 0.0)
        return integral(self, lambda place: max(-place.spectrum.left, 0.0)) / math.log(10)

    @property
    def forward_orders(self) -> float:
        """The same for an error that is carried forwards, at the time where it is largest."""
        if self.growth is not None:
            return self.growth.peak
        return integral(self, lambda place: max(place.spectrum.right, 0.0), resolved=True) / math.log(10)

    @property
    def sustained_orders(self) -> float:
        """What of it is left at the end, beyond the growth of the solution itself; nan where it was not measured."""
        if self.growth is None:
            return math.nan
        return max(self.growth.end - max(self.path.growth, 0.0), 0.0)

    # Showing it

    def text(self) -> str:
        """All of it in words; what `print` shows."""
        from .words import text

        return text(self)

    def __str__(self) -> str:
        return self.text()

    def plot(self, path: str | FilePath | None = None) -> Figure:
        """One figure: the spectrum over regions of stability, and step sizes over time; written to `path` if given."""
        from .picture import draw

        return draw(self, path)

    def to_dict(self) -> dict[str, Any]:
        """Everything as numbers, words and lists, for JSON; a number that is infinite or unknown is None."""
        failure, samples = self.path.failure, self.samples
        numbers = (
            "radius", "left", "right", "imaginary", "stiffness_ratio", "asymmetry", "way", "motion",
            "stability_steps", "backward_orders", "forward_orders", "sustained_orders", "randomness",
            "disagreement",
        )  # fmt: skip
        plain = (
            "n", "dtype", "t0", "t1", "rtol", "atol", "ok", "reached", "steps", "nfe", "nfe_solve", "nfe_probes",
            "exact", "normal", "gradient_field", "autonomous", "products", "banded",
        )  # fmt: skip
        return {
            **{name: getattr(self, name) for name in plain},
            **{name: finite(getattr(self, name)) for name in numbers},
            "failure": None if failure is None else {"status": failure.status.name, "message": str(failure)},
            "methods": self.path.shares,
            "samples": None if samples is None else samples._asdict(),
            "graph": self.graph._asdict(),
            "growth": None if self.growth is None else {k: finite(v) for k, v in self.growth._asdict().items()},
            "clock": self.clock._asdict(),
            "advice": self.advice.to_dict(),
            "findings": list(self.findings),
            "places": [place.to_dict() for place in self.places],
            "strides": [[stride.t0, stride.t1, stride.method] for stride in self.path.strides],
        }
