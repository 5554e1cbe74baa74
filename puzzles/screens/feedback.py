"""Feedback after a pass: what was built, the third star, the next move; on request bounds, records and practice."""

import re
from collections.abc import Iterable

from puzzles.catalog.path import CORE
from puzzles.judge.progress import load, next_slug, solved_slugs
from puzzles.judge.verdict import Verdict
from puzzles.text_lines import next_command
from puzzles.tracks import chapter_of, reference_file, track_of
from puzzles.tracks.outcomes import capitalized

HEADLINES = {
    "passed": "Solved!",
    "over_target": "Correct, but over target",
    "failed": "Not yet",
    "not_attempted": "Not attempted",
}

MAX_BUILT = 440
"""Characters of what was built with the puzzle's concept: six lines of a terminal."""


def story(verdict: Verdict) -> list[str]:
    """Paragraphs on a solution that has passed: what the player has built, what a second step needs, and the one thing
    to know of the third star. `details` has the rest."""
    return [*filter(None, [built(verdict), _second_step(verdict), third_star(verdict)])]


def details(verdict: Verdict) -> list[str]:
    """Everything that `story` does not say of a solution that has passed: margins, records, bounds, calls, practice.
    Notes are the verdict's own."""
    track = track_of(verdict.puzzle)
    puzzle = track.puzzle(verdict.puzzle)
    compared = " ".join(track.words.comparison(puzzle, verdict.figures, verdict.trace))
    practice = f"In practice: {_first_sentences(puzzle.in_practice)}" if puzzle.in_practice else ""
    known = achieved(verdict)
    for told in story(verdict):
        known = known.replace(told, "")
    return [*filter(None, [" ".join(known.split()), compared, practice])]


def third_star(verdict: Verdict) -> str:
    """The one reason why the third star is missing, or that nothing better is known. A target that only the third star
    needs comes before records."""
    track = track_of(verdict.puzzle)
    puzzle = track.puzzle(verdict.puzzle)
    is_missed = any(
        measure.for_star and not measure.met and measure.value is not None
        for measure in track.words.measures(puzzle, verdict.figures)
    )
    if not (verdict.shown_size_only or verdict.stars == 0 or (is_missed and verdict.notes)):
        said = track.words.third_star(puzzle, verdict.figures, verdict.stars, verdict.family)
        if said:
            return said
    return f"The third star is missing: {verdict.notes[-1].rstrip('.')}." if verdict.notes and verdict.stars < 3 else ""


def achieved(verdict: Verdict) -> str:
    """By how much a pass beats its targets, what a second step needs, and what is best known."""
    track = track_of(verdict.puzzle)
    puzzle = track.puzzle(verdict.puzzle)
    margin = track.words.margin(puzzle, verdict.figures)
    record = track.words.record(puzzle, verdict.figures, verdict.stars, verdict.family)
    return " ".join(filter(None, [margin, _second_step(verdict), record]))


def _second_step(verdict: Verdict) -> str:
    """The peak of a second step and its reason, unless that is why the third star is missing."""
    told = verdict.second_step in third_star(verdict)
    return "" if told else f"{capitalized(verdict.second_step)}."


def offers(path: str, slug: str) -> str:
    """The reference next to the player's solution, as a command; empty where there is none."""
    if not path or reference_file(slug) is None:
        return ""
    return f"'{next_command('compare', path, slug)}' shows the reference next to yours."


def built(verdict: Verdict) -> str:
    """What the solution is called, and the beginning of the puzzle's concept."""
    track = track_of(verdict.puzzle)
    puzzle = track.puzzle(verdict.puzzle)
    name = track.words.built(puzzle, verdict.trace) if verdict.trace else ""
    kept = f"You have built {name}." if name else ""
    for sentence in re.split(r"(?<=[.:])\s+(?=[A-Z`])", " ".join(puzzle.concept.split())):
        if len(kept) + len(sentence) >= MAX_BUILT:
            break
        kept = f"{kept} {sentence}".strip()
    return kept


def what_next(after: str = "", passed: Iterable[str] = ()) -> str:
    """The next puzzle of this player, and the commands for it; `after` and `passed` as for `next_slug`."""
    entries, passed = load(), set(passed)
    slug = next_slug(entries, after, passed)
    if slug is None:
        return "You have passed every puzzle there is. Well played!"
    track = track_of(slug)
    done = _finished(after, solved_slugs(entries, passed)) if after in passed else ""
    try:
        title = f" ({track.puzzle(slug).title})"
    except ModuleNotFoundError:  # in a browser: layouts need numpy, which is not loaded there
        title = ""
    return f"{done}Next: '{next_command('show', slug)}'{title}."


def _finished(slug: str, solved: set[str]) -> str:
    """A sentence on the largest unit that is finished with this puzzle: its track, the core path, or its chapter."""
    chapter, track = chapter_of(slug), track_of(slug)
    units = (
        (track.slugs, f"every puzzle of the track '{track.title}'"),
        (CORE if slug in CORE else (), "every puzzle of the core path; 'puzzles plan' searches all splits of a model"),
        (chapter.slugs, f"every puzzle of the chapter '{chapter.title}'"),
    )
    return next((f"That is {words}. Well played! " for slugs, words in units if slugs and solved.issuperset(slugs)), "")


def _first_sentences(text: str) -> str:
    """The first two sentences of a paragraph; a full stop inside 'et al.' or a number ends none."""
    sentences = " ".join(text.split()).replace("et al. ", "et al.\u00a0").split(". ")[:2]
    return ". ".join(sentence.rstrip(".") for sentence in sentences).replace("\u00a0", " ") + "."
