"""`puzzles reset`: forgets progress, in one puzzle, track or chapter, or in all."""

import click

from puzzles.grading.progress import forget

from .shared.params import SLUGS


@click.command()
@click.argument("slugs", metavar="[SLUG]", type=SLUGS, required=False)
@click.option("--yes", is_flag=True, help="Do not ask.")
def reset(slugs: tuple[str, ...] | None, yes: bool) -> None:
    """Forget your progress. Your files are not touched.

    With SLUG: only in that puzzle, or in the puzzles of that track or chapter.
    """
    what = f"your progress in {', '.join(slugs)}" if slugs else "all your progress"
    if not yes:
        click.confirm(f"Forget {what}?", abort=True)
    forget(slugs or ())
    click.echo(f"Forgot {what}.")
