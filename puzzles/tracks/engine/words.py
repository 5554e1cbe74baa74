"""What is said of a class: its targets and figures, the calls of a device, and how it is judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from puzzles.catalog.engine import EnginePuzzle, trials_of
from puzzles.catalog.engine.puzzle import FIGURES
from puzzles.tracks import base
from puzzles.tracks.base import Section
from puzzles.tracks.outcomes import SEE_NOTE, Measure

PRODUCTS = frozenset(("flops", "clock", "elapsed"))
"""Figures that follow from what is multiplied."""

ROUGHLY = 1.05
"""Up to so many times the products of a record count as as many."""

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
        "They may differ from a single device's by 0.00001 of the largest number. The values fill float32's 24-bit "
        "significand, so rounding shows.",
    ),
    (
        "Bytes",
        "Prices in bytes: float 4, integer 8, 64-bit number 16. Packing several numbers into one saves nothing. In "
        "puzzles about compression, arrays cost their own bytes. A message costs at least 8, and 8 more for each "
        "further dimension.",
    ),
    (
        "Flops",
        "Two for each multiply-add of a matrix product, and two for each element where arrays are multiplied. "
        "Multiplying by a mask is free. Each device may also multiply by 16 different Python numbers, and read 1,024 "
        "array elements as Python floats, for free; every further float costs 1 flop.",
    ),
    (
        "Figures",
        "Each device records its operations. The judge repeats them on other values, and counts what they send, "
        "compute and hold. If the results are then wrong, the figures are unknown, and the class has one star: compute "
        "with numpy on arrays, and draw with np.random.default_rng(seed).",
    ),
    ("self.host, self.disk", "Slower memories. You may use them only where a target names them or they take time."),
)


class Words(base.Words[EnginePuzzle]):
    form = "one class that every device runs, on numpy arrays"
    definition = "class {}(ShardedEngine)"

    def measures(self, puzzle: EnginePuzzle, figures: Mapping[str, float]) -> Sequence[Measure]:
        return [
            Measure.at_most(FIGURES[name].words, figures.get(name), limit, name)
            for name, limit in puzzle.targets.items()
        ]

    def limits(self, puzzle: EnginePuzzle) -> str:
        return f"Targets for each device: {puzzle.targets_text()}"

    def listed_limits(self, puzzle: EnginePuzzle) -> str:
        return puzzle.targets_text()

    def starter_head(self, puzzles: Sequence[EnginePuzzle]) -> str:
        needed = dict.fromkeys(line for puzzle in puzzles for line in puzzle.imports)
        return "\n".join(("import numpy as np\n\nfrom lib.engine import ShardedEngine", *needed, ""))

    def record(self, puzzle: EnginePuzzle, figures: Mapping[str, float], stars: int, family: str = "") -> str:
        """What is best known, and what the third star takes."""
        if stars >= 3:
            return "Three stars: no better class is known."
        better = better_record(puzzle, figures)
        if better is None:
            return SEE_NOTE
        known = ", ".join(f"{better[n]:,} {FIGURES[n].words}" for n in figures if better[n] < figures[n])
        return f"Best known: {known}. Match them for the third star."

    def comparison(self, puzzle: EnginePuzzle, figures: Mapping[str, float], kept: str) -> Iterator[str]:
        """What a verdict cannot vouch for."""
        if PRODUCTS & puzzle.targets.keys():
            yield (
                "Multiplications by sums of logarithms or angles, and two of them in one float64, are not "
                "counted in full."
            )
        if {"sent", "uplink"} & puzzle.targets.keys() and not trials_of(puzzle)[0]().packing:
            yield (
                "The judge counts what is sent, 4 B for a float. A float has room for the digits of 1.7 numbers at the "
                "precision of the results, and digits that are packed into it are not noticed."
            )

    def sections(self, puzzle: EnginePuzzle) -> Sequence[Section]:
        judged = Section("How it is judged", JUDGED)
        return [judged] if puzzle.imports else [Section("Calls", CALLS), judged]  # with imports, others make the calls

    def background(self, puzzle: EnginePuzzle) -> Sequence[tuple[str, str]]:
        return [("The targets", puzzle.arithmetic)]

    def devices(self, puzzle: EnginePuzzle) -> int:
        return puzzle.devices


def better_record(puzzle: EnginePuzzle, figures: Mapping[str, float]) -> Mapping[str, int] | None:
    """A known solution that is better in one figure and no worse in the others, if there is one. Fewer flops than any
    record count as the record's: some products are not noticed, and they make up for nothing. So do a few more, since
    they depend on how a factor is written."""
    known = puzzle.records
    lowest = {name: min((record[name] for record in known), default=0) for name in PRODUCTS & puzzle.targets.keys()}
    believed = {name: lowest[name] if _as_few(value, lowest.get(name)) else value for name, value in figures.items()}
    return next((record for record in known if _is_better(record, believed)), None)


def _as_few(flops: float, lowest: int | None) -> bool:
    return lowest is not None and flops <= ROUGHLY * lowest


def _is_better(record: Mapping[str, int], figures: Mapping[str, float]) -> bool:
    return all(record[name] <= figures[name] for name in figures) and any(record[n] < figures[n] for n in figures)
