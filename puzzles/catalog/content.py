"""The puzzles of the game as data: puzzles/content/TRACK/CHAPTER has a TOML file for each puzzle, and chapter.toml.

Reading TOML takes ten times as long as reading JSON. So what the files say is kept as JSON beside them, as Python keeps
modules compiled; a digest of the files says whether it is theirs. Where there is only the JSON, as on the page, it is
all there is. A puzzle is made of its file when it is first asked for, so commands that only list slugs stay fast.
Rejected: puzzles as Python modules, the design before, which teachers could not write.
"""

from __future__ import annotations

import json
import os
import sys
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from .fields import Fields, OwnPuzzleError

CONTENT = Path(__file__).resolve().parents[1] / "content"
PACKAGE = "puzzles/content"
"""How messages name the folder."""

COMPILED = CONTENT / "__pycache__" / "content.json"
CHAPTER_FILE = "chapter.toml"


@cache
def content() -> Mapping[str, Mapping[str, Any]]:
    """What each file says, by its path in the folder: 'schedule/classics/ddp.toml'."""
    texts = _texts()
    with suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads(COMPILED.read_bytes())
        if not texts or kept["digest"] == _digest(texts):
            said: Mapping[str, Mapping[str, Any]] = kept["files"]
            return said
    files = {name: parsed(CONTENT / name) for name in texts}
    if not sys.dont_write_bytecode:
        with suppress(OSError):
            COMPILED.parent.mkdir(exist_ok=True)
            written = COMPILED.with_suffix(f".{os.getpid()}")
            written.write_text(_as_json(texts, files), encoding="utf-8")
            written.replace(COMPILED)
    return files


def compiled() -> str:
    """What the file COMPILED has: for a wheel, and for the page."""
    texts = _texts()
    return _as_json(texts, {name: parsed(CONTENT / name) for name in texts})


def _texts() -> dict[str, bytes]:
    """The text of each file; os.walk and open take a quarter of the time of paths, and every command waits for it."""
    texts = {}
    for folder, _, files in os.walk(CONTENT):
        for file in files:
            if file.endswith(".toml"):
                path = os.path.join(folder, file)
                with open(path, "rb") as opened:
                    texts[path[len(str(CONTENT)) + 1 :].replace(os.sep, "/")] = opened.read()
    return dict(sorted(texts.items()))


def _as_json(texts: Mapping[str, bytes], files: Mapping[str, Mapping[str, Any]]) -> str:
    return json.dumps({"digest": _digest(texts), "files": files}, ensure_ascii=False, separators=(",", ":"))


def _digest(texts: Mapping[str, bytes]) -> str:
    digest = blake2b(digest_size=16)
    for name, text in texts.items():
        digest.update(b"%s\0%d\0%s" % (name.encode(), len(text), text))
    return digest.hexdigest()


def parsed(path: Path) -> dict[str, Any]:
    """What a TOML file says; it may begin with a byte order mark."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as why:
        raise OwnPuzzleError(f"{shown(path)}: {why}") from None


def shown(path: Path) -> str:
    """A path as messages have it: from the current folder, if it is below that."""
    with suppress(OSError):  # the current folder may be gone
        if Path.cwd() in path.parents:
            return str(path.relative_to(Path.cwd()))
    return str(path)


@dataclass(frozen=True)
class ChapterFile:
    """What chapter.toml says: the title, the question that its puzzles ask, the order of play, the chapter's own place
    in its track, and the work that its puzzles are based on, if they all are."""

    title: str
    idea: str
    order: tuple[str, ...]
    place: int
    credit: str

    @classmethod
    def read(cls, path: Path, given: Mapping[str, Any]) -> ChapterFile:
        """The file at `path`, which says what is `given`; it may be missing."""
        fields = Fields(shown(path), given, partial(text_at, path))
        chapter = cls(
            fields.text("title", path.parent.name),
            fields.text("idea", "puzzles of your course."),
            fields.texts("order"),
            fields.number("place", 0, least=0),
            fields.text("credit", ""),
        )
        fields.done()
        return chapter

    def in_order(self, slugs: Iterable[str], path: Path) -> tuple[str, ...]:
        """The slugs in the order of play; those that it does not name come last, by name."""
        slugs = sorted(slugs)
        if wrong := [slug for slug in self.order if slug not in slugs]:
            raise OwnPuzzleError(f"{shown(path)}: 'order' names '{wrong[0]}', which is not a puzzle here")
        return (*self.order, *(slug for slug in slugs if slug not in self.order))


def text_at(path: Path) -> str:
    """The text of a file, for the lines that messages name; empty where there is none."""
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8-sig")
    return ""


@dataclass(frozen=True)
class PuzzleGroup:
    """Puzzles that belong together, a chapter or a whole track; `name` is what commands call it."""

    name: str
    title: str
    idea: str
    """The question that its puzzles ask."""
    slugs: tuple[str, ...]
    """In the order of play."""
    folder: str = ""
    """The folder of a teacher's chapter, which may have chapters for several tracks; by its name all are found."""

    def puzzle(self, slug: str) -> Any:
        """One of its puzzles; a chapter may load it only now."""
        raise NotImplementedError(f"{self.name} is not a chapter")


@dataclass(frozen=True, kw_only=True)
class Chapter(PuzzleGroup):
    """A folder of the content, by its name, with a file for each of its puzzles."""

    track: str
    about: ChapterFile

    def puzzle(self, slug: str) -> Any:
        """The puzzle, read when it is first asked for: commands that only list slugs stay fast, and free of numpy."""
        return _puzzle(self, slug)


@cache
def _puzzle(chapter: Chapter, slug: str) -> Any:
    name = f"{chapter.track}/{chapter.name}/{slug}.toml"
    fields = fields_of(CONTENT / name, chapter.about, content()[name])
    fields.one_of("track", (chapter.track,))
    Placed.take(fields)
    if "targets" not in fields:
        raise fields.refusal(f"[targets] is missing; 'puzzles check --only {slug} --write' finds them")
    puzzle = read_puzzle(chapter.track, slug, fields)
    fields.done()
    return puzzle


def fields_of(path: Path, chapter: ChapterFile, given: Mapping[str, Any] | None = None) -> Fields:
    """The fields of a puzzle's file, of which it is `given` what they are, unless the file is to be read."""
    if given is None:
        given = parsed(path)
    common = {"credit": chapter.credit} if chapter.credit else {}
    return Fields(shown(path), {**common, **given}, partial(text_at, path))


class Placed(NamedTuple):
    """Where a puzzle of the game comes, as its file says: its step of the core path and its place there, if it is core;
    the puzzles that it builds on; of a schedule the class that does the same on real tensors; in a few words what it
    is about, for lists; what it splits, for the map; and the tricks that its text tells."""

    core: tuple[str, int] | None
    after: tuple[str, ...]
    on_tensors: str
    idea: str
    variant: str
    tells: tuple[str, ...]

    @classmethod
    def take(cls, fields: Fields) -> Placed:
        """Takes these fields out, which teachers' puzzles do not have."""
        core, path = None, content()["path.toml"]
        if "core" in fields:
            table = fields.table("core")
            core = table.one_of("step", path["steps"]), table.number("place")
            table.done()
        variant, tells = fields.one_of("variant", path["variants"], ""), fields.texts("tells", path["tricks"])
        return cls(core, fields.texts("after"), fields.text("on_tensors", ""), fields.text("idea", ""), variant, tells)


@cache
def puzzle_files() -> Mapping[tuple[str, str, str], str]:
    """The name of the file of each puzzle, by track, chapter and slug."""
    parts = {name: name.removesuffix(".toml").split("/") for name in content()}
    return {
        (place[0], place[1], place[2]): name
        for name, place in parts.items()
        if len(place) == 3 and not name.endswith(f"/{CHAPTER_FILE}")
    }


def _fields_at(name: str) -> Fields:
    """The fields of a file of the content."""
    return Fields(f"{PACKAGE}/{name}", content()[name], lambda: text_at(CONTENT / name))


@cache
def placed() -> Mapping[str, Placed]:
    """Where each puzzle of the game comes."""
    return {slug: Placed.take(_fields_at(name)) for (_, _, slug), name in puzzle_files().items()}


def said_of(track: str, slug: str) -> Fields:
    """The fields of a puzzle of the game; none if there is no such puzzle."""
    found = [name for (of, _, one), name in puzzle_files().items() if (of, one) == (track, slug)]
    return _fields_at(found[0]) if found else Fields(slug, {})


def read_puzzle(track: str, slug: str, fields: Fields) -> Any:
    """The puzzle of a slug from the fields of its file. What reads it is imported only now: some need numpy."""
    return import_module(f"puzzles.catalog.{track}").read_puzzle(slug, fields)


def chapters(track: str) -> tuple[Chapter, ...]:
    """The chapters of a track, in the order of play."""
    by_folder: dict[str, list[str]] = {}
    for of, folder, slug in puzzle_files():
        if of == track:
            by_folder.setdefault(folder, []).append(slug)
    made = []
    for folder, slugs in by_folder.items():
        name = f"{track}/{folder}/{CHAPTER_FILE}"
        about = ChapterFile.read(CONTENT / name, content().get(name, {}))
        order = about.in_order(slugs, CONTENT / name)
        made.append(Chapter(folder, about.title, about.idea, order, track=track, about=about))
    return tuple(sorted(made, key=lambda chapter: chapter.about.place))
