"""The second run of each trial of a class: its recorded operations on other values, counted by the judge.

The recording comes from the player's process, and may be forged. The other values follow from a hash of it and from a
secret of the grader, so nobody knows them before it is made, and no class can try recordings until one fits. If they
lead to the right results, the recording is a program for the puzzle, and its figures are what that program needs. The
meters of that process are not read.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from puzzles.catalog.engine.trial import Performed, Trial
from puzzles.failure import Failure, sanitized
from puzzles.sandbox.plain_data import pack
from puzzles.tracks.outcomes import Row, RunOutcome, RunRequest, Score

from .compare import require_right
from .row import asked, performed_of

OTHER_VALUES = "its operations repeated on other values"

DRAWS = 3
"""Of right classes, some round more than the tolerance on few of all values; forged ones are wrong on nearly all."""

ADVICE = (
    "so the judge cannot count them; compute with numpy's functions on arrays, not with numbers of Python that depend "
    "on their values, and draw with np.random.default_rng(seed)"
)


class RepeatRequest(RunRequest):
    """A second run. If it ends early, that is no fault of the class, whose first run has ended well."""

    def score_of(self, outcome: RunOutcome) -> Any:
        if outcome.failure is not None and outcome.failure.reason in ("timeout", "memory"):
            return unknown_figures(outcome.failure.sentence)
        return super().score_of(outcome)


def repeat_request(
    make: Callable[[], Trial],
    recordings: str,
    score_right: Callable[[Trial, Performed], Score | Failure],
    secret: str,
    draw: int = 0,
) -> RunRequest:
    """The second run of a trial. `score_right` scores it if its results are right. If they are not, the next draw of
    values decides, and the last one makes the figures unknown."""
    other = with_other_values(make, recordings, f"{secret} {draw}")

    def score(row: Row) -> Score | Failure | Callable[[str], RunRequest]:
        why = row.get("unrepeatable")
        if isinstance(why, str):
            return unknown_figures(why)
        try:
            performed = performed_of(row, other)
            require_right(other, performed)
        except Exception as wrong:  # a trial's check may choke on what it does not expect
            if draw + 1 < DRAWS:
                return lambda secret: repeat_request(make, recordings, score_right, secret, draw + 1)
            return unknown_figures(f"with {OTHER_VALUES}, {wrong}")
        return score_right(other, performed)

    given = asked(other)

    def here() -> Row:
        from puzzles.sandbox.worker.stages.engine_trial import repeat  # here, where no worker does it

        return repeat(recordings, given)

    return RepeatRequest(OTHER_VALUES, {"trial": pack(given), "recordings": recordings}, score, own=here)


def unknown_figures(why: str) -> Score:
    """The score of a class whose results are right, and whose operations cannot be repeated."""
    return Score({}, (f"its figures are unknown: {sanitized(why)[:300]}; {ADVICE}",), stars=1)


def with_other_values(make: Callable[[], Trial], recordings: str, secret: str) -> Trial:
    """A trial whose random numbers follow from its own seeds, the recordings and the secret. What it draws by
    `fixed_rng` stays the same."""
    digest = hashlib.sha256(f"{secret} {recordings}".encode()).digest()
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
