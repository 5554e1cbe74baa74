"""Feedback after a pass: differences from the reference, practice, and the record that is still to beat."""

from __future__ import annotations

from puzzles.grading.verdict import Verdict
from puzzles.tracks import track_of


def story(verdict: Verdict) -> list[str]:
    """A few sentences on a solution that has passed."""
    track = track_of(verdict.puzzle)
    puzzle = track.puzzle(verdict.puzzle)
    return [
        *track.comparison(puzzle, verdict.figures, verdict.trace),
        f"In practice: {_first_sentences(puzzle.in_practice)}",
        record(verdict),
    ]


def record(verdict: Verdict) -> str:
    """The record that is still to beat."""
    track = track_of(verdict.puzzle)
    return track.record(track.puzzle(verdict.puzzle), verdict.figures, verdict.stars, verdict.family)


def _first_sentences(text: str) -> str:
    """The first two sentences of a paragraph; a full stop inside 'et al.' or a number ends none."""
    words, sentences = " ".join(text.split()), []
    for piece in words.replace("et al. ", "et al.\u00a0").split(". ")[:2]:
        sentences.append(piece.rstrip("."))
    return ". ".join(sentences).replace("\u00a0", " ") + "."
