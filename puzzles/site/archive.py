"""The Python of the site as archives that Pyodide imports from: the game and the packages that draw, compiled."""

import shutil
import zipfile
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from pathlib import Path

from . import custom
from .npm import PAGE, run

ROOT = Path(__file__).parents[2]
OURS = ("lib", "drawing", "puzzles")
LEFT_OUT = (
    "puzzles/site/page", "puzzles/site/warm_up", "puzzles/commands", "puzzles/package", "puzzles/notebook/authoring",
    "puzzles/reports/templates",
)  # fmt: skip
"""What nothing in the browser imports."""
ARRAYS = "arrays.zip"
WITH_NUMPY = ("lib/engine", "lib/layout", "drawing/layouts")
"""What goes into a second archive, which is loaded with numpy."""
PACKAGES = (
    "chalk-diagrams",
    "chalk-planar",
    "colour",
    "svgwrite",
    "toolz",
    "typing-extensions",
    "jinja2",
    "markupsafe",
)
"""Distributions in pure Python that the pictures need. Of markupsafe the part in C is left out."""

PILLOW = {
    "PIL/__init__.py": '"""Chalk imports this package to place images, and our pictures have none."""\n',
    "PIL/Image.py": '"""Images cannot be placed in the browser."""\n\n\nclass Image:\n    pass\n',
}

NOT_IN_A_BROWSER = (
    "_pyrepl", "doctest", "ftplib", "imaplib", "mailbox", "multiprocessing", "pdb", "pickletools", "poplib", "pydoc",
    "smtplib", "socketserver", "unittest", "wsgiref", "xmlrpc", "encodings/big5", "encodings/cp1", "encodings/cp7",
    "encodings/cp8", "encodings/euc", "encodings/gb", "encodings/iso", "encodings/koi8", "encodings/mac",
    "encodings/shift",
)  # fmt: skip
"""Of Python's library what talks to terminals, other processes and servers, and alphabets that no source is in."""

DATE = (1980, 1, 1, 0, 0, 0)
"""Of every file in the archive, so that equal sources make equal archives."""


def write_archives(game: Path, arrays: Path, modules: Path, folder: Path) -> None:
    """Writes the game, and what goes with numpy; `folder` is for the files on the way there."""
    _compile(files(), modules, folder)
    _pack(game, folder, lambda name: not name.startswith(WITH_NUMPY))
    _pack(arrays, folder, lambda name: name.startswith(WITH_NUMPY))


def write_library(target: Path, modules: Path, folder: Path, game: Path) -> None:
    """Writes Python's own library. What the start of the game imports is compiled, which halves the time of a start;
    the rest stays as it is, which is smaller."""
    with zipfile.ZipFile(modules / "pyodide" / target.name) as whole:
        kept = [name for name in whole.namelist() if not name.startswith(NOT_IN_A_BROWSER) and not name.endswith("/")]
        _compile(((name, whole.read(name)) for name in kept), modules, folder, game)
    _pack(target, folder)


def _compile(contents: Iterable[tuple[str, bytes]], modules: Path, folder: Path, *game: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in contents:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    given = (PAGE / "compile.mjs", modules / "pyodide" / "pyodide.mjs", folder, *game)
    run("node", *(str(path.resolve()) for path in given))


def _pack(target: Path, folder: Path, is_wanted: Callable[[str], bool] = lambda name: True) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            is_source = path.suffix == ".py" and path.with_suffix(".pyc").is_file()
            if path.is_file() and not is_source and is_wanted(name):
                archive.writestr(zipfile.ZipInfo(name, DATE), path.read_bytes(), zipfile.ZIP_DEFLATED)


def files() -> Iterator[tuple[str, bytes]]:
    """Every file by its name in its archive."""
    for package in OURS:
        for path in sorted((ROOT / package).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            if path.is_file() and path.suffix not in (".pyc", ".typed") and not name.startswith(LEFT_OUT):
                yield name, path.read_bytes()
    if own_puzzles := custom.packed():
        yield custom.FILE, own_puzzles
    for name, text in PILLOW.items():
        yield name, text.encode()
    for distribution in PACKAGES:
        for file in metadata.files(distribution) or ():
            name = file.as_posix()
            if (
                name.endswith((".py", ".dist-info/METADATA"))
                and not {"test", "tests"} & {*file.parts}
                and not name.startswith("..")
            ):
                yield name, file.read_binary()
