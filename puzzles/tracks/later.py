"""What a track leaves to its other modules, which are imported when they are needed: some need numpy, some draw."""

from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO
from typing import Any

from puzzles.failure import Failure

from .workbench import Workbench


def later(module: str, name: str) -> Any:
    """A method that calls a function of `puzzles.tracks.<module>` with its arguments, without the track."""

    def find() -> Any:
        return getattr(import_module(f"puzzles.tracks.{module}"), name)

    def call(_: object, *given: Any, **named: Any) -> Any:
        return find()(*given, **named)

    call.find = find  # type: ignore[attr-defined]
    return call


def as_svg(place: str, *given: Any, **named: Any) -> str:
    """What 'module:function' draws, as SVG; empty where that fails: some runs cannot be drawn, and that must not cost
    the report."""
    module, _, name = place.partition(":")
    try:
        from drawing import svg

        with redirect_stdout(StringIO()):  # `draw` prints figures, as it always did
            return str(svg(getattr(import_module(module), name)(*given, **named)))
    except Exception:
        return ""


def report_failure(slug: str, failure: Failure | None, bench: Workbench) -> bool:
    """Prints why a run failed, if it did; returns True if it did not."""
    if failure is not None:
        import click  # here, since a browser draws too, and has no commands

        click.echo(f"{slug} failed: {bench.message(failure)}", err=True)
    return failure is None
