"""Files of a teacher that are broken in any way: `check` and `grade` say where and what, and the rest works."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from puzzles.custom import folders, read_folder
from tests.support.commands import puzzles
from tests.support.relay import TRACKS, finished_folder

pytestmark = pytest.mark.usefixtures("in_this_process")

SYNTAX = "def f(:\n"
RAISES = "raise ValueError('boom')\n"
LEAVES = "raise SystemExit(3)\n"
NESTED = f"x = {'(' * 5000}\n"
DEFINED = "def relay_schedule(model):\n    return model\n"
BEGIN = "from puzzles.catalog.engine.trial import MethodCall, Trial\n"


class Case(NamedTuple):
    """A file of the folder, what is in it instead, the puzzle that is affected, and what `check` says of it."""

    file: str
    text: str | None
    puzzle: str
    words: str


def trials() -> Iterator[Case]:
    name = "trials/relay_engine.py"
    for text, words in (
        (None, f"{name}: there is no such Python file"),
        (SYNTAX, f"{name}: SyntaxError: "),
        (NESTED, f"{name}: "),
        (RAISES, f"{name}: ValueError: boom"),
        (LEAVES, f"{name}: SystemExit: 3"),
        ("", f"{name}: it defines no TRIALS"),
        ("TRIALS = 5", f"{name}: it defines no TRIALS"),
        ("TRIALS = (5,)", f"{name}: it defines no TRIALS"),
        ("def shown():\n    return 1 / 0\nTRIALS = (shown,)", f"{name}, line 2: ZeroDivisionError"),
        ("def shown():\n    return 5\nTRIALS = (shown,)", "shown in TRIALS returns a Trial; got 5"),
        ("TRIALS = (lambda needed: needed,)", "TypeError"),
        (f"{BEGIN}TRIALS = (lambda: Trial(arguments=5),)", "AttributeError"),
        (f"{BEGIN}TRIALS = (lambda: Trial(calls=(5,)),)", "AttributeError"),
    ):
        yield Case(name, text, "relay_engine", words)


def solutions() -> Iterator[Case]:
    for name in ("solutions/relay_schedule.py", "wrong/relay_schedule_alone.py"):
        for text, words in (
            (None, f"there is no file week3/{name}"),
            (SYNTAX, "this is not valid Python"),
            (NESTED, "this is not valid Python"),
            (f"{RAISES}{DEFINED}", "line 1: while the file is loaded: ValueError: boom"),
            (f"{LEAVES}{DEFINED}", "line 1: while the file is loaded: this called exit"),
            ("", f"week3/{name} has no relay_schedule"),
            ("relay_schedule = 5\n", "line 1: relay_schedule is of type int, not a function"),
            ("def relay_schedule(): ...\n", f"week3/{name} has no relay_schedule, or only the starter"),
        ):
            yield Case(name, text, "relay_schedule", words)


def starters() -> Iterator[Case]:
    for text, words in (
        (SYNTAX, "starter: line 1: this is not valid Python"),
        (NESTED, "starter: line 1: this is not valid Python"),
        ("", "starter: missing"),
        ("x = 5", "starter: it does not define relay_layout"),
        ("def other(): ...", "starter: it does not define relay_layout"),
        ("a\\u0000b", "starter: this is not valid Python"),
    ):
        yield Case("relay_layout.toml", text, "relay_layout", words)


CASES = [*trials(), *solutions(), *starters()]


@pytest.fixture
def week(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder has week3 with a puzzle of each track, and mine.py, which solves the three."""
    monkeypatch.chdir(tmp_path)
    folder = finished_folder(Path("week3"))
    Path("mine.py").write_text("\n\n".join((folder / f"solutions/relay_{track}.py").read_text() for track in TRACKS))
    return folder


def said(*words: str, code: int) -> str:
    """What a command says that ends with this code."""
    done = puzzles(*words)
    assert done.exit_code == code, done.output
    assert not folders(), "the folder was taken out again"
    return done.output


def broken(case: Case, folder: Path) -> None:
    file = folder / case.file
    if case.text is None:
        file.unlink()
    elif file.suffix == ".toml":
        before, quotes, rest = file.read_text().partition("starter = '''")
        file.write_text(f'{before}starter = """{case.text}"""{rest.partition(quotes[-3:])[2]}')
    else:
        file.write_text(case.text)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.file}-{(case.text or 'gone')[:20]!r}")
def test_a_broken_file_is_named_and_the_rest_is_graded(case: Case, week: Path) -> None:
    broken(case, week)
    checked = said("check", "week3", "--only", case.puzzle, code=1)
    told = [line for line in checked.splitlines() if case.words in line]
    assert len(told) == 1, checked
    assert told[0].startswith("  ! ")
    passed = {f"relay_{track}" for track in TRACKS} - ({"relay_engine"} if case.file.startswith("trials") else set())
    graded = json.loads(said("grade", "mine.py", "--puzzles", "week3", "--json", code=int(len(passed) < len(TRACKS))))
    rows = {row["puzzle"]: row for row in graded["files"][0]["results"] if row["status"] != "not_attempted"}
    assert {slug for slug, row in rows.items() if row["status"] == "passed"} == passed
    for row in rows.values():
        assert row["status"] == "passed" or case.words in row["message"]


def _puzzle(**changed: str) -> str:
    fields = {
        "title": "''", "statement": "''", "starter": "''", "hints": "()", "concept": "''",
        "in_practice": "''", "sources": "()", "credit": "''", "goal": "Goal('relay', Size(2, 2, 2), 5, 1_800_000)",
        "other_sizes": "()", "calls": "()", **changed,
    }  # fmt: skip
    written = ", ".join(f"{name}={value}" for name, value in fields.items())
    head = "from lib import Goal, Size\nfrom puzzles.catalog.schedule import SchedulePuzzle\n"
    return f"{head}PUZZLE = SchedulePuzzle({written})\n"


IN_PYTHON: dict[str, Callable[[], str]] = {
    "SyntaxError": lambda: f"PUZZLE = 1\n{SYNTAX}",
    "boom": lambda: f"PUZZLE = 1\n{RAISES}",
    "SystemExit": lambda: f"PUZZLE = 1\n{LEAVES}",
    "MemoryError": lambda: f"PUZZLE = 1\n{NESTED}",
    "'starter' must be a string; got 5": lambda: _puzzle(starter="5"),
    "'statement' must be a string; got None": lambda: _puzzle(statement="None"),
    "'hints' must be a tuple of strings; got 'one'": lambda: _puzzle(hints="'one'"),
    "'sources' must be a tuple of strings; got (5,)": lambda: _puzzle(sources="(5,)"),
    "AttributeError": lambda: _puzzle(goal="None"),
    "PUZZLE has a field of a wrong type: ": lambda: _puzzle(goal="Goal('relay', Size(2, 2, 2), 'five', 1_800_000)"),
    "REFERENCE is the path of a file; got 5": lambda: f"{_puzzle()}REFERENCE = 5\n",
    "WRONG is a dictionary of paths": lambda: f"{_puzzle()}WRONG = ['a.py']\n",
    "got {'a.py': 5}": lambda: f"{_puzzle()}WRONG = {{'a.py': 5}}\n",
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("words", IN_PYTHON)
def test_a_broken_puzzle_in_python_is_refused(words: str, tmp_path: Path) -> None:
    (tmp_path / "relay.py").write_text(IN_PYTHON[words]())
    for command in (("check", str(tmp_path)), ("list", "--puzzles", str(tmp_path))):
        refused = " ".join(said(*command, code=2).split())
        assert "relay.py: " in refused
        assert words in refused or (words == "MemoryError" and "too many nested" in refused)


def test_the_same_puzzle_in_python_is_taken_when_nothing_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "relay.py").write_text(_puzzle())
    assert list(read_folder(tmp_path).puzzles) == ["relay"]


def test_a_puzzle_without_hints_says_so(week: Path) -> None:
    file = week / "relay_layout.toml"
    before, _, rest = file.read_text().partition("hints = ")
    file.write_text(before + rest.partition("]\n")[2])
    assert "has no hints" in said("hint", "relay_layout", "--puzzles", "week3", code=0)
