"""Feedback after a pass: the margin, what is best known, the kind of solution, and what real systems do."""

from __future__ import annotations

from collections.abc import Iterable

from puzzles.catalog.path import CORE
from puzzles.grading.progress import load, next_slug, solved_slugs
from puzzles.grading.verdict import Verdict
from puzzles.tracks import chapter_of, track_of

from .next_command import next_command


def story(verdict: Verdict) -> list[str]:
    """Paragraphs on a solution that has passed."""
    track = track_of(verdict.puzzle)
    puzzle = track.puzzle(verdict.puzzle)
    compared = " ".join(track.comparison(puzzle, verdict.figures, verdict.trace))
    practice = f"In practice: {_first_sentences(puzzle.in_practice)}" if puzzle.in_practice else ""
    return [*filter(None, [achieved(verdict), compared, practice])]


def achieved(verdict: Verdict) -> str:
    """By how much a pass beats its targets, and what is best known."""
    track = track_of(verdict.puzzle)
    puzzle = track.puzzle(verdict.puzzle)
    margin = track.margin(puzzle, verdict.figures)
    return " ".join(filter(None, [margin, track.record(puzzle, verdict.figures, verdict.stars, verdict.family)]))


def what_next(after: str = "", passed: Iterable[str] = ()) -> str:
    """The next puzzle of this player, and the commands for it; `after` and `passed` as for `next_slug`."""
    entries, passed = load(), set(passed)
    slug = next_slug(entries, after, passed)
    if slug is None:
        return "You have passed every puzzle there is. Well played!"
    track = track_of(slug)
    done = _finished(after, solved_slugs(entries, passed)) if after in passed else ""
    return f"{done}Next: {track.mention(track.puzzle(slug))}: '{next_command('show', slug)}'."


def _finished(slug: str, solved: set[str]) -> str:
    """A sentence on the largest unit that is finished with this puzzle: its track, the core path, or its chapter."""
    chapter, track = chapter_of(slug), track_of(slug)
    units = (
        (track.slugs, f"every puzzle of the track '{track.title}'"),
        (CORE if slug in CORE else (), "the whole core path; 'puzzles plan' splits real models over real clusters"),
        (chapter.slugs, f"every puzzle of the chapter '{chapter.title}'"),
    )
    return next((f"That is {words}. Well played! " for slugs, words in units if slugs and solved.issuperset(slugs)), "")


def _first_sentences(text: str) -> str:
    """The first two sentences of a paragraph; a full stop inside 'et al.' or a number ends none."""
    words, sentences = " ".join(text.split()), []
    for piece in words.replace("et al. ", "et al.\u00a0").split(". ")[:2]:
        sentences.append(piece.rstrip("."))
    return ". ".join(sentences).replace("\u00a0", " ") + "."
