"""`make release VERSION=1.2.3`: checks, sets the version, builds and tests the packages, commits and tags.

Nothing is uploaded. The tag, once pushed, starts the workflow that publishes. If a step fails, all files are as before.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
"""The versions that the packages are installed on, where the machine has them."""

VERSIONED = (
    ("puzzles/version.py", r'(?<=VERSION = ")[^"]+'),
    ("CITATION.cff", r"(?<=^version: ).+"),
    ("README.md", r"(?<=dist/training_puzzles-)[^-]+"),
)
"""Files that name the version, and where."""


class ReleaseError(Exception):
    """The release is not made; the text says why, and what to do."""


def main(version: str) -> None:
    changelog = require_ready(version, ROOT)
    try:
        write_version(version, changelog, ROOT)
        run("make", "notebooks", "nightly")
        packages = build(ROOT / "dist")
        run(sys.executable, "-m", "twine", "check", "--strict", *packages)
        for package in packages:
            for python in filter(None, map(shutil.which, PYTHONS)):
                install_and_try(python, package)
    except BaseException:
        run("git", "checkout", "--quiet", "--", ".")
        raise
    run("git", "commit", "--quiet", "--all", "--message", f"Release {version}")
    run("git", "tag", "--annotate", f"v{version}", "--message", f"Training Puzzles {version}")
    print(f"Version {version} is committed and tagged, with its packages in dist. Publish it: git push --follow-tags")


def require_ready(version: str, root: Path) -> str:
    """Checks what a release needs, and returns the changelog with the release's heading."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise ReleaseError(f"VERSION={version or '(nothing)'} is not a version; write three numbers: VERSION=1.2.3")
    present = re.search(VERSIONED[0][1], (root / VERSIONED[0][0]).read_text(encoding="utf-8"))
    if present and tuple(map(int, version.split("."))) < tuple(map(int, present[0].split("."))):
        raise ReleaseError(f"{version} is older than the present version {present[0]}; name a newer one")
    if git("status", "--porcelain", root=root):
        raise ReleaseError("the tree has uncommitted changes; commit or remove them ('git status')")
    if git("tag", "--list", f"v{version}", root=root):
        raise ReleaseError(f"the tag v{version} exists; name a newer version")
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    section = re.search(r"^## Unreleased\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if section is None or not section[1].strip():
        raise ReleaseError("CHANGELOG.md has nothing under '## Unreleased'; say there what is new")
    return text.replace("## Unreleased\n", f"## {version} ({date.today():%Y-%m-%d})\n", 1)


def write_version(version: str, changelog: str, root: Path) -> None:
    (root / "CHANGELOG.md").write_text(changelog, encoding="utf-8")
    for name, place in VERSIONED:
        file = root / name
        text, count = re.subn(place, version, file.read_text(encoding="utf-8"), flags=re.MULTILINE)
        if not count:
            raise ReleaseError(f"{name} no longer names the version; correct VERSIONED in {Path(__file__).name}")
        file.write_text(text, encoding="utf-8")


def build(folder: Path) -> list[str]:
    """Builds the wheel and the source distribution, alone in a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "hatchling", "build", "--directory", str(folder))
    return sorted(map(str, folder.iterdir()))


def install_and_try(python: str, package: str) -> None:
    """Installs a package in an empty environment, lists the puzzles and imports the runtime, away from the clone."""
    with tempfile.TemporaryDirectory() as folder:
        run(python, "-m", "venv", folder)
        binaries = Path(folder) / "bin"
        run(str(binaries / "python"), "-m", "pip", "install", "--quiet", package, cwd=folder)
        run(str(binaries / "puzzles"), "list", "classics", cwd=folder)
        run(str(binaries / "python"), "-c", "import training_puzzles; from lib import Model", cwd=folder)


def git(*words: str, root: Path) -> str:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout.strip()


def run(*words: str, cwd: str | Path = ROOT) -> None:
    print("$", *words, flush=True)
    if subprocess.run(words, cwd=cwd, check=False, stdout=subprocess.DEVNULL).returncode:
        raise ReleaseError(f"this failed, and nothing was released: {' '.join(words)}")


if __name__ == "__main__":
    try:
        main("".join(sys.argv[1:]))
    except ReleaseError as why:
        sys.exit(f"make release: {why}")
