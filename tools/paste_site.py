"""Put the generated tables of the docs site in place: from the reports in docs/results, and from the package itself.

A table stands between `<!-- table: name -->` and `<!-- end -->`; nothing else is touched. A test holds every page to
what this gives now.
"""

from __future__ import annotations

from collections.abc import Callable

from paste_advice import DIAGNOSE, quickstart, samples
from paste_work_precision import power
from pasting import RESULTS, ROOT, load, markdown, pasted, shown

from proxode import Status
from proxode.paper.experiment import Experiment, Report
from proxode.paper.experiments import experiment_of, registered
from proxode.paper.report import read_report
from proxode.paper.tables import markdown as table_of

PICTURES = {
    "scalar": ("scalar",), "diffusion": ("diffusion",), "inner": ("inner", "inner_paths", "inner_constant"),
    "nonlinear": ("nonlinear",), "stability": ("stability",), "energy": ("energy",),
    "tolerance": ("tolerance",), "grand": ("grand", "grand_nfe", "grand_gradients"), "cnf": ("cnf", "cnf_learned"),
    "stiff": ("stiff",),
}  # fmt: skip
FEW = ("Robertson, t to 1e11", "Van der Pol, μ = 1000", "Van der Pol, μ = 1", "diffusion, 128 points",
       "Brusselator, 200 unknowns", "Kepler, e = 0.6", "tanh network, 50 units")  # fmt: skip
GRADIENTS = ("implicit", "implicit, store_graph", "checkpoint", "continuous", "continuous, 50 checkpoints", "direct",
             "torchdiffeq odeint (rk4)", "torchdiffeq odeint_adjoint (rk4)")  # fmt: skip


# Of the package


def statuses() -> str:
    """Every status with its message and its advice, those that end a solve well first."""
    known = sorted(Status, key=lambda status: not status.ok)
    rows = [[f"`{s.name}`", s.message, "" if s.ok and not s.advice else s.advice] for s in known]
    return markdown(["status", "what it says", "what to try"], rows, words=3)


# Of the reports


def verdict_count() -> str:
    """How many claims of each experiment hold."""
    rows = []
    for name in _reported():
        outcomes = [verdict.outcome for verdict in experiment_of(name).verdicts(_report(name))]
        counts = (str(outcomes.count(outcome)) for outcome in ("holds", "holds in part", "does not hold"))
        rows.append([f"[`{name}`](#{name})", experiment_of(name).title, *counts])
    return markdown(["experiment", "what it is", "holds", "in part", "does not"], rows, words=2)


def reproduced() -> str:
    """A section for each experiment: its pictures, its verdicts, and all of its rows, folded."""
    return "\n".join(_section(experiment_of(name), _report(name)) for name in _reported())


def _section(experiment: Experiment, report: Report) -> str:
    title = experiment.title[0].upper() + experiment.title[1:]
    parts = [f"## {experiment.name}\n", f"{title}.\n"]
    if experiment.cut:
        parts.append(f"Less than the paper's setting: {experiment.cut}.\n")
    parts += [f"![{experiment.name}: {stem}](images/{stem}.png)\n" for stem in PICTURES[experiment.name]]
    rows = [[*words, f"**{verdict}**"] for *words, verdict in _verdicts(experiment, report)]
    parts.append(markdown(["place", "claim", "measured", "verdict"], rows, words=4) + "\n")
    for table in experiment.tables(report):
        body = table_of(table).strip().replace("<", "&lt;").replace("\n", "\n    ")
        parts.append(f'??? note "All rows: {table.title}"\n\n    {body}\n')
    return "\n".join(parts)


def _verdicts(experiment: Experiment, report: Report) -> list[list[str]]:
    rows = []
    for v in experiment.verdicts(report):
        measured = f"{v.measured} ({v.setting})" if v.setting else v.measured
        words = (text.replace("<", "&lt;").replace("|", "\\|") for text in (v.claim.text, measured))
        rows.append([v.claim.place, *words, v.outcome])
    return rows


def _reported() -> list[str]:
    return [name for name in registered() if (RESULTS / f"{name}.json").exists()]


def _report(name: str) -> Report:
    return read_report(RESULTS / f"{name}.json")


def method_costs() -> str:
    """NFE of an explicit method, of bdf and of auto on a few problems."""
    report = load("auto_switching")
    titles = {problem["name"]: problem["title"] for problem in report["problems"]}
    nfe = {(titles[row["problem"]], row["tol"], row["solver"]): row for row in report["rows"]}
    rows = []
    for title in FEW:
        found = [nfe[title, 1e-6, method] for method in ("dopri5", "bdf", "auto")]
        cells = [f"{row['nfe']:,}" if row["status"] == "SUCCESS" else row["status"].lower() for row in found]
        took = next(line["did"] for line in report["compared"]
                    if titles[line["problem"]] == title and line["tol"] == 1e-6)  # fmt: skip
        rows.append([title, took, *cells])
    return markdown(["problem, tolerance 1e-6", "what `auto` took", "`dopri5`", "`bdf`", "`auto`"], rows, words=2)


def inner_costs() -> str:
    """NFE of one implicit step of diffusion by inner solver and stiffness."""
    report = load("inner")["rows"]
    costs = {(row["solver"], row["stiffness"]): row for row in report
             if row["kind"] == "cost" and row["data"] == "density"}  # fmt: skip
    levels = [0.1, 1.0, 10.0, 100.0, 1000.0, 10000.0]
    rows = []
    for solver in dict.fromkeys(solver for solver, _ in costs):
        found = [costs[solver, level] for level in levels]
        rows.append([f"`{solver}`", *(f"{row['nfe']:,}" if row["status"] == "SUCCESS" else "-" for row in found)])
    return markdown(["inner solver", *(f"γλ = {level:g}" for level in levels)], rows)


def gradient_memory() -> str:
    """States held by a solve and its gradient, 300 and 3,000 steps."""
    found = {(row["label"], row["steps"]): row for row in load("gradients_memory")["rows"]}
    rows = [[label, *(shown(found[label, n]["states"], "{:,.0f}") for n in (300, 3000))] for label in GRADIENTS]
    return markdown(["states in use", "300 steps", "3,000 steps"], rows)


def errors_in_tolerances() -> str:
    """The largest error of a solve in units of its tolerance, over tolerances 1e-2 to 1e-9."""
    report = load("work_precision")
    titles = {problem["name"]: problem["title"] for problem in report["problems"]}
    worst: dict[str, list[float]] = {}
    for line in report["summary"]:
        pair = worst.setdefault(titles[line["problem"]], [0.0, 0.0])
        for i, name in enumerate(("ours_largest_rms_over_tol", "theirs_largest_rms_over_tol")):
            pair[i] = max(pair[i], line[name])
    rows = [[title, *(f"{value:.1f}" for value in pair)] for title, pair in worst.items()]
    tolerances = report["tolerances"]
    heads = [f"largest error / tolerance, {power(max(tolerances))} to {power(min(tolerances))}", "`bdf`", "CVODE"]
    return markdown(heads, rows)


def stability() -> str:
    """Sector, reach and damping of every method, from its coefficients."""
    rows = []
    for row in load("stability")["rows"]:
        if row["kind"] == "method":
            stable = "A" if row["angle"] == 90.0 else shown(row["angle"], "{:.1f}°")
            cells = [stable, shown(row["real_reach"], "{:.1f}"), shown(row["at_infinity"], "{:.2g}")]
            rows.append([f"`{row['method']}`", str(row["order"]), *cells])
    return markdown(["method", "order", "sector", "reach", "at infinity"], rows)


def trainings() -> str:
    """What became of each training of a stiff model."""
    names = {"allen_cahn": "Allen-Cahn, 512 points", "robertson": "Robertson, t to 1e5",
             "van_der_pol": "Van der Pol, μ = 1000"}  # fmt: skip
    rows = [[names[row["model"]], row["method"], f"{row['steps']} of 400", shown(row["seconds"] or None, "{:.0f}"),
             shown(row["tight_loss"], "{:.1e}")] for row in load("stiff")["rows"]]  # fmt: skip
    return markdown(["model", "trained by", "training steps", "seconds", "loss"], rows, words=2)


Tables = dict[str, Callable[[], str]]

PAGES: dict[str, Tables] = {
    page: {make.__name__: make for make in tables}
    for page, tables in {
        "docs/index.md": (trainings,),
        "docs/choosing.md": (method_costs, samples, inner_costs, gradient_memory, errors_in_tolerances),
        "docs/diagnose.md": DIAGNOSE,
        "docs/errors.md": (statuses,),
        "docs/quickstart.md": (quickstart,),
        "docs/reproduction.md": (verdict_count, reproduced),
        "docs/theory/stability.md": (stability,),
    }.items()
}


if __name__ == "__main__":
    for name, tables in PAGES.items():
        path = ROOT / name
        path.write_text(pasted(path.read_text(), tables))
        print(f"updated {name}")
