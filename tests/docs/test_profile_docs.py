"""docs/profile.md shows the report that the command prints, and its picture; its other commands and files work."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lib.profiles import read_rules
from tests.support.commands import puzzles
from tests.support.profiles import TRACES
from tests.test_imports import ROOT

PAGE = (ROOT / "docs" / "profile.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_report_of_the_page_is_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "traces").symlink_to(TRACES / "1f1b_slow")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    (shown,) = re.findall(r"^```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    done = puzzles("profile", "traces/")
    assert done.exit_code == 0
    assert done.output == shown


@pytest.mark.slow
def test_the_picture_of_the_page_is_todays(tmp_path: Path) -> None:
    target = tmp_path / "profile.svg"
    done = puzzles("profile", str(TRACES / "1f1b_slow"), "-o", str(target))
    assert done.exit_code == 0
    assert target.read_text() == (ROOT / "docs" / "pictures" / "profile.svg").read_text()


@pytest.mark.slow
def test_the_files_that_the_page_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "traces").symlink_to(TRACES / "1f1b_slow")
    monkeypatch.chdir(tmp_path)
    (line,) = re.findall(r"^puzzles (profile traces/ -o .*)", PAGE, re.MULTILINE)
    assert puzzles(*line.split()).exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"traces", "run.html", "run.svg", "run.csv", "run.json"}


def test_the_names_of_the_page_are_rules() -> None:
    (text,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (rule,) = read_rules(text, "names.toml")
    assert str((rule.slot("stage2 fwd mb5") or ())[0]) == "2F5"


def test_the_page_shows_the_report_on_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    found = puzzles("profile", str(ROOT / "tests" / "profiles" / "traces" / "llama_eager" / "rank0.json.gz"))
    assert found.output.strip() in PAGE
