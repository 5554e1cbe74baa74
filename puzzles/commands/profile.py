"""`puzzles profile`: reads profiler traces of a run, names the schedule, and says where the step went."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .shared.plan_files import text_of

if TYPE_CHECKING:
    from lib.profiles import Shares, Study

ENDINGS = (".html", ".svg", ".png", ".pdf", ".csv", ".json", ".txt")
WIDTH = 100


class Ranks(click.ParamType):  # type: ignore[type-arg]  # generic only in newer clicks
    """Ranks as 0-3,6."""

    name = "ranks"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> set[int]:
        found: set[int] = set()
        for part in str(value).split(","):
            first, _, last = part.strip().partition("-")
            if not (first.isdecimal() and (last or first).isdecimal()) or len(first + last) > 10:
                self.fail(f"{value!r} is no list of ranks; write 0-3 or 0,2,5", param, ctx)
            found |= {*range(int(first), min(int(last or first), 99_999) + 1)}
        return found


@click.command()
@click.argument("paths", metavar="FOLDER|FILE...", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option(
    "-o", "outputs", metavar="FILE", multiple=True,
    help="Where to write, several times: .html, .svg, .png or .pdf draws it, .csv is an order for PyTorch, .json has "
    "all figures, .txt this text.",
)  # fmt: skip
@click.option("--step", type=int, help="The step to show in full  [default: the one of median length]")
@click.option("--names", "names_file", metavar="FILE.toml", help="What other annotations name which cells.")
@click.option("--ranks", "only", type=Ranks(), help="The ranks that are there, as 0-3, if some are missing.")
@click.option(
    "--order",
    type=click.Choice(["better", "measured"]),
    default="better",
    show_default=True,
    help="What a .csv holds: the better order, or the order of the run.",
)
@click.option("--hooks", type=click.Choice(["torch", "megatron"]), help="Print lines that name cells, to import there.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def profile(
    paths: tuple[Path, ...], outputs: tuple[str, ...], step: int | None, names_file: str | None,
    only: set[int] | None, order: str, hooks: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Say where a step of your own run went.

    Reads what torch.profiler wrote, one file for each rank (export_chrome_trace or tensorboard_trace_handler), or event
    dumps. Names the pipeline's schedule, what causes its bubble, what no order can beat, and a better order if there is
    one. PyTorch is not needed.
    """
    from lib import PuzzleError
    from lib.profiles import read_rules, sources_of, study
    from lib.profiles.hooks import HOOKS
    from lib.profiles.notation import as_record
    from puzzles.catalog.text_lines import wrapped
    from puzzles.reports.profiles import text_of as report

    if hooks:
        click.echo(HOOKS[hooks], nl=False)
        return
    if not paths:
        raise click.UsageError("name the folder of a run, as in: puzzles profile traces/")
    for output in outputs:
        if Path(output).suffix.lower() not in ENDINGS:
            raise click.UsageError(
                f"cannot write {output}: a name ends with {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"
            )
    try:
        rules = read_rules(text_of(names_file), names_file) if names_file else ()
        found = study(sources_of([*paths]), rules, only, step)
        text = report(found, shlex.join(map(str, paths)))
        if as_json:
            click.echo(json.dumps(as_record(found), indent=1))
        else:
            click.echo("\n".join(line if line.startswith(" ") else wrapped(line, WIDTH) for line in text.splitlines()))
        for output in outputs:
            write(found, text, output, order)
            click.echo(f"Wrote {output}.", err=as_json)
    except PuzzleError as why:
        raise click.UsageError(str(why)) from None


def write(found: Study | Shares, text: str, output: str, order: str) -> None:
    """Writes a file.

    Raises:
        PuzzleError: there is nothing of this kind to write, or the file cannot be written.
    """
    from lib import PuzzleError
    from lib.profiles import Shares
    from lib.profiles.notation import as_record
    from lib.torch_csv import write_table

    ending = Path(output).suffix.lower()
    if isinstance(found, Shares) and ending not in (".json", ".txt"):
        raise PuzzleError(
            f"cannot write {output}: these files have no pipeline; .json and .txt hold the shares of ranks"
        )
    if ending == ".json":
        made = json.dumps(as_record(found), indent=1) + "\n"
    elif ending == ".txt":
        made = f"{text}\n"
    elif ending == ".csv":
        assert not isinstance(found, Shares)
        better = found.prospect.better
        if order == "better" and better is None:
            raise PuzzleError(f"{output} is not written: no better order was found; --order measured writes the run's")
        made = write_table(better.table if better and order == "better" else found.chosen.step.table)
    else:
        raise PuzzleError(f"cannot draw {output} yet")
    try:
        Path(output).write_text(made, encoding="utf-8")
    except OSError as why:
        raise PuzzleError(f"cannot write {output}: {(why.strerror or str(why)).lower()}") from None
