"""Serves the built site to this machine, for playing and for a look before it is published."""

import webbrowser
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import click

from .links import PORT


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
