"""Packages from npm: Pyodide, the editor, and esbuild, which bundles the scripts. Needed to build, never to play."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

PAGE = Path(__file__).parent / "page"
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
