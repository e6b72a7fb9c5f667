"""Which method, inner solver and gradient fit what was found, each with its reason and its cost.

The rules are those that the measurements in docs/adaptive.md, docs/gradients.md and docs/speed.md support.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ..inner import DENSE_LIMIT, SMALL
from .costs import Cost, costs, memory
from .findings import misled
from .kinds import MILD, STIFF, UNKNOWN, fast_angle, kind_of, ripples

if TYPE_CHECKING:
    from .diagnosis import Diagnosis

LARGE = 2**30  # bytes from which the memory of a gradient is worth a word
TIGHT = 1e-8  # rtol from which order 8 pays
MOST_ORDERS = 300.0  # of magnitude: beyond, a number says nothing more
ANGLE_BDF3 = 86.0  # degrees from the negative axis: of A(alpha) (Hairer & Wanner 1996, V.2)
LOST = 3.0  # orders of magnitude by which the usual adjoint may lose digits unnoticed
ORDERS = {"bosh3": 3, "ralston4": 4, "dopri5": 5, "tsit5": 5, "dopri8": 8}
CHEAP_F = 2_000  # unknowns from which rkc2 is worth a try where f costs little beside the pairs of anderson

__all__ = ["Advice", "Choice", "Cost", "advise"]


@dataclass(frozen=True)
class Choice:
    """One recommendation: of what, which, and why in a sentence."""

    what: str  # "method", "inner", "gradient" or "rtol"
    name: str
    reason: str


@dataclass(frozen=True)
class Advice:
    """What fits an equation, and why."""

    stiffness: str  # "not stiff", "mildly stiff", "stiff", or "unknown" where nothing could be probed
    choices: tuple[Choice, ...]
    costs: tuple[Cost, ...]  # of the solve that was made first

    def name(self, what: str) -> str:
        """What was recommended as "method", "inner", "gradient"; "" if nothing was."""
        return next((choice.name for choice in self.choices if choice.what == what), "")

    @property
    def method(self) -> str:
        """The method to take."""
        return self.name("method")

    @property
    def inner(self) -> str:
        """The inner solver to take."""
        return self.name("inner")

    @property
    def gradient(self) -> str:
        """The gradient to take."""
        return self.name("gradient")

    def to_dict(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return {
            "stiffness": self.stiffness,
            "choices": [asdict(choice) for choice in self.choices],
            "costs": [asdict(cost) for cost in self.costs],
        }


def advise(d: Diagnosis) -> Advice:
    kind = kind_of(d)
    if kind == UNKNOWN:
        return Advice(kind, (), ())
    method = _method(d, kind)
    choices = [method]
    if kind == STIFF:
        choices.append(_inner(d))
    choices += [_gradient(d), _rtol(d, kind, method.name)]
    return Advice(kind, tuple(choices), costs(d))


def _method(d: Diagnosis, kind: str) -> Choice:
    name = next(iter(d.path.shares), "auto")
    if kind == STIFF:
        return _stiff_method(d)
    if kind == MILD and not ripples(d):
        reason = (
            f"stability sets the step of an explicit method, but {_count(d.stability_steps)} steps of dopri5 are few: "
            f"`auto` took mostly {name} steps here, and goes on with BDF where the model becomes stiff in training"
        )
        return Choice("method", "auto", reason)
    if ripples(d):
        reason = (
            f"BDF had to follow a fast oscillation of small size (|Im lambda| {d.imaginary:.3g}), for which its orders "
            "above 2 are not stable; dopri8 reaches far along the imaginary axis. To damp the oscillation instead, "
            "take bdf2 with a `step_size`"
        )
        return Choice("method", "dopri8", reason)
    if d.rtol < TIGHT:
        return Choice("method", "dopri8", f"not stiff, and at rtol {d.rtol:g} high order pays")
    reason = "not stiff: accuracy sets the step, and an explicit step has no equation to solve"
    if name not in ("bdf", "auto"):
        reason += f"; it is what `auto` took in {d.path.shares[name]} of {d.steps} steps"
        return Choice("method", name, reason)
    return Choice("method", "dopri5", reason)


def _stiff_method(d: Diagnosis) -> Choice:
    ratio = 6 * d.stability_steps / max(d.nfe_solve, 1)
    mixed = d.path.by_bdf < d.steps
    name = "auto" if mixed or not d.steps else "bdf"
    cost = f"stability alone would cost dopri5 {_count(6 * d.stability_steps)} evaluations"
    reason = f"{cost}, {_count(ratio)} times what this solve took" if d.ok else cost
    if name == "auto":
        reason += f"; explicit steps are good for a part of the way ({_shares(d)})"
    if fast_angle(d) > ANGLE_BDF3:
        reason += (
            "; fast modes oscillate almost undamped but are not excited here: if they were, BDF above order 2 is "
            "not for them: dopri8 follows them, bdf2 with a `step_size` damps them"
        )
    if d.gradient_field and d.left < 0 and d.n >= CHEAP_F and not d.banded and d.rtol >= 1e-5:
        reason += "; where f is very cheap try rkc2, which takes more evaluations but no inner solver"
    return Choice("method", name, reason)


def _inner(d: Diagnosis) -> Choice:
    if d.n <= SMALL:
        return Choice("inner", "newton", f"{_unknowns(d.n)}: a dense Jacobian costs little (inner='auto' takes it)")
    if d.banded:
        reason = "the Jacobian is a narrow band that a few products make: 'auto' finds it and factorises it for Newton"
        return Choice("inner", "auto", reason)
    if d.n <= DENSE_LIMIT:
        return Choice("inner", "newton", f"{d.n} unknowns and stiff: a Jacobian is worth its price, as 'auto' knows")
    failed = d.path.stats.n_inner_failed
    if failed > max(3, 0.05 * d.steps):
        return Choice("inner", "newton_krylov", f"{failed} inner solves failed here: GMRES is sturdier than anderson")
    return Choice("inner", "anderson", "it makes no matrix; inner='auto' takes it, and newton_krylov where it fails")


def _gradient(d: Diagnosis) -> Choice:
    if not d.graph.of_state and d.radius > 0:
        return Choice("gradient", "none", "autograd sees no dependence of f on y: no gradient can pass (see above)")
    if misled(d):
        reason = (
            "what passes through the part of f that autograd sees wrongly would be missing in any gradient (see above)"
        )
        return Choice("gradient", "none", reason)
    size = memory(d)
    if size > LARGE:
        reason = f"`implicit` would keep {_bytes(size)}; this keeps the square root of the steps, for twice the time"
        return Choice("gradient", "checkpoint", reason)
    reason = f"exact for the steps that are taken, and keeps about {_bytes(size)}"
    if not d.graph.of_state:
        reason += "; f does not use y, so that y0 gets what comes in"
    orders = d.backward_orders
    if orders > LOST:
        size_of = f"10^{_count(orders)}" if orders < MOST_ORDERS else f"10^{MOST_ORDERS:.0f} and more"
        reason += f"; an adjoint that integrates the state backwards would multiply its errors by {size_of}"
    return Choice("gradient", "implicit", reason)


def _rtol(d: Diagnosis, kind: str, method: str) -> Choice:
    name = f"{d.rtol:g}"
    if d.dtype == "float32" and d.rtol < 1.2e-6:
        return Choice("rtol", name, "float32 carries no less than 1.2e-6: it is raised to that, or use float64")
    if kind == STIFF:
        reason = "loosening it makes no explicit method cheaper, for stability sets its step; steps of BDF grow with it"
        return Choice("rtol", name, reason)
    if kind == MILD:
        return Choice("rtol", name, "a smaller one costs little here, as long as stability sets the step")
    order = ORDERS.get(method, 5)
    more = 10 ** (1 / order)
    return Choice("rtol", name, f"ten times smaller costs about {more:.2g} times the steps of a pair of order {order}")


# Numbers in words


def _shares(d: Diagnosis) -> str:
    return ", ".join(f"{count} of {name}" for name, count in d.path.shares.items())


def _unknowns(n: int) -> str:
    return "1 unknown" if n == 1 else f"{n} unknowns"


def _count(x: float) -> str:
    if not math.isfinite(x):
        return "unknown"
    return f"{x:,.0f}" if x >= 10 and x < 1e7 else f"{x:.2g}"


def _bytes(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:,.0f} {unit}"
        size /= 1024
    raise AssertionError
