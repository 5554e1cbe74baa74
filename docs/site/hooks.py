"""Builds pages of the site from the README, the catalog and docs/*.md, so that nothing is written twice.

The line `{readme:}` includes the README without its title, down to its table of pages. `{file: NAME}` includes a file
of the repository, `{puzzles: TRACK}` the table of a track's puzzles, `{api: PACKAGE}` the names that a package exports,
also those that it loads late. Links to files outside the site point into the
public repository; until there is one, their words stay without a link.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from os.path import normpath, relpath
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT))

from puzzles import version  # noqa: E402  # from this clone
from puzzles.tracks import TRACKS, PuzzleGroup, Track  # noqa: E402

README = (ROOT / "README.md").read_text(encoding="utf-8")
SOURCE = version.source()

MARKER = re.compile(r"^\{(readme|file|puzzles|api): *(.*?)\}$", re.MULTILINE)
LINK = re.compile(r"\[([^\[\]]*)\]\((?!\w+:)([^)#\s]*)(#[^)\s]*)?\)")

PAGE_OF = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
}
"""Pages of the site whose source is elsewhere in the repository."""


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages and pictures that are in docs/ itself."""
    for path in (*DOCS.glob("*.md"), *DOCS.glob("pictures/*")):
        name = path.relative_to(DOCS).as_posix()
        files.append(File(name, str(DOCS), config.site_dir, config.use_directory_urls))
    for track in TRACKS.values():
        for slug in track.slugs:
            files.append(File.generated(config, f"puzzles/{slug}.md", content=puzzle_page(track, slug)))
    return files


def puzzle_page(track: Track, slug: str) -> str:
    """A puzzle's own page: what it asks, and the idea behind it. The game links to it, and it to the game."""
    puzzle, game = track.puzzle(slug), version.site()
    parts = [f"# {puzzle.title}", track.words.limits(puzzle) + ".", puzzle.statement]
    if game and track.in_browser:
        parts.append(f"[Play it in the browser]({game}#{slug})")
    parts.append(f"On your machine: `puzzles start {slug}`")
    for title, text in (
        ("The idea", puzzle.concept),
        ("In practice", puzzle.in_practice),
        *track.words.background(puzzle),
    ):
        parts += [f"## {title}", text] if text else []
    parts += ["## Sources", "\n".join(f"- {source}" for source in track.words.sources(puzzle))]
    return "\n\n".join(parts) + "\n"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fills in the markers of a page, and adjusts its links."""
    here = page.file.src_uri
    if (DOCS / here).is_file():
        return turned(markdown, f"docs/{here}", here)
    return MARKER.sub(lambda marker: FILLED[marker[1]](marker[2], here), markdown)


def readme(_: str, here: str) -> str:
    """The README without its title, down to its table of pages."""
    text = README.partition("\n")[2].partition("## Where next")[0]
    return turned(text.strip(), "README.md", here)


def file(name: str, here: str) -> str:
    """A file of the repository."""
    return turned((ROOT / name).read_text(encoding="utf-8"), name, here)


def api(name: str, _: str) -> str:
    """What a package exports. Mkdocstrings reads the source, and so cannot see an `__all__` that is computed."""
    exported = import_module(name).__all__
    return f"::: {name}\n    options:\n      members: [{', '.join(exported)}]"


def puzzles(name: str, here: str) -> str:
    """The puzzles of a track by chapter, each with its title."""
    track = TRACKS[name]
    return "\n\n".join(f"{chapter(group)}\n\n{table(track, group)}" for group in track.groups)


def chapter(group: PuzzleGroup) -> str:
    return f"### {group.title}\n\n{group.idea[:1].upper()}{group.idea[1:]}"


def table(track: Track, group: PuzzleGroup) -> str:
    rows = [f"| `{slug}` | [{track.puzzle(slug).title}](puzzles/{slug}.md) |" for slug in group.slugs]
    return "\n".join(["| name | puzzle |", "|---|---|", *rows])


FILLED = {"readme": readme, "file": file, "puzzles": puzzles, "api": api}


def turned(text: str, origin: str, here: str) -> str:
    """The text of a file in the repository, with its links adjusted to the page that includes it."""

    def turn(link: re.Match[str]) -> str:
        path = normpath(str(Path(origin).parent / link[2])) if link[2] else origin
        found = target(path, link[3] or "", here)
        return link[1] if found is None else f"[{link[1]}]({found})"

    return LINK.sub(turn, text)


def target(path: str, anchor: str, here: str) -> str | None:
    """The target of a link to a file: a page or picture of the site if there is one, else the public repository."""
    page = PAGE_OF.get(path + anchor) or PAGE_OF.get(path)
    if page is None and path == f"docs/{here}":
        return anchor
    if page is None and path.startswith("docs/") and (ROOT / path).is_file():
        page = path.removeprefix("docs/") + anchor
    if page is None:
        return SOURCE and f"{SOURCE}/blob/main/{path}{anchor}"
    return relpath(page, Path(here).parent)
