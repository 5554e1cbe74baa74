"""Lists the puzzles where pages list them: README.md, docs/play.md, docs/variants.md and docs/papers.md.

`make docs` and `puzzles check --write` run it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from docs.generate import papers
from puzzles.catalog.content import CONTENT, placed, puzzle_files
from puzzles.catalog.engine import EnginePuzzle
from puzzles.catalog.layout.puzzle import LayoutPuzzle
from puzzles.catalog.path import CORE, TRICKS
from puzzles.catalog.schedule import CHAPTERS, CLASSICS, PUZZLES, SchedulePuzzle
from puzzles.tracks import TRACKS, track_of

ROOT = Path(__file__).parents[2]
README, PLAY, VARIANTS = ROOT / "README.md", ROOT / "docs" / "play.md", ROOT / "docs" / "variants.md"
COUNT = re.compile(r"(?m)^(\| \[.*?\), )\d+( puzzles \|)")
LINK = re.compile(r"\[\w+\]\(\.\./([\w/]+\.toml)\)")


def readme() -> str:
    """README.md with the number of puzzles of each track."""
    numbers = iter([len(track.slugs) for track in TRACKS.values()])
    return COUNT.sub(lambda row: f"{row[1]}{next(numbers)}{row[2]}", README.read_text(encoding="utf-8"))


def play() -> str:
    """docs/play.md with the tables of the schedules."""
    text = filled(PLAY.read_text(encoding="utf-8"), "classics", table(CLASSICS.slugs))
    others = [slug for chapter in CHAPTERS[1:] for slug in chapter.slugs]
    text = filled(text, "chapters", table(others, with_chapter=True))
    return filled(text, "third stars", third_stars())


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


def table(slugs: Iterable[str], with_chapter: bool = False) -> Iterator[str]:
    yield f"| |{' chapter |' * with_chapter} puzzle | the idea | layers, batches, ranks | steps | elements | sent |"
    yield f"|---|{'---|' * with_chapter}---|---|---|---|---|---|"
    for slug in slugs:
        puzzle, goal = PUZZLES[slug], PUZZLES[slug].goal
        unit = "" if goal.costs.time_unit == "steps" else f" {goal.costs.time_unit}"
        chapter = f" {PUZZLES.chapter_of(slug).name} |" * with_chapter
        idea = placed()[slug].idea or puzzle.title
        yield (
            f"| {PUZZLES.number(slug)} |{chapter} `{slug}` | {idea} | {', '.join(map(str, goal.size))} | "
            f"{goal.time_text}{unit} | {goal.memory_text} | {goal.traffic_text or '-'} |"
        )


def variants() -> str:
    """docs/variants.md with the schedules and classes that no row of the table has."""
    text = VARIANTS.read_text(encoding="utf-8")
    bare = filled(text, "others", [])
    named = {ROOT / path for path in LINK.findall(bare)}
    files = {slug: CONTENT / name for (track, _, slug), name in puzzle_files().items() if track in MAPPED}
    links = [f"[{slug}](../{path.relative_to(ROOT).as_posix()})" for slug, path in files.items() if path not in named]
    return filled(text, "others", [f"Other puzzles: {', '.join(links)}.", ""] if links else [])


MAPPED = ("schedule", "engine")
"""The tracks whose puzzles the map has one by one."""


def filled(text: str, name: str, lines: Iterable[str]) -> str:
    """A page with these lines between the comments of a name."""
    head, begin, rest = text.partition(f"<!-- {name} -->\n")
    _, end, tail = rest.partition(f"<!-- end of {name} -->\n")
    return f"{head}{begin}{''.join(f'{line}{chr(10)}' for line in lines)}{end}{tail}"


PAGES = {README: readme, PLAY: play, VARIANTS: variants, papers.FILE: papers.page}


def main() -> None:
    for file, page in PAGES.items():
        file.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
