"""Every publication that a puzzle names, with the puzzles that name it: `make docs` writes docs/papers.md."""

from __future__ import annotations

from pathlib import Path

from puzzles.catalog.engine import ENGINE_PUZZLES
from puzzles.catalog.engine.puzzle import CREDIT
from puzzles.catalog.layout import LAYOUT_PUZZLES
from puzzles.catalog.schedule import PUZZLES
from puzzles.catalog.schedule.puzzle import ORIGINAL

FILE = Path(__file__).parent / "papers.md"
HEAD = f"""\
# What the puzzles learnt from

Each puzzle names its sources: `puzzles show NAME --about`. Here they are together, with the puzzles that name them.

- {ORIGINAL}: the eight schedules.
- {CREDIT}
"""


def page() -> str:
    """The whole page: by year, then as the catalogs have them."""
    puzzles = (*PUZZLES.values(), *ENGINE_PUZZLES.values(), *LAYOUT_PUZZLES.values())
    named: dict[str, tuple[int, str, list[str]]] = {}
    for puzzle in puzzles:
        for source in puzzle.sources:
            _, _, slugs = named.setdefault(source.title, (source.year, str(source), []))
            slugs.append(f"`{puzzle.slug}`")
    rows = [f"- {text}: {', '.join(dict.fromkeys(slugs))}\n" for _, text, slugs in sorted(named.values(), key=year)]
    return f"{HEAD}\n{''.join(rows)}"


def year(entry: tuple[int, str, list[str]]) -> int:
    return entry[0]


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
