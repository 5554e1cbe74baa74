"""The notebooks as files of marimo: marimo finds nothing wrong with them, and they run."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from lib.errors import install_command
from puzzles.player import authoring
from puzzles.player.authoring import books
from tests.support.commands import puzzles

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


needs_marimo = pytest.mark.skipif(find_spec("marimo") is None, reason="marimo is not installed (the extra marimo)")


@pytest.mark.slow
def test_without_marimo_the_command_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authoring, "find_spec", lambda name: None)
    result = puzzles("notebook", "--format", "marimo", "new")
    assert result.exit_code == 1
    assert install_command("marimo") in result.output
    assert not Path("new").exists()


def test_a_format_that_does_not_exist_is_refused() -> None:
    result = puzzles("notebook", "--format", "colab")
    assert result.exit_code == 2
    assert "'jupyter', 'marimo'" in result.output


@needs_marimo
@pytest.mark.slow
@pytest.mark.parametrize("solved", [False, True])
def test_marimo_finds_nothing_wrong_and_each_file_runs(solved: bool) -> None:
    folder, printed = "solved" if solved else "new", ""
    result = puzzles("notebook", folder, "--format", "marimo", *(["--solved"] if solved else []))
    assert result.exit_code == 0, result.output
    assert f"marimo edit {folder}" in result.output
    files = sorted(Path(folder).iterdir())
    assert [file.stem for file in files] == [Path(book.file).stem for book in books()]
    for command in (["-m", "marimo", "check", "--strict", *map(str, files)], *([str(file)] for file in files)):
        run = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stdout + run.stderr
        printed += run.stdout
    assert solved == ("two marks" not in printed)
