"""Lists the puzzles where pages list them: README.md, docs/play.md, docs/variants.md and docs/papers.md.

`make docs` and `puzzles check --write` run it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from docs.generate import papers
from puzzles.catalog.content import CONTENT, placed, puzzle_files
from puzzles.catalog.schedule import CHAPTERS, CLASSICS, PUZZLES
from puzzles.tracks import TRACKS

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
    return filled(text, "chapters", table(others, with_chapter=True))


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
