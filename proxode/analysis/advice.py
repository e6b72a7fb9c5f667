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
from .kinds import (
    EASY,
    MILD,
    OSCILLATORY,
    STIFF,
    UNKNOWN,
    fast_angle,
    is_implicit,
    kind_of,
    known_back,
    near_axis,
    ripples,
    unseen,
)

if TYPE_CHECKING:
    from .diagnosis import Diagnosis

LARGE, WORTH_A_WORD = 2**30, 2**26  # bytes that a gradient keeps
TIGHT = 1e-6  # rtol from which order 8 takes fewer evaluations, by a tenth to a half for the same error, ...
FAIRLY_TIGHT = 1e-5  # ... and from which it takes about as many, with a tenth of the error; both
MANY = 50  # steps and more (measured on nine problems; a tanh network that dopri5 crosses in 17 costs dopri8 more)
MOST_ORDERS = 300.0  # of magnitude: beyond, a number says nothing more
ANGLE_BDF3 = 86.0  # degrees from the negative axis: of A(alpha) (Hairer & Wanner 1996, V.2)
TO_TRAIN, TO_REPORT = 1e-3, 1e-6  # rtol (docs/choosing.md, Tolerances)
AMPLIFIED = 2.5  # orders of magnitude by which errors may grow forwards before a loose gradient is in doubt
LOST = 3.0  # orders of magnitude by which the usual adjoint may lose digits unnoticed
CHEAP_F = 2_000  # unknowns from which rkc2 is worth a try where f costs little beside the pairs of anderson
ORDER_2 = 1e-5  # rtol down to which it is
NEARLY_SYMMETRIC = 0.1  # |J - J^T| / |J| with which conjugate directions have been seen to work

__all__ = ["Advice", "Choice", "Cost", "advise"]


@dataclass(frozen=True)
class Choice:
    """One recommendation: of what, which, and why in a sentence."""

    what: str  # "method", "inner", "gradient" or "rtol"; "or method" and "or inner" are worth a try beside those
    name: str
    reason: str


@dataclass(frozen=True)
class Advice:
    """What fits an equation, and why."""

    stiffness: str  # "not stiff", "oscillatory", "mildly stiff", "stiff", or "unknown" where too little was seen
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
    if kind == UNKNOWN and not (d.steps and unseen(d)):
        return Advice(kind, (), ())
    choices = [_method(d, kind)]
    if kind not in (EASY, UNKNOWN) and _suits_rkc2(d):
        reason = (
            "the eigenvalues lie along the negative axis, where its reach grows with the square of its stages: more "
            "evaluations, but no equation to solve, which is faster if f is cheap, such as a stencil. At one rtol its "
            "errors are some ten times those of bdf"
        )
        choices.append(Choice("or method", "rkc2", reason))
    if kind == STIFF or (kind == MILD and is_implicit(d)):
        choices.append(_inner(d))
        if choices[-1].name == "anderson" and near_axis(d) and d.asymmetry <= NEARLY_SYMMETRIC:
            reason = "the Jacobian is nearly symmetric: conjugate directions keep no pairs, and save time if f is cheap"
            choices.append(Choice("or inner", "fr", reason))
    choices += [_gradient(d), _rtol(d, kind)]
    return Advice(kind, tuple(choices), costs(d, choices[0].name if kind == OSCILLATORY else ""))


def _suits_rkc2(d: Diagnosis) -> bool:
    return near_axis(d) and d.n >= max(CHEAP_F, DENSE_LIMIT + 1) and not d.banded and d.rtol >= ORDER_2


def _method(d: Diagnosis, kind: str) -> Choice:
    name = next(iter(d.path.shares), "auto")
    if kind == UNKNOWN:
        return _not_known(d)
    if kind == STIFF:
        return _stiff_method(d)
    if kind == OSCILLATORY:
        return _for_oscillations(d)
    if kind == MILD:
        reason = (
            f"stability sets the step of an explicit method, but {_count(d.stability_steps)} steps of dopri5 are few: "
            f"`auto` took mostly {name} steps here"
        )
        reason += "" if is_implicit(d) else ", and goes on with BDF where the model becomes stiff in training"
        return Choice("method", "auto", reason)
    so_far = "" if d.ok else f" up to t = {d.reached:g}"
    reason = f"not stiff{so_far}: accuracy sets the step, and an explicit step has no equation to solve"
    if d.rtol <= TIGHT and d.steps >= MANY:
        return Choice("method", "dopri8", f"{reason}; at rtol {d.rtol:g} and for {d.steps:,} steps high order pays")
    if d.rtol <= FAIRLY_TIGHT and d.steps >= MANY:
        reason += "; dopri8 takes about as many evaluations for a smaller error, often a tenth"
    if name not in ("bdf", "auto"):
        reason += f"; it is what `auto` took in {d.path.shares[name]} of {d.steps} steps"
        return Choice("method", name, reason)
    return Choice("method", "dopri5", reason)


def _not_known(d: Diagnosis) -> Choice:
    """Of a solve that was cut off before much was seen: the method that asks for itself."""
    reason = f"what comes after t = {d.reached:g} was not seen, and `auto` takes what the problem asks for at the time"
    explicit = d.stability_steps
    if math.isfinite(explicit) and explicit > max(d.steps, MANY):
        reason += f"; if it is like what was seen, stability alone asks dopri5 for {_count(explicit)} steps"
    return Choice("method", "auto", reason)


def _for_oscillations(d: Diagnosis) -> Choice:
    """By how far regions of stability reach along the imaginary axis, for each evaluation of f: ralston4 0.71, dopri8
    0.50, dopri5 0.17."""
    name = "dopri8" if d.rtol <= TIGHT else "ralston4"
    reason = f"undamped oscillations (|Im lambda| {d.imaginary:.3g}) set the step: {name} reaches far along their axis"
    if is_implicit(d):
        reason += "; BDF had to follow them, and its orders above 2 are not stable there"
    if ripples(d):
        reason += ". To damp them instead take bdf2 with a `step_size`"
    return Choice("method", name, reason)


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
    reason += "" if d.ok else f" up to t = {d.reached:g}"
    if size > WORTH_A_WORD and not d.path.by_bdf:
        reason += " (checkpoint a small part of that, for about the same time: these steps are explicit)"
    if not d.graph.of_state:
        reason += "; f does not use y, so that y0 gets what comes in"
    orders, known = known_back(d)
    if orders > LOST:
        size_of = f"10^{_count(orders)}" if orders < MOST_ORDERS else f"10^{MOST_ORDERS:.0f} and more"
        size_of = f"at least {size_of}" if known == "least" else size_of
        reason += f"; an adjoint that integrates the state backwards would multiply its errors by {size_of}"
    return Choice("gradient", "implicit", reason)


def _rtol(d: Diagnosis, kind: str) -> Choice:
    name = f"{d.rtol:g}"
    if d.dtype == "float32" and d.rtol < 1.2e-6:
        return Choice("rtol", name, "float32 carries no less than 1.2e-6: it is raised to that, or use float64")
    if kind == OSCILLATORY or (kind == MILD and not is_implicit(d)):
        return Choice("rtol", name, f"stability sets the step: a tighter one ({d.rtol / 10:.1g}) costs little here")
    if d.growth is not None and d.forward_orders > AMPLIFIED:
        reason = (
            f"errors grow by up to 10^{d.forward_orders:.0f} on the way, and those of gradients alike: compare with a "
            f"solve at {d.rtol / 100:.1g} before you trust either"
        )
        return Choice("rtol", name, reason)
    report = f"for numbers to report {'use float64 and ' if d.dtype == 'float32' else 'take '}{TO_REPORT:g}"
    if d.rtol < TO_TRAIN:
        reason = (
            f"to train take {TO_TRAIN:g}, for a gradient is exact for the steps that are taken: each factor of ten "
            "saves about a third of the steps"
        )
        return Choice("rtol", name, reason + ("" if d.rtol <= TO_REPORT else f"; {report}"))
    return Choice("rtol", name, f"keep it to train; {report}")


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
