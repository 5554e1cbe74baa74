"""`puzzles notebook`: writes fresh copies for the player, for Jupyter or marimo; only --force overwrites their work."""

from pathlib import Path

import click

from puzzles.grading.progress import add_own_file

OPENED_BY = {"jupyter": "jupyter lab", "marimo": "marimo edit"}


@click.command()
@click.argument("folder", metavar="[DIR]", type=click.Path(file_okay=False, path_type=Path), default=".")
@click.option("--solved", is_flag=True, help="For teachers: fill in the reference solutions.")
@click.option(
    "--format", "form", type=click.Choice(["jupyter", "marimo"]), default="jupyter", show_default=True,
    help="The program that opens them.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite notebooks that exist.")
def notebook(folder: Path, solved: bool, form: str, force: bool) -> None:
    """Write the notebooks, to play in Jupyter or marimo.

    Writes to DIR, by default the current folder. Existing files are kept unless you add --force.
    """
    from puzzles.notebook.authoring.build import MissingPackageError, as_marimo, books

    try:
        made = [as_marimo(book) for book in books(solved)] if form == "marimo" else books(solved)
    except MissingPackageError as why:
        raise click.ClickException(str(why)) from None
    paths = {folder / book.file: book.text for book in made}
    try:
        there = [str(path) for path in paths if path.exists()]
        if there and not force:
            raise click.UsageError(
                f"{' and '.join(there)} {'exists' if len(there) == 1 else 'exist'} already and may contain your work; "
                "name another folder, or overwrite with --force"
            )
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in paths.items():
            path.write_text(text, encoding="utf-8", newline="\n")
            if not solved:
                add_own_file(path)
    except OSError as why:
        raise click.UsageError(f"cannot write {why.filename}: {why.strerror}") from None
    click.echo(f"Wrote {' and '.join(map(str, paths))}. Open them with: {OPENED_BY[form]} {folder}")
