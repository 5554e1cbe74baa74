"""`python -m puzzles.page [FOLDER]`: builds the site, in `site` unless another folder is named; `--serve` serves
a built one to this machine.
"""

from puzzles import leave_out_current_folder

if __name__ == "__main__":  # and not where a test imports this
    leave_out_current_folder()
import webbrowser  # from the folders that are left
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import click

from puzzles.custom import add_installed

from .build import MARK, RELEASE, SiteError, build
from .in_browser.calls import PORT


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default="site")
@click.option("--serve", "only_serve", is_flag=True, help="Open a site that is already built, from this machine.")
@click.option(
    "--numpy", metavar="FOLDER|URL", envvar="NUMPY_WHEEL", default=RELEASE, show_envvar=True,
    help="Folder, also at an address, with the wheel of numpy that Pyodide's release has; 'none' leaves numpy out. "
    "Otherwise the wheel is loaded from the release, if that can be reached.",
)  # fmt: skip
@click.option(
    "--archive", metavar="ZIP", type=click.Path(dir_okay=False, path_type=Path),
    help="Pack the site too, to publish it elsewhere; refused without numpy.",
)  # fmt: skip
def main(folder: Path, only_serve: bool, numpy: str, archive: Path | None) -> None:
    """Build the site to play in the browser, in FOLDER (otherwise in 'site').

    Any web server can serve the folder. Building needs Node.js and npm. TRAINING_PUZZLES_FOLDERS names folders of
    puzzles to add. Layouts and engine classes are played there only with numpy.
    """
    if only_serve:
        if not (folder / MARK).is_file():
            raise click.ClickException(f"{folder} is not a built site; run 'make site' first")
        return serve(folder)
    for problem in add_installed():
        click.echo(f"Warning: {problem}", err=True)
    try:
        size, lacking = build(folder, Path("build"), numpy or RELEASE, archive)
    except SiteError as why:
        click.echo(why, err=True)
        raise SystemExit(1) from None
    if lacking:
        click.echo(
            "Without numpy: schedules and plans are played there; layouts and engine classes are shown only. To have "
            f"them, put {lacking} of Pyodide's release into a folder, and name it: make site NUMPY_WHEEL=FOLDER"
        )
    click.echo(f"Wrote {folder}: {size / 1e6:.1f} MB to load, compressed. Open it: make serve")


if __name__ == "__main__":
    main(prog_name="python -m puzzles.page")


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files; a request is no news."""

    def log_message(self, format: str, *words: object) -> None:
        pass


def local_server(folder: Path, port: int = PORT) -> ThreadingHTTPServer:
    """A server of a folder, which only this machine reaches. Port 0 takes any free one."""
    return ThreadingHTTPServer(("127.0.0.1", port), partial(QuietHandler, directory=str(folder)))


def serve(folder: Path) -> None:
    """Serves a built site until Ctrl-C, and opens it in the browser."""
    try:
        server = local_server(folder)
    except OSError:
        server = local_server(folder, 0)
        click.echo(f"Port {PORT} is taken, so the site is at another one.", err=True)
    with server:
        address = f"http://127.0.0.1:{server.server_port}/"
        click.echo(f"The game is at {address} Ctrl-C ends it.")
        webbrowser.open(address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            click.echo()
