"""The spectrum of the Jacobian at one place: all of it for small states, its rim for large ones."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..vector_field import REFUSALS, VectorField
from .krylov import arnoldi, skew_part

DENSE = 100  # unknowns up to which all eigenvalues are computed
KRYLOV = 60  # products for the rim of the spectrum of larger ones, at most
SYMMETRIC = 1e-6  # |J - J^T| / |J| below which J is taken for symmetric, in float64;
ROUNDING = 1e3  # ulp of float32, where that is more;
BY_DIFFERENCES = 1e-3  # where products are differences of f
ZERO = 1e-12  # of the radius: an eigenvalue that is zero to rounding in float64 (in float32 and by differences larger)
REAL = 1e-2  # of the radius: imaginary parts up to which a spectrum is called real
NORMAL = 1e-8  # relative difference of |J v| and |J^T v| that rounding may make, in float64


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues of df/dy at a place (`exact`), or Ritz values. The rim of those is that of the eigenvalues to `moved`
    if J is `normal`; else it lies between them and the field of values, and the eigenvalues may be further inside."""

    values: Tensor  # complex128
    exact: bool
    asymmetry: float  # |J - J^T| / |J| in the norm of Frobenius: 0 symmetric, 2 antisymmetric
    noise: float  # relative size below which an eigenvalue is zero
    even: float = SYMMETRIC  # asymmetry up to which it may be rounding
    moved: float = 0.0
    normal: bool = True

    @property
    def radius(self) -> float:
        """The largest |lambda|."""
        return float(self.values.abs().max())

    @property
    def left(self) -> float:
        """The most negative real part."""
        return float(self.values.real.min())

    @property
    def right(self) -> float:
        """The most positive real part."""
        return float(self.values.real.max())

    @property
    def imaginary(self) -> float:
        """The largest imaginary part."""
        return float(self.values.imag.abs().max())

    @property
    def zeros(self) -> int:
        """Eigenvalues whose real part is zero to rounding, which the stiffness ratio leaves out."""
        return int((self.values.real.abs() <= self.noise * self.radius).sum())

    @property
    def ratio(self) -> float | None:
        """The stiffness ratio Q = max |Re lambda| / min |Re lambda| of the paper, over those that are not zero; of Ritz
        values a lower bound, for small eigenvalues inside of the spectrum are not seen. None where there is none."""
        sizes = self.values.real.abs()
        kept = sizes[sizes > self.noise * self.radius]
        return float(kept.max() / kept.min()) if len(kept) else None

    @property
    def symmetric(self) -> bool:
        """Whether the Jacobian is symmetric, to rounding."""
        return self.asymmetry <= self.even

    @property
    def real(self) -> bool:
        """Whether the eigenvalues are real, to rounding."""
        return self.imaginary <= REAL * self.radius


def spectrum(f: VectorField, t: float, y: Tensor, krylov: int, probes: Tensor) -> Spectrum | None:
    """At (t, y) in the solver's direction of time; None where a product is not finite. `probes` are directions of
    random entries; the first begins the Krylov space, the others tell about symmetry."""
    by_differences = not f.ladder
    eps = torch.finfo(y.dtype).eps
    noise = max(ZERO, 100 * (math.sqrt(eps) if by_differences else eps))
    even = BY_DIFFERENCES if by_differences else max(SYMMETRIC, ROUNDING * eps)
    if y.numel() <= DENSE:
        matrix = f.jacobian(t, y).detach().double().cpu()
        if not bool(torch.isfinite(matrix).all()):
            return None
        asymmetry = skew_part(matrix)
        if asymmetry <= even:
            values = torch.linalg.eigvalsh((matrix + matrix.T) / 2).to(torch.complex128)
        else:
            values = torch.linalg.eigvals(matrix)
        return Spectrum(values, True, asymmetry, noise, even)
    f0 = f(t, y) if by_differences else None
    products = [f.jvp(t, y, probe, f0) for probe in probes[1:]]
    asymmetry = asymmetry_of(products, probes[1:])
    if not math.isfinite(asymmetry):
        return None
    normal = asymmetry <= even or is_normal(f, t, y, probes[1], products[0])
    spent = 0 if asymmetry <= even else 2  # by that question
    found = arnoldi(lambda v: f.jvp(t, y, v, f0), probes[0], max(krylov - spent, 1), even=even)
    if not bool(torch.isfinite(found.values).all()):
        return None
    if found.skew > even >= asymmetry:  # what a few products missed, the way to the largest eigenvalues has not
        asymmetry, normal = min(found.skew, 2.0), False
    return Spectrum(found.values, False, asymmetry, noise, even, found.moved, normal)


def asymmetry_of(products: list[Tensor], probes: Tensor) -> float:
    """|J - J^T| / |J| from products with random vectors: <u, J v> - <v, J u> has the mean square |J - J^T|^2 over such
    pairs, and J v the mean square |J|^2. It is an estimate, and never more than the 2 of an antisymmetric J."""
    crossed = probes.double() @ torch.stack(products).double().T  # <u_i, J u_j>
    apart = crossed - crossed.T
    pairs = len(probes) * (len(probes) - 1)
    size = float(sum(torch.linalg.vector_norm(p.double()) ** 2 for p in products)) / len(probes)
    if size == 0:
        return 0.0
    found = math.sqrt(float((apart**2).sum()) / pairs / size)
    return min(found, 2.0) if math.isfinite(found) else found


def is_normal(f: VectorField, t: float, y: Tensor, v: Tensor, product: Tensor) -> bool:
    """Whether |J v| = |J^T v|, as for every v if J J^T = J^T J; by one product with the transpose. Where that cannot be
    had it is taken for not normal."""
    if not f.ladder:
        return False
    try:
        with torch.enable_grad():
            z = y.detach().requires_grad_()
            out = f.graph(t, z)
            f.stats.count("n_vjp")
            pulled = torch.autograd.grad(out, z, v)[0]
    except REFUSALS:
        return False
    sizes = [float(torch.linalg.vector_norm(x.double())) for x in (product, pulled)]
    allowed = max(NORMAL, math.sqrt(y.numel()) * torch.finfo(y.dtype).eps)
    return abs(sizes[0] - sizes[1]) <= allowed * max(sizes)
