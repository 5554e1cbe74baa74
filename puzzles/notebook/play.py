"""`play`: one call that runs every rank, judges, draws, and shows what came of it."""

from __future__ import annotations

import asyncio
from typing import Any

from puzzles.catalog.schedule import PUZZLES, Puzzle, UnknownPuzzleError, find

from .display import show
from .interrupt import SECONDS
from .judging import judge
from .result import Result


class Playing(asyncio.Task[Result]):
    """A play under way, to be awaited for its Result. It shows itself when it has ended, awaited or not."""

    def __init__(self, puzzle: Puzzle, function: Any, seconds: float, loop: asyncio.AbstractEventLoop) -> None:
        self._call = puzzle, function, seconds
        self._begun = False
        super().__init__(self._begin(), loop=loop, name=f"play {puzzle.slug}")

    async def _begin(self) -> Result:
        self._begun = True
        return await _play(*self._call)

    def _ipython_display_(self) -> None:
        """Asked for at the end of a cell that did not await it: plays now, so that it shows in that cell."""
        if self._begun or self.done():
            return
        self.cancel()
        loop = self.get_loop()
        asyncio._set_running_loop(None)  # the loop of the notebook stands still until the cell has ended
        try:
            _play_alone(*self._call)
        finally:
            asyncio._set_running_loop(loop)


def play(puzzle: Any, function: Any = None, *, seconds: float = SECONDS) -> Any:
    """Plays `function` as a solution of `puzzle` (its slug or number), and shows what came of it.

    In a notebook: `await play("fsdp", fsdp)`. In a script without a running event loop `play("fsdp", fsdp)` does it
    and returns the Result. `seconds` is how long a rank may work without waiting for another.

    Raises:
        UnknownPuzzleError: there is no such puzzle; the text names the nearest one.
    """
    found, function = _which(puzzle, function)
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        result = _play_alone(found, function, seconds)
        if result.reason == "interrupted":
            raise KeyboardInterrupt from None
        return result
    return Playing(found, function, seconds, loop)


async def _play(puzzle: Puzzle, function: Any, seconds: float) -> Result:
    result = await judge(puzzle, function, seconds)
    show(result)
    return result


def _play_alone(puzzle: Puzzle, function: Any, seconds: float) -> Result:
    """The same on an event loop of its own, of which nothing stays."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(_play(puzzle, function, seconds))
    finally:
        left = asyncio.all_tasks(loop)  # some, if it was interrupted
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True) if left else asyncio.sleep(0))
        loop.close()


def _which(puzzle: Any, function: Any) -> tuple[Puzzle, Any]:
    if isinstance(puzzle, Puzzle):
        return puzzle, function
    if function is None and callable(puzzle):
        name = getattr(puzzle, "__name__", "")
        if name not in PUZZLES:
            raise UnknownPuzzleError(f"which puzzle does {name or 'this'} solve? Write play('fsdp', {name or 'fsdp'})")
        return PUZZLES[name], puzzle
    return find(str(puzzle)), function
