"""`puzzles profile`: reads profiler traces of a run, names the schedule, and shows where the step's time went."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import click

from puzzles.text_lines import wrapped

from .shared.params import Parsed, usage_errors

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
