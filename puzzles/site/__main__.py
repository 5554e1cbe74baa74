"""`python -m puzzles.site [FOLDER]`: builds the site, in `site` unless another folder is named."""

from puzzles.search_path import leave_out_current_folder

if __name__ == "__main__":  # and not where a test imports this
    leave_out_current_folder()
from pathlib import Path  # from the folders that are left

import click

from puzzles.custom import add_installed

from .build import build
from .npm import SiteError


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default="site")
def main(folder: Path) -> None:
    """Build the site to play in the browser, in FOLDER (otherwise in 'site').

    Any web server can serve the folder. Building needs Node.js and npm. TRAINING_PUZZLES_FOLDERS names folders of
    puzzles to add.
    """
    for problem in add_installed():
        click.echo(f"Warning: {problem}", err=True)
    try:
        size = build(folder, Path("build"))
    except SiteError as why:
        click.echo(why, err=True)
        raise SystemExit(1) from None
    click.echo(f"Wrote {folder}: {size / 1e6:.1f} MB to load, compressed. Try it: python3 -m http.server -d {folder}")


if __name__ == "__main__":
    main(prog_name="python -m puzzles.site")
