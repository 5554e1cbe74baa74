"""Results for autograders: hidden tests that cost points, words for students, and what three services would run."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from puzzles.commands.main import main
from puzzles.course.points import Scoring
from puzzles.gradescope.autograder import Autograder
from puzzles.grading.verdict import Graded, Verdict
from puzzles.reports.gradescope import Visibility, parse_visibility, student_tests
from tests.support import course

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "teaching.md").read_text(encoding="utf-8")


def puzzles(*words: object) -> Result:
    result = CliRunner().invoke(main, list(map(str, words)))
    assert isinstance(result.exception, SystemExit | None), result.exc_info
    return result


def results(folder: Path, *words: object, option: str = "-o") -> dict[str, Any]:
    out = folder.parent / "results.json"
    puzzles("grade", folder, "--trust", "--one-student", option, out, *words)
    found: dict[str, Any] = json.loads(out.read_text())
    return found


@pytest.fixture
def student(tmp_path: Path) -> Path:
    folder = tmp_path / "submission"
    folder.mkdir()
    (folder / "a.py").write_text(course.shown_size_only())
    (folder / "b.py").write_text("import no_such_package\n" + course.solution("ddp"))
    return folder


@pytest.mark.slow
def test_hidden_tests_cost_points_and_the_shown_ones_do_not_tell(student: Path) -> None:
    words = ("--puzzle", "basic", "--puzzle", "ddp", "--points", "basic=10,ddp=10", "--shown-size", 0.6)
    plain = results(student, *words)
    split = results(student, *words, "--visibility", "visible,ddp=after_due_date,other-sizes=hidden")
    assert plain["score"] == split["score"] == 16
    rows = [(t["score"], t["max_score"], t["status"], t["visibility"]) for t in split["tests"]]
    assert rows == [(6, 6, "passed", "visible"), (0, 4, "failed", "hidden"),
                    (6, 6, "passed", "after_due_date"), (4, 4, "passed", "hidden")]  # fmt: skip
    assert "only at the shown size" in plain["tests"][0]["output"]
    assert "only at the shown size" not in split["tests"][0]["output"]
    assert "only at the shown size" in split["tests"][1]["output"]
    assert [test["name"].partition(",")[2] for test in split["tests"]] == ["", " at other sizes"] * 2


@pytest.mark.parametrize("status", ["passed", "over_target", "failed", "not_attempted"])
@pytest.mark.parametrize("only", [False, True])
@pytest.mark.parametrize("stars", [0, 2, 3])
def test_two_tests_are_worth_what_one_is(status: str, only: bool, stars: int) -> None:
    graded = Graded("a", (Verdict("ddp", "schedule", status, {}, stars=stars, shown_size_only=only),))
    scoring = Scoring({"ddp": 7}, 0.3, 2, 0.4)
    (one,) = student_tests(graded, scoring, Visibility())
    two = [*student_tests(graded, scoring, Visibility(other_sizes="hidden"))]
    assert sum(test.score for test in two) == pytest.approx(one.score)
    assert sum(test.most for test in two) == pytest.approx(one.most)


@pytest.mark.parametrize(
    ("text", "said"), [("later", "there is no 'later'"), ("fspd=hidden", "fspd"), ("ddp=", "no ''")]
)
def test_a_visibility_that_is_unknown_is_refused(text: str, said: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        parse_visibility(text)
    assert said in refused.value.message


def test_a_submission_without_a_file_gets_tests_that_say_so(tmp_path: Path) -> None:
    for name in ("empty", "pdf"):
        folder = tmp_path / name
        folder.mkdir()
        if name == "pdf":
            (folder / "report.pdf").write_bytes(b"%PDF")
        found = results(folder, "--puzzle", "ddp", "--points", "ddp=5")
        (test,) = found["tests"]
        assert (test["score"], test["max_score"]) == (0, 5)
        assert "no .py or .ipynb here" in test["output"]


@pytest.mark.slow
def test_students_are_told_no_options(tmp_path: Path) -> None:
    words = {"look for a loop that does not end, or allow more with --time-limit": "look for a loop that does not end",
             "it printed more than 5 bytes; print less, or allow more with --limit output=64M":
             "it printed more than 5 bytes; print less",
             "a run needs none; see --limit processes=9": "a run needs none",
             "use x--y, not y; - or --": "use x--y, not y; - or --"}  # fmt: skip
    for text, wanted in words.items():
        graded = Graded("a", (Verdict("ddp", "schedule", "failed", {}, message=text, notes=(text,), advice=text),))
        (test,) = student_tests(graded, Scoring(), Visibility())
        assert (test.verdict.message, test.verdict.notes, test.verdict.advice) == (wanted, (wanted,), wanted)
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "a.py").write_text(course.loop("basic"))
    (test,) = results(folder, "--puzzle", "basic", "--limit", "time=1s")["tests"]
    assert "look for a loop" in test["output"]
    assert not re.search(r"--\w", re.sub(r'src="[^"]*"', "", test["output"]))


def test_prairielearn_s_results_are_documented_ones(student: Path) -> None:
    words = ("--puzzle", "basic", "--puzzle", "ddp", "--points", "basic=10,ddp=10")
    found = results(student, *words, option="--prairielearn")
    assert (found["gradable"], found["score"]) == (True, 0.75)
    assert [(test["points"], test["max_points"]) for test in found["tests"]] == [(5, 10), (10, 10)]
    assert set(found) <= {"gradable", "score", "message", "output", "tests", "images", "format_errors"}
    assert all(set(t) <= {"name", "description", "points", "max_points", "message", "output"} for t in found["tests"])
    (student.parent / "empty").mkdir()
    nothing = results(student.parent / "empty", *words, option="--prairielearn")
    assert (nothing["gradable"], nothing["message"]) == (False, "there is no .py or .ipynb here")


def test_the_results_of_one_student_are_not_those_of_a_class(tmp_path: Path) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("")
    refused = puzzles("grade", tmp_path, "--trust", "--classroom", "r.json")
    assert refused.exit_code == 2
    assert "there are 2 submissions" in " ".join(refused.stderr.split())


def run_as_documented(script: str, folder: Path, **variables: object) -> None:
    """Runs a script of the page in bash, with the command that a service would find."""
    (folder / "bin").mkdir()
    (folder / "bin" / "puzzles").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m puzzles "$@"\n')
    (folder / "bin" / "puzzles").chmod(0o755)
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    env = {
        **os.environ,
        "PATH": path,
        "PYTHONPATH": str(ROOT),
        **{name: str(value) for name, value in variables.items()},
    }
    done = subprocess.run(
        ["bash", "-ec", script], cwd=folder / "student", env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_prairielearn_s_entry_point_runs_as_documented(student: Path) -> None:
    grade = student.parent
    student.rename(grade / "student")
    (grade / "tests").mkdir()
    (grade / "tests" / "course.toml").write_text("[points]\nbasic = 4\nddp = 12\n")
    (script,) = re.findall(r"^```bash\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    run_as_documented(script.replace("/grade", str(grade)), grade)
    found = json.loads((grade / "results" / "results.json").read_text())
    assert (found["score"], len(found["tests"])) == (0.875, 2)


@pytest.mark.slow
def test_github_classroom_s_step_runs_as_documented(student: Path) -> None:
    student.rename(student.parent / "student")
    (block,) = re.findall(r"^```yaml\n(- name: Grade.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (script,) = re.findall(r"run: \|\n((?:    .*\n)+)", block)
    output = student.parent / "output"
    run_as_documented(script, student.parent, RUNNER_TEMP=student.parent, GITHUB_OUTPUT=output)
    name, _, text = output.read_text().strip().partition("=")
    found = json.loads(base64.b64decode(text))
    assert (name, found["version"], found["status"], found["max_score"]) == ("result", 1, "fail", 15)
    assert [(test["status"], test["score"]) for test in found["tests"]] == [("pass", 5), ("fail", 0)]
    keys = {"name", "status", "score", "message", "test_code", "filename", "line_no", "execution_time"}
    assert all(set(test) == keys for test in found["tests"])


def test_an_autograder_hands_on_points_and_packages(tmp_path: Path) -> None:
    scripts = Autograder(["--strict"], [], tmp_path / "w.whl", (), ["matplotlib>=3", "pandas"])
    assert b"PACKAGES=('matplotlib>=3' pandas)" in scripts._script("setup.sh")
    assert b'"${PACKAGES[@]}"' in scripts._script("setup.sh")
    assert b"OPTIONS=(--strict)" in scripts._script("run_autograder")
    refused = puzzles("gradescope", "--points", "ddp=5", "--with", "$(rm)", "-o", tmp_path / "a.zip")
    assert (refused.exit_code, "--with takes the name of a package" in refused.stderr) == (2, True)
