"""`play`: one call that runs a definition, judges it, draws it, and shows the result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from puzzles.catalog.puzzle import Puzzle
from puzzles.tracks import ALL, UnknownPuzzleError, find, track_of

from .local_run import judge_here
from .result import Result
from .source_lines import file_of

Playable = str | int | Puzzle | Callable[..., Any]
"""A puzzle's slug or number, the puzzle itself, or the definition that has its name."""

MAX_SECONDS = 10**6
"""The longest turn that may be requested, as for `--time-limit`."""


class PlayTask(asyncio.Task[Result]):
    """A running play; await it for its Result. It shows itself when it ends, awaited or not."""

    def __init__(
        self, puzzle: Puzzle, definition: Any, seconds: float, why: bool, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._call = puzzle, definition, seconds, why
        self._begun = False
        super().__init__(self._begin(), loop=loop, name=f"play {puzzle.slug}")

    async def _begin(self) -> Result:
        self._begun = True
        return await _play(*self._call)

    def _ipython_display_(self) -> None:
        """Called at the end of a cell that did not await it: plays now, so that the result shows in that cell."""
        if self._begun or self.done():
            return
        self.cancel()
        loop = self.get_loop()
        asyncio._set_running_loop(None)  # the loop of the notebook is idle until the cell has ended
        try:
            _play_alone(*self._call)
        finally:
            asyncio._set_running_loop(loop)


def play(puzzle: Playable, function: Any = None, *, seconds: float | None = None, why: bool = False) -> Any:
    """Plays a function or class as a solution of `puzzle` (its slug, or the number of a schedule) and shows the result.

    In a notebook: `await play("fsdp", fsdp)`, `play("FSDP", FSDP)`, `play(ffn)`. In a script without a running event
    loop it returns the Result. The code runs in this process without isolation, so play only your own code. `seconds`
    limits how long a rank of a schedule may work without waiting for another (0.8), or how long a class or a layout may
    run at one size (10). `why` explains the peak memory of a schedule: what it consists of, and which of that nobody
    reads again. In a file that `puzzles grade` runs, `play` does nothing and returns None.
    Raises:
        UnknownPuzzleError: there is no such puzzle; the message names the closest match.
        ValueError: `seconds` is not a positive number.
    """
    found, definition = _which(puzzle, function)
    limit = track_of(found.slug).turn_seconds if seconds is None else seconds
    if not (isinstance(limit, int | float) and 0 < limit <= MAX_SECONDS):
        raise ValueError(f"seconds must be a positive number, as in play(..., seconds=60); got {seconds!r}")
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        result = _play_alone(found, definition, limit, why)
        if result.reason == "interrupted":
            raise KeyboardInterrupt from None
        return result
    return PlayTask(found, definition, limit, why, loop)


async def _play(puzzle: Puzzle, definition: Any, seconds: float, why: bool) -> Result:
    verdict = await judge_here(puzzle, definition, seconds)
    result = Result(puzzle, verdict, file_of(definition), why)
    result.show()
    return result


def _play_alone(puzzle: Puzzle, definition: Any, seconds: float, why: bool) -> Result:
    """Plays on an event loop of its own and cleans up everything left on it."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(_play(puzzle, definition, seconds, why))
    finally:
        left = asyncio.all_tasks(loop)  # not empty if it was interrupted
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True) if left else asyncio.sleep(0))
        loop.close()


def _which(puzzle: Playable, definition: Any) -> tuple[Puzzle, Any]:
    """The puzzle, and the definition that should solve it."""
    if isinstance(puzzle, Puzzle):
        return puzzle, definition
    if definition is None and callable(puzzle):
        name = getattr(puzzle, "__name__", "")
        if name not in ALL:
            mine = name if name.isidentifier() else "solution"
            raise UnknownPuzzleError(
                f"which puzzle does {name or 'this'} solve? Write play('fsdp', {mine}); without a puzzle, "
                f"await run_async({mine}, layers, batches, ranks) and draw its trace"
            )
        return find(name), puzzle
    return find(str(puzzle)), definition
