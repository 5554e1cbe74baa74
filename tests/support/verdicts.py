"""Verdicts of the grader on a submission's text, in the sandbox that is lent; and the reasons that a verdict gives."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lib.errors import Sentence, Sentences
from lib.planning.plans import PARTS
from puzzles.catalog.engine import trials_of
from puzzles.catalog.puzzle import Puzzle
from puzzles.judge.grader import grade_puzzle
from puzzles.judge.session import Session
from puzzles.judge.submission import Submission
from puzzles.judge.verdict import Verdict
from puzzles.sandbox.limits import Limits
from puzzles.tracks import find, track_of

DEFAULT = Limits()


def session_of(source: str | bytes, limits: Limits = DEFAULT) -> Session:
    """A session with a file that has this text."""
    return Session(Submission(Path("theirs.py"), source.encode() if isinstance(source, str) else source), limits)


def verdict_on(slug: str, source: str | bytes, limits: Limits = DEFAULT, secret: str = "") -> Verdict:
    """The verdict on a file with this text."""
    with session_of(source, limits) as session:
        return grade_puzzle(find(slug), session, secret=secret)


@contextmanager
def worded() -> Iterator[list[Sentence]]:
    """The sentences that are worded within the block, each with its reason and facts."""
    sentences: list[Sentence] = []
    word = Sentences.__call__

    def kept(table: Sentences, reason: str, /, **facts: object) -> Sentence:
        sentences.append(word(table, reason, **facts))
        return sentences[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sentences, "__call__", kept)
        yield sentences


def reasons_in(said: str, sentences: Sequence[Sentence], puzzle: Puzzle) -> list[tuple[str, dict[str, Any]]]:
    """The reasons that a verdict gives, with their facts: of sentences; the parts of a planned step, by name; and the
    mistakes that a trial of the puzzle knows, by number."""
    track = track_of(puzzle.slug).name
    words = {text: name for name, text in PARTS.items()} if track == "plan" else {}
    if track == "engine":
        calls = [call for make in trials_of(puzzle) for call in make().calls]
        texts = dict.fromkeys(text for call in calls for text in call.mistakes)
        words = {text: f"mistake {number}" for number, text in enumerate(texts, 1)}
    reasons = [(sentence.reason, sentence.facts) for sentence in sentences if " ".join(sentence.split()) in said]
    return reasons + [(name, {}) for text, name in words.items() if text in said]
