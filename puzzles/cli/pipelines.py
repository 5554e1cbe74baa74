"""`puzzles profile` and `solve`: where the time of a pipeline went, and the best schedule under a cap on memory.

`profile` reads the traces of a real run, and `solve` searches for a schedule. Both load no puzzle, so that they start
quickly on a cluster. What a run is called, its causes of idle time and a better order are found in `lib.profiles`; the
search is `lib.pipelines.solver`. Here are only the options, their refusals and the sentences on a solution. A schedule
is shown as text up to a number of cells that a terminal can hold; a file takes any.
"""

from __future__ import annotations

import json
import shutil
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lib.ledger.algebra import counted
from puzzles.text_lines import print_wrapped, wrapped

from .params import Parsed, colour_option, require_endings, require_picture, terminal, usage_errors, write_run

if TYPE_CHECKING:
    from lib import Trace
    from lib.pipelines.solver import Solution


WIDTH = 100


@partial(Parsed, "ranks")
def ranks_text(value: Any) -> set[int]:
    """Ranks as 0-3,6."""
    found: set[int] = set()
    for part in str(value).split(","):
        first, _, last = part.strip().partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()) or len(first + last) > 10:
            raise ValueError(f"{value!r} is not a list of ranks; write 0-3 or 0,2,5")
        found |= {*range(int(first), min(int(last or first), 99_999) + 1)}
    return found


@click.command()
@click.argument("paths", metavar="FOLDER|FILE...", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option(
    "-o", "outputs", metavar="FILE", multiple=True,
    help="Write a file; may be repeated: a picture (.html, .svg, .png, .pdf), an order for PyTorch (.csv), all figures "
    "(.json) or this text (.txt).",
)  # fmt: skip
@click.option("--step", type=int, help="The step to show in full  [default: the step of median length]")
@click.option("--names", "names_file", metavar="FILE.toml", help="Patterns for your own annotations of cells.")
@click.option("--ranks", "only", type=ranks_text, help="Read only these ranks, such as 0-3, if some are missing.")
@click.option(
    "--order",
    type=click.Choice(["better", "measured"]),
    default="better",
    show_default=True,
    help="The order in a .csv: the better one, or the one that ran.",
)
@click.option(
    "--hooks",
    type=click.Choice(["torch", "megatron"]),
    help="Print Python code that annotates cells, for a training program to import.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def profile(
    paths: tuple[Path, ...], outputs: tuple[str, ...], step: int | None, names_file: str | None,
    only: set[int] | None, order: str, hooks: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Show where the time of a training step went.

    Reads traces of torch.profiler, one file for each rank (export_chrome_trace or tensorboard_trace_handler), or event
    dumps. Names the pipeline's schedule, the causes of its bubble, a lower bound for any order, and a better order if
    there is one. Of a job without a pipeline, or of one rank's file: computing, exposed collectives, gaps, and the
    phases of a step. PyTorch is not needed.
    """
    from lib.profiles.reading import hooks as hooks_for
    from puzzles.player.profile import profile as profiled
    from puzzles.player.profile import require_known

    if hooks:
        click.echo(hooks_for(hooks), nl=False)
        return
    if not paths:
        raise click.UsageError("name the folder of a run, as in: puzzles profile traces/")
    with usage_errors():
        for output in outputs:
            require_known(output)
        found = profiled(*paths, names=names_file, ranks=only, step=step)
        if as_json:
            click.echo(json.dumps(found.record, indent=1))
        else:
            lines = found.text.splitlines()
            width = min(shutil.get_terminal_size((WIDTH, 24)).columns, WIDTH)
            click.echo("\n".join(line if line.startswith(" ") else wrapped(line, width) for line in lines))
        for output in outputs:
            found.save(output, order)
            click.echo(f"Wrote {output}.", err=as_json)


# --- The best schedule ---


MAX_DRAWN_CELLS = 4_000
"""Cells up to which a schedule is also shown as text."""


@partial(Parsed, "number,...")
def numbers_text(value: Any) -> float | list[float]:
    """A number, or several separated by commas."""
    try:
        found = [float(each) for each in str(value).split(",")]
    except ValueError:
        raise ValueError(f"{value!r} is neither a number nor a list of numbers such as 1,1,2,1") from None
    return found if len(found) > 1 else found[0]


of_stages = partial(click.option, type=numbers_text, default=1.0, show_default=True)
"""An option with a number for all stages, or one for each."""


@click.command()
@click.option("--ranks", type=int, required=True, help="Ranks of the pipeline.")
@click.option("--microbatches", type=int, required=True, help="Microbatches of a step.")
@of_stages("--forward", help="Time of a forward. This and the next two may be lists by stage, such as 1,1,2,1.")
@of_stages("--backward-input", help="Time of backward's input half.")
@of_stages("--backward-weight", help="Time of backward's weight half.")
@click.option(
    "--send", type=float, default=0.0, show_default=True, help="Time of a message, which overlaps with computation."
)
@click.option(
    "--memory",
    type=numbers_text,
    help="Cap on a rank's memory, in microbatches of a stage; or a list by rank  [default: no cap]",
)
@of_stages("--m-b", help="Memory of a microbatch until its input half ends.")
@of_stages("--m-w", help="Memory of a microbatch from then until its weight half ends.")
@click.option(
    "--placement",
    type=click.Choice(["contiguous", "looped", "V"]),
    default="contiguous",
    show_default=True,
    help="Where stages are: one on each rank, round-robin, or down the ranks and back up.",
)
@click.option("--chunks", type=int, help="Stages on each rank, with --placement looped  [default: 2]")
@click.option("--whole", is_flag=True, help="Keep backward in one piece.")
@click.option(
    "--least",
    type=click.Choice(["span", "makespan"]),
    default="span",
    show_default=True,
    help="What to minimize: the longest span of any rank, or the makespan.",
)
@click.option("--effort", type=float, default=1.0, show_default=True, help="How long to search; 2 is twice as long.")
@click.option("--proof-seconds", type=float, default=20.0, show_default=True, help="Seconds for a proof with ortools.")
@click.option(
    "-o", "outputs", metavar="FILE", multiple=True,
    help="Write a file; may be repeated: a picture (.svg, .png, .pdf, .html, .txt), the trace for 'puzzles verify' "
    "(.json), an order for PyTorch (.csv) or a coroutine (.py).",
)  # fmt: skip
@colour_option
def solve(outputs: tuple[str, ...], colour: str | None, **given: Any) -> None:
    """Find the best schedule of a pipeline under a cap on memory.

    Backward has two halves. Times are in any unit. The result is shown with its distance to a lower bound; at a
    distance of 0, it is optimal. Small problems are solved exactly where ortools is installed (the extra 'proof').
    """
    from lib.pipelines.solver import solve as solved

    require_picture(colour, outputs)
    require_endings(outputs, (".py",))
    with usage_errors():
        found = solved(**given)
    if not found.problem.is_even and any(Path(output).suffix != ".csv" for output in outputs):
        raise click.UsageError("a run has one time for all stages; with a list of times or sizes, -o writes .csv only")
    console = terminal()
    for line in lines(found):
        print_wrapped(console, line)
    trace = cache(found.trace)
    if len(found.table.cells) <= MAX_DRAWN_CELLS:
        click.echo(drawn(found, trace()) if found.problem.is_even else found.table)
    write_run(outputs, title(found), trace, found.table, found.program, colour)


def title(found: Solution) -> str:
    problem = found.problem
    return f"{counted(problem.ranks, 'rank')}, {counted(problem.microbatches, 'microbatch')}, {problem.placement}"


def lines(found: Solution) -> list[str]:
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
    import drawing

    return drawing.text(trace, title(found), max(shutil.get_terminal_size().columns, 40), colour="microbatch")
