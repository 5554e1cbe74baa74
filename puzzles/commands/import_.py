"""`puzzles import`: a pipeline of PyTorch as a run, judged and drawn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .shared.files import require_endings, write_run
from .shared.game_options import CostsText
from .shared.params import colour_option, require_picture, terminal

if TYPE_CHECKING:
    from lib import Costs, Setting, Trace
    from lib.schedules import Timetable

MAX_FILE = 8 << 20
"""Bytes of a file that is read."""


@click.command("import")
@click.argument("path", metavar="FILE.csv", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--costs", metavar="NAME", type=CostsText(), default="parts", help="Play with these costs.  [default: parts]"
)
@click.option("--layers", type=click.IntRange(1, 64), default=1, show_default=True, help="Layers of a stage.")
@click.option(
    "-o", "outputs", metavar="FILE", multiple=True,
    help="Where to write, several times: .svg, .png, .pdf, .html or .txt draws it, .json is the trace for 'puzzles "
    "verify', .csv its order without communication.",
)  # fmt: skip
@colour_option
def import_(path: str, costs: Costs, layers: int, outputs: tuple[str, ...], colour: str | None) -> None:
    """Play a pipeline that PyTorch has written, and judge it.

    The file may be PyTorch's own, of _dump_csv, with communication or without. Messages in it are checked: each is sent
    and received once, and no rank waits for ever. Here each rank runs its cells in order, receives before the first use
    of a value, and sends after it is made.
    """
    from lib import Setting, Size
    from lib import referee as judged
    from puzzles.tracks.free_play import FreeGame, show_report

    require_picture(colour, outputs)
    require_endings(outputs)
    table, trace = imported(path, layers, Setting(costs))
    report = judged(trace)
    if report.error is not None:
        raise click.ClickException(f"{path} is not correct: {report.error}")
    game = FreeGame(Path(path).stem, Size(*trace.size), trace.setting)
    show_report(terminal(), game, trace, report)
    if layers > 1 and (pairs := sum(len(slot) > 1 for row in table.rows for slot in row)):
        click.echo(
            f"Note: here {pairs} OVERLAP_F_B are played as a forward and then a backward; --layers 1 keeps them, and "
            "so does -o FILE.csv."
        )
    write_run(outputs, game.title, lambda: trace, table, colour=colour)


def imported(path: str, layers: int, setting: Setting) -> tuple[Timetable, Trace]:
    """The order of PyTorch's file, and a run of it."""
    from lib import PuzzleError, run
    from lib.schedules import pipeline
    from lib.torch_csv import read_csv

    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_FILE + 1)
        if len(data) > MAX_FILE:
            raise click.UsageError(f"{path} has more than {MAX_FILE:,} bytes; a schedule is smaller")
        table = read_csv(data.decode())
        if layers == 1 and any(len(slot) > 1 for row in table.rows for slot in row):
            setting = replace(setting, costs=_with_pairs(setting.costs))
        outcome = run(pipeline(table), layers * table.stages, table.batches, table.ranks, setting=setting)
        if outcome.error is not None:
            raise outcome.error
    except OSError as why:
        raise click.UsageError(f"cannot read {path}: {why.strerror or why}") from None
    except UnicodeDecodeError:
        raise click.UsageError(f"{path} is no text; PyTorch's CSV has cells such as 0F0") from None
    except PuzzleError as why:
        raise click.UsageError(f"{path}: {why}") from None
    return table, outcome.trace


def _with_pairs(costs: Costs) -> Costs:
    """The same costs, where a forward and a backward at once take as long as both, if they have no price."""
    if costs.priced("pair"):
        return costs
    both = sum(costs.ticks.get(name, 0) for name in ("forward", "backward"))
    return replace(costs, name=f"{costs.name} with pairs", ticks={**costs.ticks, "pair": both})
