"""Runs of a class on real tensors. A class has no pictures, so what draws is refused."""

from puzzles.catalog.engine import EnginePuzzle
from puzzles.tracks import base
from puzzles.tracks.base import DrawOptions, OptionError, TensorOptions, Workbench


class Show(base.Show[EnginePuzzle]):
    """Runs of a class on real tensors. Classes have no pictures."""

    def draw(self, puzzle: EnginePuzzle, options: DrawOptions, bench: Workbench) -> bool:
        raise OptionError(f"{puzzle.slug} is a class, and classes have no picture; 'puzzles grade' measures it")

    def require_runnable(self, puzzle: EnginePuzzle, options: TensorOptions) -> None:
        if options.output:
            raise OptionError(f"{puzzle.slug} is a class, and only runs of schedules are drawn; leave out -o")
        if options.on == "mpi":
            raise OptionError(
                f"{puzzle.slug} is a class, and runs in one process here; in your own program, launch(..., on='mpi') "
                "runs it on MPI"
            )
        super().require_runnable(puzzle, options)

    def run_on_tensors(self, puzzle: EnginePuzzle, options: TensorOptions, bench: Workbench) -> bool:
        """In the sandbox, judged as `grade` judges it."""
        needed = puzzle.devices
        if options.devices not in (None, needed):
            return bench.refuse(f"is tried on {needed} devices; leave out -n, or use -n {needed}")
        return bench.grade()
