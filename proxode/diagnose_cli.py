"""The command `proxode diagnose`: what an equation is like, as tables, words, JSON and a picture."""

from __future__ import annotations

import importlib.util
import json
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch import nn

from .analysis import Diagnosis
from .analysis import diagnose as examined
from .analysis.words import headline, no_advice, number, rows
from .nn import NeuralODE
from .paper.files import why_not_written
from .target import TargetError, attribute, function, load, split, state

PICTURES = (".png", ".pdf", ".svg")
DTYPES = {"float32": torch.float32, "float64": torch.float64}


def diagnose(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            help="f(t, y), an nn.Module, a proxode.nn.NeuralODE, or a function without arguments that makes one; "
            "file.py:name is good too.",
        ),
    ],
    y0: Annotated[
        str, typer.Option("--y0", help="Numbers (1,0,0), or a name in the same module: a tensor, or what makes it.")
    ] = "y0",
    t0: Annotated[float | None, typer.Option("--t0", help="By default 0, or that of the layer.")] = None,
    t1: Annotated[float | None, typer.Option("--t1", help="Needed, unless a layer has it.")] = None,
    rtol: Annotated[float | None, typer.Option(help="Of the solve; by default 1e-4.")] = None,
    atol: Annotated[float | None, typer.Option(help="Of the solve; by default 1e-6.")] = None,
    jump_t: Annotated[
        str | None, typer.Option("--jump-t", help="Times at which f jumps (5,5.02): both ends of a pulse.")
    ] = None,
    max_step: Annotated[float | None, typer.Option(help="The longest step of the solve.")] = None,
    max_steps: Annotated[int | None, typer.Option(min=1, help="Steps of the solve, at most; by default 20000.")] = None,
    method: Annotated[
        str | None, typer.Option(help="The method that you use: what it would cost. The diagnosis solves with auto.")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="Of numbers in --y0: float32 or float64; by default that of the module.")
    ] = None,
    points: Annotated[int, typer.Option(min=1, help="Places on the way at which f is probed.")] = 12,
    plot: Annotated[Path | None, typer.Option(help="Write the picture there (png, pdf, svg).")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all numbers there.")] = None,
) -> None:
    """Say how stiff an equation is, which method and gradient fit it, and what they cost."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=max(console.width, 110))
    given = {"max_step": max_step, "max_steps": max_steps, "method": method}
    settings: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    try:
        check_files(plot, json_file)
        if jump_t is not None:
            settings["jump_t"] = times(jump_t)
        settings |= {"rtol": rtol, "atol": atol, "points": points}
        found = _examine(target, y0, t0, t1, dtype, settings)
    except (TargetError, TypeError, ValueError) as error:
        console.print(f"[red]error[/red]: {escape(str(error))}", highlight=False, soft_wrap=True)
        raise typer.Exit(2) from None
    # Files first: who pipes the words into `head` may end the process.
    if json_file is not None:
        json_file.write_text(json.dumps(found.to_dict(), indent=1), encoding="utf-8")
    if plot is not None:
        _draw(console, found, plot)
    show(console, found)
    for path in (json_file, plot):
        if path is not None:
            console.print(f"wrote {escape(str(path))}", highlight=False)


def check_files(plot: Path | None, json_file: Path | None) -> None:
    """Whether they can be written, before anything is computed."""
    for name, path in (("--plot", plot), ("--json", json_file)):
        if path is not None and not path.absolute().parent.is_dir():
            raise TargetError(f"{name} {path}: there is no folder {path.parent}")
        if path is not None and (reason := why_not_written(path)) is not None:
            raise TargetError(f"{name} {path} cannot be written ({reason}): choose another")
    if plot is None:
        return
    if plot.suffix.lower() not in PICTURES:
        raise TargetError(f"--plot {plot}: the ending of a picture is one of {', '.join(PICTURES)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise TargetError(f"--plot {plot}: a picture needs matplotlib: pip install matplotlib")


def times(given: str) -> torch.Tensor:
    """Numbers with commas between them."""
    try:
        return torch.tensor([float(t) for t in given.split(",")], dtype=torch.float64)
    except ValueError:
        raise TargetError(f"--jump-t {given!r} are no times: write them with commas, as in 5,5.02") from None


def _draw(console: Console, found: Diagnosis, path: Path) -> None:
    try:
        found.plot(path)
    except (ModuleNotFoundError, ValueError, OSError) as error:  # such as an ending that is not known
        console.print(f"[red]error[/red]: --plot {escape(f'{path}: {error}')}", highlight=False, soft_wrap=True)
        raise typer.Exit(2) from None


def _examine(
    target: str, y0: str, t0: float | None, t1: float | None, dtype: str | None, settings: dict[str, Any]
) -> Diagnosis:
    if dtype is not None and dtype not in DTYPES:
        raise TargetError(f"--dtype {dtype!r} is none of {', '.join(DTYPES)}")
    where, name = split(target)
    module = load(where)
    f = function(attribute(module, name), name)
    try:
        start = state(y0, module, DTYPES[dtype] if dtype is not None else _dtype_of(f))
    except TargetError as error:
        raise TargetError(f"--y0: {error}") from None
    if not isinstance(f, NeuralODE):
        if t1 is None:
            raise TargetError("--t1 is missing: up to which time is the equation to be solved?")
        t0 = 0.0 if t0 is None else t0
    _try(f, start, 0.0 if t0 is None else t0)
    return examined(f, start, t0, t1, **settings)


def _dtype_of(f: Callable[..., Any]) -> torch.dtype:
    own = next(f.parameters(), None) if isinstance(f, nn.Module) else None
    return own.dtype if own is not None and own.is_floating_point() else torch.float64


def _try(f: Callable[..., Any], y0: Any, t0: float) -> None:
    """One call, so that an error of f is told with the state that it got and the line where it happened."""
    rate = f.func if isinstance(f, NeuralODE) else f
    parts = y0 if isinstance(y0, tuple) else (y0,)
    try:
        with torch.random.fork_rng(devices=[]):
            rate(torch.tensor(t0, dtype=parts[0].dtype), y0)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        shapes = " and ".join(f"{tuple(part.shape)} {str(part.dtype).removeprefix('torch.')}" for part in parts)
        asked = _other_dtype(error, parts[0].dtype) or "Is --y0 a state of it, and f a function of (t, y)?"
        raise TargetError(
            f"f(t, y) failed for y of shape {shapes}: {type(error).__name__}: {error} "
            f"({Path(last.filename).name}, line {last.lineno}). {asked}"
        ) from None


def _other_dtype(error: Exception, dtype: torch.dtype) -> str:
    """What to do where torch complains that the state and what f computes with are of different dtypes."""
    said = str(error).lower()
    other = {torch.float64: "float32", torch.float32: "float64"}.get(dtype)
    if other is None or "double" not in said or "float" not in said:
        return ""
    return f"f seems to want a state in {other}: --dtype {other} makes the numbers in --y0 so"


# Showing it


def show(console: Console, d: Diagnosis) -> None:
    """What was found, and what follows."""
    console.print(f"[bold]{escape(headline(d))}[/bold]", highlight=False)
    for finding in d.findings:
        console.print(f"[yellow]note[/yellow]: {escape(finding)}", highlight=False)
    console.print(_table(("", "what was measured"), list(rows(d))))
    if d.advice.choices:
        choices = [(choice.what, choice.name, choice.reason) for choice in d.advice.choices]
        console.print(_table(("choose", "", "because"), choices))
        console.print(_costs(d))
    else:
        console.print(escape(no_advice(d)), highlight=False)


def _table(titles: tuple[str, ...], lines: Sequence[tuple[str, ...]]) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for i, title in enumerate(titles):
        table.add_column(title, style="cyan" if i == 0 else "", no_wrap=i < len(titles) - 1, overflow="fold")
    for line in lines:
        table.add_row(*map(escape, line))
    return table


def _costs(d: Diagnosis) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("cost of", style="cyan")
    table.add_column("NFE forward", justify="right")
    table.add_column("backward", justify="right")
    table.add_column("basis")
    for cost in d.advice.costs:
        back = "-" if cost.nfe_backward is None else number(cost.nfe_backward)
        table.add_row(cost.method, number(cost.nfe_forward), back, cost.basis)
    return table
