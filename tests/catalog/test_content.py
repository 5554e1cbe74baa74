"""The puzzles as data: what is compiled is what the files say, and a fault in a file is named with its line."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from puzzles.catalog import content as content_module
from puzzles.catalog.content import COMPILED, CONTENT, ChapterFile, compiled, content, fields_of, parsed
from puzzles.catalog.fields import Fields, OwnPuzzleError, line_of
from puzzles.catalog.schedule import PUZZLES, read_puzzle

NO_CHAPTER = ChapterFile("", "", (), 0, "")
GPIPE = CONTENT / "schedule" / "classics" / "gpipe.toml"


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of some of the content, with nothing compiled."""
    folder = tmp_path / "content"
    shutil.copytree(CONTENT / "schedule" / "memory", folder / "schedule" / "memory")
    monkeypatch.setattr(content_module, "CONTENT", folder)
    monkeypatch.setattr(content_module, "COMPILED", folder / "__pycache__" / COMPILED.name)
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    content.cache_clear()
    yield folder
    content.cache_clear()


def test_what_is_compiled_is_what_the_files_say() -> None:
    files = json.loads(compiled())["files"]
    assert files == content()
    assert all(files[path.relative_to(CONTENT).as_posix()] == parsed(path) for path in CONTENT.rglob("*.toml"))


def test_a_file_that_has_changed_is_read_again(clone: Path) -> None:
    file, name = clone / "schedule" / "memory" / "zero1.toml", "schedule/memory/zero1.toml"
    before = content()[name]
    assert json.loads(content_module.COMPILED.read_text(encoding="utf-8"))["files"][name] == before
    file.write_text(file.read_text(encoding="utf-8").replace(before["title"], "Another"), encoding="utf-8")
    content.cache_clear()
    assert content()[name] == {**before, "title": "Another"}


def test_what_is_compiled_suffices_and_damage_to_it_does_not_matter(clone: Path) -> None:
    before = content()
    for path in clone.rglob("*.toml"):
        path.rename(path.with_suffix(".old"))
    content.cache_clear()
    assert content() == before
    for path in clone.rglob("*.old"):
        path.rename(path.with_suffix(".toml"))
    content_module.COMPILED.write_text("{", encoding="utf-8")
    content.cache_clear()
    assert content() == before


def test_puzzles_that_a_chapter_does_not_order_come_last_by_name() -> None:
    chapter = ChapterFile("", "", ("b", "a"), 0, "")
    assert chapter.in_order(["d", "a", "c", "b"], Path("chapter.toml")) == ("b", "a", "c", "d")
    with pytest.raises(OwnPuzzleError, match=r"chapter.toml.*'order' names 'b'"):
        chapter.in_order(["a"], Path("chapter.toml"))


FAULTS = {
    "a text": ('title = "GPipe schedule"', "title = 1", "'title' is a text; got 1"),
    "a number in a table": ("memory = 4_100_000", "memory = true", "'memory' is a whole number"),
    "an unknown field": ("family = ", "famly = ", "there is no field 'famly'; did you mean 'family'?"),
    "an unknown text": ('family = "a pipeline"', 'family = "a pipe"', "no family 'a pipe'; did you mean 'a pipeline'?"),
    "a row": ("timesteps = 22.5", "timesteps = -1", "'timesteps' is a number of steps; got -1"),
    "a table": ("size = { layers = 8, batches = 4, ranks = 4 }", "size = 4", "'size' is a table; got 4"),
    "a choice": ('decides = "star"', 'decides = "never"', "there is no decides 'never'; there are pass, star"),
}


def read_from(file: Path) -> None:
    fields = fields_of(file, NO_CHAPTER)
    fields.text("track")
    read_puzzle(file.stem, fields)
    fields.done()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_with_file_line_and_field(fault: str, tmp_path: Path) -> None:
    before, after, message = FAULTS[fault]
    text, file = GPIPE.read_text(encoding="utf-8"), tmp_path / "gpipe.toml"
    assert text.count(before) == 1
    file.write_text(text.replace(before, after), encoding="utf-8")
    line = text[: text.index(before)].count("\n") + 1
    with pytest.raises(OwnPuzzleError) as refusal:
        read_from(file)
    assert re.search(rf"gpipe\.toml[^:]*, line {line}: .*{re.escape(message)}", str(refusal.value))


LINES = """\
# a comment
title = "t"
text = '''
title = "within a text"
'''
rows = [
    { a = 1 },
    { a = 2, b = 3 },
]

[table]
title = 5

[[list]]
x = 1

[[list]]
x = 2
"""


@pytest.mark.parametrize(
    ("place", "line"),
    [
        (("title",), 2),
        (("rows", 2, "b"), 8),
        (("table", "title"), 12),
        (("table", "missing"), 11),
        (("list", 2, "x"), 18),
        (("list", 1), 14),
        (("missing",), 0),
    ],
)
def test_the_line_of_a_field(place: tuple[str | int, ...], line: int) -> None:
    assert line_of(LINES, place) == line


def with_fields(**given: object) -> Fields:
    return Fields("own.toml", {**{k: v for k, v in parsed(GPIPE).items() if k != "track"}, **given})


def test_every_field_of_a_schedule_is_for_teachers_too() -> None:
    targets = {"time": 33, "memory": 4_100_000, "traffic": 0}
    texts = {"answer": "It is 3.", "reload_reason": "because", "reload_advice": "Load less."}
    puzzle = read_puzzle("own", with_fields(decides="star", targets=targets, **texts))
    assert (puzzle.goal.decides, puzzle.goal.traffic) == ("star", 0)
    assert {name: getattr(puzzle, name) for name in texts} == texts


def test_records_may_be_those_of_a_puzzle_of_the_same_size() -> None:
    puzzle = read_puzzle("own", with_fields(records_of="pipeline"))
    assert puzzle.goal.records == PUZZLES["pipeline"].goal.records
    for other in ("ddp", "nobody"):
        with pytest.raises(OwnPuzzleError, match=f"'{other}' is no schedule"):
            read_puzzle("own", with_fields(records_of=other))
