"""The contests of the speed benchmark, and the bounds that ours is held to in each."""

from __future__ import annotations

from dataclasses import dataclass

from .contest import Entry, Rules

OURS = "proxode"
SCALING = (256, 512, 1_024, 2_048, 4_096, 8_192, 16_384)


@dataclass(frozen=True)
class Bound:
    """Ours over theirs, at most. `what` is a column of the rows."""

    against: str
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
    entries = [
        Entry(OURS, "proxode", f"{where}:ours", size),
        Entry("proxode rkc2", "proxode", f"{where}:ours", size | {"method": "rkc2"}),
        Entry("CVODE GMRES", "CVODE", f"{where}:cvode_gmres", size),
        Entry("diffrax Kvaerno5", "diffrax", f"{where}:diffrax_kvaerno5", size),
        Entry("SciPy BDF", "SciPy", f"{where}:scipy_bdf", size),
    ]
    bounds = [Bound("CVODE GMRES", "nfe", 1.0)]
    bounds.append(Bound("diffrax Kvaerno5", "seconds", 2.0 if points < 1_024 else 0.5))
    if points >= 4_096:
        bounds.append(Bound("CVODE GMRES", "seconds", 1.0))
    if points <= 128:
        entries.append(Entry("torchdiffeq dopri5", "torchdiffeq", f"{where}:torchdiffeq_dopri5", size))
        entries.append(Entry("torchode dopri5", "torchode", f"{where}:torchode_dopri5", size))
        bounds += [Bound("torchdiffeq dopri5", "seconds", 1 / 200), Bound("torchdiffeq dopri5", "nfe", 1 / 100)]
    rules = Rules(error, seconds, turns)
    return Work(f"diffusion_{points}", f"diffusion, {points:,} points", tuple(entries), rules, tuple(bounds), points)


def scaling(points: int, seconds: float, error: float = 1e-6) -> Work:
    """Ours alone, for the slope."""
    entry = Entry(OURS, "proxode", "benchmarks.solve_diffusion:ours", {"points": points})
    return Work(f"scaling_{points}", f"diffusion, {points:,} points, ours alone", (entry,), Rules(error, seconds, 1),
                size=points)  # fmt: skip


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


def all_works() -> list[Work]:
    works = [decay(10, 7), decay(100_000, 7), diffusion(128, 5, 300.0)]
    works += [oscillators(512, tol, 3, 120.0) for tol in (1e-3, 1e-6)]
    works += [diffusion(points, 3, 300.0) for points in (1_024, 4_096)]
    return works + [scaling(points, 300.0) for points in SCALING]


def quick_works() -> list[Work]:
    """The same kinds of work, small: for the shape of the report, not for its numbers."""
    small = diffusion(16, 1, 30.0, error=1e-3)
    return [decay(10, 1), small, oscillators(8, 1e-3, 1, 10.0), scaling(16, 30.0, 1e-3), scaling(32, 30.0, 1e-3)]
