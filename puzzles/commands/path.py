"""`puzzles path`: the map of the core path, with what is done."""

import click

from puzzles.catalog.path import CORE, PATH, known
from puzzles.catalog.text_lines import GLUE, MAX_WIDTH, wrapped
from puzzles.reports.screen import next_command, print_wrapped
from puzzles.tracks import SHIPPED

from .shared.params import terminal

TITLE = 2 + max(len(step.title) for step in PATH)


@click.command()
def path() -> None:
    """Show the core path, and what you have done of it."""
    from rich.text import Text

    from puzzles.grading.progress import load, next_slug, solved_slugs
    from puzzles.reports.feedback import what_next
    from puzzles.reports.standings import stars_text

    console, entries = terminal(), load()
    solved = solved_slugs(entries)
    done = known(solved)

    def stop(slug: str) -> str:
        if entries[slug].attempts:
            return f"{slug} {stars_text(console, entries[slug].stars)}"
        return f"{slug} (known)" if slug in done else slug

    print_wrapped(console, f": {len(done & set(CORE))} of {len(CORE)} puzzles are done.", lead="The core path")
    for number, step in enumerate(PATH, 1):
        lead, *rest = (f"{number:>2}  {step.title:<{TITLE}}", *[" " * (TITLE + 4)] * len(step.slugs))
        stops = f"{GLUE} ".join(stop(slug).replace(" ", GLUE) for slug in step.slugs)
        for margin, line in zip((lead, *rest), wrapped(stops, min(console.width, MAX_WIDTH) - len(lead)).splitlines()):
            console.print(Text(margin + line), soft_wrap=True)
    print_wrapped(console, f"The other {len(SHIPPED) - len(CORE)} puzzles are extra: '{next_command('list')}'.", "dim")
    if set(CORE) - solved:
        print_wrapped(
            console,
            "Do you know some of it? Solve any puzzle, in a file or a notebook: what comes before it counts as known.",
            "dim",
        )
    opens = f" '{next_command('next')}' opens it." if next_slug(entries) else ""
    print_wrapped(console, f"{what_next()}{opens}")
