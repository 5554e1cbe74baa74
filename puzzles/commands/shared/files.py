"""Files that commands read and write: configs, presets and measured runs of `puzzles plan`; schedules, by ending."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lib import Trace, trace_to_json
from puzzles.failure import write_file

from .params import usage_errors

if TYPE_CHECKING:
    from lib.schedules import Timetable

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
    try:
        with open(output, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as why:
        raise click.UsageError(f"{output} cannot be written: {why.strerror}") from None
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
    from lib.torch_csv import write_table

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
