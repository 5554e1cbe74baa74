"""Approved texts of tests: what a picture, a plan or a report says, in `texts/`, a file for each subject.

A test gives a text with its title. `make screens` runs all tests that do, slow ones too, and each writes its text below
the title; otherwise it must be there.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import unified_diff
from html import unescape
from pathlib import Path
from typing import NamedTuple

import pytest

TEXTS = Path(__file__).with_name("texts")

HEAD = "== "
"""Begins a line with a title."""


def approved(file: str, title: str, text: object, *only: str) -> None:
    """Requires a text, or lines, or what a picture says, as approved; of the lines `only` those that contain one of
    these. Numbers of lines in test files are left out."""
    lines = _lines(text)
    if only:
        lines = [line for line in lines if any(part in line for part in only)]
        assert all(any(part in line for line in lines) for part in only), f"none of {only} is there"
    text = re.sub(r"\bline \d+( of \w+\.py)?", "line N", "\n".join(lines))
    path = TEXTS / f"{file}.txt"
    sections = _sections(path.read_text(encoding="utf-8")) if path.exists() else {}
    if os.environ.get("APPROVE"):
        sections[title] = text
        TEXTS.mkdir(exist_ok=True)
        _write(path, sections)
    wanted = sections.get(title, "")
    diff = unified_diff(wanted.splitlines(), text.splitlines(), f"{path.name}: {title}", "now", lineterm="")
    assert text == wanted, "\n".join([*diff, "If this is wanted: make screens"])


@contextmanager
def approved_refusal(file: str, title: str, kind: type[BaseException]) -> Iterator[None]:
    """Requires that what follows is refused in the approved words."""
    with pytest.raises(kind) as why:
        yield
    approved(file, title, str(why.value))


def _lines(text: object) -> list[str]:
    if isinstance(text, str) and "<svg" in text:
        return [unescape(part) for part in re.findall(r">([^<>]+)<", text)]
    parts = (
        text.splitlines() if isinstance(text, str) else map(str, text) if isinstance(text, Iterable) else [str(text)]
    )
    return [part.rstrip() for part in parts]


def _sections(text: str) -> dict[str, str]:
    parts = re.split(rf"^{HEAD}(.*)\n", text, flags=re.MULTILINE)
    return {title: content.removesuffix("\n") for title, content in zip(parts[1::2], parts[2::2])}


class Reading(NamedTuple):
    """A call by which a test reads an approved text: the test, the file, and a pattern of the title."""

    test: str
    file: str
    title: str


CALL = re.compile(r'^(?:async )?def (\w+)|\bapproved(?:_refusal)?\(\s*"(\w+)",\s*f?"([^"]*)"', re.MULTILINE)


def readings() -> Iterator[Reading]:
    """Every call in the source of a test; what a test's parameters add to a title may be anything."""
    tests = TEXTS.parents[1]
    for path in sorted(tests.rglob("test_*.py")):
        function, source = "", path.read_text(encoding="utf-8")
        for call in CALL.finditer(source if f"from {__name__} import" in source else ""):
            function = call[1] or function
            if not call[1]:
                title = re.sub(r"\\{.*?\\}", ".*", re.escape(call[3]))
                yield Reading(f"{path.relative_to(tests.parent).as_posix()}::{function}", call[2], title)


def unread() -> list[tuple[Path, str]]:
    """The files and titles of approved texts that no test reads."""
    patterns = [(reading.file, re.compile(reading.title)) for reading in readings()]
    texts = [
        (path, title) for path in sorted(TEXTS.glob("*.txt")) for title in _sections(path.read_text("utf-8")) or ("",)
    ]
    return [
        (path, title)
        for path, title in texts
        if not any(file == path.stem and pattern.fullmatch(title) for file, pattern in patterns)
    ]


def remove_unread() -> None:
    for path, title in unread():
        sections = _sections(path.read_text(encoding="utf-8"))
        sections.pop(title, None)  # an empty file has none
        _write(path, sections)
        print(f"removed '{title}' of {path.name}")


def _write(path: Path, sections: dict[str, str]) -> None:
    text = "".join(f"{HEAD}{name}\n{sections[name]}\n" for name in sorted(sections))
    path.write_text(text, encoding="utf-8") if text else path.unlink()
