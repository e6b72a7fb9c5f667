"""A diagnosis in words, for people who want to know why their solve is slow."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..randomness import SAME
from .kinds import UNKNOWN, cut_off, known_back

if TYPE_CHECKING:
    from .diagnosis import Diagnosis

WIDTH = 110
UNSEEN = " (the rim of the spectrum; what is smaller than a hundredth of that is not told apart from zero)"
NOT_NORMAL = (
    " (J J^T is not J^T J, J is not normal: these belong to its field of values, which tells how it acts for a while; "
    "its eigenvalues may lie further inside)"
)
FROZEN = " (as if the eigenvalues at the places told it, which they need not: it was not measured along the way)"
NEARLY = 1e-2  # |J - J^T| / |J| that is not much
MOST_ORDERS = 300.0  # of magnitude: beyond, a number says nothing more


def text(d: Diagnosis) -> str:
    """The whole of it, in paragraphs."""
    parts = [headline(d), *(f"Note: {finding}." for finding in d.findings), *facts(d)]
    lines = [*parts, "", *(advice_lines(d) or [no_advice(d)])]
    return "\n".join(_wrapped(line) for line in lines)


def _wrapped(line: str) -> str:
    return textwrap.fill(line, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def headline(d: Diagnosis) -> str:
    many = "unknown" if d.n == 1 else "unknowns"
    where = f"{d.n:,} {many} ({d.dtype}), t from {d.t0:g} to {d.t1:g}, rtol {d.rtol:g}, atol {d.atol:g}"
    said = d.advice.stiffness.capitalize() if d.advice.stiffness != UNKNOWN else "It is not known whether this is stiff"
    came = f", seen up to t = {d.reached:g} only" if cut_off(d) else ", as far as it came"
    if d.randomness > SAME:
        return f"f is random, and cannot be solved as it is: {where}."
    return f"{said}{'' if d.ok or not d.steps else came}: {where}."


def no_advice(d: Diagnosis) -> str:
    """Why nothing is recommended."""
    if d.randomness > SAME:
        return "No recommendation as long as f is random: make it a function of (t, y), and ask again."
    return f"No recommendation: {'no step could be taken' if d.places else 'nothing could be probed'}."


def facts(d: Diagnosis) -> list[str]:
    """What was measured, one sentence for each question; the same for the table of the command."""
    return [f"{name}: {said}." for name, said in rows(d)]


def rows(d: Diagnosis) -> Iterator[tuple[str, str]]:
    yield "Solve", _solve(d)
    if not d.places:
        return
    kind = "eigenvalues" if d.exact else "Ritz values"
    yield (
        "Spectrum",
        f"{kind} at {len(d.places)} {_places(d)}: Re from {number(d.left)} to {number(d.right)}, |Im| up to "
        f"{number(d.imaginary)}, |lambda| up to {number(d.radius)}{_unseen(d)}",
    )
    yield "Stiffness", _stiffness(d)
    yield "Explicit", _explicit(d)
    yield "Symmetry", _symmetry(d)
    yield "Growth", f"{_growth(d)}{so_far(d)}"
    yield "Spent", f"{d.nfe_solve:,} NFE for the solve and {d.nfe_probes:,} for the questions, {d.nfe:,} in all"


def _unseen(d: Diagnosis) -> str:
    if d.exact:
        return ""
    return UNSEEN if d.normal else NOT_NORMAL


def _places(d: Diagnosis) -> str:
    return "place" if len(d.places) == 1 else "places"


def _solve(d: Diagnosis) -> str:
    stats = d.path.stats
    if not d.steps:
        return "no step could be taken"
    by = ", ".join(f"{count:,} of {name}" for name, count in d.path.shares.items())
    end = "" if d.ok else f"{so_far(d)} where it {'was cut off' if cut_off(d) else 'failed'}"
    return f"{d.steps:,} steps ({by}; {stats.n_rejected:,} rejected), {stats.nfe_forward:,} NFE{end}"


def _stiffness(d: Diagnosis) -> str:
    zeros, q = max(place.spectrum.zeros for place in d.places), d.stiffness_ratio
    if q is None:
        ratio = "the ratio Q of the paper is not defined, for no real part differs from zero"
    else:
        known = "is" if d.exact else "is at least" if d.normal else "of these values, not of the eigenvalues, is"
        ratio = f"Q = max|Re| / min|Re| {known} {number(q)}"
        ratio += f" (without {zeros} that {'is' if zeros == 1 else 'are'} zero to rounding)" if zeros else ""
    return (
        f"{ratio}; |lambda| integrated over the interval is {number(d.way)}, while the solution moves "
        f"{number(d.motion)} times its own size{so_far(d)}"
    )


def _explicit(d: Diagnosis) -> str:
    limits = [place.limit for place in d.places if math.isfinite(place.limit)]
    if not limits:
        return "stability sets no limit to the steps of dopri5"
    low, high = min(limits), max(limits)
    lengths = number(low) if high < 1.01 * low else f"{number(low)} to {number(high)}"
    if d.stability_steps <= 1.5:
        return f"dopri5 is stable up to steps of {lengths}: stability does not set its step"
    return (
        f"dopri5 is stable up to steps of {lengths}, so stability alone asks for {number(d.stability_steps)} steps, "
        f"{number(6 * d.stability_steps)} NFE; the solve took {d.steps:,} steps{so_far(d)}"
    )


def so_far(d: Diagnosis) -> str:
    """To be said of what was measured, beside numbers for all of the way."""
    return "" if d.ok else f", up to t = {d.reached:g}"


def _symmetry(d: Diagnosis) -> str:
    where = f"at {len(d.places)} {_places(d)}"
    if d.n == 1:
        field = "one unknown is always symmetric"
    elif d.gradient_field:
        field = (
            f"the Jacobian is symmetric to {max(d.asymmetry, 1e-16):.0e} {where}, so f may be a gradient field: "
            "implicit steps are then proximal steps"
        )
    elif d.asymmetry <= NEARLY:
        field = f"the Jacobian is nearly symmetric, to {d.asymmetry:.0e} {where}, which is more than rounding"
    else:
        field = f"not symmetric, and so no gradient field: |J - J^T| / |J| is up to {number(d.asymmetry)}"
    time = f"f does not depend on t, as far as seen {where}" if d.autonomous else "f depends on t"
    return f"{field}; {time}"


def _growth(d: Diagnosis) -> str:
    (back, known), forth, measured = known_back(d), d.forward_orders, d.growth is not None
    if known == "measured" and back < 0.5 and forth < 0.5:
        return "errors neither grow nor decay by much, in either direction of time"
    said = []
    if not measured:
        said.append("by how much a small change of y0 grows was not measured: it would take more than the solve itself")
    elif forth >= 0.5:
        said.append(f"a small change of y0 grows by up to {orders(forth)}{_at_the_end(d)}")
    if back >= 0.5:
        kind = "dissipative: " if measured and back > 2 * forth + 0.5 else ""
        usual = "integrating the state backwards, as the usual adjoint does, multiplies errors by"
        size = f"{'at least' if known == 'least' else 'about'} {orders(back)}{FROZEN if known == 'frozen' else ''}"
        said.insert(0 if kind else 1, f"{kind}{usual} {size}")
    return "; ".join(said) or "errors do not grow by much in the direction of time"


def _at_the_end(d: Diagnosis) -> str:
    if d.growth is not None and d.forward_orders - d.growth.end > 1:
        return ", in short parts of the way"
    own = d.path.growth
    return f", while the solution itself grows by {orders(own)}" if own >= 0.5 else ""


def advice_lines(d: Diagnosis) -> list[str]:
    lines = [f"{choice.what} = {choice.name}: {choice.reason}." for choice in d.advice.choices]
    for cost in d.advice.costs:
        back = "" if cost.nfe_backward is None else f", {number(cost.nfe_backward)} backward"
        lines.append(f"cost of {cost.method}: {number(cost.nfe_forward)} NFE forward{back} ({cost.basis}).")
    return lines


def orders(x: float) -> str:
    return f"10^{x:.0f}" if x < MOST_ORDERS else f"10^{MOST_ORDERS:.0f} and more"


def number(x: float) -> str:
    """Three digits, whole where that is enough."""
    if math.isfinite(x) and 100 <= abs(x) < 1e6:
        return f"{x:,.0f}"
    return f"{x:.3g}"
