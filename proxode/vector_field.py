"""f with products with its Jacobian, and with what solvers learn of it on the way.

f may detach its input, or refuse a way to differentiate it. Products therefore climb down a ladder: forward mode,
double backward, finite difference.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor

from .banded import Layout, layout_of
from .duals import dual_level
from .function import Function
from .jacobian import PROBES, Compressed, Pattern, jacobian_rows, price_of, stencil
from .norms import all_finite, anywhere, dot, largest, rms_norm, somewhere, two_norm
from .rough import rough_signs
from .solution import Stats
from .structure import Structure
from .times import Time, number

Made = TypeVar("Made")

GAIN_LASTS = 10  # equations for which a measured gain is good enough
AGREEMENT = 0.01  # relative, between a product and a difference
REFUSALS = (RuntimeError, TypeError, ValueError, AttributeError)  # of tensors that are not plain; others are f's own


class Undefined(NamedTuple):
    """Where an inner solver has last met an f that is nan or infinite at a finite state."""

    t: float
    size: float  # the largest component of that state
    bad: int  # components of f
    first: int  # of these
    times: int  # equations in which that happened
    unsolved: int  # equations before


class VectorField(Function):
    """`f(t, y)` on flat states, with Jacobian products, for one solve."""

    def __init__(
        self, func: Callable[[Tensor, Any], Any], structure: Structure, stats: Stats, *, reverse: bool = False
    ) -> None:
        super().__init__(func, structure, stats, reverse=reverse)
        self.ladder = ["forward", "double_backward"]  # ways to make products, the present one first
        self.last_gain: float | None = None  # what `gain` measured last in this solve
        self._gain_age = 0
        self.unsolved = 0  # equations that no inner solver has solved
        self.proven = False  # has one solved any, by iterations?
        self.undefined: Undefined | None = None  # a place where f had no value
        self.failures = 0  # equations that were not solved with the present way to make products
        self.learned: dict[str, Any] = {}  # what inner solvers keep for the next equation; no value is changed in place
        self.recycled: dict[str, Any] = {}  # the same, but large: no place of a solve keeps a copy
        self._agreed = ""  # the way to make products that was seen to be right

    @property
    def stiffness(self) -> float | None:
        """About the spectral radius of the Jacobian, as inner solvers have met it; None where none has said."""
        known = self.learned.get("stiffness")
        return self.last_gain if known is None else float(known)

    @property
    def memory(self) -> tuple[Any, ...]:
        """What was learned from f in this solve and steers the next equations."""
        learned = {name: x.bare() if hasattr(x, "bare") else x for name, x in self.learned.items()}
        return (*self.ladder,), self.last_gain, self._gain_age, self.failures, learned

    def recall(self, memory: tuple[Any, ...], recycled: dict[str, Any] | None = None) -> None:
        """Be again as when `memory` was taken, so that the same equations are solved in the same way: exactly, or where
        something was recycled that is not given to the tolerance of the solves."""
        ladder, self.last_gain, self._gain_age, self.failures, learned = memory
        self.ladder, self.learned, self.recycled = list(ladder), dict(learned), dict(recycled or {})

    def meet_undefined(self, t: Time, y: Tensor, r: Tensor) -> None:
        """Remember it, if r is not finite because f(t, y) is not, and y is."""
        if self.spread is not None or not all_finite(y):  # of a spread state nobody sees all components
            return
        bad, before = (~torch.isfinite(r)).nonzero().flatten(), self.undefined
        times = 0 if before is None else before.times
        times += before is None or before.unsolved != self.unsolved
        first = int(bad[0]) if len(bad) else 0
        self.undefined = Undefined(number(t), largest(y), len(bad), first, times, self.unsolved)

    def forget(self) -> None:
        """What inner solvers have learned is void: f has jumped."""
        self.learned, self.recycled = {}, {}

    def let_go(self) -> None:
        """Of what is large, and of no use to a backward that keeps f alive."""
        self.recycled.clear()
        self.spares.pieces.clear()

    # Products with the Jacobian df/dy

    def jvp(self, t: Time, y: Tensor, v: Tensor, f0: Tensor | None = None) -> Tensor:
        """J v at (t, y), by the first way that f admits; `f0 = f(t, y)` spares an evaluation in the last."""
        while self.ladder:
            self.stats.count("n_jvp")  # also where the attempt fails: f was called
            way = self._jvp_forward if self.ladder[0] == "forward" else self._jvp_double_backward
            product = way(t, y.detach(), v)
            refused = somewhere(product is None)
            if product is not None and not refused and self._agrees(t, y, v, f0, product):
                return product
            self.ladder.pop(0)
        self.stats.count("n_jvp")
        return self.difference(t, y, v, f0)

    def _agrees(self, t: Time, y: Tensor, v: Tensor, f0: Tensor | None, product: Tensor) -> bool:
        """Whether a product is right, asked once in a solve over several processes: the communication inside of f may
        hide from this kind of differentiation. A difference tells."""
        if self.spread is None or self._agreed == self.ladder[0]:
            return True
        self.stats.count("n_jvp")
        off = two_norm(product - self.difference(t, y, v, f0))
        if bool(off <= AGREEMENT * two_norm(product)):
            self._agreed = self.ladder[0]
        return self._agreed == self.ladder[0]

    def _jvp_forward(self, t: Time, y: Tensor, v: Tensor) -> Tensor | None:
        try:
            with torch.no_grad(), dual_level():
                out = self.evaluate(t, forward_ad.make_dual(y, v))
                tangent = forward_ad.unpack_dual(out).tangent
        except REFUSALS:  # whatever f dislikes about dual numbers; its own errors come out of a plain call
            return None
        # No tangent: f does not depend on y, or it detached its input. A finite difference tells.
        return None if tangent is None else tangent.detach()

    def _jvp_double_backward(self, t: Time, y: Tensor, v: Tensor) -> Tensor | None:
        try:
            with torch.enable_grad():
                z = y.detach().requires_grad_()
                out = self.evaluate(t, z)
                u = torch.zeros_like(out, requires_grad=True)
                began = perf_counter()
                (pulled,) = torch.autograd.grad(out, z, u, create_graph=True)
                (pushed,) = torch.autograd.grad(pulled, u, v)
                self.seconds += perf_counter() - began
        except REFUSALS:
            return None
        return pushed.detach()

    def difference(self, t: Time, y: Tensor, v: Tensor, f0: Tensor | None, part: float = 1.0) -> Tensor:
        """(f(y + e v) - f(y)) / e, with e for half the digits (Brown & Saad 1990), or a part of that."""
        if f0 is None:
            f0 = self(t, y)
        e = part * step_along(y, v)
        with torch.no_grad():
            return (self.evaluate(t, (y + e * v).detach()).detach() - f0) / e

    def jacobian(self, t: Time, y: Tensor) -> Tensor:
        """The dense df/dy, `(n, n)`: by products from the left, as few as its zeros allow, or by differences."""
        matrix = self.jacobian_entries(t, y)
        if matrix is not None:
            return matrix.dense() if isinstance(matrix, Compressed) else matrix
        n = y.shape[-1]
        self.stats.count("n_jac", n)
        f0 = self(t, y).detach()
        eye = torch.eye(n, dtype=y.dtype, device=y.device)
        return torch.stack([self.difference(t, y, column, f0) for column in eye], dim=1)

    def jacobian_entries(self, t: Time, y: Tensor, *, full: bool = True) -> Tensor | Compressed | None:
        """df/dy by its entries where a pattern of them is known; else dense, or without `full` None."""
        known, look = self.learned.get("pattern"), "looked" not in self.learned
        made = self._from_graph(t, y, lambda out, z: jacobian_rows(out, z, known, look=look, full=full))
        if made is None:
            return None
        self.stats.count("n_jac", made.products)
        if made.pattern is not None:
            self.remember(made.pattern)
        return made.matrix

    def remember(self, pattern: Pattern) -> None:
        """Where the entries of the Jacobian are."""
        if pattern is not self.learned.get("pattern"):
            self.learned["pattern"] = pattern
            self.learned.pop("layout", None)

    @property
    def jacobian_price(self) -> int:
        """The products that the next dense Jacobian will take, as far as is known."""
        return price_of(self.learned.get("pattern"), self.size)

    def has_stencil(self, t: Time, y: Tensor) -> bool:
        """Whether a few products make the Jacobian; asked for the first time, three products tell."""
        if "pattern" not in self.learned and "looked" not in self.learned and self.ladder:
            found = self._from_graph(t, y, stencil)
            self.stats.count("n_jac", PROBES)
            self.learned["looked"] = True
            if found is not None:
                self.learned["pattern"] = found
        pattern: Pattern | None = self.learned.get("pattern")
        return pattern is not None and pattern.passes > 0

    @property
    def layout(self) -> Layout | None:
        """The order of unknowns in which the Jacobian is a narrow band, if its pattern is known and has one."""
        pattern: Pattern | None = self.learned.get("pattern")
        if pattern is None or not pattern.passes:
            return None
        if "layout" not in self.learned:
            self.learned["layout"] = layout_of(pattern)
        found: Layout | None = self.learned["layout"]
        return found

    def _from_graph(self, t: Time, y: Tensor, make: Callable[[Tensor, Tensor], Made]) -> Made | None:
        """What `make` makes of f at y and of y; None where autograd is of no use."""
        if not self.ladder:
            return None
        self.stats.count("n_f")
        try:
            with torch.enable_grad():
                z = y.detach().requires_grad_()
                out = self.evaluate(t, z)
                began = perf_counter()
                made = make(out, z) if out.requires_grad else None
                self.seconds += perf_counter() - began
                return made
        except RuntimeError:  # what autograd refuses, such as tensors of inference mode; f's own errors come again
            return None

    def has_derivative(self, t: Time, y: Tensor) -> bool:
        """Whether df/dy is finite, as far as one product tells."""
        with torch.no_grad():
            return all_finite(self.jvp(t, y, rough_signs(y, 3).expand_as(y)))

    def depends_on_state(self, t: Time, y: Tensor) -> bool:
        """Whether f moves with y, by a difference: what autograd should have seen."""
        with torch.no_grad():
            self.stats.count("n_jvp")
            return anywhere(self.difference(t, y, rough_signs(y, 3).expand_as(y), None) != 0)

    def degrade(self) -> bool:
        """Give up the present way to make products; False if there is no other left."""
        self.failures = 0
        if self.ladder:
            self.ladder.pop(0)
            return True
        return False

    def gain(self, t: Time, y: Tensor, f0: Tensor, *, fresh: bool = False) -> float:
        """|J v| / |v| for a rough v of random signs: what an ulp of noise in y does to f, and about half
        the largest eigenvalue for a Laplacian. One evaluation, every so often: in between the last value serves."""
        if self.last_gain is not None and not fresh and self._gain_age < GAIN_LASTS:
            self._gain_age += 1
            return self.last_gain
        signs = rough_signs(y, 0)
        self.stats.count("n_f")
        product = self.difference(t, y, signs.expand_as(y), f0)
        self.last_gain = _gained(product, signs)
        self._gain_age = 0
        return self.last_gain

    def first_gain(self, t: Time, y: Tensor, f0: Tensor, enough: float) -> float:
        """`gain`, and where it is more than `enough` a second look: the root of |J J v| / |v| is no less where J is
        normal, but of oscillators `q'' = -K q` it is a frequency, where `gain` is the square of one."""
        signs = rough_signs(y, 0).expand_as(y)
        self.stats.count("n_f")
        product = self.difference(t, y, signs, f0)
        self.last_gain, self._gain_age = _gained(product, signs), 0
        if not self.last_gain > enough:
            return self.last_gain
        self.stats.count("n_f")
        return min(self.last_gain, _gained(self.difference(t, y, product, f0), signs) ** 0.5)


def _gained(product: Tensor, v: Tensor) -> float:
    """|J v| / |v|, of a batch the largest."""
    return float((dot(product, product) / dot(v, v)).max().sqrt())


def step_along(y: Tensor, v: Tensor) -> Tensor:
    """e for half the digits of y + e v."""
    size = rms_norm(v)
    if not bool((size > 0).all()):
        size = torch.where(size > 0, size, torch.ones_like(size))
    return torch.finfo(y.dtype).eps ** 0.5 * (1.0 + rms_norm(y)) / size
