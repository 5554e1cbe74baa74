"""The notebooks in JupyterLite: IPython on Pyodide, as its kernel is, runs them solved, from a wheel beside them.

JupyterLite's own page is not part of this; it would load Pyodide's packages from another host.
"""

import json
import os
import shutil
import subprocess
import sysconfig
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from puzzles.page.build import PILLOW
from puzzles.player.authoring import books
from tests.support.environments import wheel
from tests.support.kernel import ROOT

PYODIDE = ROOT / "build" / "npm" / "node_modules" / "pyodide"
WHY = "needs Pyodide for node: make site"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYODIDE.is_dir() and not os.environ.get("PUZZLES_BROWSER"), reason=WHY),
]
EMSCRIPTEN = {"sys_platform": "emscripten", "platform_system": "Emscripten", "extra": ""}


@pytest.fixture(scope="module")
def drive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and all notebooks, solved."""
    folder = tmp_path_factory.mktemp("drive")
    wheel(folder)
    for book in books(solved=True):
        (folder / book.file).write_text(book.text, encoding="utf-8")
    return folder


def test_the_tour_runs_and_shows_each_result_with_its_picture(drive: Path, tmp_path: Path) -> None:
    for path in (*drive.glob("*.whl"), *drive.glob("00_*.ipynb")):
        shutil.copy(path, tmp_path)
    require_shown(tmp_path)


def test_every_notebook_runs_and_shows_each_result_with_its_picture(drive: Path) -> None:
    """Takes as long as twenty other tests of the site: .ci/run leaves it to `make nightly`."""
    require_shown(drive)


def require_shown(drive: Path) -> None:
    """All notebooks of a folder run without an error, and each result that is played has a page and its picture."""
    packages = sysconfig.get_path("purelib")
    script = ROOT / "tests" / "support" / "jupyterlite.mjs"
    command = ["node", script, PYODIDE, packages, drive, json.dumps(PILLOW)]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert sorted(found) == sorted(path.name for path in drive.glob("*.ipynb"))
    for book, ran in found.items():
        assert not ran["errors"], (book, ran["errors"])
        text = (drive / book).read_text(encoding="utf-8")
        assert ran["pages"] == ran["pictures"] >= text.count('"await play('), book


def test_all_that_the_wheel_requires_there_is_pure_or_comes_with_pyodide(drive: Path) -> None:
    """The kernel installs the wheel with what it requires: nothing of that may be compiled for this machine."""
    theirs = set(json.loads((PYODIDE / "pyodide-lock.json").read_text(encoding="utf-8"))["packages"])
    (inside,) = (path for path in zipfile.Path(next(drive.glob("*.whl"))).iterdir() if path.name.endswith(".dist-info"))
    left: list[metadata.Distribution] = [metadata.PathDistribution(inside)]
    seen: set[str] = set()
    while left:
        one = left.pop()
        for text in one.requires or ():
            wanted = Requirement(text)
            plain = wanted.name.lower().replace("_", "-").replace(".", "-")
            if plain in seen | theirs or (wanted.marker and not wanted.marker.evaluate(EMSCRIPTEN)):
                continue
            left.append(metadata.distribution(plain))
            assert "Root-Is-Purelib: true" in (left[-1].read_text("WHEEL") or ""), f"{one.name} requires {plain}"
            seen.add(plain)
    assert "chalk-diagrams" in seen
    assert "watchfiles" not in seen
