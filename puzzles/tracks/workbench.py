"""Interface between a command and a track: the files, the sandbox and the terminal that `draw` and `run` lend it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from io import StringIO
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from puzzles.failure import Failure

from .outcomes import Row, RunOutcome, RunRequest

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T")

Runner = Callable[[RunRequest], RunOutcome]
"""Runs the player's definition once, somewhere, and returns what came of it."""


class Turns(Protocol):
    """Runs a player's code in this process, piece by piece, each with a time limit and open to interrupts."""

    def turn(self, work: Callable[[], T]) -> T:
        """Returns what `work` returns."""

    def in_turns(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with each step of the coroutine that it may return as a turn."""


class Workbench(Protocol):
    """Given to `Show.draw` and `Show.run_on_tensors`, for one puzzle."""

    path: str
    """The player's file or folder."""
    console: Console

    def run(self, request: RunRequest, path: str = "") -> RunOutcome:
        """Runs the definition in a file (default: the player's) once, in the sandbox."""

    def absent(self, path: str = "") -> str:
        """The sentence for a file (default: the player's) without a definition of the puzzle."""

    def message(self, failure: Failure, path: str = "") -> str:
        """A failure of a file (default: the player's) as its author reads it: a notebook's lines counted by cell."""

    def refuse(self, why: str) -> bool:
        """Shows why the puzzle is not run, as a sentence that begins with its name, and returns False."""

    def wrote(self, path: str) -> None:
        """Reports a file that was written, and opens it if the player wants that."""

    def require_readable(self, path: str) -> None:
        """Ends the command if a file cannot be read."""

    def files(self, path: str) -> list[str]:
        """The files at or below a path that seem to define the puzzle."""

    def grade(self, where: str = "inprocess") -> bool:
        """Judges the player's definition, shows the verdict, and returns whether it passed."""


def run_once(request: RunRequest, bench: Workbench) -> Row | Failure:
    """What a run of the player's file sent back; or why there is nothing."""
    outcome = bench.run(request)
    return outcome.failure or (Failure("crash", bench.absent()) if outcome.row is None else outcome.row)


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


@dataclass(frozen=True)
class DrawOptions:
    """Options of `puzzles draw`; `output` is empty for the usual name."""

    output: str = ""
    text: bool = False
    width: int = 80
    against: str = ""
    pareto: bool = False
    critical: bool = False
    dark: bool = False
    colour: str = "layer"


@dataclass(frozen=True)
class TensorOptions:
    """Options of `puzzles run`; `devices` is None for as many as the puzzle has, `tensors` for a replay of puzzles
    only. For PyTorch: where it computes, whether it gets a pipeline as CSV, with its `communication`, the folder of a
    `profile`, and its time limit in seconds. `width`: the size of a layer's matrix, 0 for the usual one."""

    on: str = "inprocess"
    devices: int | None = None
    small: bool = False
    output: str = ""
    tensors: bool | None = None
    colour: str = "layer"
    device: str = "cpu"
    pipelining: bool = False
    communication: bool = False
    profile: str = ""
    time_limit: float | None = None
    width: int = 0
