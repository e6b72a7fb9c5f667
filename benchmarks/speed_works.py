"""The contests of the speed benchmark, and the bounds that ours is held to in each."""

from __future__ import annotations

from dataclasses import dataclass

from .contest import TOLERANCES, Entry, Rules

OURS = "proxode"
SCALING = (256, 512, 1_024, 2_048, 4_096, 8_192, 16_384)


@dataclass(frozen=True)
class Bound:
    """Ours over theirs, at most; or ours alone, where there is nobody. `what` is a column of the rows."""

    against: str | None
    what: str
    at_most: float


@dataclass(frozen=True)
class Work:
    name: str
    title: str
    entries: tuple[Entry, ...]
    rules: Rules
    bounds: tuple[Bound, ...] = ()
    size: int | None = None


def decay(size: int, turns: int) -> Work:
    where = "benchmarks.solve_decay"
    entries = (
        Entry(OURS, "proxode", f"{where}:ours", {"size": size}),
        Entry("torchdiffeq dopri5", "torchdiffeq", f"{where}:torchdiffeq_dopri5", {"size": size}),
        Entry("torchode dopri5", "torchode", f"{where}:torchode_dopri5", {"size": size}),
    )
    rules = Rules(None, turns=turns, tolerances=(1e-8,))
    bound = Bound("torchdiffeq dopri5", "seconds_per_nfe", 1 / 3)
    return Work(f"decay_{size}", f"dopri5, f(y) = -y, {size:,} unknowns", entries, rules, (bound,), size)


def diffusion(points: int, turns: int, seconds: float, error: float = 1e-6) -> Work:
    where, size = "benchmarks.solve_diffusion", {"points": points}
    tight = tuple(tol for tol in TOLERANCES if tol <= error)  # the others' errors are about their tolerances
    large = tuple(tol for tol in TOLERANCES if tol <= 3e-3) if points >= 1_024 else None  # others are too loose
    entries = [
        Entry(OURS, "proxode", f"{where}:ours", size),
        Entry("proxode rkc2", "proxode", f"{where}:ours", size | {"method": "rkc2"}),
        Entry("CVODE GMRES", "CVODE", f"{where}:cvode_gmres", size, tolerances=tight),
        Entry("CVODE GMRES, 100 vectors", "CVODE", f"{where}:cvode_gmres", size | {"vectors": 100}),
        Entry("SciPy BDF, told the zeros", "SciPy", f"{where}:scipy_bdf", size | {"told": True}),
        Entry("diffrax Kvaerno5", "diffrax", f"{where}:diffrax_kvaerno5", size, tolerances=large),
    ]
    gmres = ("CVODE GMRES", "CVODE GMRES, 100 vectors")
    bounds = [Bound(name, "nfe", 1.0) for name in gmres]
    bounds.append(Bound("diffrax Kvaerno5", "seconds", 2.0 if points < 1_024 else 0.5))
    if points >= 4_096:
        bounds += [Bound(name, "seconds", 1.0) for name in gmres]
    else:
        entries.append(Entry("SciPy BDF", "SciPy", f"{where}:scipy_bdf", size))
    if points <= 128:
        entries += [Entry(f"{name} dopri5", name, f"{where}:{name}_dopri5", size, tolerances=tight)
                    for name in ("torchdiffeq", "torchode")]  # fmt: skip
        bounds += [Bound("torchdiffeq dopri5", "seconds", 1 / 200), Bound("torchdiffeq dopri5", "nfe", 1 / 100)]
    rules = Rules(error, seconds, turns)
    return Work(f"diffusion_{points}", f"diffusion, {points:,} points", tuple(entries), rules, tuple(bounds), points)


def scaling(points: int, seconds: float, tol: float = 0.03) -> Work:
    """Ours alone, without matrices, for the slope: all at the tolerance that 4,096 points take for an error of 1e-6."""
    entry = Entry(OURS, "proxode", "benchmarks.solve_diffusion:ours", {"points": points, "matrix_free": True})
    return Work(f"scaling_{points}", f"diffusion, {points:,} points, ours alone", (entry,),
                Rules(None, seconds, 1, (tol,)), size=points)  # fmt: skip


def heat(side: int, seconds: float, tolerances: tuple[float, ...], error: float = 1e-4) -> Work:
    """Memory is that in use, where freed blocks go back to the system at once."""
    where, size = "benchmarks.solve_heat", {"side": side}
    entries = (
        Entry(OURS, "proxode", f"{where}:ours", size, environment={"MALLOC_MMAP_THRESHOLD_": "100000"}),
        Entry("proxode rkc2", "proxode", f"{where}:ours", size | {"method": "rkc2"}),
        Entry("CVODE GMRES", "CVODE", f"{where}:cvode_gmres", size),
    )
    bounds = (Bound(None, "states", 25.0),)
    title = f"heat, {side:,} x {side:,} points"
    return Work(f"heat_{side}", title, entries, Rules(error, seconds, 1, tolerances), bounds, side**2)


def training(points: int, turns: int, seconds: float, error: float = 1e-3) -> Work:
    """One gradient of a stiff model."""
    where, size = "benchmarks.solve_allen_cahn", {"points": points}
    entries = [Entry(OURS, "proxode", f"{where}:ours", size)]
    names = {"torchdiffeq odeint": False, "torchdiffeq odeint_adjoint": True}
    entries += [Entry(name, "torchdiffeq", f"{where}:torchdiffeq_dopri5", size | {"adjoint": adjoint})
                for name, adjoint in names.items()]  # fmt: skip
    entries.append(Entry("diffrax Kvaerno5", "diffrax", f"{where}:diffrax_kvaerno5", size))
    bounds = [Bound(name, "seconds", 1 / 50) for name in names] + [Bound("diffrax Kvaerno5", "seconds", 1.0)]
    title = f"Allen-Cahn with a network, {points} points, one gradient"
    return Work(f"allen_cahn_{points}", title, tuple(entries), Rules(error, seconds, turns), tuple(bounds), points)


def coauthor(scaled: bool, data_dir: str, turns: int, seconds: float, theirs: float | None = None) -> Work:
    """One gradient of GRAND, with the right side as the paper prints it or halved as in its authors' code. All to the
    same error; or torchdiffeq at the tolerance `theirs`, and ours to no larger an error than it has there."""
    where, which = "benchmarks.solve_coauthor", {"scaled": scaled, "data_dir": data_dir}
    names = {"torchdiffeq odeint": "odeint", "torchdiffeq odeint_adjoint": "odeint_adjoint"}
    fixed = None if theirs is None else (theirs,)
    entries = [Entry(name, "torchdiffeq", f"{where}:gradient", which | {"library": "torchdiffeq", "function": function},
                     tolerances=fixed) for name, function in names.items()]  # fmt: skip
    own = which | {"library": "proxode", "function": "odeint"}
    entries.append(Entry(OURS, "proxode", f"{where}:gradient", own, follows=theirs is not None))
    bounds = tuple(Bound(name, "seconds", 1 / 2) for name in names)
    rules = Rules(0.03 if theirs is None else None, seconds, turns, tuple(10.0 ** (-k / 10) for k in range(20, 51)))
    kind, title = ("scaled", ", right side halved") if scaled else ("printed", "")
    at, how = ("", "") if theirs is None else (f"_{theirs:.0e}", f", torchdiffeq at {theirs:.0e}")
    return Work(f"coauthor_{kind}{at}", f"Coauthor-CS{title}{how}, one gradient", tuple(entries), rules, bounds)


def oscillators(count: int, tol: float, turns: int, seconds: float) -> Work:
    where, size = "benchmarks.solve_oscillators", {"count": count}
    entries = (
        Entry(OURS, "proxode", f"{where}:per_sample", size),
        Entry("proxode, joint", "proxode", f"{where}:joint", size),
        Entry("torchode dopri5", "torchode", f"{where}:torchode_dopri5", size),
    )
    rules = Rules(None, seconds, turns, (tol,))
    title = f"{count} Van der Pol oscillators, tolerance {tol:.0e}"
    bounds = (Bound("proxode, joint", "seconds", 1 / 3),)
    return Work(f"oscillators_{count}_{tol:.0e}", title, entries, rules, bounds, count)


def all_works(data_dir: str | None = None) -> list[Work]:
    """Those on Coauthor-CS only where its data is."""
    works = [decay(10, 7), decay(100_000, 7), diffusion(128, 2, 400.0)]
    works += [oscillators(512, tol, 3, 120.0) for tol in (1e-3, 1e-6)]
    works += [training(512, 2, 300.0)]
    works += [coauthor(scaled, data_dir, 3, 120.0, theirs) for theirs in (None, 1e-4) for scaled in (False, True)
              if data_dir]  # fmt: skip
    works += [diffusion(points, 3, 300.0) for points in (1_024, 4_096)]
    works += [scaling(points, 300.0) for points in SCALING]
    return [*works, heat(1_000, 300.0, (3e-4, 1e-4, 3e-5))]


def quick_works() -> list[Work]:
    """The same kinds of work, small: for the shape of the report, not for its numbers."""
    small = diffusion(16, 1, 30.0, error=1e-3)
    more = [training(16, 1, 30.0, 1e-1), heat(20, 30.0, (1e-2, 1e-3), 1e-2)]
    scales = [scaling(16, 30.0, 1e-3), scaling(32, 30.0, 1e-3)]
    return [decay(10, 1), small, oscillators(8, 1e-3, 1, 10.0), *more, *scales]
