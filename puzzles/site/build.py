"""Builds the site: static files for any web server, with their licences. Playing loads nothing from another host."""

import gzip
import json
import shutil
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from drawing.export.html import SCRIPTS, viewer_elements, web_file
from puzzles import address
from puzzles.custom import folders
from puzzles.custom.writing import TAKEN, unfinished

from .archive import ARRAYS, DATE, PACKAGES, LockedWheel, write_archives, write_library
from .listing import add_warm_up, first_run, listing, pars, references
from .npm import PAGE, SiteError, bundle, install, require_node

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


class Site(NamedTuple):
    """What was built: bytes to load, compressed; the name of numpy's wheel, and whether the site has it."""

    size: int
    wheel: str
    has_numpy: bool


def build(site: Path, work: Path, numpy: str = RELEASE, archive: Path | None = None) -> Site:
    """Writes the site to a folder, with `work` for what is kept between builds. `numpy` is the folder or the address of
    its wheel, RELEASE or NONE. The site is also packed as an `archive`, if there is to be one."""
    require_node()
    modules = install(work / "npm")
    locked = LockedWheel.of(modules)
    wheel = None if numpy == NONE else wheel_of(locked, numpy, work)
    add_warm_up()
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
    shown["docs"] = f"{DOCS}/" if (site / DOCS).is_dir() else address.documentation() or ""
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
    return Site(size, locked.name, wheel is not None)


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
    write_archives(game, work / ARRAYS, modules, work / "python")
    write_library(folder / LIBRARY, modules, work / "library", game)
    # Chromium starts no module in a worker of an opaque origin, so it is a classic script.
    bundle(modules, PAGE / "worker.js", folder / "worker.js", form="iife")
    files = (*sorted(folder.iterdir()), work / ARRAYS)
    digest = sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
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
    licence = stated[0].partition("\n")[0] if stated else ", ".join(_classified(about.get_all("Classifier") or ()))
    texts = [
        file.read_text() for file in metadata.files(name) or () if ".dist-info" in str(file) and _is_licence(file.name)
    ]
    return "\n".join([f"{name} {about['Version']}: {licence}", "", *texts])


def _wheel(path: Path) -> str:
    with ZipFile(path) as archive:
        texts = [archive.read(name).decode() for name in archive.namelist() if _is_licence(name.rpartition("/")[2])]
    return "\n".join([f"{path.name}:", "", *texts])


def _classified(classifiers: Iterable[str]) -> Iterator[str]:
    return (one.rpartition(" :: ")[2] for one in classifiers if one.startswith("License"))


def _is_licence(name: str) -> bool:
    return name.upper().startswith(("LICENSE", "LICENCE", "COPYING"))
