"""`puzzles submit` writes an entry for a leaderboard; `puzzles record` adds an entry or a solution to the records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from puzzles.custom.puzzle_file import shown
from puzzles.tracks import UnknownPuzzleError, find, track_of

if TYPE_CHECKING:
    from puzzles.leaderboard.entry import Entry
    from puzzles.leaderboard.take_over import SourceEntry


@click.command()
@click.argument("path", metavar="TRACE.json|FILE.py", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--name", required=True, help="Your name on the board.")
@click.option("--puzzle", "slug", metavar="SLUG", help="The puzzle that it solves  [default: the file's name]")
@click.option("-o", "folder", metavar="FOLDER", type=click.Path(file_okay=False, path_type=Path), default="entries",
              show_default=True, help="The folder of the entries.")  # fmt: skip
def submit(path: Path, name: str, slug: str | None, folder: Path) -> None:
    """Write an entry for a leaderboard: your run of a puzzle, with your name.

    The entry contains the trace of the run, not the code. Name a trace that 'puzzles grade --traces' or 'puzzles draw'
    saved, or your solution, which is graded first.
    """
    from puzzles.leaderboard.entry import EntryError, judged, saved_puzzle

    try:
        puzzle = saved_puzzle(slug or path.stem, "" if slug else "; --puzzle SLUG says which it solves")
        entry = judged(puzzle, name, _trace(path, puzzle.slug))
        file = folder / puzzle.slug / entry.file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(entry.text(), encoding="utf-8", newline="\n")
    except EntryError as why:
        raise click.ClickException(f"{path}: {why}") from None
    except OSError as why:
        raise click.ClickException(f"cannot write {why.filename}: {why.strerror}") from None
    verdict = entry.verdict
    figures = track_of(puzzle.slug).figures_text(puzzle, verdict.figures)
    click.echo(f"Wrote {file}: {puzzle.slug}, {figures}, {verdict.stars} of 3 stars.")


def _trace(path: Path, slug: str) -> bytes:
    from puzzles.grading.grader import grade_file
    from puzzles.leaderboard.entry import EntryError

    if path.suffix not in (".py", ".ipynb"):
        return path.read_bytes()
    (verdict,) = grade_file(str(path), [find(slug)], keep=True).verdicts
    if not verdict.attempted:
        raise EntryError(verdict.message or f"it has no {slug}, or only the starter; --puzzle names another")
    if verdict.status != "passed":
        raise EntryError(f"it does not pass {slug}: {verdict.message}")
    return verdict.trace.encode()


@click.command()
@click.argument("path", metavar="ENTRY.json|FILE.py", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("slug", metavar="[SLUG]", required=False)
@click.option("--name", help="Who found it; only for a solution.")
def record(path: Path, slug: str | None, name: str | None) -> None:
    """Add an entry or a solution to the records of its puzzle.

    Judges it again, compares it with all known records, and saves it with the puzzle's records: in a clone of the game,
    or in your own folder of puzzles. From then on, solutions are compared with it for the third star.

    For a schedule, the trace is saved. A class is graded in the sandbox at every size, and its file is saved. SLUG is
    the puzzle that a solution solves; by default, the file's name.
    """
    from puzzles.leaderboard.entry import EntryError
    from puzzles.leaderboard.take_over import take_over

    try:
        entry = _entry(path, slug, name)
        file = take_over(entry)
    except EntryError as why:
        raise click.ClickException(f"{path}: {why}") from None
    except OSError as why:
        where = why.filename or path
        raise click.ClickException(f"cannot write {where}: {why.strerror}; add records in a clone") from None
    puzzle, verdict = entry.puzzle, entry.verdict
    figures = track_of(puzzle.slug).figures_text(puzzle, verdict.figures)
    family = f"{verdict.family}, " if verdict.family else ""
    click.echo(f"Filed {shown(file)}: {puzzle.slug}, {family}{figures}, by {entry.name}.")
    click.echo(f"Commit it with {shown(file.with_name('index.json'))}.")


def _entry(path: Path, slug: str | None, name: str | None) -> Entry | SourceEntry:
    from puzzles.leaderboard.entry import EntryError, read_entry
    from puzzles.leaderboard.take_over import folder_for, graded

    if path.suffix not in (".py", ".ipynb"):
        if slug or name:
            raise EntryError("an entry states its puzzle and its author; leave out SLUG and --name")
        return read_entry(path)
    if not name:
        raise EntryError("say who found it, with --name")
    try:
        puzzle = find(slug or path.stem)
    except UnknownPuzzleError as why:
        raise EntryError(f"{why}; add the puzzle's name after the file") from None
    folder_for(puzzle)
    return graded(path, puzzle, name)
