"""Coefficients of one-step methods, as frozen data that checks itself when it is built.

A tableau with a wrong entry raises `ValueError` naming the tableau and the failed condition: lengths, row
sums, every order condition up to the stated order (also of the embedded and the continuous weights), and, for
the proximal multi-stage schemes, unconditional energy stability.
The data are in `explicit_tableaus` (`EXPLICIT`) and `proximal_tableaus` (`MULTISTAGE`, `SDIRK4`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

from .order_conditions import Matrix, Row, dense_residuals, elementary_weights, order_residuals

# Rounding of the entries to double precision: the largest residual is 1e-14 (tsit5), and that of dense output
# 8e-15 relative to the largest polynomial coefficient (dopri8). A misprint is far above this.
TOLERANCE = 1e-13


def _require(name: str, holds: bool, condition: str) -> None:
    if not holds:
        raise ValueError(f"tableau {name!r}: {condition}")


def _require_zero(
    name: str, residuals: Iterable[float], condition: str, tolerance: float = TOLERANCE
) -> None:
    largest = max(map(abs, residuals))
    _require(name, largest <= tolerance, f"{condition} (largest residual {largest:.2e})")


def _require_row_sums(name: str, a: Matrix, c: Row) -> None:
    residuals = (sum(row) - node for row, node in zip(a, c, strict=True))
    _require_zero(name, residuals, "the rows of a must sum to c")


def _require_order(name: str, b: Row, weights: list[Row], order: int, label: str = "b") -> None:
    condition = f"{label} must satisfy the order conditions up to order {order}"
    _require_zero(name, order_residuals(b, weights, order), condition)


@dataclass(frozen=True)
class ExplicitTableau:
    """Explicit Runge-Kutta method `k_i = f(t + c_i h, y + h sum_j a_ij k_j)`, `y1 = y + h sum_i b_i k_i`.

    A method that ends with `f(t1, y1)` (FSAL) has that evaluation as an ordinary last stage of weight zero.
    """

    name: str
    order: int  # of b
    c: Row
    a: Matrix  # strictly lower triangular, row i has i entries
    b: Row
    b_error: Row | None = None  # b - b_hat; the error estimate is h sum_i b_error_i k_i
    error_order: int | None = None  # of the embedded solution b_hat
    # DOP853 has a second embedded solution. With the norms error_5 from b_error and error_3 from b_error_low,
    # its estimate is error_5**2 / sqrt(error_5**2 + 0.01 * error_3**2); the stepper makes this combination.
    b_error_low: Row | None = None
    error_order_low: int | None = None
    dense: Matrix | None = None  # b_i(theta) = sum_j dense[i][j] * theta**(j + 1), also of the extra stages
    dense_order: int | None = None
    c_dense: Row = ()  # extra stages, evaluated only when dense output is asked for
    a_dense: Matrix = ()
    source: str = ""

    @property
    def stages(self) -> int:
        return len(self.b)

    @property
    def fsal(self) -> bool:
        """Whether the last stage is `f(t1, y1)` and so the first stage of the next step."""
        return self.c[-1] == 1 and (*self.a[-1], 0.0) == self.b

    def __post_init__(self) -> None:
        self._check_lengths()
        a = self.a + self.a_dense
        _require_row_sums(self.name, a, self.c + self.c_dense)
        orders = (self.order, self.error_order, self.error_order_low, self.dense_order)
        weights = elementary_weights(a, max(order or 1 for order in orders))
        _require_order(self.name, self.b, weights, self.order)
        for label, b_error, order in self._embedded():
            if b_error is not None and order is not None:
                b_hat = tuple(weight - error for weight, error in zip(self.b, b_error, strict=True))
                _require_order(self.name, b_hat, weights, order, f"b - {label}")
        if self.dense is not None and self.dense_order is not None:
            self._check_dense(self.dense, weights, self.dense_order)

    def _embedded(self) -> Iterator[tuple[str, Row | None, int | None]]:
        yield "b_error", self.b_error, self.error_order
        yield "b_error_low", self.b_error_low, self.error_order_low

    def _check_lengths(self) -> None:
        require = partial(_require, self.name)
        s, extra = self.stages, len(self.c_dense)
        require(len(self.c) == len(self.a) == s > 0, "a, b and c must have one entry per stage")
        require(len(self.a_dense) == extra, "a_dense and c_dense must have one entry per extra stage")
        rows = enumerate(self.a + self.a_dense)
        require(all(len(row) == i for i, row in rows), "row i of a must have i entries")
        for label, b_error, order in self._embedded():
            require((b_error is None) == (order is None), f"{label} and its order belong together")
            require(b_error is None or len(b_error) == s, f"{label} must have one entry per stage")
        require((self.dense is None) == (self.dense_order is None), "dense and its order belong together")
        if self.dense is None:
            require(extra == 0, "extra stages need dense")
        else:
            require(len(self.dense) == s + extra, "dense must have one row per stage, extra ones too")
            require(len(set(map(len, self.dense))) == 1, "rows of dense must have equal lengths")

    def _check_dense(self, dense: Matrix, weights: list[Row], order: int) -> None:
        tolerance = TOLERANCE * max(1.0, *(abs(coefficient) for row in dense for coefficient in row))
        condition = f"dense must satisfy the continuous order conditions up to order {order}"
        _require_zero(self.name, dense_residuals(dense, weights, order), condition, tolerance)
        b = self.b + (0.0,) * len(self.c_dense)
        ends = (sum(row) - weight for row, weight in zip(dense, b, strict=True))
        _require_zero(self.name, ends, "dense must equal b at theta = 1", tolerance)


@dataclass(frozen=True)
class DirkTableau:
    """Diagonally implicit Runge-Kutta method: `y1 = y + h sum_i b_i k_i`, `k_i = f(t + c_i h, z_i)`.

    Stage i solves `z_i = y + h sum_{j<i} a_ij k_j + h a_ii f(t + c_i h, z_i)`.
    """

    name: str
    order: int
    a: Matrix  # lower triangular, row i has i + 1 entries
    b: Row
    c: Row
    source: str = ""

    @property
    def stages(self) -> int:
        return len(self.b)

    @property
    def stiffly_accurate(self) -> bool:
        """Whether `y1` is the last stage: the last row of `a` equals `b`."""
        return self.a[-1] == self.b

    def __post_init__(self) -> None:
        require = partial(_require, self.name)
        require(len(self.a) == len(self.c) == self.stages > 0, "a, b and c must have one entry per stage")
        rows = enumerate(self.a, 1)
        require(all(len(row) == i for i, row in rows), "row i of a must have i + 1 entries")
        _require_row_sums(self.name, self.a, self.c)
        _require_order(self.name, self.b, elementary_weights(self.a, self.order), self.order)


@dataclass(frozen=True)
class ProximalTableau:
    """Multi-stage proximal scheme: with `z^0 = y0`, stage m = 1..M solves

        z = sum_i rows[m-1][i] z^i / G_m + (h / G_m) f(t + c_m h, z),   G_m = sum_i rows[m-1][i],

    and `y1 = z^M`. It is a stiffly accurate, diagonally implicit Runge-Kutta method. With `f = -grad F` and
    all energy margins positive, a step of any length decreases F.
    Source: Zaitzeff, Esedoglu, Garikipati, Variational extrapolation of implicit schemes, 2020.
    """

    name: str
    order: int
    rows: Matrix  # gamma_{m,i}: row m (from 0) has m + 1 entries
    source: str = ""

    @property
    def stages(self) -> int:
        return len(self.rows)

    @cached_property
    def sums(self) -> Row:
        """`G_m`."""
        return tuple(sum(row) for row in self.rows)

    @cached_property
    def anchor_weights(self) -> Matrix:
        """Weights of `z^0..z^{m-1}` in the anchor of stage m; each row sums to one."""
        return tuple(
            tuple(entry / total for entry in row) for row, total in zip(self.rows, self.sums, strict=True)
        )

    @cached_property
    def gammas(self) -> Row:
        """`1 / G_m`: the gamma of stage m divided by h, the diagonal of the Runge-Kutta matrix."""
        return tuple(1 / total for total in self.sums)

    @cached_property
    def c(self) -> Row:
        """Abscissae: stage m evaluates f at `t + c_m h`."""
        return self.butcher()[2]

    def butcher(self) -> tuple[Matrix, Row, Row]:
        """`(A, b, c)` of the equivalent DIRK method; A lower triangular, b its last row, c its row sums."""
        a: list[Row] = []
        for weights, gamma in zip(self.anchor_weights, self.gammas, strict=True):
            row = [0.0] * len(a)
            for weight, earlier in zip(weights[1:], a, strict=True):
                for j, entry in enumerate(earlier):
                    row[j] += weight * entry
            a.append((*row, gamma))
        return tuple(a), a[-1], tuple(map(sum, a))

    @cached_property
    def energy_margins(self) -> Row:
        """`S[m,m]`; the scheme is unconditionally energy stable when all are positive.

        Going down from m = M to 1: `g~[m,i] = g[m,i] - sum_{j>m} g~[j,i] S[j,m] / S[j,j]` with
        `S[m,k] = sum_{i<k} g~[m,i]`.
        """
        reduced = [list(row) for row in self.rows]
        for m in reversed(range(self.stages)):
            for later in reduced[m + 1 :]:
                ratio = sum(later[: m + 1]) / sum(later)
                reduced[m] = [entry - ratio * other for entry, other in zip(reduced[m], later, strict=False)]
        return tuple(map(sum, reduced))

    def __post_init__(self) -> None:
        require = partial(_require, self.name)
        require(self.stages > 0, "at least one stage is needed")
        rows = enumerate(self.rows, 1)
        require(all(len(row) == m for m, row in rows), "row m (from 0) must have m + 1 entries")
        require(all(total > 0 for total in self.sums), "every row must have a positive sum G_m")
        a, b, _ = self.butcher()
        _require_order(self.name, b, elementary_weights(a, self.order), self.order)
        margins = self.energy_margins
        require(all(margin > 0 for margin in margins), f"energy margins must be positive, they are {margins}")
