"""Derive the third-order multi-stage proximal scheme from the matrix that is printed with two decimals.

The printed matrix is not consistent (its weights sum to 0.998). We look for the matrix nearest to it, in the
sum of squares of the 21 changes, that satisfies the four conditions of order three:

    sum b = 1,   b.c = 1/2,   b.c^2 = 1/3,   b.A.c = 1/6.

Each iteration takes the smallest change d that satisfies the conditions linearised at the current matrix,
`J d = J d_old - g`. At its fixed point g = 0 and d lies in the range of J^T: the conditions of Lagrange.
The curvature times the change is about 1e-3, so three digits are gained per iteration. Plain decimals with
twice the digits needed make a central difference quotient serve as the Jacobian.

Run `python tools/derive_multistage3.py`; it exits with 1 if the stored scheme is another one.
"""

import sys
from collections.abc import Sequence
from decimal import Decimal, localcontext
from itertools import pairwise

from proxode.methods.order_conditions import elementary_weights, order_residuals
from proxode.methods.proximal_tableaus import MULTISTAGE
from proxode.methods.tableaus import ProximalTableau

PRINTED = """
11.17
-7.5   19.43
-1.05  -4.75  13.98
 1.8    0.05  -7.83   13.8
 6.2   -7.17  -1.33    1.63  11.52
-2.83   4.69   2.46  -11.55   6.68  11.95
"""
STAGES = 6
DIGITS = 120
INCREMENT = Decimal("1e-30")  # of the difference quotient: truncation 1e-60, rounding 1e-90
ACCURACY = Decimal("1e-50")

Vector = list[Decimal]


def split(entries: Sequence[Decimal]) -> list[Vector]:
    """The lower triangular rows of 21 numbers."""
    starts = [m * (m + 1) // 2 for m in range(STAGES + 1)]
    return [list(entries[start:stop]) for start, stop in pairwise(starts)]


def dot(x: Sequence[Decimal], y: Sequence[Decimal]) -> Decimal:
    return sum((p * q for p, q in zip(x, y, strict=False)), Decimal(0))


def conditions(entries: Sequence[Decimal]) -> Vector:
    """Residuals of the four order conditions."""
    a: list[Vector] = []
    for row in split(entries):
        total = sum(row, Decimal(0))
        # Column j of the earlier stages starts at stage j.
        combined = [dot(row[j + 1 :], [stage[j] for stage in a[j:]]) for j in range(len(a))]
        a.append([entry / total for entry in combined] + [1 / total])
    b = a[-1]
    c = [sum(row, Decimal(0)) for row in a]
    a_c = [dot(row, c) for row in a]
    return [
        sum(b, Decimal(0)) - 1,
        dot(b, c) - 1 / Decimal(2),
        dot(b, [node * node for node in c]) - 1 / Decimal(3),
        dot(b, a_c) - 1 / Decimal(6),
    ]


def gradients(entries: Vector) -> list[Vector]:
    """One row per condition: its derivatives with respect to the entries."""
    columns = []
    for k in range(len(entries)):
        up, down = list(entries), list(entries)
        up[k] += INCREMENT
        down[k] -= INCREMENT
        pairs = zip(conditions(up), conditions(down), strict=True)
        columns.append([(above - below) / (2 * INCREMENT) for above, below in pairs])
    return [list(row) for row in zip(*columns, strict=True)]


def solve(matrix: list[Vector], right: Vector) -> Vector:
    """Gauss-Jordan elimination of a small positive definite system."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for k, pivot in enumerate(rows):
        pivot[:] = [entry / pivot[k] for entry in pivot]
        for row in rows:
            if row is not pivot:
                row[:] = [entry - row[k] * other for entry, other in zip(row, pivot, strict=True)]
    return [row[-1] for row in rows]


def derive() -> tuple[list[Vector], list[Vector]]:
    """The rows of the scheme and their changes from the printed ones."""
    with localcontext() as context:
        context.prec = DIGITS
        printed = [Decimal(entry) for entry in PRINTED.split()]
        change = [Decimal(0)] * len(printed)
        for _ in range(100):
            entries = [p + d for p, d in zip(printed, change, strict=True)]
            jacobian = gradients(entries)
            target = [dot(row, change) - g for row, g in zip(jacobian, conditions(entries), strict=True)]
            multipliers = solve([[dot(p, q) for q in jacobian] for p in jacobian], target)
            nearest = [dot(multipliers, column) for column in zip(*jacobian, strict=True)]
            correction = max(abs(n - d) for n, d in zip(nearest, change, strict=True))
            change = nearest
            if correction < ACCURACY:
                return split([p + d for p, d in zip(printed, change, strict=True)]), split(change)
    raise ArithmeticError("the derivation did not converge")


def main() -> int:
    rows, changes = derive()
    scheme = ProximalTableau("derived", 3, tuple(tuple(map(float, row)) for row in rows))
    a, b, c = scheme.butcher()
    residuals = list(order_residuals(b, elementary_weights(a, 3), 3))
    stored = MULTISTAGE["multistage3"].rows
    difference = max(
        abs(kept - entry) / abs(entry)
        for kept_row, row in zip(stored, scheme.rows, strict=True)
        for kept, entry in zip(kept_row, row, strict=True)
    )

    print("rows")
    for row in scheme.rows:
        print("   ", ", ".join(f"{entry:.17g}" for entry in row))
    print("largest change per entry      ", f"{max(abs(d) for row in changes for d in row):.6f}")
    print("residuals in double precision ", ", ".join(f"{value:.1e}" for value in residuals))
    print("energy margins                ", ", ".join(f"{value:.4f}" for value in scheme.energy_margins))
    print("abscissae                     ", ", ".join(f"{value:.4f}" for value in c))
    print("relative difference to stored ", f"{difference:.1e}")
    return 0 if difference <= 1e-15 and max(map(abs, residuals)) <= 1e-14 else 1


if __name__ == "__main__":
    sys.exit(main())
