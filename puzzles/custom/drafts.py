"""Begins a puzzle: a file with a small puzzle that works and texts to replace, its reference and wrong solutions."""

import builtins
import re
from importlib.resources import files
from keyword import iskeyword
from pathlib import Path

from puzzles.catalog.fields import OwnPuzzleError
from puzzles.tracks import ALL

PLACEHOLDER = "TODO"
"""Begins every text of a draft that is to be replaced."""


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
                raise OwnPuzzleError(f"{path} exists already; choose another name, or another folder with -o")
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
            f"'{name}' cannot be a puzzle; it has to be the name of a function or class, such as {example}"
        )
    if name in ALL:
        raise OwnPuzzleError(f"there is already a puzzle '{name}'; choose another name")
