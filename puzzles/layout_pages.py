"""The pages of the layout track for a terminal: the list, a puzzle, what is behind it, a hint, the verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os.path import basename
from re import fullmatch
from textwrap import wrap

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .failure import plain
from .layout_catalog import LayoutPuzzle
from .layout_verdict import LayoutGraded, LayoutVerdict
from .pages import WIDEST, _code, _heading, _paragraphs
from .report import COLOURS, stars_text

CALLS = (
    ("graph.shard(name, strategy)", "Configures an operator: for each input, into how many parts each dimension."),
    ("graph.operators, graph.shapes", "The operators by name, in order; the shape of every tensor."),
    ("graph.consumers(tensor)", "Who takes a tensor, and as which input."),
    ("propagate(graph).explain()", "What propagation makes of it: strategies, local shapes, bytes on every edge."),
)


def show_list(console: Console, puzzles: Iterable[LayoutPuzzle]) -> None:
    """One row for each puzzle."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading, right in (("#", 1), ("puzzle", 0), ("title", 0), ("operators", 1), ("bytes", 1), ("memory", 1)):
        table.add_column(heading, justify="right" if right else "left", no_wrap=heading != "title")
    for p in puzzles:
        row = (str(p.number), p.slug, p.title, str(p.annotations), f"{p.target:,}", f"{p.memory_cap:,}")
        table.add_row(*row)
    console.print(table)
    console.print("operators: how many you may configure. bytes: moved by all devices. memory: bytes on each.")
    console.print("Begin with 'puzzles layout start', then 'puzzles layout show matmul'.")


def show_puzzle(console: Console, puzzle: LayoutPuzzle) -> None:
    """Statement, limits, the graph, the calls to use, and the starter."""
    console.print(Text(f"Layout puzzle {puzzle.number}: {puzzle.title}", style="bold"))
    console.print(Text(puzzle.limits), width=min(console.width, WIDEST))
    _paragraphs(console, puzzle.statement)
    _heading(console, "Graph")
    for line in graph_lines(puzzle):
        console.print(Text(line), soft_wrap=True)
    _heading(console, "Calls")
    for call, meaning in CALLS:
        console.print(Text(call, style="cyan"))
        console.print(Text(f"    {meaning}"), width=min(console.width, WIDEST))
    _heading(console, "Starter")
    _code(console, puzzle.starter)
    slug = puzzle.slug
    console.print(f"'puzzles layout start {slug}' writes this to a file, 'puzzles layout hint {slug}' gives a hint.")


def graph_lines(puzzle: LayoutPuzzle) -> list[str]:
    """The program, a line for each operator."""
    graph = puzzle.graph()
    lines = [f"{name}: {role} {graph.shapes[name]}" for name, role in graph.sources.items()]
    for name, op in graph.operators.items():
        given = f"  # configured {graph.strategies[name]}" if name in graph.strategies else ""
        lines.append(f"{name} = {op.kind}({', '.join(op.inputs)}): {op.output_shape}{given}")
    return lines


def show_background(console: Console, puzzle: LayoutPuzzle) -> None:
    """The concept, what real systems do, and the sources."""
    console.print(Text(f"Behind layout puzzle {puzzle.number}: {puzzle.title}", style="bold"))
    _paragraphs(console, puzzle.concept)
    _heading(console, "In practice")
    _paragraphs(console, puzzle.in_practice, lead=False)
    _heading(console, "Sources")
    for source in (*map(str, puzzle.sources), puzzle.credit):
        console.print(Text(source), width=min(console.width, WIDEST))


def show_hint(console: Console, puzzle: LayoutPuzzle, number: int) -> None:
    """One hint, and how to get the next."""
    console.print(Text(f"{puzzle.title}, hint {number} of {len(puzzle.hints)}", style="bold"))
    _paragraphs(console, puzzle.hints[number - 1], lead=False)
    if number < len(puzzle.hints):
        console.print(Text(f"Still stuck? 'puzzles layout hint {puzzle.slug} -n {number + 1}'", style="dim"))


def starter_file(puzzles: Sequence[LayoutPuzzle], path: str) -> str:
    """The Python source of a file with the starters of these puzzles; it says how to grade it at `path`."""
    name = basename(path) if fullmatch(r"[\w.-]+", basename(path)) else "FILE"
    parts = [f'"""My layouts. See how they do: puzzles layout grade {name}"""\n\nfrom lib.layout import Graph\n']
    for puzzle in puzzles:
        words = [f"Layout puzzle {puzzle.number}: {puzzle.title}", *wrap(f"Limits: {puzzle.limits}.", 100), ""]
        for paragraph in puzzle.statement.strip().split("\n\n"):
            words += [*wrap(paragraph, 100), ""]
        comment = "".join(f"# {line}".rstrip() + "\n" for line in words[:-1])
        parts.append(comment + puzzle.starter)
    return "\n\n".join(parts)


def report(console: Console, files: Sequence[LayoutGraded]) -> None:
    """A table, then what there is to say about single puzzles."""
    for graded in files:
        shown = graded.verdicts if len(files) == 1 else graded.attempted
        if not shown:
            continue
        console.print(Text(plain(graded.path), style="bold"))
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for heading in ("puzzle", "stars", "bytes moved", "memory", "verdict"):
            table.add_column(heading, justify="right" if heading in ("bytes moved", "memory") else "left")
        for v in shown:
            stars = stars_text(console, v.stars) if v.attempted else ""
            moved, held = _of(v.bytes_moved, v.target_bytes), _of(v.memory, v.memory_cap)
            table.add_row(Text(v.puzzle, style="" if v.attempted else "dim"), stars, moved, held, _status(v))
        console.print(table)
        for v in shown:
            if v.message:
                console.print(Text.assemble((f"{v.puzzle}: ", "bold"), v.message), width=min(console.width, 100))
            if v.source:
                console.print(Text(f"    > {v.source}", style="cyan"), no_wrap=True, overflow="ellipsis")
    attempted = [v for graded in files for v in graded.attempted]
    passed = sum(v.status == "passed" for v in attempted)
    console.print(f"{len(attempted)} layout puzzles attempted, {passed} passed.")


def _of(value: int | None, limit: int) -> Text:
    return Text.assemble("-" if value is None else f"{value:,}", (f" of {limit:,}", "dim"))


def _status(verdict: LayoutVerdict) -> Text:
    text = verdict.status.replace("_", " ")
    return Text(f"{text}: {verdict.reason}" if verdict.reason else text, style=COLOURS[verdict.status])
