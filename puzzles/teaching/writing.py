"""Writes a puzzle's files: begins a puzzle with its solutions; adds what `puzzles check` measured to its TOML file, in
which everything else, comments and order too, stays as it is.

A puzzle of a teacher is a folder's; a puzzle of the game stands in a clone of the game, with its parts in other places:
the reference is in `solutions`, and wrong solutions are in `tests/catalog/wrong/SLUG`, as code or as edits of the
reference, of which the first line says what each must get: `# ddp: over_target`. Both begin with the same drafts. What
is measured is decided in `check`. No draft replaces a file that exists, and Python is written by people.
"""

import builtins
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.resources import files
from keyword import iskeyword
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit import TOMLDocument
from tomlkit.items import Array

from puzzles.catalog.content import CONTENT, Chapter
from puzzles.catalog.fields import OwnPuzzleError
from puzzles.custom import EDITS, TAKEN, OwnPuzzle, from_toml, shown
from puzzles.sandbox.visible_files import INSTALL_ROOT
from puzzles.tracks import ALL, TRACKS, reference_file, solutions_of, track_of
from puzzles.tracks.base import ReferenceRow

# --- The game's own puzzles, in a clone ---


WRONG = INSTALL_ROOT / "tests" / "catalog" / "wrong"


def in_clone() -> bool:
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


# --- Files ---


MARK = "# Measured by 'puzzles check --write': what the reference scores.\n"
"""Stands before the rows that were written first."""


def can_be_written(own: OwnPuzzle) -> bool:
    """True for a puzzle in TOML; Python is written by people."""
    return own.file.suffix == ".toml"


def write_targets(own: OwnPuzzle, targets: Mapping[str, float]) -> None:
    """Writes targets at the end of a file that has none."""
    _write(own, _with_tables(_read(own), [_table("[targets]", targets)]))


def write_rows(own: OwnPuzzle, rows: Sequence[ReferenceRow]) -> None:
    """Writes these rows on the reference in place of those that the file has, or at its end."""
    document, new = tomlkit.parse(_read(own)), list[str]()
    for name in ("records", "reference_at"):
        wanted = [row.fields for row in rows if row.table == name]
        if name in document:
            _replace(document, name, wanted, own.reference)
        else:
            new += [_table(f"[[{name}]]", fields) for fields in wanted]
    text = tomlkit.dumps(document)
    if new and MARK not in text:
        new[0] = f"{MARK}{new[0]}"
    _write(own, _with_tables(text, new))


def _replace(document: TOMLDocument, name: str, wanted: Sequence[Mapping[str, Any]], reference: str) -> None:
    """Puts rows in place of those that a list has on the reference; the list may be one field, or tables."""
    rows: Any = document[name]
    old = [place for place, row in enumerate(rows) if name == "reference_at" or row.get("by") == reference]
    for place, fields in zip(old, wanted):
        row = rows[place]
        for field in [field for field in row if field not in fields]:
            del row[field]
        for field, content in fields.items():
            if row.get(field) != content:
                row[field] = tomlkit.value(_toml(content))
    for place in reversed(old[len(wanted) :]):
        del rows[place]
    for fields in wanted[len(old) :]:
        is_field = isinstance(rows, Array)
        rows.append(tomlkit.value(_toml(fields)) if is_field else tomlkit.parse(_table("", fields)))
    if not rows:
        del document[name]


def _table(header: str, fields: Mapping[str, Any]) -> str:
    return f"{header}\n" + "".join(f"{name} = {_toml(content)}\n" for name, content in fields.items())


def _with_tables(text: str, tables: Sequence[str]) -> str:
    return "\n\n".join([text.rstrip(), *(table.rstrip() for table in tables)]) + "\n" if tables else text


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_toml(one)}" for name, one in value.items()) + " }"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"{value:_}" if isinstance(value, int) else repr(value)


def _read(own: OwnPuzzle) -> str:
    """Reads the file, with any line ends as newlines."""
    try:
        return own.file.read_text(encoding="utf-8-sig")
    except OSError as why:
        raise OwnPuzzleError(f"{shown(own.file)}: {why.strerror}") from None


def _write(own: OwnPuzzle, text: str) -> None:
    """Writes the file with the line ends that it has."""
    try:
        newline = "\r\n" if b"\r\n" in own.file.read_bytes() else "\n"
        own.file.write_text(text, encoding="utf-8", newline=newline)
    except OSError as why:
        raise OwnPuzzleError(f"{shown(own.file)}: {why.strerror}") from None


def begin(name: str, track: str, folder: Path) -> list[Path]:
    """Writes a puzzle of this name into a folder, and returns the files."""
    return _begin(name, track, {
        "puzzle": folder / f"{name}.toml",
        "reference": folder / "solutions" / f"{name}.py",
        "wrong": folder / "wrong" / f"{name}_REST.py",
        "trials": folder / "trials" / f"{name}.py",
    })  # fmt: skip


def begin_in_clone(name: str, track: str, chapter: str = "") -> list[Path]:
    """Writes a puzzle of the game, at the end of a chapter, by default of the last one of its track."""
    folder = chapter_named(track, chapter)
    return _begin(name, track, {
        "puzzle": folder / f"{name}.toml",
        "reference": solutions_of(track) / f"{name}.py",
        "wrong": WRONG / name / "REST.py",
        "trials": folder / f"{name}_trials.py",
    })  # fmt: skip


def _begin(name: str, track: str, places: Mapping[str, Path]) -> list[Path]:
    """Writes the drafts of a track to their places; REST is the end of a draft's name, of which there are several."""
    _require_name(name)
    drafts = files("puzzles.teaching") / "templates"
    wanted = {places["puzzle"]: f"{track}.toml"}
    for draft in sorted(one.name for one in drafts.iterdir() if one.name.startswith(f"{track}_")):
        kind, _, rest = draft.removeprefix(f"{track}_").removesuffix(".txt").partition("_")
        wanted[places[kind].with_name(places[kind].name.replace("REST", rest))] = draft
    texts = {path: (drafts / draft).read_text(encoding="utf-8").replace("NAME", name) for path, draft in wanted.items()}
    if places["wrong"].is_relative_to(WRONG):
        texts = dict(_as_in_clone(name, texts))
    try:
        for path in texts:
            if path.exists():
                raise OwnPuzzleError(f"{path} already exists; choose another name, or another folder with -o")
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as why:
        raise OwnPuzzleError(f"cannot write {why.filename}: {why.strerror}") from None
    return list(texts)


def _as_in_clone(name: str, texts: Mapping[Path, str]) -> Iterator[tuple[Path, str]]:
    """The drafts as the game's own puzzles have them: what a wrong solution must get is said in its first line, and the
    reference is found by its name."""
    (file, text), *others = texts.items()
    document = tomlkit.parse(text)
    wrong = {Path(path).name.removeprefix(f"{name}_"): wanted for path, wanted in document.pop("wrong").items()}
    del document["reference"]
    if "trials" in document:
        document["trials"] = f"{name}_trials.py"
    yield file, tomlkit.dumps(document).partition("\n")[2].rstrip() + "\n"
    for path, code in others:
        yield path, f"# {name}: {wrong[path.name]}\n{code}" if path.is_relative_to(WRONG) else code


def _require_name(name: str) -> None:
    if (
        not name.isidentifier()
        or not name.isascii()
        or iskeyword(name)
        or name.startswith("_")
        or name in dir(builtins)
    ):
        plainer = re.sub(r"\W", "_", name, flags=re.ASCII).strip("_")
        example = plainer if plainer.isidentifier() and plainer != name else "relay"
        raise OwnPuzzleError(
            f"'{name}' cannot be a puzzle's name; use the name of a function or class, such as {example}"
        )
    if name in TAKEN:
        raise OwnPuzzleError(f"'{name}' cannot be a puzzle's name, since it is {TAKEN[name]}; choose another name")
    if name in ALL:
        raise OwnPuzzleError(f"there is already a puzzle '{name}'; choose another name")
