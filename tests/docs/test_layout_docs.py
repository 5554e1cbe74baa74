"""docs/layout.md: its code runs and gives the output that it shows."""

from __future__ import annotations

import re

import pytest

from tests.test_imports import ROOT

PAGE = (ROOT / "docs" / "layout.md").read_text(encoding="utf-8")


def test_the_python_of_the_page_prints_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for code in re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        exec(compile(code, "layout.md", "exec"), names)
    assert capsys.readouterr().out == "".join(re.findall(r"^```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))


def test_captions_of_two_plans_have_the_bytes_that_are_drawn() -> None:
    pictures = (ROOT / "docs" / "pictures.md").read_text(encoding="utf-8")
    captions = re.findall(r"([\d,]+) bytes by GSPMD's rule, ([\d,]+) solved\]\((.*?)\)", pictures)
    assert len(captions) == 3
    for *both, file in captions:
        drawn = (ROOT / "docs" / file).read_text(encoding="utf-8")
        assert re.findall(r"([\d,]+) bytes moved", drawn)[:2] == both
