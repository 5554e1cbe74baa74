"""Classes on real tensors: the child launches the class, and results and figures are judged here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache

from puzzles.catalog.engine import CHAPTERS, ENGINE_PUZZLES, EnginePuzzle
from puzzles.catalog.engine.figures import FIGURES
from puzzles.catalog.engine.puzzle import CREDIT
from puzzles.catalog.engine.records import RECORDS
from puzzles.failure import Failure
from puzzles.tracks.base import Attempt, Judged, Part, Section, Track

# What needs numpy is imported inside the methods that judge: list, show and hint do without.

CALLS = (
    ("self.device_id, self.num_devices", "This device's number, from 0 on; n, how many there are."),
    ("self.send(dest_id, arr)", "An array of S bytes to one device; does not wait."),
    ("self.receive(src_id)", "The next array that a device has sent to this one; waits for it."),
    ("self.all_reduce(arr, op='sum')", "All devices' arrays added up (or avg, max, min, prod); sends 2(n-1)/n S."),
    ("self.reduce_scatter(arr, op='sum', axis=0)", "Your n-th of the same; sends (n-1)/n S."),
    ("self.all_gather(arr, axis=0)", "All devices' arrays, joined in their order; sends (n-1) S."),
    ("self.all_to_all(arr, axis=0)", "Your n-th of everybody's array, joined; sends (n-1)/n S."),
    ("help(ShardedEngine)", "Everything: groups, barriers, other devices' buffers, slower memories."),
)


class Engine(Track):
    """One class that every device runs, with blocking calls and plain numpy."""

    name = "engine"
    title = "On real tensors"
    idea = "one class that every device runs, on numpy arrays: what does each device hold, and what does it send?"
    longest = 16 << 20

    @property
    def parts(self) -> Sequence[Part]:
        return _parts()

    def puzzle(self, slug: str) -> EnginePuzzle:
        return ENGINE_PUZZLES[slug]

    def targets(self, puzzle: EnginePuzzle) -> Mapping[str, int]:
        return puzzle.targets

    def attempts(self, puzzle: EnginePuzzle) -> Iterator[Attempt]:
        from .protocol import attempts_of

        for attempt in attempts_of(puzzle):
            yield replace(attempt, judge=lambda row, judge=attempt.judge: self.starred(puzzle, judge(row)))

    def starred(self, puzzle: EnginePuzzle, found: Judged | Failure) -> Judged | Failure:
        """With its stars: three if no record is better in one figure and as good in all."""
        if isinstance(found, Failure):
            return found
        figures = {name: found.figures[name] for name in puzzle.targets if name in found.figures}
        beaten = any(_is_better(record, figures) for record in RECORDS.get(puzzle.slug, ()))
        return found._replace(figures=figures, stars=1 if found.missed else 2 if beaten else 3)

    def called(self, puzzle: EnginePuzzle) -> str:
        return puzzle.slug

    def limits(self, puzzle: EnginePuzzle) -> str:
        return f"Targets for each device: {puzzle.targets_text()}"

    def figures_text(self, puzzle: EnginePuzzle, figures: Mapping[str, float]) -> str:
        limits = puzzle.targets.items()
        return ", ".join(
            f"{f'{figures[name]:,}' if name in figures else '-'} of {limit:,} {FIGURES[name].words}"
            for name, limit in limits
        )

    def starter_head(self, puzzles: Sequence[EnginePuzzle]) -> str:
        needed = dict.fromkeys(line for puzzle in puzzles for line in puzzle.imports)
        return "\n".join(("import numpy as np\n\nfrom lib.engine import ShardedEngine", *needed, ""))

    def signature(self, slug: str) -> str:
        return f"class {slug}(ShardedEngine)"

    def record(self, puzzle: EnginePuzzle, figures: Mapping[str, float], stars: int) -> str:
        if stars >= 3:
            return "Three stars: none of the classes that we keep is better."
        better = next((r for r in RECORDS.get(puzzle.slug, ()) if _is_better(r, figures)), None)
        if better is None:
            return "All targets met. See the note for the third star."
        known = ", ".join(f"{better[n]:,} {FIGURES[n].words}" for n in figures if better[n] < figures[n])
        return f"All targets met. For the third star: a class with {known} is known."

    def sections(self, puzzle: EnginePuzzle) -> Sequence[Section]:
        return [] if puzzle.imports else [Section("Calls", CALLS)]  # with imports, others make the calls

    def background(self, puzzle: EnginePuzzle) -> Sequence[tuple[str, str]]:
        return [("The targets", puzzle.arithmetic)]

    def sources(self, puzzle: EnginePuzzle) -> Sequence[str]:
        return [*map(str, puzzle.sources), CREDIT]


def _is_better(record: Mapping[str, int], figures: Mapping[str, float]) -> bool:
    return all(record[name] <= figures[name] for name in figures) and any(record[n] < figures[n] for n in figures)


@cache
def _parts() -> tuple[Part, ...]:
    return tuple(Part(chapter.name, chapter.title, chapter.idea, tuple(chapter.files)) for chapter in CHAPTERS)
