"""Methods: from (t0, t1, history) to a step. `METHODS` holds them by the names users write."""

from __future__ import annotations

import difflib

from ..inner.own import is_own
from .auto import Auto
from .base import History, Method, Proximal, Step
from .bdf import BDF, bdf_coefficients
from .chebyshev import Chebyshev
from .dirk import BackwardEuler, CrankNicolson, MultiStage, Sdirk
from .explicit import ExplicitRungeKutta
from .explicit_tableaus import EXPLICIT
from .own import check_own
from .proximal_tableaus import MULTISTAGE
from .variable_bdf import VariableBDF

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        *(ExplicitRungeKutta(tableau) for tableau in EXPLICIT.values()),
        Chebyshev(),
        BackwardEuler(),
        CrankNicolson(),
        *(BDF(max_order=k) for k in range(1, 6)),
        VariableBDF(),
        Auto(),
        *(MultiStage(tableau=tableau) for tableau in MULTISTAGE.values()),
    )
}

AUTO = "auto"
ELSEWHERE = {  # names of torchdiffeq that are not there
    "fehlberg2": "'adaptive_heun'", "heun3": "'rk4' or 'heun2'", "explicit_adams": "'dopri5' or 'auto'",
    "implicit_adams": "'dopri5' or 'auto'", "fixed_adams": "'rk4'", "scipy_solver": "'bdf', 'dopri5' or 'auto'",
}  # fmt: skip


def method_of(method: str | Method | None) -> Method:
    """The method that a name (or an object) asks for; None and "auto" are the default."""
    if isinstance(method, Method):
        if is_own(method):
            check_own(method)
        return method
    if method is None or method == "auto":
        return METHODS[AUTO]
    if not isinstance(method, str):
        raise TypeError(f"`method` must be a name or a Method, not {type(method).__name__}")
    if method not in METHODS:
        near = difflib.get_close_matches(method.lower(), METHODS, 1)
        other = f" (did you mean {near[0]!r}?)" if near else ""
        other = f" (take {ELSEWHERE[method]} in its place)" if method in ELSEWHERE else other
        raise ValueError(f"unknown `method` {method!r}{other}; known are: {', '.join(METHODS)}")
    return METHODS[method]


__all__ = [
    "BDF", "METHODS", "BackwardEuler", "Chebyshev", "CrankNicolson", "ExplicitRungeKutta", "History", "Method",
    "MultiStage", "Proximal", "Sdirk", "Step", "VariableBDF", "bdf_coefficients", "method_of",
]  # fmt: skip
