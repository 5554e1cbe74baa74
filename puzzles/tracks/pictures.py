"""Imports the drawing package for a command, and reports a run that cannot be drawn to its end."""

from importlib import import_module
from types import ModuleType

from puzzles.failure import Failure

from .workbench import Workbench


def import_drawing() -> ModuleType:
    """The package that draws."""
    try:
        drawing: ModuleType = import_module("drawing")
    except ImportError as why:
        import click  # here, since a browser draws too, and has no commands

        raise click.ClickException(f"pictures need chalk-diagrams; pip install it ({why})") from None
    return drawing


def report_failure(slug: str, failure: Failure | None, bench: Workbench) -> bool:
    """Prints why a run failed, if it did; returns True if it did not."""
    if failure is not None:
        import click

        click.echo(f"{slug} failed: {bench.message(failure)}", err=True)
    return failure is None
