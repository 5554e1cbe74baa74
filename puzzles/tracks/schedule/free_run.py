"""`puzzles run` of a free game: what the run took, and on request the same run on real tensors."""

from contextlib import redirect_stdout
from io import StringIO
from itertools import groupby

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lib import Report, Trace
from puzzles.failure import Failure
from puzzles.tracks.workbench import TensorOptions, Workbench

from .free_game import FreeGame, summary
from .run_on_tensors import replay_trace


def run_freely(game: FreeGame, options: TensorOptions, bench: Workbench) -> bool:
    """Runs and judges a free game, and returns whether it is correct, and on tensors as predicted."""
    outcome = bench.run(game.request())
    if outcome.is_absent:
        return bench.refuse(f"was not run: {bench.absent()}")
    judged = game.judged(outcome)
    if isinstance(judged, Failure):
        return bench.refuse(f"is not correct ({game.described}): {bench.message(judged)}")
    trace, report = judged
    show_report(bench.console, game, trace, report)
    if options.tensors:
        return replay_trace(game.slug, game.title, trace, options, bench)
    if options.output:
        draw_run(options.output, game.title, trace, options.colour)
        bench.wrote(options.output)
    return True


def draw_run(output: str, title: str, trace: Trace, colour: str) -> None:
    """Draws a run, to a file."""
    import drawing

    with redirect_stdout(StringIO()):  # `draw` prints figures, which are shown already
        picture = drawing.draw(trace, title, colour=colour)
    drawing.save(picture, output)


def show_report(console: Console, game: FreeGame, trace: Trace, report: Report) -> None:
    """What a correct run is and took: sentences, and a row for each rank, or for several neighbours that are alike."""
    console.print(Text(game.title, style="bold"), soft_wrap=True)
    for line in summary(trace, report):
        console.print(Text(line))
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("rank", "busy", "peak memory", "messages", "bytes sent"):
        table.add_column(heading, justify="right", no_wrap=True)
    rows = [(f"{r.busy:.1%}", f"{max(r.memory):,}", f"{r.messages:,}", f"{r.bytes_sent:,}") for r in report.ranks]
    for cells, alike in groupby(range(len(rows)), rows.__getitem__):
        ranks = list(alike)
        table.add_row(str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]}-{ranks[-1]}", *cells)
    console.print(table)
    if game.stand_for:
        console.print(Text(game.stand_for))
    if game.note:
        console.print(Text(game.note))
