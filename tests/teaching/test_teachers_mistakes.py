"""What a teacher gets wrong: each command says where and what, and the rest works."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from puzzles.custom import folders, read_folder
from puzzles.teaching.writing import begin
from tests.support.commands import puzzles, said
from tests.support.relay import TRACKS, finished_folder

pytestmark = pytest.mark.usefixtures("in_this_process")

# --- What a teacher gets wrong between `puzzles new` and Gradescope, and what the commands answer ---


MISTAKE = "async def relay(model):\n    return model.forwrd(1)\n"


@pytest.fixture
def week(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder has a folder of puzzles, week3, and one of students, class."""
    monkeypatch.chdir(tmp_path)
    file, *_ = begin("relay", "schedule", Path("week3"))
    file.write_text(f"{file.read_text().replace('TODO: ', '')}\n[targets]\ntime = 5\nmemory = 1_800_000\n")
    Path("class").mkdir()
    Path("class/ann.py").write_text(Path("week3/solutions/relay.py").read_text())
    Path("class/cleo.py").write_text(MISTAKE)
    return file


def test_a_name_with_a_hyphen_is_spelt_as_a_function(week: Path) -> None:
    assert "such as my_puzzle" in said("new", "my-puzzle", code=2)
    assert "such as relay" in said("new", "3", code=2)


@pytest.mark.parametrize("words", [("check",), ("list", "--puzzles")])
def test_a_file_is_no_folder(words: tuple[str, ...], week: Path) -> None:
    assert "week3/relay.toml:" in said(*words, "week3/relay.toml", code=2)
    Path("alone.toml").touch()
    assert str(Path.cwd()) in said(*words, "alone.toml", code=2)


def test_check_knows_its_puzzles_and_the_words_for_what_is_wrong(week: Path) -> None:
    assert "week3" in said("check", "week3", "--only", "rely", code=2)
    text = week.read_text()
    week.write_text(text.replace('"over_target"', '"over target"'))
    assert "week3/relay.toml, [wrong]: 'wrong/relay_twice.py'" in said("check", "week3", code=2)
    week.write_text(text.replace("wrong/relay_twice.py", "solutions/relay.py").replace("relay_alone.py", "no.py"))
    checked = said("check", "week3", code=1)
    assert "solutions/relay.py" in checked
    assert "week3/wrong/no.py" in checked


@pytest.mark.slow
def test_a_reference_may_need_more_time(week: Path) -> None:
    Path("week3/solutions/relay.py").write_text("def relay(model):\n    while True:\n        pass\n")
    week.write_text(week.read_text().partition("[wrong]")[0] + "[targets]\ntime = 5\nmemory = 1_800_000\n")
    checked = said("check", "week3", "--time-limit", "0.2", code=1)
    assert "0.2 s" in checked
    assert "time limit" in checked


def test_students_in_place_of_puzzles_are_not_run(week: Path) -> None:
    Path("class/ann.py").write_text("open('stolen', 'w')\n")
    refused = said("grade", "week3", "--trust", "--puzzles", "class", code=2)
    assert "class/ann.py:" in refused
    assert not Path("stolen").exists()


@pytest.mark.slow
def test_a_class_without_its_folder_of_puzzles(week: Path) -> None:
    needs = "--puzzles FOLDER"
    assert needs in said("grade", "class", "--trust", code=1)
    assert needs in said("grade", "class/ann.py", code=1)
    Path("class/ann.py").write_text("x = 1\n")
    Path("class/cleo.py").write_text("x = 1\n")
    assert needs not in said("grade", "class", "--trust", "--puzzles", "week3", code=1)
    assert "'relay'" in said("grade", "class", "--trust", "--puzzle", "relay", code=2)
    assert "--puzzles FOLDER" in said("show", "relay", code=2)


def test_export_takes_own_puzzles(week: Path) -> None:
    assert "relay" in said("export", "class/ann.py", "relay", "--puzzles", "week3", code=1)


def test_gradescope_says_what_is_missing(week: Path) -> None:
    Path("class/ann.py").write_text("x = 1\n")
    said("grade", "class/ann.py", "--puzzles", "week3", "--puzzle", "relay", "-o", "r.json", code=1)
    (test,) = json.loads(Path("r.json").read_text())["tests"]
    assert "not attempted" in test["output"]
    assert "relay(model)</code>" in test["output"]
    said("grade", "class/cleo.py", "--puzzles", "week3", "--puzzle", "relay", "-o", "r.json", code=1)
    (test,) = json.loads(Path("r.json").read_text())["tests"]
    assert "No file" not in test["output"]


@pytest.mark.slow
def test_all_pages_say_the_same_of_a_failure(week: Path) -> None:
    said("grade", "class", "--trust", "--puzzles", "week3", "-o", "out", code=1)
    said("grade", "class", "--trust", "--puzzles", "week3", "-o", "report.html", code=1)
    said("grade", "class/cleo.py", "--puzzles", "week3", "-o", "r.json", code=1)
    pages = {path.name: path.read_text() for path in (Path("report.html"), *Path("out").rglob("*.html"))}
    wanted = (
        "<p>Line 2: rank 0, t=0, model.forwrd: a model has no 'forwrd'; write 'model.forward(layer, inp, weight)'</p>"
    )
    code = '<pre><span class="faint">line 2</span>  return model.forwrd(1)</pre>'
    outputs = [test["output"] for test in json.loads(Path("r.json").read_text())["tests"]]
    (theirs,) = [text for text in pages.values() if "<h1>cleo.py</h1>" in text]
    for text in (pages["report.html"], theirs, "".join(outputs)):
        assert wanted in text
        assert code in text
    for name, text in pages.items():
        assert text.startswith("<!doctype html>"), name
        assert "default-src 'none'; style-src 'unsafe-inline'" in text, name
        assert "prefers-color-scheme: dark" in text, name
        assert text.rstrip().endswith("</html>"), name


# --- Files of a teacher that are broken in any way: `check` and `grade` say where and what, and the rest works ---


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
def week_of_all_tracks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder has week3 with a puzzle of each track, and mine.py, which solves the three."""
    monkeypatch.chdir(tmp_path)
    folder = finished_folder(Path("week3"))
    Path("mine.py").write_text("\n\n".join((folder / f"solutions/relay_{track}.py").read_text() for track in TRACKS))
    return folder


def answer(*words: str, code: int) -> str:
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
def test_a_broken_file_is_named_and_the_rest_is_graded(case: Case, week_of_all_tracks: Path) -> None:
    broken(case, week_of_all_tracks)
    checked = answer("check", "week3", "--only", case.puzzle, code=1)
    told = [line for line in checked.splitlines() if case.words in line]
    assert len(told) == 1, checked
    assert told[0].startswith("  ! ")
    passed = {f"relay_{track}" for track in TRACKS} - ({"relay_engine"} if case.file.startswith("trials") else set())
    graded = json.loads(answer("grade", "mine.py", "--puzzles", "week3", "--json", code=int(len(passed) < len(TRACKS))))
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
        refused = " ".join(answer(*command, code=2).split())
        assert "relay.py: " in refused
        assert words in refused or (words == "MemoryError" and "too many nested" in refused)


def test_the_same_puzzle_in_python_is_taken_when_nothing_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "relay.py").write_text(_puzzle())
    assert list(read_folder(tmp_path).puzzles) == ["relay"]


def test_a_puzzle_without_hints_says_so(week_of_all_tracks: Path) -> None:
    file = week_of_all_tracks / "relay_layout.toml"
    before, _, rest = file.read_text().partition("hints = ")
    file.write_text(before + rest.partition("]\n")[2])
    assert "has no hints" in answer("hint", "relay_layout", "--puzzles", "week3", code=0)
