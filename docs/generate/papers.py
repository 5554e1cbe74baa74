"""Lists every publication that a puzzle cites, with the puzzles that cite it: `make docs` writes docs/papers.md."""

from __future__ import annotations

from pathlib import Path

from puzzles.catalog.engine import CHAPTERS, ENGINE_PUZZLES
from puzzles.catalog.puzzle import Paper
from puzzles.catalog.schedule import CLASSICS, PUZZLES
from puzzles.tracks.layout import LAYOUT_PUZZLES

FILE = Path(__file__).parents[1] / "papers.md"
HEAD = f"""\
# What the puzzles are based on

Each puzzle cites its sources: see `puzzles show NAME --about`. This page lists them all, with the puzzles citing them.

- {CLASSICS.about.credit}: the eight classic schedules.
- {CHAPTERS[0].about.credit}
"""


def page() -> str:
    """The whole page: by year, and within a year in the order of play."""
    slugs: dict[Paper, list[str]] = {}
    for puzzle in (*PUZZLES.values(), *ENGINE_PUZZLES.values(), *LAYOUT_PUZZLES.values()):
        for source in puzzle.sources:
            slugs.setdefault(source.cited_for(""), []).append(f"`{puzzle.slug}`")
    papers = sorted(slugs, key=lambda paper: paper.year)
    rows = "".join(f"- {paper}: {', '.join(slugs[paper])}\n" for paper in papers)
    return f"{HEAD}\n{rows}"


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
