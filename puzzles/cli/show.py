"""`puzzles show`, `hint` and `costs`: a puzzle's statement, calls and starter, its background, hints; prices of costs.

A puzzle's texts come from its track, and only their order on the screen is decided here. Hints come one at a time, from
the gentlest on, and the number that was asked for is remembered, as part of the player's progress. The background
stays behind `--about`, since it explains the idea that the player is to find. Costs are shown by name as sentences, or
as JSON that `--costs` reads again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from lib import Costs
from lib.ledger.algebra import counted
from lib.ledger.named_costs import MEANINGS, costs_named
from lib.ledger.setting import record_to_json
from puzzles.address import page
from puzzles.catalog.puzzle import Puzzle
from puzzles.judge.progress import remember_hint
from puzzles.text_lines import MAX_WIDTH, aligned_lines, next_command, print_table, print_wrapped, text_lines
from puzzles.tracks import place, track_of
from puzzles.tracks.outcomes import capitalized

from .params import terminal, usage_errors
from .puzzle_params import PUZZLE

if TYPE_CHECKING:
    from rich.console import Console


@click.command()
@click.argument("puzzle", metavar="SLUG", type=PUZZLE)
@click.option("--about", is_flag=True, help="Show the idea behind it, what real systems do, and the sources.")
def show(puzzle: Puzzle, about: bool) -> None:
    """Show a puzzle: its statement, calls and starter."""
    (show_background if about else show_puzzle)(terminal(), puzzle)


def show_statement(console: Console, puzzle: Puzzle) -> None:
    from rich.text import Text

    track = track_of(puzzle.slug)
    print_wrapped(console, track.words.heading(puzzle), "bold")
    print_wrapped(console, track.words.limits(puzzle))
    if where := place(puzzle.slug):
        print_wrapped(console, f"{capitalized(where)}.", "dim")
    print_paragraphs(console, puzzle.statement)
    if rows := track.words.setting_rows(puzzle):
        console.print()
        for line in aligned_lines(rows, console.width):
            console.print(Text(line), soft_wrap=True)


def show_puzzle(console: Console, puzzle: Puzzle) -> None:
    from rich.text import Text

    show_statement(console, puzzle)
    track, slug = track_of(puzzle.slug), puzzle.slug
    for section in track.words.sections(puzzle):
        _heading(console, section.title)
        for line, meaning in section.lines:
            console.print(Text(line, style="cyan" if meaning else ""), soft_wrap=True)
            if meaning:
                print_wrapped(console, meaning, indent="    ")
    _heading(console, "Starter")
    _code(console, puzzle.starter)
    for command, meaning in ((("start", slug), "writes the starter to a file"), (("hint", slug), "gives a hint"),
                             (("show", slug, "--about"), "explains the idea behind it")):  # fmt: skip
        print_wrapped(console, f"'{next_command(*command)}' {meaning}")
    if mistakes := page("mistakes"):
        print_wrapped(console, f"{mistakes} shows twenty mistakes with their messages")


def show_background(console: Console, puzzle: Puzzle) -> None:
    track = track_of(puzzle.slug)
    print_wrapped(console, f"Behind {track.words.heading(puzzle)}", "bold")
    print_paragraphs(console, puzzle.concept)
    for title, text in (("In practice", puzzle.in_practice), *track.words.background(puzzle)):
        _heading(console, title)
        print_paragraphs(console, text, lead=False)
    _heading(console, "Sources")
    for source in track.words.sources(puzzle):
        print_wrapped(console, source)


def _heading(console: Console, text: str) -> None:
    console.print()
    print_wrapped(console, text, "bold")


def print_paragraphs(console: Console, text: str, lead: bool = True) -> None:
    """Prints a text in plain Markdown, with an empty line before it if there is a `lead`."""
    from rich.text import Text

    for line in [""] * lead + text_lines(text, min(console.width, MAX_WIDTH)):
        console.print(Text(line), soft_wrap=True)


def _code(console: Console, source: str) -> None:
    """Prints code, in colour on a terminal with colours. Long lines are not wrapped."""
    from rich.text import Text

    code = Text(source)
    if console.color_system is not None:
        from rich.syntax import Syntax  # here, because it is slow to import

        code = Syntax("", "python", theme="ansi_dark", background_color="default").highlight(source)
    console.print(code, soft_wrap=True)


@click.command()
@click.argument("puzzle", metavar="SLUG", type=PUZZLE)
@click.option("-n", "number", type=int, default=1, show_default=True, help="Which hint; 1 is the gentlest.")
def hint(puzzle: Puzzle, number: int) -> None:
    """Show a hint."""
    if puzzle.hints and not 1 <= number <= len(puzzle.hints):
        raise click.UsageError(f"{puzzle.slug} has hints 1 to {len(puzzle.hints)}; there is no hint {number}")
    show_hint(terminal(), puzzle, number)
    remember_hint(puzzle.slug, number)


def show_hint(console: Console, puzzle: Puzzle, number: int, again: str = "") -> None:
    """Prints one hint, and how to get the next: `again`, or the command."""
    hints = puzzle.hints
    if not hints:
        return print_wrapped(console, f"{puzzle.slug} has no hints.")
    print_wrapped(console, f"{puzzle.title}, hint {number} of {len(hints)}", "bold")
    print_paragraphs(console, hints[number - 1], lead=False)
    following = f"'{next_command('hint', puzzle.slug, '-n', str(number + 1))}'"
    if number < len(hints):
        print_wrapped(console, f"Still stuck? {again or following}", "dim")


# --- Costs ---


@click.command()
@click.argument("name", metavar="[NAME]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON, to edit and use with --costs FILE.json.")
def costs(name: str | None, as_json: bool) -> None:
    """List the names that --costs takes, or show the prices of one."""
    if name is None:
        if as_json:
            raise click.UsageError("--json prints one record; name it, as in 'puzzles costs parts --json'")
        return show_names()
    with usage_errors():
        record = costs_named(name)
    if as_json:
        click.echo(json.dumps(record_to_json(record), indent=2))
    else:
        show_record(record)


def show_names() -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, meaning in MEANINGS.items():
        table.add_row(name, meaning)
    print_table(terminal(), table)


def show_record(record: Costs) -> None:
    console = terminal()
    for line in (f"{record.name}: {MEANINGS[record.name]}.", *facts(record)):
        print_wrapped(console, line)


def facts(record: Costs) -> list[str]:
    """The sizes and prices of a record, each a line."""
    unit = {"us": "Microseconds", "ms": "Milliseconds"}.get(record.time_unit, "Steps")
    prices = (
        (unit, record.ticks),
        (f"{unit} for each call besides", record.calls),
        (f"{unit} for each hop of a ring", record.alpha),
        (f"{unit} between machines", record.ticks_between),
        (f"{unit} for each hop between machines", record.alpha_between),
    )
    tiers = [
        f"The {tier}: {', '.join(f'{name} {record.text(ticks)}' for name, ticks in pair if ticks is not None)} steps."
        for tier, memory in record.tiers.items()
        for pair in [(("offload", memory.offload), ("fetch", memory.fetch), ("update", memory.update))]
        if any(price for _, price in pair)
    ]
    each = unit.lower()[:-1]
    return [
        f"Elements: weight {record.weight:,}, activation {record.activation:,}, "
        f"activation gradient {record.activation_grad:,}.",
        *(
            f"{title}: {', '.join(f'{name} {record.text(ticks)}' for name, ticks in of.items())}."
            for title, of in prices
            if of
        ),
        *(
            f"Elements sent in a {each}{where}: "
            f"{', '.join(f'{name} {float(record.unit / beta):,.0f}' for name, beta in of.items() if beta)}."
            for where, of in (("", record.beta), (" between machines", record.beta_between))
            if of
        ),
        *([f"Operations in a {each}: {record.flops_per_tick * record.unit:,}."] if record.flops_per_tick else []),
        *tiers,
        *([f"An optimizer state: {record.moments} times its weight."] if record.moments > 1 else []),
        *(["Communication overlaps with computation."] if record.overlap else []),
        *([f"A machine has {counted(record.islands, 'rank')}."] if record.islands else []),
    ]
