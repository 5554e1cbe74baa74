"""Feedback after a pass: the margin, what is best known, the kind of solution, and what real systems do."""

from __future__ import annotations

from collections.abc import Iterable

from puzzles.grading.progress import load, next_slug
from puzzles.grading.verdict import Verdict
from puzzles.tracks import chapter_of, track_of

from .next_command import next_command


def story(verdict: Verdict, in_full: bool = True) -> list[str]:
    """Paragraphs on a solution that has passed; `in_full` with what is possible, and what the reference does."""
    track = track_of(verdict.puzzle)
    puzzle = track.puzzle(verdict.puzzle)
    compared = " ".join(track.comparison(puzzle, verdict.figures, verdict.trace)) if in_full else ""
    compared = compared or track.kind(puzzle, verdict.trace)
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
    done = ""
    if after and track_of(after) is not track:
        done = f"That is every puzzle of the track '{track_of(after).title}'. Well played! "
    elif after in passed:
        chapter = chapter_of(after)
        if slug not in chapter.slugs and all(one in passed or entries[one].stars >= 2 for one in chapter.slugs):
            done = f"That is every puzzle of the chapter '{chapter.title}'. Well played! "
    return f"{done}Next: {track.mention(track.puzzle(slug))}: '{next_command('show', slug)}'."


def _first_sentences(text: str) -> str:
    """The first two sentences of a paragraph; a full stop inside 'et al.' or a number ends none."""
    words, sentences = " ".join(text.split()), []
    for piece in words.replace("et al. ", "et al.\u00a0").split(". ")[:2]:
        sentences.append(piece.rstrip("."))
    return ". ".join(sentences).replace("\u00a0", " ") + "."
