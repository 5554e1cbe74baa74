"""`puzzles status`: the player's stars, attempts and hints, and the next puzzle to try."""

import click

from .shared.params import terminal


@click.command()
def status() -> None:
    """Show your stars, and what to try next."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from puzzles.grading.progress import load, next_slug
    from puzzles.reports.feedback import what_next
    from puzzles.reports.screen import print_wrapped
    from puzzles.reports.standings import stars_text
    from puzzles.tracks import TRACKS, track_of

    console, entries = terminal(), load()
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("puzzle", "stars", "attempts", "hints", "best"):
        table.add_column(
            heading, justify="right" if heading in ("attempts", "hints") else "left", no_wrap=heading != "best"
        )
    begun = {slug: entry for slug, entry in entries.items() if entry.attempts or entry.hints}
    for slug, e in begun.items():
        track = track_of(slug)
        puzzle = track.puzzle(slug)
        best = ", ".join(f"{measure.value_text} {measure.words}" for measure in track.measures(puzzle, e.figures))
        stars = stars_text(console, e.stars) if e.attempts else ""
        table.add_row(slug, stars, str(e.attempts), f"{e.hints} of {len(puzzle.hints)}", best if e.figures else "")
    if begun:
        console.print(table)
    for track in TRACKS.values():
        print_wrapped(
            console, f"{track.title}: {sum(entries[s].stars for s in track.slugs)} of {3 * len(track.slugs)} stars."
        )
    unbeaten = next_slug(entries, after=next(iter(entries)), stars=3)
    if next_slug(entries) is not None:
        print_wrapped(console, what_next())
    elif unbeaten is not None:
        print_wrapped(
            console, f"You have met every target. For a third star, try {unbeaten}: a better solution is known."
        )
    else:
        print_wrapped(console, "You have every star. Can you beat a record?")
