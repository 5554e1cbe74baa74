"""`puzzles layout`: the commands of the schedule track for the layout track."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from .timer import TIME_LIMIT

if TYPE_CHECKING:
    from .layout_catalog import LayoutPuzzle

# The catalog needs numpy, and nothing else of the command line does: it is imported inside the commands.


class LayoutSlug(click.ParamType):  # type: ignore[type-arg]  # generic only in newer clicks
    """A layout puzzle, named by its slug or its number."""

    name = "slug"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> LayoutPuzzle:
        from .catalog import UnknownPuzzle
        from .layout_catalog import LayoutPuzzle, find

        try:
            return value if isinstance(value, LayoutPuzzle) else find(value)
        except UnknownPuzzle as why:
            self.fail(str(why), param, ctx)


@click.group()
def layout() -> None:
    """The layout track: where tensors live. Begin with 'puzzles layout list'."""


@layout.command("list")
def list_() -> None:
    """List the layout puzzles with their limits."""
    from .arguments import terminal
    from .layout_catalog import LAYOUT_PUZZLES
    from .layout_pages import show_list

    show_list(terminal(), LAYOUT_PUZZLES.values())


@layout.command()
@click.argument("puzzle", metavar="SLUG", type=LayoutSlug())
@click.option("--about", is_flag=True, help="Tell the idea behind it, what real systems do, and the sources.")
def show(puzzle: LayoutPuzzle, about: bool) -> None:
    """Show a layout puzzle: what to do, the graph, where to start."""
    from .arguments import terminal
    from .layout_pages import show_background, show_puzzle

    (show_background if about else show_puzzle)(terminal(), puzzle)


@layout.command()
@click.argument("puzzle", metavar="SLUG", type=LayoutSlug())
@click.option("-n", "number", type=int, default=1, show_default=True, help="Which one, from gentle to explicit.")
def hint(puzzle: LayoutPuzzle, number: int) -> None:
    """Give a hint."""
    from .arguments import terminal
    from .layout_pages import show_hint

    if not 1 <= number <= len(puzzle.hints):
        raise click.UsageError(f"{puzzle.slug} has hints 1 to {len(puzzle.hints)}; there is no hint {number}")
    show_hint(terminal(), puzzle, number)


@layout.command()
@click.argument("puzzle", metavar="[SLUG]", type=LayoutSlug(), required=False)
@click.option("-o", "output", metavar="FILE", help="Where to write  [default: my_layouts.py or my_SLUG.py]")
@click.option("--force", is_flag=True, help="Overwrite the file if it exists.")
def start(puzzle: LayoutPuzzle | None, output: str | None, force: bool) -> None:
    """Write a file to start from, with all layout puzzles or with one."""
    from .layout_catalog import LAYOUT_PUZZLES
    from .layout_pages import starter_file

    path = output or (f"my_{puzzle.slug}.py" if puzzle else "my_layouts.py")
    text = starter_file([puzzle] if puzzle else list(LAYOUT_PUZZLES.values()), path)
    try:
        with open(path, "w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise click.UsageError(
            f"{path} exists already; choose another name with -o, or overwrite it with --force"
        ) from None
    except OSError as why:
        raise click.UsageError(f"cannot write {path}: {why.strerror}") from None
    click.echo(f"Wrote {path}. Annotate between the marked lines, then: puzzles layout grade {path}")


@layout.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(exists=True))
@click.option("--puzzle", metavar="SLUG", type=LayoutSlug(), help="Grade only this one.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else.")
@click.option("--time-limit", type=click.FloatRange(min=0, min_open=True), default=TIME_LIMIT, show_default=True)
@click.pass_context
def grade(
    ctx: click.Context, paths: tuple[str, ...], puzzle: LayoutPuzzle | None, as_json: bool, time_limit: float
) -> None:
    """Grade layouts: files, or every Python file below a folder. Exit codes as for 'puzzles grade'."""
    from . import layout_verdict
    from .arguments import terminal
    from .files import submissions
    from .layout_catalog import LAYOUT_PUZZLES
    from .layout_grader import grade_file
    from .layout_pages import report

    wanted = [puzzle] if puzzle else list(LAYOUT_PUZZLES.values())
    files = [grade_file(path, wanted, time_limit) for path in submissions(paths)]
    if as_json:
        click.echo(json.dumps(layout_verdict.as_json(files), indent=2))
    else:
        report(terminal(), files)
    ctx.exit(0 if layout_verdict.all_passed(files) else 1)


@layout.command()
@click.argument("path", metavar="PATH", type=click.Path(exists=True, dir_okay=False))
@click.argument("puzzle", metavar="SLUG", type=LayoutSlug())
@click.option("-o", "output", metavar="FILE.svg", help="Where to write the picture  [default: SLUG.svg]")
@click.pass_context
def draw(ctx: click.Context, path: str, puzzle: LayoutPuzzle, output: str | None) -> None:
    """Draw the completed plan: operators with their strategies, edges with what they pay."""
    from pathlib import Path

    from drawing import save
    from drawing.layout_graph import draw_plan

    from .inside.failure import Failure
    from .layout_grader import completed
    from .own_file import Submission

    target = output or f"{puzzle.slug}.svg"
    if not target.lower().endswith(".svg"):
        raise click.UsageError(f"pictures are written as SVG; '{target}' should end in .svg")
    submission = Submission.read(Path(path))
    if submission.problem is not None or not submission.may_define(puzzle.slug):
        raise click.UsageError(f"there is no function {puzzle.slug} in {path}")
    found = completed(puzzle, submission)
    if isinstance(found, Failure) or found is None:
        click.echo(found.message if found else f"there is no function {puzzle.slug} in {path}", err=True)
        ctx.exit(1)
    save(draw_plan(found, puzzle.title), target)
    click.echo(f"Wrote {target}.")
