"""Builds the site: static files for any web server, with their licences. Playing loads nothing from another host.

Python in the browser is Pyodide. The game, what draws and Python's own library are archives, compiled, which halves the
time of a start; what goes with numpy is an archive of its own, loaded with the wheel when a puzzle needs it. Folders
are named after their content, so that browsers can keep them for good, and equal sources make equal archives. The frame
that runs a player's code has an opaque origin, and a policy that allows one script by its digest.

The wheel of numpy is compared with the digest in Pyodide's lock, wherever it comes from. Rejected: loading it from a
public host when a player asks for it, which would tell that host who plays. Rejected: a framework for the page.
"""

import gzip
import json
import os
import re
import shutil
import subprocess
import zipfile
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.request import urlopen
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from drawing.html import SCRIPTS, viewer_elements, web_file
from puzzles import version
from puzzles.catalog.content import COMPILED, CONTENT, compiled
from puzzles.custom import TAKEN, add_folder, folders, unfinished

from .in_browser import calls
from .listing import WARM_UP, first_run, listing, pars, references

# --- Packages from npm ---


PAGE = Path(__file__).parent / "web"
"""The page's sources, with package.json and its lock file."""

NODE_VERSION = 18


class SiteError(Exception):
    """The site cannot be built; the text says why, and what to do."""


def require_node() -> None:
    advice = f"install Node.js {NODE_VERSION} or newer, which brings npm (https://nodejs.org, or 'apt-get install npm')"
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise SiteError(f"make site needs {program}: {advice}")
    version = run("node", "--version").strip()
    if int(version.lstrip("v").partition(".")[0]) < NODE_VERSION:
        raise SiteError(f"make site needs a newer node than {version}: {advice}")


def install(folder: Path) -> Path:
    """Installs the packages of the lock file in a folder, unless they are there, and returns their folder."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = (PAGE / "package-lock.json").read_text(encoding="utf-8")
    copy, modules = folder / "package-lock.json", folder / "node_modules"
    if not (modules / ".package-lock.json").exists() or not copy.exists() or copy.read_text(encoding="utf-8") != lock:
        shutil.copy(PAGE / "package.json", folder)
        shutil.copy(PAGE / "package-lock.json", folder)
        run("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", cwd=folder)
    return modules


def bundle(
    modules: Path,
    entry: Path,
    output: Path,
    made_here: Mapping[str, Path] = MappingProxyType({}),
    constants: Mapping[str, object] = MappingProxyType({}),
    form: str = "esm",
) -> set[str]:
    """Bundles a script with what it imports, and returns the packages in it. What it imports later is in other files.

    `made_here` are modules by name; `form` is esm for a module, iife for a classic script.
    """
    record = modules.parent.resolve() / f"{output.stem}.meta.json"
    run(
        "node",
        str((modules / "esbuild" / "bin" / "esbuild").resolve()),
        str(entry),
        *(
            f"--outdir={output.parent.resolve()} --splitting" if form == "esm" else f"--outfile={output.resolve()}"
        ).split(),
        f"--metafile={record}",
        *(f"--alias:{name}={path.resolve()}" for name, path in made_here.items()),
        f"--format={form}",
        *"--bundle --minify --target=es2022 --log-level=warning --legal-comments=none".split(),
        "--external:node:*",  # Pyodide imports them only in Node
        *(f"--define:{name}={json.dumps(value)}" for name, value in constants.items()),
        cwd=entry.parent,
        NODE_PATH=str(modules.resolve()),
    )
    paths = [
        path for made in json.loads(record.read_text(encoding="utf-8"))["outputs"].values() for path in made["inputs"]
    ]
    parts = [path.rpartition("node_modules/")[2].split("/") for path in paths if "node_modules/" in path]
    return {"/".join(part[: 2 if part[0].startswith("@") else 1]) for part in parts}


def run(*command: str, cwd: Path | None = None, **environment: str) -> str:
    """What a program prints."""
    try:
        done = subprocess.run(
            command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=True
        )
    except subprocess.CalledProcessError as why:
        said = [line[:300] for line in (why.stderr or why.stdout).strip().splitlines()[:12]]
        raise SiteError("\n".join([f"'{' '.join(command[:3])}' failed:", *said])) from None
    return done.stdout


# --- The Python of the site ---


ROOT = Path(__file__).parents[2]
OURS = ("lib", "drawing", "puzzles")
LEFT_OUT = (
    "puzzles/page/web", "puzzles/page/warm_up", "puzzles/cli", "puzzles/package", "puzzles/player/authoring",
    "puzzles/screens/templates", "puzzles/teaching",
    "puzzles/sandbox/client", "puzzles/sandbox/worker/landlock",
    "puzzles/sandbox/worker/seccomp", "puzzles/sandbox/worker/server",
)  # fmt: skip
"""What nothing in the browser imports."""
ARRAYS = "arrays.zip"
WITH_NUMPY = (
    "lib/engine", "lib/layout", "drawing/layout_graph", "drawing/layout_tensor", "drawing/layout_text",
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
    if own_puzzles := calls.packed():
        yield calls.FILE, own_puzzles
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

ADDRESS = re.compile(r"`(https://[^`$]+)\$\{\w+\}/full/`")
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
        found = ADDRESS.search((self.pyodide / "pyodide.mjs").read_text(encoding="utf-8"))
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


# --- The site ---


PYODIDE, LIBRARY = "pyodide.asm.wasm", "python_stdlib.zip"
"""The core, whose scripts are in our worker, and Python's library. Of packages only numpy may be served."""

FRAME_DIGEST, FRAME_SCRIPT = "FRAME-DIGEST", "FRAME-SCRIPT"
"""Where the policies of the page and of its frame allow the frame's script, and where that script goes."""

MARK = ".training-puzzles-site"
"""A file that says that a folder was written here, and may be written again."""

DOCS = "docs"
"""A folder in the site that others write, with the documentation. It is kept, and the page links to it."""

PARS = "par"
"""A folder in the site with the run of each puzzle's reference, which is loaded with the puzzle."""

MAX_SITE_BYTES = 10_000_000
"""Bytes, compressed, of all that is loaded to play, without numpy and the runs of references."""

RELEASE, NONE = "release", "none"
"""Instead of a folder with numpy's wheel: the wheel from Pyodide's release, if that can be reached; no numpy."""


def build(site: Path, work: Path, numpy: str = RELEASE, archive: Path | None = None) -> tuple[int, str]:
    """Writes the site to a folder, with `work` for what is kept between builds. `numpy` is the folder or the address of
    its wheel, RELEASE or NONE. The site is also packed as an `archive`, if there is to be one. Returns the bytes to
    load, compressed, and the name of the wheel if the site lacks it."""
    require_node()
    modules = install(work / "npm")
    locked = LockedWheel.of(modules)
    wheel = None if numpy == NONE else wheel_of(locked, numpy, work)
    add_folder(WARM_UP)
    require_finished()
    prepare(site)
    folder = python_folder(site, modules, work, locked)
    frame, policy_source = frame_document(modules, work)
    made_here = {"viewer": viewer_module(), "frame": f"export const frame = {json.dumps(frame)};\n"}
    for name, text in made_here.items():
        (work / f"{name}.js").write_text(text, encoding="utf-8")
    sizes = {path.name: path.stat().st_size for path in (site / folder).iterdir()}
    aliases = {name: work / f"{name}.js" for name in made_here}
    packages = {
        "pyodide",
        *bundle(modules, PAGE / "main.js", site / "main.js", aliases, {"PYTHON": folder, "SIZES": sizes}),
    }
    (site / "style.css").write_text(web_file("page.css") + (PAGE / "style.css").read_text(encoding="utf-8"))
    index = (PAGE / "index.html").read_text(encoding="utf-8")
    (site / "index.html").write_text(index.replace(FRAME_DIGEST, policy_source), encoding="utf-8")
    for name in ("icon.svg", "manifest.webmanifest", "start.js", "loader.js"):
        shutil.copy(PAGE / name, site)
    shown = {**listing(), "first": first_run()}
    (site / PARS).mkdir()
    for slug, view in pars().items():
        (site / PARS / f"{slug}.json").write_text(json.dumps(view, separators=(",", ":")))
        shown["puzzles"][slug]["par"] = f"{PARS}/{slug}.json"
    shown["numpy"] = numpy_files(site, folder, wheel, work / ARRAYS)
    shown["docs"] = f"{DOCS}/" if (site / DOCS).is_dir() else version.documentation() or ""
    (site / "puzzles.json").write_text(json.dumps(shown, separators=(",", ":")))
    (site / "references.json").write_text(json.dumps(references(), separators=(",", ":")))
    (site / "licences.txt").write_text(licences(modules, packages, PACKAGES, wheel), encoding="utf-8")
    names = sorted(path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file())
    served = [name for name in names if name not in (MARK, "licences.txt") and name.partition("/")[0] != DOCS]
    later = [file["address"] for file in (shown["numpy"] or {}).values()]
    later += [name for name in served if name.startswith(f"{PARS}/")]
    (site / "offline.js").write_text(offline_worker(site, served, later))
    first = (*(name for name in served if name not in later), "offline.js")
    size = sum(len(gzip.compress((site / name).read_bytes(), 6)) for name in first)
    if size > MAX_SITE_BYTES:
        raise SiteError(f"the site has {size:,} bytes, compressed; at most {MAX_SITE_BYTES:,} are to be loaded")
    if archive is not None:
        pack(site, archive, locked)
    return size, locked.name if wheel is None else ""


def require_finished() -> None:
    """Refuses to publish what is still a draft, or cannot be reached."""
    for own in (own for folder in folders() for own in folder.puzzles.values()):
        if drafts := unfinished(own.puzzle):
            raise SiteError(
                f"{own.file}: still to be replaced: {', '.join(drafts)}; 'puzzles check' lists what is missing"
            )
        if own.slug in TAKEN:
            raise SiteError(f"{own.file}: on the site '{own.slug}' is {TAKEN[own.slug]}; give the puzzle another name")


def wheel_of(locked: LockedWheel, numpy: str, work: Path) -> Path | None:
    if numpy == RELEASE:
        return locked.released(work)
    return locked.loaded(numpy, work) if numpy.startswith(("http://", "https://")) else locked.given(Path(numpy))


def pack(site: Path, target: Path, locked: LockedWheel) -> None:
    """Writes a built site as a zip. Its wheel of numpy has to be there, and is compared with the lock once more."""
    wheels = list(site.glob(f"python-*/{locked.name}"))
    if not wheels:
        raise SiteError(
            f"{site} has no {locked.name}, and an archive needs it; name its folder or address: NUMPY_WHEEL=..."
        )
    locked.require_genuine(wheels[0].read_bytes(), str(wheels[0]))
    with ZipFile(target, "w", ZIP_DEFLATED) as archive:
        for path in sorted(path for path in site.rglob("*") if path.is_file() and path.name != MARK):
            name = f"{target.stem}/{path.relative_to(site).as_posix()}"
            archive.writestr(ZipInfo(name, DATE), path.read_bytes(), ZIP_DEFLATED)


def numpy_files(site: Path, folder: str, wheel: Path | None, arrays: Path) -> dict[str, Any] | None:
    """What the page loads when a puzzle needs numpy: address and bytes of the wheel, and of the archive of what
    computes with it. Without a wheel there is neither."""
    if wheel is None:
        return None
    files = {name: Path(shutil.copy(file, site / folder)) for name, file in {"wheel": wheel, "arrays": arrays}.items()}
    return {name: {"address": f"{folder}/{file.name}", "size": file.stat().st_size} for name, file in files.items()}


def prepare(site: Path) -> None:
    """Makes the folder, empty."""
    if site.exists():
        if not (site / MARK).is_file() and any(site.iterdir()):
            raise SiteError(f"{site} has files that are not of a site; name another folder, or remove it")
        for path in site.iterdir():
            if path.name != DOCS:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    site.mkdir(parents=True, exist_ok=True)
    (site / MARK).write_text("`make site` writes this folder anew.\n")


def viewer_module() -> str:
    """The elements and the script of the interactive picture as a module."""
    script = f"export function viewer(root, run) {{\n{''.join(map(web_file, SCRIPTS))}}}\n"
    return f"export const elements = {json.dumps(viewer_elements())};\n{script}"


def frame_document(modules: Path, work: Path) -> tuple[str, str]:
    """The document of the sandboxed frame with its script, and the source by which a policy allows that script."""
    bundle(modules, PAGE / "frame.js", work / "frame_script.js", form="iife")
    script = (work / "frame_script.js").read_text(encoding="utf-8").strip()
    allowed = f"sha256-{b64encode(sha256(script.encode()).digest()).decode()}"
    document = (PAGE / "frame.html").read_text(encoding="utf-8")
    return document.replace(FRAME_DIGEST, allowed).replace(FRAME_SCRIPT, script), allowed


def python_folder(site: Path, modules: Path, work: Path, locked: LockedWheel) -> str:
    """Writes Pyodide and our archive to a folder that is named after what is in it, so that browsers can keep it for
    good; returns its name. The archive that goes with numpy is left in `work`."""
    folder = work / "served"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copy(modules / "pyodide" / PYODIDE, folder)
    lock = json.loads((modules / "pyodide" / "pyodide-lock.json").read_text(encoding="utf-8"))
    (folder / "pyodide-lock.json").write_text(json.dumps({**lock, "packages": {"numpy": locked.entry}}))
    game = folder / "game.zip"
    _compile(files(), modules, work / "python")
    _pack(game, work / "python", lambda name: not name.startswith(WITH_NUMPY))
    _pack(work / ARRAYS, work / "python", lambda name: name.startswith(WITH_NUMPY))
    write_library(folder / LIBRARY, modules, work / "library", game)
    # Chromium starts no module in a worker of an opaque origin, so it is a classic script.
    bundle(modules, PAGE / "worker.js", folder / "worker.js", form="iife")
    served = (*sorted(folder.iterdir()), work / ARRAYS)
    digest = sha256(b"".join(path.read_bytes() for path in served)).hexdigest()
    name = f"python-{digest[:12]}"
    shutil.move(folder, site / name)
    return name


def offline_worker(site: Path, served: list[str], later: Sequence[str] = ()) -> str:
    """The service worker, with a digest of each file that it serves; those for `later` it keeps when they are asked
    for."""
    digests = {name: sha256((site / name).read_bytes()).hexdigest() for name in served}
    constants = f"const DIGESTS = {json.dumps(digests)};\nconst LATER = {json.dumps(later)};\n"
    text = constants + (PAGE / "offline.js").read_text(encoding="utf-8")
    return f'const VERSION = "{sha256(text.encode()).hexdigest()[:16]}";\n{text}'


RULE = "=" * 80

PYTHON = """\
Pyodide contains CPython and its standard library, under the Python Software Foundation License Version 2:
https://docs.python.org/3/license.html
"""

PYODIDE_LICENCE = (
    "Mozilla Public License 2.0: https://www.mozilla.org/MPL/2.0/ (source: https://github.com/pyodide/pyodide)"
)


def licences(modules: Path, packages: Iterable[str], distributions: Iterable[str], wheel: Path | None = None) -> str:
    """A section for each package and a wheel: its name, version and licence, and the text of it where it has one."""
    sections = [*(_npm(modules / name) for name in sorted(packages)), *map(_python, sorted(distributions))]
    sections += [] if wheel is None else [_wheel(wheel)]
    head = "What this site is made of, besides Training Puzzles itself (MIT License).\n\n" + PYTHON
    return f"\n{RULE}\n".join([head, *sections])


def _npm(folder: Path) -> str:
    about = json.loads((folder / "package.json").read_text(encoding="utf-8"))
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.iterdir()) if _is_licence(path.name)]
    extra = [PYODIDE_LICENCE] if about["name"] == "pyodide" else []
    return "\n".join([f"{about['name']} {about['version']}: {about['license']}", "", *extra, *texts])


def _python(name: str) -> str:
    about = metadata.metadata(name)
    stated = [*(about.get_all("License-Expression") or ()), *(about.get_all("License") or ())]
    classified = (one for one in about.get_all("Classifier") or () if one.startswith("License"))
    licence = stated[0].partition("\n")[0] if stated else ", ".join(one.rpartition(" :: ")[2] for one in classified)
    texts = [
        file.read_text() for file in metadata.files(name) or () if ".dist-info" in str(file) and _is_licence(file.name)
    ]
    return "\n".join([f"{name} {about['Version']}: {licence}", "", *texts])


def _wheel(path: Path) -> str:
    with ZipFile(path) as archive:
        texts = [archive.read(name).decode() for name in archive.namelist() if _is_licence(name.rpartition("/")[2])]
    return "\n".join([f"{path.name}:", "", *texts])


def _is_licence(name: str) -> bool:
    return name.upper().startswith(("LICENSE", "LICENCE", "COPYING"))
