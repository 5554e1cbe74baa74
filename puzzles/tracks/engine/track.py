"""The engine track: a class that every device runs on real tensors; results are compared and meters are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from puzzles.catalog.content import reader_of
from puzzles.catalog.engine import ENGINE_PUZZLES, EnginePuzzle
from puzzles.catalog.engine.figures import FIGURES
from puzzles.tracks.base import Track
from puzzles.tracks.later import later
from puzzles.tracks.outcomes import LocalRun, Measure, RunRequest
from puzzles.tracks.shown import OptionError, Section

if TYPE_CHECKING:
    from puzzles.tracks.workbench import DrawOptions, TensorOptions, Turns, Workbench

# What needs numpy is imported inside the methods that judge: list, show and hint do without.


CALLS = (
    ("self.device_id, self.num_devices", "This device's number, from 0; their number n."),
    ("self.send(dest_id, arr)", "Sends an array of S bytes to one device; does not wait."),
    ("self.receive(src_id)", "Waits for the next array from one device and returns it."),
    ("self.all_reduce(arr, op='sum')", "The sum of all devices' arrays (or avg, max, min, prod); sends 2(n-1)/n S."),
    ("self.reduce_scatter(arr, op='sum', axis=0)", "Each device gets its own n-th of that sum; sends (n-1)/n S."),
    ("self.all_gather(arr, axis=0)", "All devices' arrays, concatenated in order; sends (n-1) S."),
    ("self.all_to_all(arr, axis=0)", "This device's n-th of every array, concatenated; sends (n-1)/n S."),
    ("help(ShardedEngine)", "More calls: groups, barriers, other devices' buffers, slower memories."),
)


JUDGED = (
    (
        "Results",
        "They may differ from a single device's by 0.00001 of the largest number; the data use all 24 bits of float32.",
    ),
    (
        "Bytes",
        "A float costs 4, an integer 8, a number of 64 bits 16, so packing numbers gains nothing. In puzzles about "
        "compression, arrays cost their own bytes. A message costs at least 8, and 8 more for each further dimension.",
    ),
    (
        "Flops",
        "Two for each product: of matrices by their shapes, and of arrays element by element. Products with masks "
        "do not count, and neither do products with the first 16 numbers of Python. A float that is taken out of an "
        "array counts as one, after the first 1,024 of a device.",
    ),
    (
        "Figures",
        "Each device records its operations. The judge repeats them on other values, and counts what they send, "
        "compute and hold. If the results are then wrong, the figures are unknown, and the class has one star: compute "
        "with numpy on arrays, and draw with np.random.default_rng(seed).",
    ),
    ("self.host, self.disk", "Slower memories. You may use them only where a target names them or they take time."),
)


class Engine(Track[EnginePuzzle]):
    """One class that every device runs, with blocking calls and plain numpy."""

    listing = ENGINE_PUZZLES
    puzzle_class = "EnginePuzzle"
    needs_trials = True
    name = "engine"
    title = "On real tensors"
    idea = "who holds what, and who sends what?"
    form = "one class that every device runs, on numpy arrays"
    stage = "puzzles.sandbox.worker.stages.engine"
    in_browser = True
    page_needs = ("numpy", "suspending")
    max_result = 16 << 20
    noun = "class"

    read = staticmethod(reader_of("engine"))

    def targets(self, puzzle: EnginePuzzle) -> Mapping[str, int]:
        return puzzle.targets

    requests = later("engine.score", "requests_for")

    def measures(self, puzzle: EnginePuzzle, figures: Mapping[str, float]) -> Sequence[Measure]:
        return [
            Measure.at_most(FIGURES[name].words, figures.get(name), limit) for name, limit in puzzle.targets.items()
        ]

    async def run_here(self, slug: str, definition: Any, request: RunRequest, turns: Turns) -> LocalRun:
        """One launch as one turn. Devices share the class and its module; in the sandbox, each has its own."""
        from puzzles.sandbox.plain_data import unpack
        from puzzles.sandbox.worker.stages.engine_trial import run_class

        trial: Any = unpack(request.data["trial"])
        return LocalRun(turns.turn(lambda: run_class(slug, definition, trial)))

    def called(self, puzzle: EnginePuzzle) -> str:
        return puzzle.slug

    def limits(self, puzzle: EnginePuzzle) -> str:
        return f"Targets for each device: {puzzle.targets_text()}"

    def listed_limits(self, puzzle: EnginePuzzle) -> str:
        return puzzle.targets_text()

    def starter_head(self, puzzles: Sequence[EnginePuzzle]) -> str:
        needed = dict.fromkeys(line for puzzle in puzzles for line in puzzle.imports)
        return "\n".join(("import numpy as np\n\nfrom lib.engine import ShardedEngine", *needed, ""))

    def signature(self, slug: str) -> str:
        return f"class {slug}(ShardedEngine)"

    record = later("engine.score", "record")
    comparison = later("engine.score", "comparison")

    def sections(self, puzzle: EnginePuzzle) -> Sequence[Section]:
        judged = Section("How it is judged", JUDGED)
        return [judged] if puzzle.imports else [Section("Calls", CALLS), judged]  # with imports, others make the calls

    def background(self, puzzle: EnginePuzzle) -> Sequence[tuple[str, str]]:
        return [("The targets", puzzle.arithmetic)]

    def devices(self, puzzle: EnginePuzzle) -> int:
        return puzzle.devices

    # --- Pictures and tensors ---

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

    def run_on_tensors(self, puzzle: EnginePuzzle, options: TensorOptions, bench: Workbench) -> bool:
        """In the sandbox, judged as `grade` judges it."""
        needed = puzzle.devices
        if options.devices not in (None, needed):
            return bench.refuse(f"is tried on {needed} devices; leave out -n, or use -n {needed}")
        return bench.grade()
