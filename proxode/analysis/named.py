"""The method that a user has named: a diagnosis does not depend on it, and says what it would cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..methods import Method, method_of
from ..methods.explicit_tableaus import EXPLICIT
from .costs import stability_nfe

if TYPE_CHECKING:
    from .diagnosis import Diagnosis

OF_FIXED_STEPS = ("step_size", "grid_constructor")  # options that belong to the method that was named


def without_method(options: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Options for a solve with `auto`, and the name of the method that was among them; "" if none was, or `auto`."""
    options = dict(options)
    name = name_of(options.pop("method", None))
    if name:
        options = {key: value for key, value in options.items() if key not in OF_FIXED_STEPS}
    return options, name


def name_of(method: str | Method | None) -> str:
    name = method_of(method).name
    return "" if name == method_of(None).name else name


def about_the_method(d: Diagnosis) -> Iterator[str]:
    """For who has named one: this diagnosis took another, and why that is no loss."""
    name = d.named or d.layer
    if not name or (not d.named and name in ("auto", d.advice.method)):
        return
    said = f"you have named method {name!r}" if d.named else f"the layer is set to method {name!r}"
    cost = _cost(d, name)
    yield f"{said}; this diagnosis solved with 'auto'" + (f". {cost}" if cost else "")


def _cost(d: Diagnosis, name: str) -> str:
    """What the method would cost, where that is known."""
    if not d.places or not d.steps or not d.advice.costs:
        return ""
    if set(d.path.shares) == {name} and d.ok:
        return f"{name} would cost about the same, for it is what 'auto' took in all steps"
    known = next((cost for cost in d.advice.costs if cost.method == name), None)
    if known is None and name not in EXPLICIT:
        return ""
    estimated = known is not None and known.basis == "estimate"
    nfe = stability_nfe(d, name) if known is None else known.nfe_forward
    if not estimated and nfe < d.nfe_solve:  # accuracy sets its steps, and what they are was not seen
        return ""
    came = "" if d.ok else f" up to t = {d.reached:g}"
    basis = "" if estimated else " for stability alone"
    return f"{name} would cost about {nfe:,.0f} NFE{basis}, and this solve took {d.nfe_solve:,}{came}"
