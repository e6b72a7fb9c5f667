"""Put the tables of docs/gradients.md in place, from the reports that the benchmarks wrote into docs/results.

A table stands between `<!-- table: name -->` and `<!-- end -->`; nothing else is touched.
"""

from __future__ import annotations

from paste_advice import GRADIENTS
from pasting import ROOT, load, markdown, pasted, shown

# The rows of Coauthor-CS that the page shows; the report has more.
SHOWN = (
    ("torchdiffeq odeint dopri5", "tol=1e-4"), ("torchdiffeq odeint dopri5", "tol=1e-5"),
    ("torchdiffeq odeint_adjoint dopri5", "tol=1e-4"), ("torchdiffeq odeint_adjoint dopri5", "tol=1e-5"),
    ("proxode odeint default", "tol=1e-3"), ("proxode odeint default", "tol=1e-4"),
    ("proxode odeint default, checkpoint", "tol=1e-4"), ("proxode odeint_adjoint default", "tol=1e-4"),
    ("proxode odeint bdf2", "n=24"), ("proxode odeint bdf4", "n=16"), ("proxode odeint bdf4, store_graph", "n=16"),
    ("proxode odeint crank_nicolson", "n=24"), ("proxode odeint crank_nicolson, steps ~ i^1", "n=12"),
)  # fmt: skip


def coauthor() -> str:
    found = {(row["family"], row["setting"]): row for row in load("gradients_coauthor")["rows"]}
    forms = {
        "nfe_forward": "{:,}", "nfe_backward": "{:,}", "error_u0": "{:.1e}", "error_theta": "{:.1e}",
        "seconds_forward": "{:.1f}", "seconds_backward": "{:.1f}", "peak_mib": "{:,.0f}",
    }  # fmt: skip
    rows = [[*key, *(shown(found[key].get(k), form) for k, form in forms.items())] for key in SHOWN]
    heads = ["solver", "setting", "NFE forward", "NFE backward", "error of dL/du0", "error of dL/dθ", "s forward",
             "s backward", "MiB"]  # fmt: skip
    return markdown(heads, rows, words=2)


def damped() -> str:
    names = {"exact": "exact", "backward_euler": "backward Euler", "bdf2": "BDF2", "crank_nicolson": "Crank-Nicolson",
             "exact, resolved": "exact, crowded times", "bdf2, resolved": "BDF2, crowded times"}  # fmt: skip
    rows = [[f"{row['kh']:g}", *(f"{row[name]:.1e}" for name in names)] for row in load("damped_modes")["rows"]]
    return markdown(["k h", *names.values()], rows, words=0)


def memory() -> str:
    report = load("gradients_memory")["rows"]
    steps = sorted({row["steps"] for row in report})
    cells: dict[str, list[str]] = {}
    for row in report:
        cells.setdefault(row["label"], []).append(shown(row["states"], "{:,.0f}"))
    return markdown(["states in use", *(f"{n:,} steps" for n in steps)], [[k, *v] for k, v in cells.items()])


def van_der_pol() -> str:
    forms = {
        "nfe_forward": "{:,}", "nfe_backward": "{:,}", "error_theta": "{:.1e}", "seconds_forward": "{:.2f}",
        "seconds_backward": "{:.2f}",
    }  # fmt: skip
    report = load("gradients_van_der_pol")["rows"]
    rows = [[row["label"], *(shown(row.get(k), form) for k, form in forms.items())] for row in report]
    return markdown(["solver", "NFE forward", "NFE backward", "error of dL/dθ", "s forward", "s backward"], rows)


def training() -> str:
    report = load("van_der_pol")
    truth = report["true_jumps"]
    rows = []
    for name in ("implicit", "continuous"):
        run = report[name]
        failed = sum(loss is None for loss in run["loss"])
        jumps = ", ".join(f"{t:.1f}" for t in run["jumps"])
        cost = [f"{run['nfe_forward']:,}", f"{run['nfe_backward']:,}", f"{run['seconds']:.0f}", str(failed)]
        rows.append([f"`{name}`", f"{run['loss'][0]:.1e}", f"{run['loss'][-1]:.1e}", *cost, jumps])
    rows.append(["truth", *[""] * 6, ", ".join(f"{t:.1f}" for t in truth)])
    return markdown(["gradient", "first loss", "last loss", "NFE forward", "NFE backward", "s", "failed solves",
                     "x = 0 at"], rows)  # fmt: skip


TABLES = {f.__name__: f for f in (coauthor, damped, memory, van_der_pol, training)} | GRADIENTS


if __name__ == "__main__":
    path = ROOT / "docs/gradients.md"
    path.write_text(pasted(path.read_text(), TABLES))
    print(f"updated {path.name}")
