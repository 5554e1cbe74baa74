"""`puzzles next`: adds the starter of the next puzzle to the player's file, and shows the puzzle."""

import click

from puzzles.reports.screen import next_command, print_wrapped
from puzzles.tracks import track_of

from .shared.params import terminal
from .show import show_statement
from .start import DEFAULT_FILE, add_to


@click.command("next")
@click.option("-o", "path", metavar="FILE", default=DEFAULT_FILE, show_default=True, help="Where to add its starter.")
def next_(path: str) -> None:
    """Open the next puzzle of the core path.

    Its starter is added to FILE, which is written if it does not exist; nothing in it is overwritten.
    """
    from puzzles.grading.progress import load, next_slug
    from puzzles.reports.feedback import what_next

    console, slug = terminal(), next_slug(load())
    if slug is None:
        return print_wrapped(console, what_next())
    added = add_to(path, [slug])
    show_statement(console, track_of(slug).puzzle(slug))
    console.print()
    watch = next_command("watch", path)
    where = f"Its starter is now in {path}." if added else f"{path} has a definition of {slug} already."
    print_wrapped(console, f"{where} '{watch}' grades the file on every save; there, n goes on to the next puzzle.")
