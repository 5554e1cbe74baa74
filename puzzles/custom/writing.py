"""Writes a teacher's files: begins a puzzle with its solutions; adds what `puzzles check` measured to its TOML file, in
which everything else, comments and order too, stays as it is."""

import builtins
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from keyword import iskeyword
from pathlib import Path
from typing import Any

from puzzles.catalog.fields import OwnPuzzleError
from puzzles.catalog.puzzle import Puzzle
from puzzles.tracks import ALL
from puzzles.tracks.open_track import ReferenceRow

from .puzzle_file import OwnPuzzle, shown

MARK = "# Measured by 'puzzles check --write': what the reference scores.\n"
"""Stands before the rows that were written last."""

HEADER = re.compile(r"\s*\[\[\s*(\w+)\s*\]\]\s*(#.*)?")
FIELD = re.compile(r"\s*\w+\s*=")


def can_be_written(own: OwnPuzzle) -> bool:
    """True for a puzzle in TOML; Python is written by people."""
    return own.file.suffix == ".toml"


def write_targets(own: OwnPuzzle, targets: Mapping[str, float]) -> None:
    if own.has_targets or not can_be_written(own):
        raise OwnPuzzleError(f"{shown(own.file)}: it already has targets")
    lines = "".join(f"{name} = {_toml(limit)}\n" for name, limit in targets.items())
    _write(own, f"{_read(own).rstrip()}\n\n[targets]\n{lines}")


def write_rows(own: OwnPuzzle, rows: Sequence[ReferenceRow]) -> None:
    """Puts these rows at the end of a TOML file, in place of those that it has on the reference."""
    before = _read(own)
    block = "\n".join(
        f"[[{row.table}]]\n" + "".join(f"{name} = {_toml(value)}\n" for name, value in row.fields.items())
        for row in rows
    )
    kept = _without(before, lambda table, fields: _is_on_reference(own, table, fields)).rstrip()
    after = f"{kept}\n\n{MARK}{block}"
    if not _says(own, before, after, rows):
        raise OwnPuzzleError(
            f"{shown(own.file)}: the figures of the reference cannot be found, because they are not in tables of lines "
            f"'name = value'; remove them, and add this at the end:\n\n{block}"
        )
    _write(own, after)


def _without(text: str, is_old: Callable[[str, Mapping[str, Any]], bool]) -> str:
    """The text without the rows of lists that are old, and without the mark."""
    lines, kept, at = text.splitlines(keepends=True), list[str](), 0
    while at < len(lines):
        end = at + 1
        if header := HEADER.fullmatch(lines[at].rstrip()):
            while end < len(lines) and FIELD.match(lines[end]):
                end += 1
            if is_old(header[1], _parsed("".join(lines[at + 1 : end]))):
                kept = "".join(kept).rstrip("\n").splitlines(keepends=True)
                kept += ["\n"] if kept else []
                at = end
                continue
        if lines[at] != MARK:
            kept += lines[at:end]
        at = end
    return "".join(kept)


def _says(own: OwnPuzzle, before: str, after: str, rows: Sequence[ReferenceRow]) -> bool:
    """True if the second text says the same as the first, but of the reference these rows."""
    old, new = _parsed(before), _parsed(after)
    wanted = [(row.table, dict(row.fields)) for row in rows]
    return bool(old) and _rest(own, old) == _rest(own, new) and _on_reference(own, new) == wanted


def _on_reference(own: OwnPuzzle, given: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(table, row) for table in LISTS for row in given.get(table, ()) if _is_on_reference(own, table, row)]


def _rest(own: OwnPuzzle, given: Mapping[str, Any]) -> dict[str, Any]:
    lists = {name: [row for row in given.get(name, ()) if not _is_on_reference(own, name, row)] for name in LISTS}
    return {**given, **lists}


LISTS = ("records", "reference_at")


def _is_on_reference(own: OwnPuzzle, table: str, row: Any) -> bool:
    by = row.get("by") if isinstance(row, dict) else None
    return table == "reference_at" or (table == "records" and by == own.reference)


def _parsed(text: str) -> dict[str, Any]:
    """What a text says; nothing if it is not TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return {}


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


PLACEHOLDER = "TODO"
"""Begins every text of a draft that is to be replaced."""

TEXTS = ("title", "statement", "starter", "concept", "in_practice")

TAKEN = {"profile": "the page of 'Your own run'"}
"""Names that mean something else in addresses of the site."""


def unfinished(puzzle: Puzzle) -> list[str]:
    """The texts of a puzzle that still have a placeholder, by the names of its fields."""
    texts = {name: getattr(puzzle, name) for name in TEXTS} | {"hints": " ".join(puzzle.hints)}
    return [name for name, text in texts.items() if PLACEHOLDER in text]


def begin(name: str, track: str, folder: Path) -> list[Path]:
    """Writes a puzzle of this name into a folder, and returns the files."""
    _require_name(name)
    drafts = files("puzzles.custom") / "templates"
    wanted = {folder / f"{name}.toml": f"{track}.toml"}
    for draft in sorted(one.name for one in drafts.iterdir() if one.name.startswith(f"{track}_")):
        kind, _, rest = draft.removeprefix(f"{track}_").removesuffix(".txt").partition("_")
        place = {"reference": "solutions", "wrong": "wrong", "trials": "trials"}[kind]
        wanted[folder / place / f"{'_'.join(filter(None, (name, rest)))}.py"] = draft
    try:
        for path in wanted:
            if path.exists():
                raise OwnPuzzleError(f"{path} already exists; choose another name, or another folder with -o")
        for path, draft in wanted.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            text = (drafts / draft).read_text(encoding="utf-8").replace("NAME", name)
            path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as why:
        raise OwnPuzzleError(f"cannot write {why.filename}: {why.strerror}") from None
    return list(wanted)


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
