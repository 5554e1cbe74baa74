"""Parameters and files that several commands share: seconds, bytes, limits, colours; texts, presets and runs.

They load no puzzle, so commands on a cluster start without any; `puzzle_params` has those that do. What draws, and the
terminal, are loaded when they are needed, because `--json` and `--help` do without. A wrong value is refused with the
form of a right one.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from functools import partial
from io import StringIO
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lib import PuzzleError, trace_to_json
from puzzles.catalog.fields import RefusedError
from puzzles.failure import write_file
from puzzles.sandbox.limits import MIB, Limits
from puzzles.text_lines import COLOURS

if TYPE_CHECKING:
    from rich.console import Console

    from lib import Trace
    from lib.pipelines import Timetable


C = TypeVar("C", bound=Callable[..., Any])


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turns the game's refusals inside the block into usage errors."""
    try:
        yield
    except (PuzzleError, RefusedError) as why:
        raise click.UsageError(str(why)) from None


def several(*options: Callable[[C], C]) -> Callable[[C], C]:
    """A decorator that adds options to a command, in their order."""

    def add(command: C) -> C:
        for option in reversed(options):
            command = option(command)
        return command

    return add


class Parsed(click.ParamType):  # type: ignore[type-arg]  # generic only in newer clicks
    """A parameter that a function reads; the function's error is the message."""

    def __init__(self, name: str, read: Callable[[Any], Any]) -> None:
        self.name = name
        self.read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self.read(value)
        except (ValueError, RefusedError) as why:
            self.fail(str(why), param, ctx)


@partial(Parsed, "seconds")
def seconds_text(value: Any) -> float:
    """A positive number of seconds: 10, 0.5s."""
    try:
        seconds = float(str(value).removesuffix("s"))
    except ValueError:
        seconds = 0.0
    if not (isfinite(seconds) and 0 < seconds <= 10**6):
        raise ValueError(f"'{value}' is not a positive number of seconds; write 10 or 0.5")
    return seconds


@partial(Parsed, "size")
def bytes_text(value: Any) -> int:
    """A size as people write it: 65536, 64k, 512M, 2GiB."""
    if isinstance(value, int):
        return value
    found = re.fullmatch(r"(\d{1,15})\s*([kmg]?)(i?b)?", str(value).strip().lower())
    size = int(found[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[found[2]] if found else 0
    if not 0 < size < 1 << 50:
        raise ValueError(f"'{value}' is not a size; write a number of bytes, or 64k, 512M, 2G")
    return size


AXIS = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*([1-9]\d{0,8})\s*")


@partial(Parsed, "AXIS=N,...")
def mesh_text(value: Any) -> Any:
    """The axes of a mesh with their lengths: dp=2,pp=4."""
    axes = [AXIS.fullmatch(part) for part in value.split(",")]
    names = [axis[1] for axis in axes if axis]
    if not all(axes):
        raise ValueError(f"'{value}' is not a mesh; name each axis with its length, such as dp=2,pp=4")
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(f"the axis {twice[0]} appears twice in '{value}'; give each axis its own name")
    return tuple((axis[1], int(axis[2])) for axis in axes if axis)


def abandon_output() -> None:
    """Redirects standard output to the null device: flushing its buffer would fail again when the interpreter ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def terminal() -> Console:
    from rich.console import Console  # here, because '--json' and '--help' can do without

    return Console(highlight=False, markup=False, emoji=False)


def require_picture(colour: str | None, output: object, option: str = "-o") -> None:
    """Refuses a colour where nothing is drawn."""
    if colour and not output:
        raise click.UsageError(f"--colour is for the picture; name its file with {option}")


colour_option = click.option(
    "--colour",
    type=click.Choice(COLOURS),
    help="What to colour operations by  [default: layer]",
)


DEFAULT = Limits()
KINDS: dict[str, click.ParamType] = {  # type: ignore[type-arg]  # generic only in newer clicks
    "time": seconds_text,
    "memory": bytes_text,
    "output": bytes_text,
    "files": bytes_text,
    "processes": click.IntRange(1, 10_000),
}
"""What each limit is, by its name, in the order of the fields of `Limits`."""

DEFAULTS = (
    f"time={DEFAULT.seconds:g}s, memory={DEFAULT.memory // MIB}M, output={DEFAULT.output // MIB}M, "
    f"files={DEFAULT.files // MIB}M, processes={DEFAULT.processes}"
)


@partial(Parsed, "limit")
def limit_text(value: Any) -> tuple[str, Any]:
    """A limit with its value: time=10s."""
    name, _, text = value.partition("=")
    if name not in KINDS or not text:
        raise ValueError(f"'{value}' is not a limit; the limits are {DEFAULTS}")
    return name, KINDS[name].convert(text, None, None)  # click adds the option to a refusal


WORDS = f"A limit for each run; may be repeated.  [default: {DEFAULTS}]"

limit_option = click.option("--limit", "limits", metavar="time=10s", type=limit_text, multiple=True, help=WORDS)


def limits_from(options: Mapping[str, Any]) -> Limits:
    """The limits in a command's options; the last one counts where a limit is named twice."""
    chosen: dict[str, Any] = dict(zip(KINDS, DEFAULT)) | dict(options["limits"])
    return Limits(*chosen.values())


# --- Files ---


P = TypeVar("P")


def text_of(path: str) -> str:
    try:
        with open(path, encoding="utf-8-sig") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as why:
        raise click.UsageError(f"{path} cannot be read: {getattr(why, 'strerror', None) or why}") from None


def write_text(text: str, output: str | None) -> None:
    if output is None:
        click.echo(text, nl=False)
        return
    with usage_errors():
        write_file(output, text)
    click.echo(f"Wrote {output}.", err=True)


def preset(name: str, known: Callable[..., P], of_file: Callable[..., P], **changed: Any) -> P:
    """A known preset, or the one in a file (.toml)."""
    return of_file(text_of(name), **changed) if name.endswith(".toml") else known(name, **changed)


def require_endings(paths: Sequence[str], more: Sequence[str] = ()) -> None:
    """Refuses a file whose ending is not known."""
    if not paths:
        return  # without loading what draws
    from drawing import ENDINGS

    known = [*dict.fromkeys([*ENDINGS, ".json", ".csv", *more])]
    for path in paths:
        if Path(path).suffix.lower() not in known:
            raise click.UsageError(
                f"cannot write {path}: the name must end with {', '.join(known[:-1])} or {known[-1]}"
            )


def write_run(
    paths: Sequence[str],
    title: str,
    trace: Callable[[], Trace],
    table: Timetable,
    program: Callable[[], str] = str,
    colour: str | None = None,
) -> None:
    """Writes each file, by its ending. The trace is made only if a file needs it."""
    import drawing
    from lib.pipelines.torch_csv import write_table

    for path in paths:
        ending = Path(path).suffix.lower()
        texts = {".json": lambda: trace_to_json(trace()), ".csv": lambda: write_table(table), ".py": program}
        with usage_errors():
            if ending in texts:
                write_file(path, texts[ending]())
            else:
                with redirect_stdout(StringIO()):  # `draw` prints figures, which are shown already
                    drawing.save(trace(), path, title, colour=colour or "layer")
        click.echo(f"Wrote {path}.")
