"""Tables and sentences of the pages of advice, from docs/results/advice.json (`python -m benchmarks.advice`)."""

from __future__ import annotations

from textwrap import fill
from typing import Any

from paste_work_precision import power
from pasting import load, markdown, shown

Row = dict[str, Any]


def rows(part: str) -> list[Row]:
    return load("advice")["parts"][part]["rows"]


def by(part: str, *names: str) -> dict[Any, Row]:
    """The rows of a part by the values of these names."""
    return {tuple(row[name] for name in names) if names[1:] else row[names[0]]: row for row in rows(part)}


def samples() -> str:
    """A batch in common and in own steps."""
    found = []
    for row in rows("samples"):
        costs = [f(row[name]) for name in ("common", "own") for f in (_nfe, _seconds)]
        found.append([str(row["samples"]), f"{row['low']:g} to {row['high']:g}", f"`{row['method']}`", *costs])
    heads = ["samples", "mu", "method", "common: NFE", "s", "own steps: NFE", "s"]
    return markdown(heads, found, words=3)


def _nfe(cost: Row) -> str:
    return f"{cost['nfe_forward']:,} + {cost['nfe_backward']:,}"


def _seconds(cost: Row) -> str:
    return f"{cost['seconds']:.2f}"


def said(text: str) -> str:
    return fill(text, 120, break_long_words=False, break_on_hyphens=False)


def quickstart() -> str:
    """Seconds of the training of the quickstart."""
    found = by("quickstart", "method")
    auto, bdf2 = found["auto"], found["bdf2"]
    return said(
        f"The training above takes {auto['seconds']:.1f} s by `auto` and {bdf2['seconds']:.1f} s by `bdf2` on one core "
        f"and comes to a loss of {auto['last']:.4f} and {bdf2['last']:.4f}."
    )


def direct() -> str:
    """`direct` beside `implicit` on heat."""
    found = by("direct", "points", "gradient")
    small, other, large = found[64, "direct"], found[64, "implicit"], found[128, "direct"]
    assert small["status"] == "SUCCESS" and large["status"] == "DIRECT_NOT_CONVERGED"
    return said(
        f"Heat on a ring of 64 points took {small['seconds']:.2f} s by `direct` and {other['seconds']:.2f} s by "
        f"`implicit`; on 128 points `direct` gave up after {large['seconds']:.1f} s (`{large['status']}`)."
    )


def second() -> str:
    """What a second derivative costs."""
    (row,) = rows("second")
    return said(
        "For a network with decay at rates from 1 to 1000 beside it, 12 unknowns in float64, `bdf` at 1e-6 "
        f"({row['steps']} steps), the solve takes {row['solve']:.2f} s, its gradient {row['gradient']:.2f} s, the same "
        f"with `create_graph=True` {row['with_graph']:.2f} s, and the derivative of that by all parameters "
        f"{row['second']:.2f} s more."
    )


def sensitivity() -> str:
    """Errors of values and of derivatives."""
    found = by("sensitivity", "gradient", "rtol")
    lines = []
    for rtol in sorted({row["rtol"] for row in rows("sensitivity")}, reverse=True):
        one, other = found["implicit", rtol], found["continuous", rtol]
        lines.append([power(rtol), *(f"{value:.0e}" for value in (one["value"], one["slope"], other["slope"]))])
    return markdown(["rtol", "value", "derivative, `implicit`", "derivative, `continuous`"], lines)


def resident() -> str:
    """Growth of a process, in states a step."""
    found = []
    for row in rows("resident"):
        how = "as it is" if row["threshold"] is None else f"`MALLOC_MMAP_THRESHOLD_={row['threshold']}`"
        found.append([f"{row['size']:,}", f"{4 * row['size'] / 1000:,.0f} kB", how, f"{row['states_a_step']:.1f}"])
    heads = ["numbers in a state", "float32", "allocator", "states by which the process grows for a step"]
    return markdown(heads, found, words=3)


def grid() -> str:
    """Memory with a network in every cell of a ring."""
    found = by("grid", "gradient", "steps")
    steps = sorted({row["steps"] for row in rows("grid")})
    lines = []
    for gradient in ("implicit", "checkpoint"):
        cells = [f"{found[gradient, n]['states']:,.0f} ({found[gradient, n]['resident']:,.0f})" for n in steps]
        lines.append([f"`{gradient}`", *cells])
    return markdown(["states in use (growth of the process)", *(f"{n:,} steps" for n in steps)], lines)


def explicit() -> str:
    """Memory with explicit steps."""
    found = by("explicit", "gradient", "steps")
    steps = sorted({row["steps"] for row in rows("explicit")})
    lines = []
    for gradient in ("implicit", "checkpoint", "continuous"):
        lines.append([f"`{gradient}`", *(f"{found[gradient, n]['states']:,.0f}" for n in steps)])
    return markdown(["states in use, `rk4`", *(f"{n:,} steps" for n in steps)], lines)


def measured() -> str:
    """What the advice of a diagnosis rests on."""
    lines = []
    for row in rows("oscillatory"):
        lines.append(["32 masses on springs, t to 100", f"`{row['method']}` at 1e-4", *_figures(row), ""])
    for row in rows("plane"):
        way = row["way"].replace(", ", "`, `")
        cost = f"{row['seconds']:.2f}"
        lines.append(["Brusselator on 64 x 64 points, t to 1", f"`{way}` at {row['rtol']:.0e}", *_figures(row), cost])
    return markdown(["problem", "way", "largest error", "NFE", "s"], lines, words=2)


def _figures(row: Row) -> tuple[str, str]:
    return f"{row['error']:.0e}", f"{row['nfe']:,}"


def high_order() -> str:
    """NFE of dopri8 for the error of dopri5 at two tolerances."""
    found = by("high_order", "problem", "rtol")
    tolerances = sorted({row["rtol"] for row in rows("high_order")}, reverse=True)
    lines = []
    for problem in dict.fromkeys(row["problem"] for row in rows("high_order")):
        mine = [found[problem, rtol] for rtol in tolerances]
        lines.append([problem, *(shown(row[name], "{:,}") for row in mine for name in ("dopri5", "dopri8"))])
    heads = [head for rtol in tolerances for head in (f"`dopri5` at {power(rtol)}", "`dopri8`, same error")]
    return markdown(["NFE", *heads], lines)


GRADIENTS = {f.__name__: f for f in (direct, second, sensitivity, resident, explicit, grid)}
DIAGNOSE = (measured, high_order)
