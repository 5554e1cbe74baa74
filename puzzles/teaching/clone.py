"""The puzzles of the game in a clone of it: the files of each, which a teacher's puzzle has beside it.

The reference is in `solutions`, and wrong solutions are in `tests/catalog/wrong/SLUG`, as code or as edits of the
reference. The first line of each says what it must get: `# ddp: over_target`.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from puzzles.catalog.content import CONTENT, Chapter
from puzzles.catalog.fields import OwnPuzzleError
from puzzles.custom import EDITS, OwnPuzzle, from_toml, shown
from puzzles.sandbox.visible_files import INSTALL_ROOT
from puzzles.tracks import TRACKS, reference_file, track_of

WRONG = INSTALL_ROOT / "tests" / "catalog" / "wrong"


def is_here() -> bool:
    """True where the current folder is a clone from which this program comes."""
    with suppress(OSError):  # the current folder may be gone
        return Path.cwd() == INSTALL_ROOT and WRONG.parent.is_dir()
    return False


def puzzle_in_clone(slug: str) -> OwnPuzzle:
    """A puzzle of the game, read from its file now; it may lack targets."""
    track = track_of(slug)
    chapter = track.listing.chapter_of(slug) if track.listing is not None else None
    assert isinstance(chapter, Chapter)
    own = from_toml(CONTENT / track.name / chapter.name / f"{slug}.toml", chapter.about, draft=True, is_shipped=True)
    reference = reference_file(slug)
    return replace(
        own,
        reference="" if reference is None else reference.relative_to(INSTALL_ROOT).as_posix(),
        wrong=wrong_solutions(slug),
        root=INSTALL_ROOT,
    )


def wrong_solutions(slug: str) -> Mapping[str, str]:
    """The wrong solutions of a puzzle by path, each with the status or reason that it must get."""
    files = sorted(path for path in (WRONG / slug).glob("*.*") if path.suffix in (".py", EDITS))
    return {path.relative_to(INSTALL_ROOT).as_posix(): expected_of(path) for path in files}


def expected_of(path: Path) -> str:
    """What the first line of a wrong solution says that it must get."""
    text, slug = path.read_text(encoding="utf-8"), path.parent.name
    said = re.match(r"# (\w+): (\w+)\n", text)
    if said is None or said[1] != slug:
        raise OwnPuzzleError(
            f"{shown(path)}, line 1: it must name the puzzle and the status or reason that the file must get, such as "
            f"'# {slug}: over_target'; it is {text.partition(chr(10))[0]!r:.80}"
        )
    return said[2]


def write_lists() -> None:
    """Brings the lists of puzzles in the documentation up to date."""
    path = INSTALL_ROOT / "docs" / "generate" / "listings.py"
    environment = {**os.environ, "PYTHONPATH": str(INSTALL_ROOT)}
    done = subprocess.run([sys.executable, path], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OwnPuzzleError(f"{shown(path)} failed: {done.stderr.strip().splitlines()[-1]}")


def chapter_named(track: str, name: str) -> Path:
    """The folder of a chapter of the game, by default the track's last."""
    listing = TRACKS[track].listing
    assert listing is not None
    names = [chapter.name for chapter in listing.chapters if isinstance(chapter, Chapter)]
    if name and name not in names:
        raise OwnPuzzleError(f"there is no chapter '{name}' in the track '{track}'; there are {', '.join(names)}")
    return CONTENT / track / (name or names[-1])
