"""The engine puzzles on a terminal: list, one puzzle, a hint, a starter, verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .engine_catalog import EnginePuzzle
from .engine_catalog.figures import FIGURES
from .engine_catalog.puzzle import CREDIT
from .engine_grade import EngineVerdict
from .inside.failure import plain
from .pages import WIDEST, _code, _heading, _paragraphs
from .report import COLOURS, stars_text


def show_engine_list(console: Console, puzzles: Iterable[EnginePuzzle]) -> None:
    """One row for each puzzle, with its targets."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("engine puzzle", no_wrap=True, style="bold")
    table.add_column("targets for each of 4 devices")
    for puzzle in puzzles:
        table.add_row(puzzle.slug, puzzle.targets_text())
    console.print(table)


def show_engine_puzzle(console: Console, puzzle: EnginePuzzle) -> None:
    """Statement, targets and starter."""
    console.print(Text(f"{puzzle.slug}: {puzzle.title}", style="bold"))
    console.print(Text(f"4 devices; targets for each: {puzzle.targets_text()}"), width=min(console.width, WIDEST))
    _paragraphs(console, puzzle.statement)
    _heading(console, "Starter")
    _code(console, engine_starter(puzzle))
    console.print(f"'puzzles start {puzzle.slug}' writes this to a file, 'puzzles hint {puzzle.slug}' gives a hint,")
    console.print(f"'puzzles show {puzzle.slug} --about' tells what is behind it.")


def show_engine_background(console: Console, puzzle: EnginePuzzle) -> None:
    """The concept, what real systems do, where the targets come from, and the sources."""
    console.print(Text(f"Behind {puzzle.slug}: {puzzle.title}", style="bold"))
    _paragraphs(console, puzzle.concept)
    for heading, text in (("In practice", puzzle.in_practice), ("The targets", puzzle.arithmetic)):
        _heading(console, heading)
        _paragraphs(console, text, lead=False)
    _heading(console, "Sources")
    for source in (*map(str, puzzle.sources), CREDIT):
        console.print(Text(source), width=min(console.width, WIDEST))


def engine_starter(puzzle: EnginePuzzle) -> str:
    """The source of a file to start from."""
    imports = "\n".join(("from lib.engine import ShardedEngine", *puzzle.imports))
    return f"import numpy as np\n\n{imports}\n\n\n{puzzle.starter}"


def report_engine(console: Console, path: str, verdicts: Sequence[EngineVerdict]) -> None:
    """A table of the classes of one file, and what there is to say about them."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(plain(path))
    for heading in ("stars", "verdict", "figures, and targets"):
        table.add_column(heading)
    for v in verdicts:
        figures = [
            f"{v.figures[name]:,} of {limit:,} {FIGURES[name].words}" for name, limit in v.targets.items() if v.figures
        ]
        status = f"{v.status.replace('_', ' ')}{': ' + v.reason if v.reason else ''}"
        shown = Text(status, style=COLOURS[v.status])
        table.add_row(v.puzzle, stars_text(console, v.stars), shown, Text(", ".join(figures)))
    console.print(table)
    for v in verdicts:
        if v.message:
            console.print(Text.assemble((f"{v.puzzle}: ", "bold"), v.message), width=min(console.width, WIDEST))
