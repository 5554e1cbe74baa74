"""`puzzles solve`: the best pipeline schedule under a cap on memory."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .shared.files import require_endings, write_run
from .shared.params import colour_option, require_picture, usage_errors

if TYPE_CHECKING:
    from lib import Trace
    from lib.solver import Solution

MAX_DRAWN_CELLS = 4_000
"""Cells up to which a schedule is also shown as text."""


class Numbers(click.ParamType):  # type: ignore[type-arg]  # generic only in newer clicks
    """A number, or several separated by commas."""

    name = "number,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | list[float]:
        try:
            found = [float(each) for each in str(value).split(",")]
        except ValueError:
            self.fail(f"{value!r} is neither a number nor a list of numbers such as 1,1,2,1", param, ctx)
        return found if len(found) > 1 else found[0]


@click.command()
@click.option("--ranks", type=int, required=True, help="Ranks of the pipeline.")
@click.option("--microbatches", type=int, required=True, help="Microbatches of a step.")
@click.option(
    "--forward",
    type=Numbers(),
    default=1.0,
    show_default=True,
    help="Time of a microbatch in a stage; or a list by stage, such as 1,1,2,1, here and below.",
)
@click.option("--backward-input", type=Numbers(), default=1.0, show_default=True, help="Time of its input half.")
@click.option("--backward-weight", type=Numbers(), default=1.0, show_default=True, help="Time of its weight half.")
@click.option(
    "--send", type=float, default=0.0, show_default=True, help="Time of a message, which overlaps with computation."
)
@click.option(
    "--memory",
    type=Numbers(),
    help="What a rank may hold, in microbatches of a stage; or a list by rank  [default: all]",
)
@click.option(
    "--m-b", type=Numbers(), default=1.0, show_default=True, help="What a microbatch counts until its input half ends."
)
@click.option(
    "--m-w",
    type=Numbers(),
    default=1.0,
    show_default=True,
    help="What it counts after that, until its weight half ends.",
)
@click.option(
    "--placement",
    type=click.Choice(["contiguous", "looped", "V"]),
    default="contiguous",
    show_default=True,
    help="Where stages are: one on each rank, dealt out in turn, or there and back.",
)
@click.option("--chunks", type=int, help="Stages of a rank, in the placement looped  [default: 2]")
@click.option("--whole", is_flag=True, help="Backward is in one piece.")
@click.option(
    "--least",
    type=click.Choice(["span", "makespan"]),
    default="span",
    show_default=True,
    help="What to minimize: the longest span of any rank, or the makespan.",
)
@click.option("--effort", type=float, default=1.0, show_default=True, help="How long to search; 2 is twice as long.")
@click.option("--proof-seconds", type=float, default=20.0, show_default=True, help="Time for a proof with ortools.")
@click.option(
    "-o", "outputs", metavar="FILE", multiple=True,
    help="Where to write, several times: .svg, .png, .pdf, .html or .txt draws it, .json is the trace for 'puzzles "
    "verify', .csv is for PyTorch, .py a coroutine.",
)  # fmt: skip
@colour_option
def solve(outputs: tuple[str, ...], colour: str | None, **given: Any) -> None:
    """Find the best schedule of a pipeline under a cap on memory.

    Backward is in two halves. Times are in any unit. The result is shown with its distance to a lower bound; if they
    meet, it is optimal. Small problems are solved exactly where ortools is installed (the extra 'proof').
    """
    from lib.solver import solve as solved

    require_picture(colour, outputs)
    require_endings(outputs, (".py",))
    with usage_errors():
        found = solved(**given)
    if not found.problem.is_even and any(Path(output).suffix != ".csv" for output in outputs):
        raise click.UsageError("a run has one time for all stages; with a list of times or sizes, -o writes .csv only")
    for line in lines(found):
        click.echo(line)
    trace = cache(found.trace)
    if len(found.table.cells) <= MAX_DRAWN_CELLS:
        click.echo(drawn(found, trace()) if found.problem.is_even else found.table)
    write_run(outputs, title(found), trace, found.table, found.program, colour)


def title(found: Solution) -> str:
    problem = found.problem
    return f"{problem.ranks} ranks, {problem.microbatches} microbatches, {problem.placement}"


def lines(found: Solution) -> list[str]:
    """What was found, in sentences."""
    problem, least = found.problem, found.least
    rank = max(range(problem.ranks), key=lambda rank: found.held[rank] / (problem.caps[rank] or 1))
    held = f"{max(found.held):g}"
    if isinstance(problem.memory, tuple):
        held = f"{found.held[rank]:g} of {problem.memory[rank]:g} on rank {rank}"
    elif problem.memory is not None:
        held += f" of {problem.memory:g}"
    shown = [
        f"{title(found)}: longest span {found.span:g}, over at {found.makespan:g}; "
        f"{found.bubble:.1%} of the span is bubble.",
        f"Memory: a rank holds at most {held}.",
    ]
    if found.is_proven:
        return [*shown, f"Optimal: a constraint solver has proven that no {problem.least} is less than {least:g}."]
    reason = f"{least:g} ({found.bound.reason})"
    if found.is_optimal:
        return [*shown, f"Optimal: any schedule has a {problem.least} of at least {reason}."]
    over = found.took / least - 1
    return [*shown, f"Bound: any schedule has a {problem.least} of at least {reason}; this one is {over:.2%} above it."]


def drawn(found: Solution, trace: Trace) -> str:
    """The schedule as text."""
    import drawing

    return drawing.text(trace, title(found), max(shutil.get_terminal_size().columns, 40), colour="microbatch")
