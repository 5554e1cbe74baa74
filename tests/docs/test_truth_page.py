"""docs/truth.md: its tables are what is measured now, and its code prints what it shows."""

from __future__ import annotations

import re

import pytest

from docs.generate import truth


@pytest.mark.slow
def test_the_page_is_what_is_measured() -> None:
    assert truth.FILE.read_text(encoding="utf-8") == truth.page(), "out of date: make docs"


def test_its_code_prints_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", truth.HEAD, re.MULTILINE | re.DOTALL)
    (shown,) = re.findall(r"^```text\n(.*?)^```", truth.HEAD, re.MULTILINE | re.DOTALL)
    exec(compile(code, "truth.md", "exec"), {})
    assert capsys.readouterr().out == shown
