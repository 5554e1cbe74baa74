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
from puzzles.catalog.engine.trial import Trial, WrongResultError
from puzzles.failure import Failure, sanitized
from puzzles.sandbox.plain_data import pack
from puzzles.tracks.outcomes import Row, RunRequest, Score

from .compare import require_right
from .perform import asked
from .row import performed_of

OTHER_VALUES = "its operations repeated on other values"

ROUTED = frozenset(("VocabParallelLoss", "SwitchDispatch", "GShardTop2", "ExactDispatch", "FindTheRace"))
"""Puzzles whose classes may branch on whole numbers, such as routes and targets: these stay the same."""

SEEDED = frozenset(("Rotate", "Compose"))
"""Puzzles whose classes draw numbers from a seed that is a value: their operations cannot be repeated on another."""

ADVICE = (
    "so the judge cannot count its operations again, as the third star requires; compute with numpy's functions on "
    "arrays, not with numbers of Python that depend on their values"
)


def is_repeated(puzzle: EnginePuzzle) -> bool:
    """False if the judge has only the class's word for flops and memory, as where kernels of a library compute."""
    return puzzle.slug not in SEEDED and not puzzle.imports


def repeat_requests(
    puzzle: EnginePuzzle, make: Callable[[], Trial], row: Row, reported: Mapping[str, int]
) -> Iterator[RunRequest]:
    """The second run, which should count no more than was `reported`; none if nothing was, or if a trial has no other
    values."""
    recordings = row["recordings"]
    other = with_other_values(make, recordings, only_reals=puzzle.slug in ROUTED)
    given = pack(asked(other))
    if not reported or given == pack(asked(make())):
        return

    def score(row: Row) -> Score | Failure:
        why = row.get("unrepeatable")
        try:
            if isinstance(why, str):
                raise WrongResultError(why)
            performed = performed_of(row, other)
            require_right(other, performed)
        except Exception as wrong:  # a trial's check may choke on what it does not expect
            return Score({}, remark=f"{sanitized(str(wrong))[:300]}; {ADVICE}")
        for name, figure in reported.items():
            counted, words = FIGURES[name].of(performed), FIGURES[name].words
            if counted > figure:
                counts = f"the class's own processes count {figure:,}, and the judge counts {counted:,}"
                return Failure("rule", f"{words}: {counts}; leave the meters as they are")
        return Score({})

    yield RunRequest(OTHER_VALUES, {"trial": given, "recordings": recordings}, score, hidden=False)


def with_other_values(make: Callable[[], Trial], recordings: Any, only_reals: bool = False) -> Trial:
    """A trial whose random numbers follow from its own seeds and the recordings. With `only_reals`, uniform and normal
    ones do; all others stay the same."""
    digest = hashlib.sha256(json.dumps(recordings).encode()).digest()
    with _seeded(np.frombuffer(digest, np.uint32).tolist(), only_reals):
        return make()


@contextmanager
def _seeded(more: list[int], only_reals: bool) -> Iterator[None]:
    """A context in which seeds of numpy are longer by these numbers."""
    default_rng = np.random.default_rng

    def other(given: Any = None) -> np.random.Generator:
        changed = default_rng([*np.atleast_1d(given or 0).tolist(), *more])
        return _OtherReals(default_rng(given).bit_generator, changed) if only_reals else changed

    np.random.default_rng = other  # type: ignore[assignment]  # of the catalog's functions, which are called here only
    try:
        yield
    finally:
        np.random.default_rng = default_rng


class _OtherReals(np.random.Generator):
    """A generator with the whole numbers and choices of one, and the real numbers of another."""

    def __init__(self, bits: Any, reals: np.random.Generator) -> None:
        super().__init__(bits)
        self.uniform, self.normal = reals.uniform, reals.normal  # type: ignore[method-assign]
