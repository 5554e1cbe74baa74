"""`puzzles submit`: writes an entry for a leaderboard, or takes over one as a record."""

from pathlib import Path

import click


@click.command()
@click.argument("path", metavar="TRACE.json|FILE.py", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--name", required=True, help="Your name on the board.")
@click.option("--puzzle", "slug", metavar="SLUG", help="The puzzle that it solves  [default: the file's name]")
@click.option("-o", "folder", metavar="FOLDER", type=click.Path(file_okay=False, path_type=Path), default="entries",
              show_default=True, help="The folder of the entries.")  # fmt: skip
def submit(path: Path, name: str, slug: str | None, folder: Path) -> None:
    """Write an entry for a leaderboard: your run of a puzzle, with your name.

    It holds the trace and no code. The run comes from a trace that 'puzzles grade --traces' or 'puzzles draw' saved, or
    from your solution, which is graded first.
    """
    from puzzles.leaderboard.entry import EntryError, judged, saved_puzzle
    from puzzles.tracks import track_of

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
    from puzzles.tracks import find

    if path.suffix not in (".py", ".ipynb"):
        return path.read_bytes()
    (verdict,) = grade_file(str(path), [find(slug)], keep=True).verdicts
    if not verdict.attempted:
        raise EntryError(verdict.message or f"it has no {slug}, or only the starter; --puzzle names another")
    if verdict.status != "passed":
        raise EntryError(f"it does not pass {slug}: {verdict.message}")
    return verdict.trace.encode()
