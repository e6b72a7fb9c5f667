"""What the trainings of GRAND say about the paper's claims, and about our own aims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .experiment import FAILS, HOLDS, PARTLY, UNKNOWN, Claim, Report, Row, Verdict, judged
from .grand import SOLVERS

MUCH = 0.5  # "much fewer" is at most this share
CLOSE = 0.01  # in accuracy
RIGHT = 0.1  # relative error of a gradient that still points the right way

FEWER = Claim("Proximal solvers require much fewer NFE than adaptive solvers in training GRAND.", "Figure 7")
CONVERGE = Claim(
    "They converge as well as adaptive solvers in training loss and validation accuracy.", "Figure 7"
)  # fmt: skip
STEP = Claim("With steps of 1.25 the output of the first iteration has an error within 1e-3.", "section 4.3")
HALF = Claim(
    "Our aim: auto needs at most half of the NFE and of the time of DOPRI5 with the adjoint.", "an aim of this project"
)
NOT_LOWER = Claim("Our aim: an accuracy that is not lower than with DOPRI5.", "an aim of this project")
RIGHT_GRADIENT = Claim(
    "Our aim: a right gradient all along the training, where that of the usual adjoint is wrong.",
    "an aim of this project",
)
CLAIMS = (FEWER, CONVERGE, STEP, HALF, NOT_LOWER, RIGHT_GRADIENT)

Found = dict[tuple[str, str], list[Row]]  # rows of the seeds by variant and solver


def verdicts(report: Report) -> list[Verdict]:
    """From the seeds all of whose trainings are there."""
    seeds = whole_seeds(report)
    if not seeds:
        return [Verdict(claim, "", "", UNKNOWN) for claim in CLAIMS]
    found: Found = {}
    for row in report["rows"]:
        if row["training_seed"] in seeds:
            found.setdefault((row["variant"], row["solver"]), []).append(row)
    judges: Sequence[Callable[[Found, Report], Verdict]] = (_fewer, _converge, _step, _half, _not_lower, _right)
    return [judge(found, report) for judge in judges]


def solvers_of(seed: int, setting: dict[str, Any]) -> list[str]:
    """Those that train with this seed: some do so only with the first."""
    first = seed == setting["seeds"][0]
    return [name for name in setting["solvers"] if first or name not in setting["once"]]


def whole_seeds(report: Report) -> list[int]:
    setting = report["setting"]
    made = [row["training_seed"] for row in report["rows"]]
    variants = len(setting["variants"])
    return [seed for seed in setting["seeds"] if made.count(seed) == variants * len(solvers_of(seed, setting))]


def words(report: Report, *, papers: bool = False) -> str:
    """`papers`: the claim is about solvers some of which train with the first seed only."""
    setting, seeds = report["setting"], whole_seeds(report)
    count = 1 if papers and setting["once"] else len(seeds)
    said = f"{setting['graph']}, {setting['epochs']} epochs, T = {setting['t1']:g}, {count} seed{'s' * (count > 1)}"
    short = ", ".join(f"{name} {epochs} epochs" for name, epochs in setting["short"].items())
    return f"{said} ({short})" if papers and short else said


def mean(rows: Sequence[Row], *names: str) -> float | None:
    """Of the sum of some columns, over the seeds that have them."""
    sums = [sum(row[name] for name in names) for row in rows if all(row[name] is not None for name in names)]
    return sum(sums) / len(sums) if sums else None


def ended(rows: Sequence[Row]) -> bool:
    return all(row["status"] == "SUCCESS" for row in rows)


def _of_group(found: Found, group: str, variant: str) -> dict[str, list[Row]]:
    return {solver: rows for (v, solver), rows in found.items() if v == variant and SOLVERS[solver].group == group}


def _cost(rows: Sequence[Row]) -> str:
    forward, backward = mean(rows, "nfe_forward"), mean(rows, "nfe_backward")
    if forward is None or backward is None:
        return "failed in its first epoch"
    failed = next((f", failed after {row['epochs_done']} epochs" for row in rows if row["status"] != "SUCCESS"), "")
    return f"{forward:.0f} + {backward:.0f}{failed}"


def _fewer(found: Found, report: Report) -> Verdict:
    """An adaptive solver that did not come to the end needed too many."""
    parts, said = [], []
    for variant in report["setting"]["variants"]:
        papers, others = (_of_group(found, group, variant) for group in ("paper", "adaptive"))
        for rows in papers.values():
            own = mean(rows, "nfe_forward", "nfe_backward")
            for rival in others.values():
                theirs = mean(rival, "nfe_forward", "nfe_backward")
                beaten = not ended(rival) or (own is not None and theirs is not None and own <= MUCH * theirs)
                parts.append(own is not None and ended(rows) and beaten)
        listed = ", ".join(f"{name} {_cost(rows)}" for name, rows in (papers | others).items())
        said.append(f"{variant}: {listed}")
    pairs = f"At most half in {sum(parts)} of {len(parts)} pairs."
    measured = f"NFE forward + backward per epoch, {'; '.join(said)}. {pairs}"
    return Verdict(FEWER, words(report, papers=True), measured, judged(parts))


def _converge(found: Found, report: Report) -> Verdict:
    """Against the best of the adaptive solvers that came to the end, by those that were to train as long."""
    parts, said = [], []
    whole_way = {key: rows for key, rows in found.items() if key[1] not in report["setting"]["short"]}
    for variant in report["setting"]["variants"]:
        papers, others = (_of_group(whole_way, group, variant) for group in ("paper", "adaptive"))
        whole = [rows for rows in others.values() if ended(rows)]
        best = max((mean(rows, "validation") or 0.0 for rows in whole), default=None)
        loss = min((mean(rows, "loss") or 0.0 for rows in whole), default=None)
        for rows in papers.values():
            own, own_loss = mean(rows, "validation"), mean(rows, "loss")
            good = ended(rows) and own is not None and own_loss is not None
            parts += [
                good and (best is None or (own or 0.0) >= best - CLOSE),
                good and (loss is None or (own_loss or 0.0) <= 1.05 * loss),
            ]
        listed = ", ".join(f"{name} {_quality(rows)}" for name, rows in (papers | others).items())
        said.append(f"{variant}: {listed}")
    measured = f"Best validation accuracy (last loss), {'; '.join(said)}."
    return Verdict(CONVERGE, words(report, papers=True), measured, judged(parts))


def _quality(rows: Sequence[Row]) -> str:
    accuracy, loss = mean(rows, "validation"), mean(rows, "loss")
    if accuracy is None or loss is None:
        return "failed"
    return f"{accuracy:.3f} ({loss:.2f}{'' if ended(rows) else ', failed later'})"


def _step(found: Found, report: Report) -> Verdict:
    errors = {
        (variant, solver): mean(rows, "output_error")
        for (variant, solver), rows in found.items()
        if SOLVERS[solver].group == "paper"
    }
    known = {key: value for key, value in errors.items() if value is not None}
    if not known:
        return Verdict(STEP, "", "", UNKNOWN)
    said = [
        f"{variant}: " + ", ".join(f"{solver} {value:.0e}" for (v, solver), value in known.items() if v == variant)
        for variant in report["setting"]["variants"]
    ]
    measured = f"Relative error of u(T), {'; '.join(said)}."
    small = [value is not None and value <= 1e-3 for value in errors.values()]
    return Verdict(STEP, words(report, papers=True), measured, judged(small))


def _half(found: Found, report: Report) -> Verdict:
    """Ours with everything that it evaluates in backward, against the products of the adjoint alone."""
    parts, said = [], []
    for variant in report["setting"]["variants"]:
        own, rival = found.get((variant, "auto")), found.get((variant, "dopri5"))
        if own is None or rival is None:
            return Verdict(HALF, "", "", UNKNOWN)
        work, time = mean(own, "nfe_forward", "work_backward"), mean(own, "seconds")
        their_nfe, their_time = mean(rival, "nfe_forward", "nfe_backward"), mean(rival, "seconds")
        their_work = mean(rival, "nfe_forward", "work_backward")
        if their_nfe is None or their_time is None or their_work is None or work is None or time is None:
            parts.append(ended(own))
            said.append(f"{variant}: dopri5 {_cost(rival)}, ours {_cost(own)}")
            continue
        parts += [ended(own) and work <= MUCH * their_nfe, ended(own) and time <= MUCH * their_time]
        said.append(
            f"{variant}: {work:.0f} against {their_nfe:.0f} NFE, {work / their_nfe:.2f} ({work / their_work:.2f} if "
            f"the evaluations of the adjoint count too), {time:.2f} against {their_time:.2f} s, {time / their_time:.2f}"
            + ("" if ended(rival) else f"; dopri5 failed after {rival[0]['epochs_done']} epochs")
        )
    return Verdict(HALF, words(report), f"Per epoch, {'; '.join(said)}.", judged(parts))


def _not_lower(found: Found, report: Report) -> Verdict:
    parts, said = [], []
    for variant in report["setting"]["variants"]:
        own, rivals = found.get((variant, "auto")), ("dopri5", "dopri5, backpropagated")
        reached = None if own is None else mean(own, "validation")
        if own is None or reached is None:
            return Verdict(NOT_LOWER, "", "", UNKNOWN)
        listed = []
        for name in rivals:
            theirs = mean(found.get((variant, name), []), "validation")
            if theirs is not None:
                parts.append(ended(own) and reached >= theirs - CLOSE)
                listed.append(f"{name} {_quality(found[variant, name])}")
            elif (variant, name) in found:
                listed.append(f"{name} failed")
        said.append(f"{variant}: auto {_quality(own)}, {', '.join(listed)}")
    measured = (
        f"Best validation accuracy (last loss), right and wrong gradients side by side, {'; '.join(said)}. "
        f"A difference below {CLOSE:g} counts as none."
    )
    return Verdict(NOT_LOWER, words(report), measured, judged(parts) if parts else UNKNOWN)


def _right(found: Found, report: Report) -> Verdict:
    """Along the training by ours, all weights."""
    own_parts, their_parts, said = [], [], []
    for variant in report["setting"]["variants"]:
        rows = found.get((variant, "auto"), [])
        errors = {
            name: [value for row in rows for k, value in enumerate(row["history"].get(f"error_whole: {name}", []))
                   if k in report["setting"]["check_epochs"] and k < row["epochs_done"]]
            for name in ("auto", "dopri5")
        }  # fmt: skip
        if not errors["auto"]:
            return Verdict(RIGHT_GRADIENT, "", "", UNKNOWN)
        own_parts += [value is not None and value <= RIGHT for value in errors["auto"]]
        their_parts += [value is None or value > RIGHT for value in errors["dopri5"]]
        said.append(f"{variant}: auto {_range(errors['auto'])}, adjoint {_range(errors['dopri5'])}")
    outcome = HOLDS if all(own_parts) and any(their_parts) else PARTLY if sum(own_parts) > len(own_parts) / 2 else FAILS
    measured = f"Relative error of dL/d(all weights) at {len(own_parts)} places, {'; '.join(said)}."
    return Verdict(RIGHT_GRADIENT, words(report), measured, outcome)


def _range(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    failed = f", {len(values) - len(known)} failed" if len(known) < len(values) else ""
    return (f"{min(known):.0e} to {max(known):.0e}" if known else "no gradient") + failed
