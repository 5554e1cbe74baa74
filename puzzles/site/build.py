"""Builds the site: static files for any web server. Playing loads nothing from another host."""

from __future__ import annotations

import gzip
import json
import shutil
from hashlib import sha256
from pathlib import Path

from drawing.export.html import SCRIPTS, web_file

from .archive import PACKAGES, write_archive
from .licences import licences
from .listing import listing
from .npm import PAGE, SiteError, bundle, install, require_node

PYODIDE = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip")
"""The core. Its own packages, such as numpy, are not served."""

MARK = ".training-puzzles-site"
"""A file that says that a folder was written here, and may be written again."""

BOARD = "board"
"""A folder in the site that others write, such as a leaderboard. It is kept, and the map links to it."""

MAX_SITE_BYTES = 15_000_000
"""Bytes, compressed, of all that is loaded to play."""


def build(site: Path, work: Path) -> int:
    """Writes the site to a folder, with `work` for what is kept between builds, and returns its size compressed.

    Raises:
        SiteError: node or npm is missing, something else is in the folder, or the site is larger than its budget.
    """
    require_node()
    prepare(site)
    modules = install(work / "npm")
    folder = python_folder(site, modules, work)
    viewer = work / "viewer.js"
    viewer.write_text(viewer_module(), encoding="utf-8")
    packages = {"pyodide"}
    for script in ("main.js", "worker.js"):
        packages |= bundle(modules, PAGE / script, site / script, {"viewer": viewer}, {"PYTHON": folder})
    (site / "style.css").write_text(web_file("page.css") + (PAGE / "style.css").read_text(encoding="utf-8"))
    for name in ("index.html", "icon.svg", "manifest.webmanifest"):
        shutil.copy(PAGE / name, site)
    shown = {**listing(), "board": (site / BOARD).is_dir()}
    (site / "puzzles.json").write_text(json.dumps(shown, separators=(",", ":")))
    (site / "licences.txt").write_text(licences(modules, packages, PACKAGES), encoding="utf-8")
    names = sorted(path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file())
    served = [name for name in names if name not in (MARK, "licences.txt") and not name.startswith(f"{BOARD}/")]
    (site / "offline.js").write_text(offline_worker(site, served))
    size = sum(len(gzip.compress((site / name).read_bytes(), 6)) for name in (*served, "offline.js"))
    if size > MAX_SITE_BYTES:
        raise SiteError(f"the site has {size:,} bytes, compressed; at most {MAX_SITE_BYTES:,} are to be loaded")
    return size


def prepare(site: Path) -> None:
    """Makes the folder, empty.

    Raises:
        SiteError: there is something that was not built here.
    """
    if site.exists():
        if not (site / MARK).is_file() and any(site.iterdir()):
            raise SiteError(f"{site} has files that are not of a site; name another folder, or remove it")
        for path in site.iterdir():
            if path.name != BOARD:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    site.mkdir(parents=True, exist_ok=True)
    (site / MARK).write_text("`make site` writes this folder anew.\n")


def viewer_module() -> str:
    """The script of the interactive picture as a module."""
    return f"export function viewer(root, run) {{\n{''.join(map(web_file, SCRIPTS))}}}\n"


def python_folder(site: Path, modules: Path, work: Path) -> str:
    """Writes Pyodide and our archive to a folder that is named after what is in it, so that browsers can keep it for
    good; returns its name."""
    folder = work / "served"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in PYODIDE:
        shutil.copy(modules / "pyodide" / name, folder)
    lock = json.loads((modules / "pyodide" / "pyodide-lock.json").read_text(encoding="utf-8"))
    (folder / "pyodide-lock.json").write_text(json.dumps({**lock, "packages": {}}))
    write_archive(folder / "game.zip", modules, work / "python")
    digest = sha256(b"".join(path.read_bytes() for path in sorted(folder.iterdir()))).hexdigest()
    name = f"python-{digest[:12]}"
    shutil.move(folder, site / name)
    return name


def offline_worker(site: Path, served: list[str]) -> str:
    """The service worker, with the names of all files and a digest of what is in them."""
    digest = sha256()
    for name in served:
        digest.update(name.encode())
        digest.update((site / name).read_bytes())
    text = (PAGE / "offline.js").read_text(encoding="utf-8")
    digest.update(text.encode())
    head = f'const VERSION = "{digest.hexdigest()[:16]}";\nconst FILES = {json.dumps(served)};\n'
    return head + text
