"""The Python of the site as archives that Pyodide imports from: the game and the packages that draw, compiled."""

import shutil
import zipfile
from collections.abc import Iterator
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

DATE = (1980, 1, 1, 0, 0, 0)
"""Of every file in the archive, so that equal sources make equal archives."""


def write_archives(game: Path, arrays: Path, modules: Path, folder: Path) -> None:
    """Writes both archives; `folder` is for the files on the way there."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in files():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    run("node", str(PAGE / "compile.mjs"), str((modules / "pyodide" / "pyodide.mjs").resolve()), str(folder.resolve()))
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    for target, is_with_numpy in ((game, False), (arrays, True)):
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for name in names:
                if not name.endswith(".py") and name.startswith(WITH_NUMPY) == is_with_numpy:
                    archive.writestr(zipfile.ZipInfo(name, DATE), (folder / name).read_bytes(), zipfile.ZIP_DEFLATED)


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
