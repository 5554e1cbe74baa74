"""Writes a schedule that was found or read: its picture, its trace, PyTorch's CSV, a program. The file's ending says
which."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from lib import Trace
    from lib.schedules import Timetable


def require_endings(paths: Sequence[str], more: Sequence[str] = ()) -> None:
    """Refuses a file whose ending is not known."""
    from drawing import ENDINGS

    known = [*dict.fromkeys([*ENDINGS, ".json", ".csv", *more])]
    for path in paths:
        if Path(path).suffix.lower() not in known:
            raise click.UsageError(f"cannot write {path}: a name ends with {', '.join(known[:-1])} or {known[-1]}")


def write_run(
    paths: Sequence[str],
    title: str,
    trace: Callable[[], Trace],
    table: Timetable,
    program: Callable[[], str] = str,
    colour: str | None = None,
) -> None:
    """Writes each file. The trace is made if a file needs it; `colour` is what the colours of its pictures show."""
    import drawing
    from lib import PuzzleError, trace_to_json
    from lib.torch_csv import write_table

    for path in paths:
        ending = Path(path).suffix.lower()
        texts = {".json": lambda: trace_to_json(trace()), ".csv": lambda: write_table(table), ".py": program}
        try:
            if ending in texts:
                Path(path).write_text(texts[ending](), encoding="utf-8")
            else:
                with redirect_stdout(StringIO()):  # `draw` prints figures, which are shown already
                    drawing.save(trace(), path, title, colour=colour or "layer")
        except PuzzleError as why:
            raise click.UsageError(str(why)) from None
        except OSError as why:
            raise click.UsageError(f"cannot write {path}: {(why.strerror or str(why)).lower()}") from None
        click.echo(f"Wrote {path}.")
