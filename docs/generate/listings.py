"""Lists the puzzles where pages list them: docs/map.md with its three views, README.md, and other
pages; and the rooms of docs/architecture.md.

`make docs` and `puzzles check --write` run it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

from docs.generate import architecture, extended, papers
from docs.generate.extended import filled, linked
from puzzles.catalog.content import placed
from puzzles.catalog.engine import EnginePuzzle
from puzzles.catalog.layout import LayoutPuzzle
from puzzles.catalog.path import AFTER, CORE, PATH, TRICKS, VARIANTS
from puzzles.catalog.schedule import CHAPTERS, PUZZLES, SchedulePuzzle
from puzzles.tracks import SHIPPED, TRACKS, Track, track_of

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
MAP, PLAY, PICTURES = (ROOT / "docs" / f"{name}.md" for name in ("map", "play", "pictures"))
COUNT = re.compile(r"(?m)^(\| \[.*?\), )\d+( puzzles \|)")

HEAD = """\
# A map of all puzzles

Three views of the same {number} puzzles: in the order of play, by the step of [the field](field.md), and by what is
split. Each name leads to the puzzle's file. The puzzles of the core path are bold; `puzzles path` shows which of them
you have solved.

"""


def readme() -> str:
    """README.md with the number of puzzles of each track."""
    numbers = iter([len(track.slugs) for track in TRACKS.values()])
    return COUNT.sub(lambda row: f"{row[1]}{next(numbers)}{row[2]}", README.read_text(encoding="utf-8"))


# --- The map ---


def the_map() -> str:
    """docs/map.md."""
    views = {
        "In the order of play": [line for track in TRACKS.values() for line in played(track)],
        "By the step of the field": by_step(),
        "By what is split": by_variant(),
    }
    sections = ("\n".join([f"## {title}", "", *lines]).rstrip() + "\n" for title, lines in views.items())
    return HEAD.format(number=len(SHIPPED)) + "\n".join(sections)


def played(track: Track[Any]) -> Iterator[str]:
    """The puzzles of a track, with the columns of `puzzles list`."""
    columns = [*track.words.overview_columns] or ["targets"]
    yield from (f"### {track.title}: {track.idea}", "")
    yield f"| chapter | puzzle | the idea | {' | '.join(columns)} |"
    yield f"|---|---|---|{'---|' * len(columns)}"
    for group in track.groups:
        for slug in group.slugs:
            puzzle = track.puzzle(slug)
            cells = [*track.words.overview_cells(puzzle)] or [track.words.listed_limits(puzzle)]
            idea = placed()[slug].idea or puzzle.title
            yield f"| {group.name} | {linked(slug, slug in CORE)} | {idea} | {' | '.join(cells)} |"
    note = track.words.overview_note([track.puzzle(slug) for slug in track.slugs])
    yield from ("", *([note, ""] if note else []))


def by_step() -> Iterator[str]:
    """The steps of the core path, each with its puzzles and those that build on them."""
    yield from ("| step | core | then |", "|---|---|---|")
    for number, step in enumerate(PATH, 1):
        then = [slug for slug in SHIPPED_IN_ORDER if slug not in CORE and step_of(slug) == number]
        anchor = re.sub(r"[^\w ]", "", f"{number} {step.title}".lower()).replace(" ", "-")
        yield f"| [{step.title}](field.md#{anchor}) | {names(step.slugs)} | {names(then)} |"
    yield f"| others | | {names(slug for slug in SHIPPED_IN_ORDER if not step_of(slug))} |"


@cache
def step_of(slug: str) -> int:
    """The number of the step in which a puzzle can first be solved; 0 if it builds on nothing."""
    own = [number for number, step in enumerate(PATH, 1) if slug in step.slugs]
    return max(own or map(step_of, AFTER.get(slug, ())), default=0)


def by_variant() -> Iterator[str]:
    """What can be split, each with its puzzles; then the others, by track."""
    yield from ("| split | puzzles |", "|---|---|")
    for variant, slugs in VARIANTS.items():
        yield f"| {variant} | {names(slug for slug in SHIPPED_IN_ORDER if slug in slugs)} |"
    for track in TRACKS.values():
        if others := [slug for slug in track.slugs if slug in SHIPPED and not placed()[slug].variant]:
            yield f"| others: {track.title.lower()} | {names(others)} |"


SHIPPED_IN_ORDER = [slug for track in TRACKS.values() for slug in track.slugs if slug in SHIPPED]


def names(slugs: Iterable[str]) -> str:
    return ", ".join(linked(slug, slug in CORE) for slug in slugs)


# --- Third stars ---


def play() -> str:
    """docs/play.md with what is known on the core path."""
    return filled(PLAY.read_text(encoding="utf-8"), "third stars", third_stars())


def third_stars() -> Iterator[str]:
    """For each core puzzle its idea, the figures that no player with three stars may be behind, and the other ideas
    that the record needs."""
    yield "| puzzle | its idea | three stars | with |"
    yield "|---|---|---|---|"
    for slug in CORE:
        puzzle = track_of(slug).puzzle(slug)
        figures, ideas = best_known(puzzle)
        yield f"| `{slug}` | {placed()[slug].idea or puzzle.title} | {figures} | {', '.join(ideas) or '-'} |"
    yield ""
    for trick, words in TRICKS.items():
        yield f"- `{trick}`: {words}."


def best_known(puzzle: Any) -> tuple[str, Sequence[str]]:
    """The figures that decide the third star in words, and what their record needs besides the puzzle's idea."""
    match puzzle:
        case SchedulePuzzle(goal=goal):
            rivals = [
                r for r in goal.rivals(goal.family) if goal.meets_time(r.timesteps) and goal.meets_memory(r.peak_memory)
            ]
            record = min(rivals, key=lambda record: record.figures[:2])
            return goal.words(record), [f"`{idea}`" for idea in record.ideas if idea != puzzle.slug]
        case EnginePuzzle():
            best = replace(puzzle, targets=puzzle.records[0]) if puzzle.records else puzzle
            return best.targets_text(), ()
        case LayoutPuzzle():
            return f"{puzzle.best:,} bytes moved", ()
    return f"a step of {puzzle.best:,} s, or the best of its kind", ()


# --- The gallery ---


def pictures() -> str:
    """docs/pictures.md with the pictures of all schedules."""
    lines = [
        line
        for chapter in CHAPTERS
        for line in (f"## {chapter.title}", "", *(f"![{PUZZLES[s].title}](pictures/{s}.svg)\n" for s in chapter.slugs))
    ]
    return filled(PICTURES.read_text(encoding="utf-8"), "schedules", lines)


def draw_missing() -> None:
    """Draws the references of schedules that have no picture yet."""
    for slug, puzzle in PUZZLES.items():
        file = ROOT / "docs" / "pictures" / f"{slug}.svg"
        if not file.exists():
            from docs.generate.gallery import solved  # here, since lists need no picture
            from drawing import draw, save

            with redirect_stdout(StringIO()):
                save(draw(solved(slug), puzzle.title, goal=puzzle.goal), file)


PAGES = {
    README: readme,
    MAP: the_map,
    PLAY: play,
    PICTURES: pictures,
    papers.FILE: papers.page,
    extended.FILE: extended.page,
    architecture.FILE: architecture.page,
}


def main() -> None:
    draw_missing()
    for file, page in PAGES.items():
        file.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
