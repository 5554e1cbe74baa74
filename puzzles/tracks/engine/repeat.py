"""The second run of a class: its recorded operations on the values of another seed, counted by the judge.

The recording comes from the player's processes, and may be forged. The other values follow from a hash of it, so nobody
knows them before it is made. If they lead to the right results, the recording is a program for the puzzle, and a star
for what it needs is deserved.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from puzzles.catalog.engine import EnginePuzzle
from puzzles.catalog.engine.figures import FIGURES
from puzzles.catalog.engine.trial import Performed, Trial, WrongResultError
from puzzles.failure import Failure, sanitized
from puzzles.sandbox.plain_data import pack
from puzzles.tracks.outcomes import Row, RunRequest, Score

from .row import asked, performed_of

OTHER_VALUES = "its operations repeated on other values"

ADVICE = (
    "so the judge cannot count its operations again, as the third star requires; compute with numpy's functions on "
    "arrays, not with numbers of Python that depend on their values"
)


FiguresOf = Callable[[Trial, Performed], Mapping[str, int]]
"""The figures of a run; raises WrongResultError if a result is wrong, or if the run does what the puzzle refuses."""


def repeat_request(
    puzzle: EnginePuzzle, make: Callable[[], Trial], row: Row, first: Mapping[str, int], figures_of: FiguresOf
) -> RunRequest:
    """The second run. No figure may be larger than in the `first`, so that one program has all of them."""
    recordings = row["recordings"]
    other = with_other_values(make, recordings)

    def score(row: Row) -> Score | Failure:
        why = row.get("unrepeatable")
        try:
            if isinstance(why, str):
                raise WrongResultError(why)
            figures = figures_of(other, performed_of(row, other))
        except Exception as wrong:  # a trial's check may choke on what it does not expect
            return Score({}, remark=f"{sanitized(str(wrong))[:300]}; {ADVICE}")
        for name, figure in first.items():
            if figures[name] > figure and not leaves_out_kernels(puzzle, name):
                who = "the class's own processes count" if FIGURES[name].is_self_reported else "the first run has"
                counts = f"{who} {figure:,}, and the judge counts {figures[name]:,}"
                return Failure("rule", f"{FIGURES[name].words}: {counts}; leave the meters as they are")
        return Score({})

    return RunRequest(OTHER_VALUES, {"trial": pack(asked(other)), "recordings": recordings}, score, hidden=False)


def leaves_out_kernels(puzzle: EnginePuzzle, figure: str) -> bool:
    """True if a figure leaves out what a program of layouts holds within a kernel, which the second run counts."""
    return bool(puzzle.imports) and figure in ("peak", "stored")


def can_be_repeated(puzzle: EnginePuzzle, figure: str, make: Callable[[], Trial]) -> bool:
    """True if the second run counts a figure as the first does, on values that are others."""
    return has_other_values(make) and not leaves_out_kernels(puzzle, figure)


def has_other_values(make: Callable[[], Trial]) -> bool:
    """True if a trial draws numbers by `np.random.default_rng`, which the second run changes."""
    return bool(pack(asked(make())) != pack(asked(with_other_values(make, None))))


def with_other_values(make: Callable[[], Trial], recordings: Any) -> Trial:
    """A trial whose random numbers follow from its own seeds and the recordings; those of `fixed_rng` stay the same."""
    digest = hashlib.sha256(json.dumps(recordings).encode()).digest()
    with _seeded(np.frombuffer(digest, np.uint32).tolist()):
        return make()


@contextmanager
def _seeded(more: list[int]) -> Iterator[None]:
    """A context in which seeds of numpy are longer by these numbers."""
    default_rng = np.random.default_rng

    def other(given: Any = None) -> np.random.Generator:
        return default_rng([*np.atleast_1d(given or 0).tolist(), *more])

    np.random.default_rng = other  # type: ignore[assignment]  # of the catalog's functions, which are called here only
    try:
        yield
    finally:
        np.random.default_rng = default_rng
