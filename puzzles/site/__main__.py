"""`python -m puzzles.site [FOLDER]`: builds the site, in `site` unless another folder is named."""

from puzzles.search_path import leave_out_current_folder

if __name__ == "__main__":  # and not where a test imports this
    leave_out_current_folder()
from pathlib import Path  # from the folders that are left

import click

from puzzles.custom import add_installed

from .build import MARK, build
from .npm import SiteError
from .serve import serve


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default="site")
@click.option("--serve", "only_serve", is_flag=True, help="Open a site that is already built, from this machine.")
def main(folder: Path, only_serve: bool) -> None:
    """Build the site to play in the browser, in FOLDER (otherwise in 'site').

    Any web server can serve the folder. Building needs Node.js and npm. TRAINING_PUZZLES_FOLDERS names folders of
    puzzles to add.
    """
    if only_serve:
        if not (folder / MARK).is_file():
            raise click.ClickException(f"{folder} is not a built site; run 'make site' first")
        return serve(folder)
    for problem in add_installed():
        click.echo(f"Warning: {problem}", err=True)
    try:
        size = build(folder, Path("build"))
    except SiteError as why:
        click.echo(why, err=True)
        raise SystemExit(1) from None
    click.echo(f"Wrote {folder}: {size / 1e6:.1f} MB to load, compressed. Open it: make serve")


if __name__ == "__main__":
    main(prog_name="python -m puzzles.site")
