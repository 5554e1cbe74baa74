"""`play`: one call that runs a definition, judges it, draws it, and shows the result."""

import asyncio
import warnings
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cache
from typing import Any

from lib import Costs, PuzzleError
from lib.ledger.runner import no_running_loop
from puzzles.catalog.puzzle import Puzzle
from puzzles.custom import add_installed
from puzzles.judge.progress import remember_verdicts
from puzzles.tracks import ALL, UnknownPuzzleError, find, track_for
from puzzles.tracks.free_play import FreeGame, game_of

from .display import FreeResult, file_of
from .local_run import judge_here, play_freely
from .result import Result

Playable = str | int | Puzzle | Callable[..., Any]
"""A puzzle's slug or number, the puzzle itself, or the definition that has its name."""

MAX_SECONDS = 10**6
"""The longest turn that may be requested, as for `--time-limit`."""


AnyResult = Result | FreeResult


class PlayTask(asyncio.Task[AnyResult]):
    """A running play; await it for its Result. It shows itself when it ends, awaited or not."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, AnyResult]], name: str, loop: asyncio.AbstractEventLoop):
        self._work = work
        self._begun = False
        super().__init__(self._begin(), loop=loop, name=f"play {name}")

    async def _begin(self) -> AnyResult:
        self._begun = True
        return await self._work()

    def _ipython_display_(self) -> None:
        """Called at the end of a cell that did not await it: plays now, so that the result shows in that cell."""
        if self._begun or self.done():
            return
        self.cancel()
        with no_running_loop():
            _play_alone(self._work)


def play(
    puzzle: Playable,
    function: Any = None,
    *,
    seconds: float | None = None,
    why: bool = False,
    colour: str = "layer",
    size: Sequence[int] | None = None,
    costs: Costs | str | None = None,
    mesh: Mapping[str, int] | None = None,
    steps: int | None = None,
    layer: str | None = None,
    task: str | None = None,
) -> Any:
    """Plays a function or class as a solution of `puzzle` (its slug, or the number of a schedule) and shows the result.

    In a notebook: `await play("fsdp", fsdp)`, `play("FSDP", FSDP)`, `play(ffn)`. In a script without a running event
    loop it returns the Result. The code runs in this process without isolation, so play only your own code. `seconds`
    limits how long a rank of a schedule may work without waiting for another (0.8), or how long a class or a layout may
    run at one size (10). `why` explains the peak memory of a schedule: what it consists of, and which of that nobody
    reads again. `colour` is what the colours of operations show in the picture of a schedule: "layer", "microbatch" or
    "operation". In a file that `puzzles grade` runs, `play` does nothing and returns None.

    With a `size` (layers, batches and ranks) or any field of a Setting, it plays a schedule freely: `play(mine,
    size=(4, 8, 4), costs="parts")`. There are no targets then, and the FreeResult has what the run took. With the name
    of a puzzle, its size and setting hold wherever none is given.

    Raises:
        UnknownPuzzleError: there is no such puzzle; the message names the closest match.
        PuzzleError: there is no such size, setting or colour.
        ValueError: `seconds` is not a positive number.
    """
    _add_installed()
    fields = {"size": size, "costs": costs, "mesh": mesh, "steps": steps, "layer": layer, "task": task}
    given = {name: field for name, field in fields.items() if field is not None}
    found, definition = _game(puzzle, function, given) if given else _which(puzzle, function)
    require_colour(found, colour)
    limit = track_for(found).judge.turn_seconds if seconds is None else seconds
    if not (isinstance(limit, int | float) and 0 < limit <= MAX_SECONDS):
        raise ValueError(f"seconds must be a positive number, as in play(..., seconds=60); got {seconds!r}")

    async def work() -> AnyResult:
        return await _play(found, definition, limit, why, colour)

    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        result = _play_alone(work)
        if result.reason == "interrupted":
            raise KeyboardInterrupt from None
        return result
    return PlayTask(work, found.slug, loop)


@cache
def _add_installed() -> None:
    """Adds the puzzles of installed packages, once; those that cannot be used are named in warnings."""
    for problem in add_installed():
        warnings.warn(problem, stacklevel=3)


def require_colour(game: Puzzle | FreeGame, colour: str) -> None:
    """
    Raises:
        PuzzleError: a picture of this game cannot be coloured so.
    """
    known = track_for(game).show.colours
    if colour in known or colour == "layer":
        return
    if not known:
        raise PuzzleError(f"colour is for schedules; leave it out for {game.slug}")
    raise PuzzleError(f"colour is {', '.join(map(repr, known[:-1]))} or {known[-1]!r}; got {colour!r}")


async def _play(game: Puzzle | FreeGame, definition: Any, seconds: float, why: bool, colour: str) -> AnyResult:
    result: AnyResult
    if isinstance(game, Puzzle):
        verdict = await judge_here(game, definition, seconds)
        if verdict.attempted and game.slug in ALL:
            remember_verdicts([verdict])
        result = Result(game, verdict, file_of(definition), why, colour)
    else:
        result = await play_freely(game, definition, seconds, why, colour)
    result.show()
    return result


def _play_alone(work: Callable[[], Coroutine[Any, Any, AnyResult]]) -> AnyResult:
    """Plays on an event loop of its own, which ends everything that is left on it."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(work())


def _game(puzzle: Playable, definition: Any, given: Mapping[str, Any]) -> tuple[Puzzle | FreeGame, Any]:
    """The game with a size and a setting of the player's, and the schedule to play in it."""
    if isinstance(puzzle, Puzzle):
        name = puzzle.slug
    elif isinstance(puzzle, str | int):
        name = str(puzzle)
    else:
        name, definition = getattr(puzzle, "__name__", ""), puzzle
    if name.isdecimal():
        name = find(name).slug
    name = name if name.isidentifier() else "mine"
    if "size" not in given and name not in ALL:
        raise PuzzleError(f"there is no puzzle {name} to take the size from; add size=(layers, batches, ranks)")
    return game_of(name, given), definition


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
                f"play({mine}, size=(layers, batches, ranks))"
            )
        return find(name), puzzle
    return find(str(puzzle)), definition
