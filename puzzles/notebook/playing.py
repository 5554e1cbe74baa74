"""`play`: one call that runs every rank, judges, draws, and shows what came of it."""

from __future__ import annotations

import asyncio
from typing import Any

from ..catalog import PUZZLES, Puzzle, UnknownPuzzle, find
from .judging import judge
from .result import Result
from .show import show
from .turns import SECONDS


class Playing(asyncio.Task[Result]):
    """A play under way, to be awaited for its Result. It shows itself when it has ended, awaited or not."""

    def _ipython_display_(self) -> None:
        """Nothing to show yet."""


def play(puzzle: Any, function: Any = None, *, seconds: float = SECONDS) -> Any:
    """Plays `function` as a solution of `puzzle` (its slug or number), and shows what came of it.

    In a notebook: `await play("fsdp", fsdp)`. In a script without a running event loop `play("fsdp", fsdp)` does it
    and returns the Result. `seconds` is how long a rank may work without waiting for another.

    Raises:
        UnknownPuzzle: there is no such puzzle; the text names the nearest one.
    """
    found, function = _which(puzzle, function)
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        result = asyncio.run(_play(found, function, seconds))
        if result.reason == "interrupted":
            raise KeyboardInterrupt from None
        return result
    return Playing(_play(found, function, seconds), loop=loop, name=f"play {found.slug}")


async def _play(puzzle: Puzzle, function: Any, seconds: float) -> Result:
    result = await judge(puzzle, function, seconds)
    show(result)
    return result


def _which(puzzle: Any, function: Any) -> tuple[Puzzle, Any]:
    if isinstance(puzzle, Puzzle):
        return puzzle, function
    if function is None and callable(puzzle):
        name = getattr(puzzle, "__name__", "")
        if name not in PUZZLES:
            raise UnknownPuzzle(f"which puzzle does {name or 'this'} solve? Write play('fsdp', {name or 'fsdp'})")
        return PUZZLES[name], puzzle
    return find(str(puzzle)), function
