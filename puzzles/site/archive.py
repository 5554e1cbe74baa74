"""The Python of the site as archives that Pyodide imports from, compiled: the game and what draws; numpy's wheel."""

import json
import re
import shutil
import zipfile
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

from puzzles.catalog.content import COMPILED, CONTENT, compiled

from . import custom
from .npm import PAGE, SiteError, run

ROOT = Path(__file__).parents[2]
OURS = ("lib", "drawing", "puzzles")
LEFT_OUT = (
    "puzzles/site/page", "puzzles/site/warm_up", "puzzles/commands", "puzzles/package", "puzzles/notebook/authoring",
    "puzzles/reports/templates", "puzzles/course",
    "puzzles/sandbox/client", "puzzles/sandbox/worker/landlock",
    "puzzles/sandbox/worker/seccomp", "puzzles/sandbox/worker/server",
)  # fmt: skip
"""What nothing in the browser imports."""
ARRAYS = "arrays.zip"
WITH_NUMPY = (
    "lib/engine", "lib/layout", "drawing/layouts",
    "puzzles/sandbox/worker/recording", "puzzles/sandbox/worker/repeating",
)  # fmt: skip
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
            is_left_out = name.startswith(LEFT_OUT) or (path.is_relative_to(CONTENT) and path.suffix != ".py")
            if path.is_file() and path.suffix not in (".pyc", ".typed") and not is_left_out:
                yield name, path.read_bytes()
    yield COMPILED.relative_to(ROOT).as_posix(), compiled().encode()
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


SECONDS = 20
"""That Pyodide's release is waited for."""

RELEASE = re.compile(r"`(https://[^`$]+)\$\{\w+\}/full/`")
"""Where the scripts of Pyodide have the address of its release, without the version."""


class UnreachableError(SiteError):
    """An address gives no file; the text says which, and why."""


class LockedWheel(NamedTuple):
    """The entry of numpy in the lock file of Pyodide, in its folder below `modules`."""

    name: str
    digest: str
    entry: dict[str, object]
    pyodide: Path

    @classmethod
    def of(cls, modules: Path) -> "LockedWheel":
        pyodide = modules / "pyodide"
        entry = json.loads((pyodide / "pyodide-lock.json").read_text(encoding="utf-8"))["packages"]["numpy"]
        return cls(entry["file_name"], entry["sha256"], entry, pyodide)

    def given(self, folder: Path) -> Path:
        """The wheel in a folder."""
        path = folder / self.name
        if not folder.is_dir():
            raise SiteError(f"NUMPY_WHEEL names a folder, and {folder} is none; put {self.name} into one")
        if not path.is_file():
            others = ", ".join(sorted(one.name for one in folder.glob("numpy*.whl")))
            found = f"there is {others}, which this Pyodide does not load" if others else "it is in Pyodide's release"
            raise SiteError(f"NUMPY_WHEEL: {folder} has no {self.name}; {found}")
        self.require_genuine(path.read_bytes(), str(path))
        return path

    def loaded(self, address: str, kept: Path) -> Path:
        """The wheel in a folder elsewhere, in the folder `kept` from then on."""
        path, file = kept / self.name, f"{address.rstrip('/')}/{self.name}"
        if not path.is_file():
            try:
                with urlopen(file, timeout=SECONDS) as answer:
                    data = answer.read()
            except (OSError, ValueError) as why:
                raise UnreachableError(f"{file} cannot be loaded: {why}") from None
            self.require_genuine(data, file)
            path.write_bytes(data)
        self.require_genuine(path.read_bytes(), str(path))
        return path

    def released(self, kept: Path) -> Path | None:
        """The wheel from Pyodide's release; None where it cannot be reached."""
        try:
            return self.loaded(self.address(), kept)
        except UnreachableError:
            return None

    def address(self) -> str:
        """The folder that Pyodide itself would load the wheel from."""
        found = RELEASE.search((self.pyodide / "pyodide.mjs").read_text(encoding="utf-8"))
        if found is None:
            raise SiteError("pyodide.mjs does not say where its release is; name a folder with NUMPY_WHEEL=FOLDER")
        version = json.loads((self.pyodide / "package.json").read_text(encoding="utf-8"))["version"]
        return f"{found[1]}{version}/full"

    def require_genuine(self, data: bytes, where: str) -> None:
        """Refuses a file whose digest is another one."""
        found = sha256(data).hexdigest()
        if found != self.digest:
            raise SiteError(
                f"{where} is not the wheel that Pyodide was built with, or is damaged: its SHA-256 is {found}, and the "
                f"lock file of Pyodide has {self.digest}"
            )
