"""Data of the implicit one-step methods: multi-stage proximal schemes and a diagonally implicit method."""

from .tableaus import DirkTableau, ProximalTableau

_ZEG = (
    "Zaitzeff, Esedoglu, Garikipati, Variational extrapolation of implicit schemes for general gradient "
    "flows, SIAM J. Numer. Anal. 58, 2020"
)

# Order 2, 3 stages, unconditionally energy stable, |R| <= 1 on the left half plane, R(infinity) = 0.
MULTISTAGE2 = ProximalTableau(
    name="multistage2",
    order=2,
    rows=((5.0,), (-2.0, 6.0), (-2.0, 3 / 14, 44 / 7)),
    source=_ZEG,
)

# Order 3, 6 stages, unconditionally energy stable, R(infinity) = 0, but |R(iy)| up to 1.33: for gradient
# flows. The published matrix has two decimals and weights that sum to 0.998; this is the nearest matrix that
# satisfies the four order conditions (no entry moves by more than 0.0032), from tools/derive_multistage3.py.
# fmt: off
MULTISTAGE3 = ProximalTableau(
    name="multistage3",
    order=3,
    rows=(
        (11.168591318488312,),
        (-7.500472364595227, 19.429238445800266),
        (-1.0495693031455773, -4.750976884506533, 13.977985930978038),
        (1.7996330647022096, 0.04854934198157021, -7.8326839466449245, 13.796888034413739),
        (6.199446306921578, -7.170914983184737, -1.3313802379085125, 1.6282581494301622, 11.518914816922424),
        (
            -2.8320285787828046, 4.687898711829304, 2.457784084592181,
            -11.552301183445291, 6.6780881021748835, 11.948719617579181,
        ),
    ),
    source=_ZEG,
)
# fmt: on

# Order 4, 5 stages, L-stable, stiffly accurate, gamma = 1/4.
SDIRK4 = DirkTableau(
    name="sdirk4",
    order=4,
    a=(
        (1 / 4,),
        (1 / 2, 1 / 4),
        (17 / 50, -1 / 25, 1 / 4),
        (371 / 1360, -137 / 2720, 15 / 544, 1 / 4),
        (25 / 24, -49 / 48, 125 / 16, -85 / 12, 1 / 4),
    ),
    b=(25 / 24, -49 / 48, 125 / 16, -85 / 12, 1 / 4),
    c=(1 / 4, 3 / 4, 11 / 20, 1 / 2, 1.0),
    source="Hairer, Wanner, Solving Ordinary Differential Equations II, Table IV.6.5",
)

MULTISTAGE: dict[str, ProximalTableau] = {tableau.name: tableau for tableau in (MULTISTAGE2, MULTISTAGE3)}
