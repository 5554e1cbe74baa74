"""Virtual environments of their own for tests of what is installed: made without network, with the packages that the
running Python has, but without its editable install of this clone."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SANDBOXED = ("numpy", "numpy.libs", "greenlet")
"""Packages that a sandboxed class needs. A sandbox shows it one folder of packages, so they are copied, not linked."""


class Environment(NamedTuple):
    """A virtual environment: run something in it."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        (found,) = (self.folder / "lib").glob("python*/site-packages")
        return found

    def run(self, *words: str | Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """A command of this environment, `python` or `puzzles`, in a folder, with none of our own variables."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        command = [self.folder / "bin" / words[0], *words[1:]]
        return subprocess.run(
            command, cwd=cwd, env={**kept, **variables}, capture_output=True, text=True, check=False, timeout=300
        )

    def ok(self, *words: str | Path, cwd: Path, **variables: str) -> str:
        """The output of such a command, which has to end well."""
        done = self.run(*words, cwd=cwd, **variables)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout


def pip(*words: str | Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def can_build() -> bool:
    """True if the running Python has all that a wheel is built with, so that no network is needed."""
    return all(map(find_spec, ("pip", "hatchling")))


def wheel(folder: Path) -> Path:
    """The wheel of this clone, built into a folder."""
    pip("wheel", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT)
    (built,) = folder.glob("*.whl")
    return built


def environment(folder: Path, *what: str | Path) -> Environment:
    """A fresh one, into which this is installed: a wheel, or `--editable` and a folder, or nothing."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    made = Environment(folder)
    theirs = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (made.packages / "zz_packages_of_the_tests.pth").write_text("\n".join(theirs) + "\n")
    for name in SANDBOXED:
        for path in theirs:
            if (Path(path) / name).is_dir():
                shutil.copytree(Path(path) / name, made.packages / name, copy_function=_link)
                break
    if what:
        offline = ("--quiet", "--no-index", "--no-deps", "--no-build-isolation")
        pip("--python", made.python, "install", *offline, *what)
    return made


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)
