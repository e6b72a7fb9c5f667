"""Data of the explicit Runge-Kutta methods, with embedded error estimates and continuous extensions.

None of them is A-stable. Each entry states its order, stages and source; `tableaus` checks them when built.
HNW is Hairer, Norsett, Wanner, Solving Ordinary Differential Equations I, second edition.
"""

from dataclasses import replace

from .dopri8_tableau import DOPRI8
from .order_conditions import Matrix, Row
from .tableaus import ExplicitTableau


def _hermite_dense(b: Row, d: Row) -> Matrix:
    """Continuous weights of an FSAL method: cubic Hermite interpolation plus `theta^2 (1 - theta)^2 d_i`.

    The Hermite part alone has order 3; the quartic keeps values and slopes at both ends and can add an order.
    """
    first = (1.0,) + (0.0,) * (len(b) - 1)
    return tuple(
        (k0, 3 * weight - 2 * k0 - k1 + bump, k0 + k1 - 2 * weight - 2 * bump, bump)
        for weight, k0, k1, bump in zip(b, first, reversed(first), d, strict=True)
    )


# Order 1, 1 stage.
EULER = ExplicitTableau(
    name="euler",
    order=1,
    c=(0.0,),
    a=((),),
    b=(1.0,),
    dense=((1.0,),),
    dense_order=1,
    source="Euler 1768; HNW II.1",
)

# Order 2, 2 stages.
MIDPOINT = ExplicitTableau(
    name="midpoint",
    order=2,
    c=(0.0, 1 / 2),
    a=((), (1 / 2,)),
    b=(0.0, 1.0),
    dense=((1.0, -1.0), (0.0, 1.0)),
    dense_order=2,
    source="Runge 1895; HNW II.1",
)

# Order 2, 2 stages: the explicit trapezoidal rule.
HEUN2 = ExplicitTableau(
    name="heun2",
    order=2,
    c=(0.0, 1.0),
    a=((), (1.0,)),
    b=(1 / 2, 1 / 2),
    dense=((1.0, -1 / 2), (0.0, 1 / 2)),
    dense_order=2,
    source="Heun 1900; HNW II.1",
)

# Order 4, 4 stages: the 3/8 rule, which torchdiffeq also runs under this name. Its only continuous extension
# from these stages has order 3.
RK4 = ExplicitTableau(
    name="rk4",
    order=4,
    c=(0.0, 1 / 3, 2 / 3, 1.0),
    a=((), (1 / 3,), (-1 / 3, 1.0), (1.0, -1.0, 1.0)),
    b=(1 / 8, 3 / 8, 3 / 8, 1 / 8),
    dense=((1.0, -15 / 8, 1.0), (0.0, 15 / 8, -3 / 2), (0.0, 3 / 8, 0.0), (0.0, -3 / 8, 1 / 2)),
    dense_order=3,
    source="Kutta 1901; HNW Table II.1.2",
)

# Order 2, 2 stages, embedded Euler of order 1; the second-order solution is propagated.
ADAPTIVE_HEUN = replace(HEUN2, name="adaptive_heun", b_error=(-1 / 2, 1 / 2), error_order=1)

# Order 3, 4 stages FSAL, embedded order 2; cubic Hermite interpolation.
_BOSH3_B = (2 / 9, 1 / 3, 4 / 9)
BOSH3 = ExplicitTableau(
    name="bosh3",
    order=3,
    c=(0.0, 1 / 2, 3 / 4, 1.0),
    a=((), (1 / 2,), (0.0, 3 / 4), _BOSH3_B),
    b=(*_BOSH3_B, 0.0),
    b_error=(-5 / 72, 1 / 12, 1 / 9, -1 / 8),
    error_order=2,
    dense=((1.0, -4 / 3, 5 / 9), (0.0, 1.0, -2 / 3), (0.0, 4 / 3, -8 / 9), (0.0, -1.0, 1.0)),
    dense_order=3,
    source="Bogacki, Shampine, A 3(2) pair of Runge-Kutta formulas, Appl. Math. Lett. 2, 1989",
)


def _four_stages(c2: float, c3: float) -> tuple[Matrix, Row]:
    """a and b of the method of order 4 with four stages and these nodes beside 0 and 1 (Kutta 1901)."""
    b2 = (2 * c3 - 1) / (12 * c2 * (c3 - c2) * (1 - c2))
    b3 = (1 - 2 * c2) / (12 * c3 * (c3 - c2) * (1 - c3))
    b4 = (6 * c2 * c3 - 4 * (c2 + c3) + 3) / (12 * (1 - c2) * (1 - c3))
    a43 = b3 * (1 - c3) / b4
    a32 = 1 / (24 * b4 * a43 * c2)
    a42 = (b2 * (1 - c2) - b3 * a32) / b4
    return ((), (c2,), (c3 - a32, a32), (1 - a42 - a43, a42, a43)), (1 - b2 - b3 - b4, b2, b3, b4)


def _order_three_change(a: Matrix, b: Row, c2: float, c3: float) -> Row:
    """The change of the weights (b, 0) by which order 3 is kept where f(t1, y1) is the fifth stage: one family, here
    with the change 1 of the last weight. On y' = l y it makes z^4 (z / 24 - 1 / 12), z = h l, which has no root on the
    negative axis."""
    moved = sum(x * c for x, c in zip(a[3], (0.0, c2, c3), strict=True))
    share = c3 * (1 - c3) / (c2 * (1 - c2))  # the sums with c and with c^2 are both zero
    d3 = (moved - 0.5) / (a[2][1] * c2 + moved * (share * c2 - c3))
    d2 = -share * d3
    d4 = -1.0 - d2 * c2 - d3 * c3
    return -1.0 - d2 - d3 - d4, d2, d3, d4, 1.0


# Order 4, 5 stages FSAL, embedded order 3; cubic Hermite interpolation. The nodes are those with Ralston's least bound
# on the error. The embedded solution has a free parameter, LAMBDA, as that which Dormand (Numerical methods for
# differential equations, 1996) gives the classical method: with it the estimate on y' = l y is the error at h |l| = 2,
# where steps of loose tolerances end, and 1.5 times the error at 1.
LAMBDA = 1 / 10
_RALSTON4_C = (2 / 5, (14 - 3 * 5**0.5) / 16)
_RALSTON4_A, _RALSTON4_B = _four_stages(*_RALSTON4_C)
RALSTON4 = ExplicitTableau(
    name="ralston4",
    order=4,
    c=(0.0, *_RALSTON4_C, 1.0, 1.0),
    a=(*_RALSTON4_A, _RALSTON4_B),
    b=(*_RALSTON4_B, 0.0),
    b_error=tuple(LAMBDA * d for d in _order_three_change(_RALSTON4_A, _RALSTON4_B, *_RALSTON4_C)),
    error_order=3,
    dense=_hermite_dense((*_RALSTON4_B, 0.0), (0.0,) * 5),
    dense_order=3,
    source="Ralston, Runge-Kutta methods with minimum error bounds, Math. Comp. 16, 1962",
)

# Order 5, 7 stages FSAL, embedded order 4, continuous extension of order 4. torchdiffeq takes Shampine's
# embedded weights, whose estimate is 2/3 of this one.
_DOPRI5_B = (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84)
DOPRI5 = ExplicitTableau(
    name="dopri5",
    order=5,
    c=(0.0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0),
    a=(
        (),
        (1 / 5,),
        (3 / 40, 9 / 40),
        (44 / 45, -56 / 15, 32 / 9),
        (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
        (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
        _DOPRI5_B,
    ),
    b=(*_DOPRI5_B, 0.0),
    b_error=(71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40),
    error_order=4,
    dense=_hermite_dense(
        (*_DOPRI5_B, 0.0),
        (
            -12715105075 / 11282082432,
            0.0,
            87487479700 / 32700410799,
            -10690763975 / 1880347072,
            701980252875 / 199316789632,
            -1453857185 / 822651844,
            69997945 / 29380423,
        ),
    ),
    dense_order=4,
    source="Dormand, Prince 1980, HNW Table II.5.2; dense output: Shampine 1986, HNW II.6",
)

# Order 5, 7 stages FSAL, embedded order 4, continuous extension of order 4 with continuous derivative.
_TSIT5_B = (
    0.09646076681806523,
    0.01,
    0.4798896504144996,
    1.379008574103742,
    -3.290069515436081,
    2.324710524099774,
)
TSIT5 = ExplicitTableau(
    name="tsit5",
    order=5,
    c=(0.0, 0.161, 0.327, 0.9, 0.9800255409045097, 1.0, 1.0),
    a=(
        (),
        (0.161,),
        (-0.008480655492356989, 0.335480655492357),
        (2.8971530571054935, -6.359448489975075, 4.3622954328695815),
        (5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525),
        (5.86145544294642, -12.92096931784711, 8.159367898576159, -0.071584973281401, -0.028269050394068383),
        _TSIT5_B,
    ),
    b=(*_TSIT5_B, 0.0),
    b_error=(
        0.0017800110522257714,
        0.0008164344596567469,
        -0.007880878010261995,
        0.1447110071732629,
        -0.5823571654525552,
        0.45808210592918697,
        -1 / 66,
    ),
    error_order=4,
    dense=(
        (1.0, -2.763706197274826, 2.9132554618219126, -1.0530884977290216),
        (0.0, 0.1317, -0.2234, 0.1017),
        (0.0, 3.9302962368947516, -5.941033872131505, 2.490627285651253),
        (0.0, -12.411077166933676, 30.33818863028232, -16.548102889244902),
        (0.0, 37.50931341651104, -88.1789048947664, 47.37952196281928),
        (0.0, -27.896526289197286, 65.09189467479366, -34.87065786149661),
        (0.0, 3 / 2, -4.0, 5 / 2),
    ),
    dense_order=4,
    source="Tsitouras, Runge-Kutta pairs of order 5(4) satisfying only the first column simplifying "
    "assumption, Comput. Math. Appl. 62, 2011",
)

EXPLICIT: dict[str, ExplicitTableau] = {
    tableau.name: tableau
    for tableau in (EULER, MIDPOINT, HEUN2, RK4, ADAPTIVE_HEUN, BOSH3, RALSTON4, DOPRI5, TSIT5, DOPRI8)
}
