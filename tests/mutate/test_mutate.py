"""The runner of mutations, on a project of one module and one file of tests."""

import json
from pathlib import Path

import pytest

from tests.mutate import trying
from tests.mutate.__main__ import main

MODULE = "def largest(a, b):\n    return a if a > b else b\n\n\ndef is_even(n):\n    return n % 2 == 0\n"
TESTS = """\
import pytest
from module import is_even, largest


@pytest.mark.parametrize("pair", [(1, 2), (2, 1)])
def test_the_largest_of_two_is_found(pair):
    assert largest(*pair) == 2


@pytest.mark.slow
def test_three_is_odd():
    assert not is_even(3)
"""
CAUGHT = {"old": "a > b", "new": "a < b", "words": "the smallest is found"}
SURVIVES = {"old": "n % 2 == 0", "new": "n % 2 == n % 2", "words": "all numbers are even"}
EXCUSED = {"old": "a > b", "new": "a >= b", "words": "the first of equals", "survives": "equal numbers are the same"}
HANGS = {"old": "    return a if", "new": "    while True: pass\n    return a if", "words": "it never ends"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "module.py").write_text(MODULE)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_module.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\nmarkers =\n    slow: not tried\n")
    return tmp_path


def mutate(project: Path, *rows: dict[str, str], options: tuple[str, ...] = ()) -> int:
    """The exit code of trying these rows."""
    table = project / "mutations.toml"
    lines = ['[tests]\n"mod" = ["tests"]\n"module" = ["tests/test_module.py"]\n']
    for row in rows:
        fields = {"file": "module.py", **row}
        lines.append("[[mutation]]\n" + "".join(f"{name} = {json.dumps(text)}\n" for name, text in fields.items()))
    table.write_text("\n".join(lines))
    return main(options, project, table)


@pytest.mark.slow
def test_a_caught_mutation_names_its_tests_and_a_survivor_needs_a_reason(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The slow test, which would catch a survivor, is not run; the cache of the mutation before is not taken."""
    assert mutate(project, CAUGHT, SURVIVES, EXCUSED) == 1
    rows, _, total = capsys.readouterr().out.partition("3 mutations: ")
    assert "caught by   2 in" in rows
    assert "test_module.py::test_the_largest_of_two_is_found[pair0]" in rows
    assert ("1 caught, 1 survive" in total, "1 survive without one" in total) == (True, True)
    assert SURVIVES["words"] in total
    assert EXCUSED["words"] not in total
    assert (project / "module.py").read_text() == MODULE, "only the copy was changed"


@pytest.mark.slow
def test_only_the_named_mutations_are_tried(project: Path) -> None:
    assert mutate(project, SURVIVES, EXCUSED, options=("the first",)) == 0


@pytest.mark.parametrize(
    ("row", "fact"),
    [
        (CAUGHT | {"old": "a > c"}, "0 times"),
        (CAUGHT | {"old": "return"}, "2 times"),
        (CAUGHT | {"new": "a >"}, "not Python"),
        (CAUGHT | {"file": "module_none.py"}, "module_none.py: there is no such file"),
        (CAUGHT | {"file": "other.py"}, "no prefix of this path"),
        (CAUGHT | {"survive": "a reason"}, "no field survive"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_a_row_that_cannot_be_tried_is_told_before_anything_is_run(
    project: Path, row: dict[str, str], fact: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr(trying.subprocess, "Popen")
    (project / "modules.py").write_text("")
    assert mutate(project, CAUGHT, row) == 2
    assert fact in capsys.readouterr().out
    assert mutate(project, CAUGHT, {"words": "nothing"}) == 2
    assert mutate(project, CAUGHT, options=("no such words",)) == 2


@pytest.mark.slow
def test_tests_that_fail_without_a_mutation_are_told(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "module.py").write_text(MODULE.replace("a > b", "a != b"))
    assert mutate(project, SURVIVES) == 2
    assert "tests/test_module.py::test_the_largest_of_two_is_found[pair0]" in capsys.readouterr().out


@pytest.mark.slow
def test_a_mutation_that_breaks_the_import_is_caught(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert mutate(project, CAUGHT | {"new": "a > b or undefined", "old": "a > b"}) == 0
    assert mutate(project, CAUGHT | {"old": "def is_even", "new": "undefined\n\n\ndef is_even"}) == 0
    assert "caught by   1 in" in capsys.readouterr().out


@pytest.mark.slow
def test_a_mutation_that_makes_tests_hang_is_caught(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trying, "PATIENCE", 5.0)
    assert mutate(project, HANGS) == 0
    assert "the tests hang" in capsys.readouterr().out
