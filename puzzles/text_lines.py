"""What commands print: Markdown as lines of text, paragraphs, tables, pages that fit the screen, the next command.

Lines end between words, and never inside a call, a command or a path. A table that does not fit a terminal is printed
in parts, each of which repeats its first column; only where two columns do not fit are words folded. Rejected: rich's
own Markdown, which breaks calls at spaces and crops columns. What is only printed by some commands, such as rich, is
loaded where it is needed.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import StringIO
from textwrap import TextWrapper
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from markdown_it.tree import SyntaxTreeNode
    from rich.console import Console, RenderableType
    from rich.measure import Measurement
    from rich.table import Column, Table


COLOURS = ("layer", "microbatch", "operation")
"""What the colours of operations may show in a picture of a schedule; `drawing` refuses any other."""

MAX_WIDTH = 88
"""Columns of running text: wider is harder to read."""

WHOLE = re.compile(r"`[^`\n]+`|'puzzles [^'\n]+'|< \S+")
"""What stays in one piece: code in backquotes, commands in quotes, limits such as '< 34'."""

GLUE = "\0"
"""Replaces a space at which no line may end."""


def wrapped(text: str, width: int, indent: str = "", hanging: str | None = None) -> str:
    """Text in lines of at most `width` columns, unless one word or piece of code is wider. The first line begins with
    `indent`, all others with `hanging`, which is the same unless it is given."""
    hanging = indent if hanging is None else hanging
    room = width - max(len(indent), len(hanging))
    wrapper = TextWrapper(
        width,
        initial_indent=indent,
        subsequent_indent=hanging,
        break_on_hyphens=False,
        break_long_words=False,
    )
    glued = WHOLE.sub(lambda found: found[0].replace(" ", GLUE) if len(found[0]) <= room else found[0], text)
    return "\n".join(line.replace(GLUE, " ").rstrip() for line in wrapper.wrap(" ".join(glued.split())))


def text_lines(text: str, width: int) -> list[str]:
    """The lines of a text: running text in at most `width` columns, code and wide words as they are.
    What is within a line stays as it was written, with its backquotes."""
    from markdown_it import MarkdownIt
    from markdown_it.tree import SyntaxTreeNode

    tree = SyntaxTreeNode(MarkdownIt("commonmark").enable("table").parse(text))
    return list(_blocks(tree.children, width))


def _blocks(nodes: Sequence[SyntaxTreeNode], width: int, is_tight: bool = False) -> Iterator[str]:
    """The lines of blocks, with an empty line between two unless they are in a tight list."""
    for number, node in enumerate(nodes):
        if number and not is_tight:
            yield ""
        match node.type:
            case "bullet_list" | "ordered_list":
                yield from _list(node, width)
            case "table":
                yield from _table(node, width)
            case "code_block" | "fence":
                yield from (f"    {line}".rstrip() for line in node.content.splitlines())
            case "blockquote":
                yield from (f"> {line}" for line in _blocks(node.children, width - 2))
            case "paragraph" | "heading":
                yield from wrapped(node.children[0].content, width).splitlines()
            case _:
                yield from node.content.splitlines()


def _list(node: SyntaxTreeNode, width: int) -> Iterator[str]:
    is_tight = any(block.type == "paragraph" and block.hidden for item in node.children for block in item.children)
    for number, item in enumerate(node.children):
        mark = "- " if node.type == "bullet_list" else f"{int(node.attrs.get('start', 1)) + number}. "
        if number and not is_tight:
            yield ""
        for line in _blocks(item.children, width - len(mark), is_tight):
            yield f"{mark}{line}".rstrip()
            mark = " " * len(mark)


def _table(node: SyntaxTreeNode, width: int) -> list[str]:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    head, *rows = [row.children for part in node.children for row in part.children]
    for cell in head:
        is_right = "right" in str(cell.attrs.get("style", ""))
        table.add_column(Text(cell.children[0].content), justify="right" if is_right else "left")
    for row in rows:
        table.add_row(*(Text(cell.children[0].content) for cell in row))
    return _printed(table, width)


def aligned_lines(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Rows of Markdown as plain text with their columns aligned; where they do not fit, cells are wrapped."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*(Text(cell.replace("`", "")) for cell in row))
    return _printed(table, width)


def _printed(table: Table, width: int) -> list[str]:
    from rich.console import Console

    console = Console(file=StringIO(), width=width, color_system=None)
    with console.capture() as capture:
        print_table(console, table)
    return [line.rstrip() for line in capture.get().splitlines()]


def table_of_figures(*headings: str) -> Table:
    """A table with these columns, which are aligned on the right and never wrapped."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


UNLIMITED_WIDTH = 10_000
"""Characters of a line that every table fits."""


def print_table(console: Console, table: Table) -> None:
    """Prints a table at the width of the console, in as many parts as it needs."""
    for part in fitted(console, table):
        console.print(part)


def fitted(console: Console, table: Table, repeated: int = 0) -> Iterator[Table]:
    """The table, or parts of it that fit the console, each of which begins with the column of the number `repeated`.
    Where even two columns do not fit, they are folded at any letter."""
    whole = _unshrinkable(console, table)
    if _measured(console, whole).minimum <= console.width:
        yield whole
        return
    columns = list(whole.columns)
    first = columns.pop(repeated)
    shown = [first]
    for column in columns:
        if len(shown) > 1 and _measured(console, part_of(whole, [*shown, column])).minimum > console.width:
            yield _folded(console, part_of(whole, shown))
            shown = [first]
        shown.append(column)
    yield _folded(console, part_of(whole, shown))


def least_width(console: Console, table: Table) -> int:
    """The characters of a line below which something would be folded within a word or cropped."""
    return _measured(console, _unshrinkable(console, table)).minimum


def full_width(console: Console, table: Table) -> int:
    """The characters of a line at which nothing in a table is wrapped."""
    return _measured(console, table).maximum


def _measured(console: Console, content: RenderableType) -> Measurement:
    return console.measure(content, options=console.options.update(max_width=UNLIMITED_WIDTH))


def _folded(console: Console, part: Table) -> Table:
    """A part, whose words may be folded at any letter if it does not fit otherwise."""
    if _measured(console, part).minimum > console.width:
        for column in part.columns:
            column.no_wrap, column.overflow, column.min_width = False, "fold", None
    return part


def _unshrinkable(console: Console, table: Table) -> Table:
    """The table with columns that are never narrower than a word or, where cells do not wrap, than a cell; rich itself
    forgets `no_wrap` when it measures."""
    whole = part_of(table, table.columns)
    for column in whole.columns:
        contents = [column.header, *column.cells] if table.show_header else [*column.cells]
        sizes = [_measured(console, content) for content in contents]
        least = max((size.maximum if column.no_wrap else size.minimum for size in sizes), default=0)
        column.min_width = max(least, column.min_width or 0)
    return whole


def part_of(table: Table, columns: Sequence[Column]) -> Table:
    """The table with these of its columns, which may be changed."""
    from rich.table import Table

    part = Table(
        box=table.box, show_header=table.show_header, show_edge=table.show_edge, pad_edge=table.pad_edge,
        padding=table.padding, collapse_padding=table.collapse_padding,
        title=table.title, title_justify=table.title_justify,
    )  # fmt: skip
    for column in columns:
        part.add_column(
            column.header, justify=column.justify, style=column.style, no_wrap=column.no_wrap, overflow=column.overflow,
            min_width=column.min_width, ratio=column.ratio,
        )  # fmt: skip
    for cells in zip(*(column.cells for column in columns)):
        part.add_row(*cells)
    return part


# --- Paragraphs and pages ---


FOLDERS = "puzzles.folders"
"""Where click's context keeps the folders of --puzzles."""


def next_command(*words: str) -> str:
    """'puzzles hint relay --puzzles week3'; without folders where no command is running, as in a notebook."""
    click = sys.modules.get("click")  # which only commands load
    ctx = click.get_current_context(silent=True) if click else None
    paths = ctx.meta.get(FOLDERS, ()) if ctx else ()
    return shlex.join(["puzzles", *words, *(word for path in paths for word in ("--puzzles", path))])


def print_wrapped(
    console: Console, text: str, style: str = "", indent: str = "", lead: str = "", lead_style: str = "bold"
) -> None:
    """Prints a paragraph at the width of the terminal; it begins with `lead`, which has its own style."""
    from rich.text import Text

    shown = Text(wrapped(lead + text, min(console.width, MAX_WIDTH), indent, indent), style=style)
    shown.stylize(lead_style, 0, len(indent + lead))
    console.print(shown, soft_wrap=True)


class ScreenPart(NamedTuple):
    """A part of a page. An optional one is left out where there is no room for all of it."""

    show: Callable[[Console], None]
    optional: bool = True


def show_fitted(console: Console, parts: Iterable[ScreenPart]) -> None:
    """Prints all parts that are not optional, and the first of the others that fit, in their order.

    The last row stays free for the cursor. There is room for everything if the output is not a terminal.
    """
    measured = [(part, _rows(console, part)) for part in parts]
    room = console.height - 1 - sum(rows for part, rows in measured if not part.optional)
    for part, rows in measured:
        if part.optional and console.is_terminal:
            if rows > room:
                continue
            room -= rows
        part.show(console)


def _rows(console: Console, part: ScreenPart) -> int:
    from rich.text import Text

    with console.capture() as capture:
        part.show(console)
    widths = [Text.from_ansi(line).cell_len for line in capture.get().splitlines()]
    return sum(max(1, -(-width // console.width)) for width in widths)
