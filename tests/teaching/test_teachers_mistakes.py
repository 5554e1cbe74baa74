"""What a teacher gets wrong between `puzzles new` and Gradescope, and what the commands answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from puzzles.teaching.writing import begin
from tests.support.commands import said

pytestmark = pytest.mark.usefixtures("in_this_process")

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
