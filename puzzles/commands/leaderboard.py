"""`puzzles leaderboard`: judges all entries again and writes a board."""

from importlib.resources import files
from pathlib import Path

import click

from puzzles.address import requirement, source
from puzzles.reports.screen import next_command


@click.command()
@click.argument("folder", metavar="TRACES", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("-o", "output", metavar="FOLDER", type=click.Path(file_okay=False, path_type=Path), default="board",
              show_default=True, help="The folder of the board; 'site/board' for the site.")  # fmt: skip
@click.option("--title", default="Leaderboard", show_default=True, help="The board's title.")
@click.option("--dates", metavar="git|FILE",
              help="When each entry was found: from git's history, or from a CSV file (file, date).")  # fmt: skip
@click.option("--check", is_flag=True, help="Write nothing; fail if the board is out of date.")
@click.option("--workflow", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
              help="Also write a GitHub workflow that checks entries and publishes the board.")  # fmt: skip
@click.pass_context
def leaderboard(
    ctx: click.Context, folder: Path, output: Path, title: str, dates: str | None, check: bool, workflow: Path | None
) -> None:
    """Judge every entry in TRACES again, and write a leaderboard.

    Entries are files from 'puzzles submit', or traces from 'puzzles grade --traces'. The same entries always give the
    same board. The exit code is 1 if a file is refused or, with --check, if the board differs.
    """
    from puzzles.leaderboard.board import collected, differences, files_of, rankings, write
    from puzzles.leaderboard.entry import EntryError, dates_of

    try:
        entries, refused = collected(folder, dates_of(folder, dates) if dates else None)
    except EntryError as why:
        raise click.UsageError(f"--dates: {why}") from None
    made = files_of(rankings(entries), title)
    for one in refused:
        click.echo(f"Left out {one.path}: {one.why}", err=True)
    different = differences(made, output) if check else []
    for name in different:
        click.echo(f"{output / name} is out of date; run this without --check", err=True)
    if not entries and not refused:
        click.echo(
            f"There are no entries in {folder}, files .json; 'puzzles submit' and 'puzzles grade --traces' write them.",
            err=True,
        )
    if not check:
        try:
            write(made, output)
            if workflow is not None:
                workflow.parent.mkdir(parents=True, exist_ok=True)
                workflow.write_text(_workflow(title, dates), encoding="utf-8", newline="\n")
                if not source():
                    click.echo(
                        f"{workflow} installs {requirement()} from the top folder of its repository; put that file "
                        "there. 'make wheel' in a clone of the game builds it in dist.",
                        err=True,
                    )
        except OSError as why:
            raise click.ClickException(f"cannot write {why.filename}: {why.strerror}") from None
    taken = f"{len(entries)} {'entry' if len(entries) == 1 else 'entries'}"
    click.echo(f"{'Checked' if check else 'Wrote'} {output / 'index.html'}, with {taken}; {len(refused)} left out.")
    ctx.exit(1 if refused or different else 0)


def _workflow(title: str, dates: str | None) -> str:
    text = (files("puzzles.leaderboard") / "workflow.yml").read_text(encoding="utf-8")
    command = next_command(
        "leaderboard", "entries", "-o", "board", "--title", title, *(["--dates", dates] if dates else [])
    )
    package = requirement() if source() else f"./{requirement()}"
    return text.replace("PACKAGE", package).replace("COMMAND", command)
