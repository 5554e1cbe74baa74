"""pyproject.toml alone holds the public address; everything that shows it is made from it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from docs.generate import address
from puzzles import version as used

ROOT = Path(__file__).parents[2]
SHOWN = ("pyproject.toml", *(path for path, _ in address.BLOCKS))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The files that show the address, without one."""
    for name in SHOWN:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    address.set_address("", tmp_path)
    return tmp_path


def texts(folder: Path) -> dict[str, str]:
    return {name: (folder / name).read_text(encoding="utf-8") for name in SHOWN}


def test_an_address_is_set_changed_and_removed(copy: Path) -> None:
    before = texts(copy)
    assert not any("github.com/" in text.replace("github.com/srush", "").replace("github.com/chalk", "")
                   for text in before.values())  # fmt: skip
    address.set_address("acme", copy)
    shown = texts(copy)
    assert address.urls(copy)["Play"] == "https://acme.github.io/training-puzzles/"
    assert "**[Play in your browser](https://acme.github.io/training-puzzles/)**" in shown["README.md"]
    books = [path.stem for path in sorted((ROOT / "notebooks").glob("*.py"))]
    badges = re.findall(r"/github/acme/training-puzzles/blob/play/(\w+)\.ipynb", shown["docs/notebooks.md"])
    assert badges == books
    assert shown["CITATION.cff"].endswith("repository-code: https://github.com/acme/training-puzzles\n")
    address.set_address("other", copy)
    address.set_address("acme", copy)
    assert texts(copy) == shown
    address.set_address("", copy)
    assert texts(copy) == before


def test_the_files_are_what_the_address_makes(copy: Path) -> None:
    source = address.urls().get("Source", "")
    address.set_address(source.removeprefix("https://github.com/").partition("/")[0], copy)
    assert texts(copy) == texts(ROOT), "out of date: make address"


@pytest.mark.parametrize("org", ["a b", "-a", "a--b", "x" * 40, "a/b", 'a"'])
def test_what_github_does_not_allow_is_refused(org: str, copy: Path) -> None:
    before = texts(copy)
    with pytest.raises(ValueError, match="a name on GitHub"):
        address.set_address(org, copy)
    assert texts(copy) == before


def test_the_game_reads_the_address_from_the_clone_and_from_the_installed_package(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used._addresses.cache_clear()
    address.set_address("acme", copy)
    monkeypatch.setattr("lib.errors.ROOT", copy)
    assert (used.source(), used.site()) == (address.urls(copy)["Source"], address.urls(copy)["Play"])
    assert used.requirement() == f"git+https://github.com/acme/training-puzzles@v{used.VERSION}"
    used._addresses.cache_clear()
    monkeypatch.setattr("lib.errors.ROOT", copy / "nothing")
    entries = ["Source, https://example.org/g", "Play, https://example.org/p/"]
    monkeypatch.setattr(
        "importlib.metadata.metadata", lambda name: type("", (), {"get_all": lambda self, key: entries})()
    )
    assert (used.source(), used.site()) == ("https://example.org/g", "https://example.org/p/")
    used._addresses.cache_clear()


@pytest.mark.skipif(shutil.which("git") is None or not (ROOT / ".git").exists(), reason="needs the repository")
def test_no_other_file_names_an_address_of_the_project() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    mine = re.compile(r"github(\.com|\.io|usercontent\.com)[:/][\w.-]*/?training-puzzles|YOUR_" + "ORG", re.IGNORECASE)
    endings = (".py", ".md", ".toml", ".yml", ".js", ".html", ".sh", "")
    allowed = {*SHOWN, "docs/generate/address.py", "tests/docs/test_address.py"}
    naming = []
    for name in listed:
        path = ROOT / name
        if name not in allowed and path.is_file() and path.suffix in endings:
            naming += [name] if mine.search(path.read_text(encoding="utf-8", errors="replace")) else []
    assert naming == []


def test_no_text_installs_a_package_name_that_is_not_ours() -> None:
    """Nobody owns the name on an index yet, so whoever takes it would be installed."""
    folders = [ROOT / name for name in ("lib", "drawing", "puzzles", "docs", "notebooks")]
    for path in (ROOT / "README.md", *(path for folder in folders for path in folder.rglob("*"))):
        if path.suffix in (".py", ".md", ".js", ".html", ".yml", ".sh", ".toml"):
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"(install|download)\b[^\n/]*[ '\"]training-puzzles(?![\w/])", text), path
