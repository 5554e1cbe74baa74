"""docs/browser.md: its Python prints what is shown, its commands work, and its targets and files exist."""

from __future__ import annotations

import re

import pytest

from puzzles.site.links import read
from puzzles.site.npm import NODE_VERSION
from tests.support.commands import puzzles
from tests.test_imports import ROOT

PAGE = (ROOT / "docs" / "browser.md").read_text(encoding="utf-8")


def test_the_python_of_the_page_prints_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    exec(compile(code, "browser.md", "exec"), {})
    (shown,) = re.findall(r"^```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert capsys.readouterr().out == shown


def test_the_commands_of_the_page_print_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    commands = re.findall(r"^puzzles (share .*)$", PAGE, re.MULTILINE)
    kinds = []
    for command in commands:
        done = puzzles(*command.split())
        assert (done.exit_code, done.stderr) == (0, "")
        assert done.stdout.startswith("https://example.org/puzzles/#gpipe/")
        kinds.append(read(done.stdout.strip())[1])
    assert kinds == ["code", "run"]


def test_the_page_names_what_there_is() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"`?make ([a-z-]+)", PAGE)) <= targets
    assert f"{NODE_VERSION} or newer" in PAGE
    assert all((ROOT / name).exists() for name in re.findall(r"`(puzzles/[\w/.]+)`", PAGE))
