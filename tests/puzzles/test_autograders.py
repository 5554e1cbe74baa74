"""Results for Gradescope: points, words for students, packages."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from puzzles.course.course_file import Course, read_course
from puzzles.course.points import Scoring, late_from
from puzzles.gradescope.autograder import Autograder
from puzzles.grading.verdict import Graded, Verdict
from puzzles.reports.gradescope import gradescope
from tests.support import course
from tests.support.commands import puzzles


def results(folder: Path, *words: object) -> dict[str, Any]:
    out = folder.parent / "results.json"
    puzzles("grade", folder, "--trust", "--one-student", "-o", out, *words)
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def test_a_submission_without_a_file_gets_tests_that_say_so(tmp_path: Path) -> None:
    for name in ("empty", "pdf"):
        folder = tmp_path / name
        folder.mkdir()
        if name == "pdf":
            (folder / "report.pdf").write_bytes(b"%PDF")
        found = results(folder, "--puzzle", "ddp")
        (test,) = found["tests"]
        assert (test["score"], test["max_score"]) == (0, 1)
        assert ".py or .ipynb" in test["output"]


@pytest.mark.slow
def test_students_are_told_no_options(tmp_path: Path) -> None:
    words = {"it printed more than 5 bytes; print less, or allow more with --limit output=64M":
             "it printed more than 5 bytes; print less",
             "a run needs none; see --limit processes=9": "a run needs none",
             "use x--y, not y; - or --": "use x--y, not y; - or --"}  # fmt: skip
    for text, wanted in words.items():
        graded = Graded("a", (Verdict("ddp", "schedule", "failed", {}, message=text, notes=(text,), advice=text),))
        (test,) = gradescope(graded, Scoring())["tests"]
        assert wanted in test["output"]
        assert (text in test["output"]) == (text == wanted)
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "a.py").write_text(course.loop("basic"))
    (test,) = results(folder, "--puzzle", "basic", "--limit", "time=1s")["tests"]
    assert "look for a loop" in test["output"]
    assert not re.search(r"--\w", re.sub(r'src="[^"]*"', "", test["output"]))


def test_an_autograder_hands_on_rules_and_packages(tmp_path: Path) -> None:
    given = Course(shares={"partial": 0.25}, strict=True, late=late_from({"due": "2026-11-20"}, "", tmp_path))
    options, packages = ["--limit", "time=2s"], ["matplotlib>=3", "pandas"]
    scripts = Autograder({"ddp": 5.0}, given, options, [], tmp_path / "w.whl", (), packages)
    assert b"PACKAGES=('matplotlib>=3' pandas)" in scripts._script("setup.sh")
    assert b'"${PACKAGES[@]}"' in scripts._script("setup.sh")
    assert b"OPTIONS=(--limit time=2s)" in scripts._script("run_autograder")
    unpacked = read_course(course.rules(tmp_path, scripts.rules()))
    wanted = replace(given, file=unpacked.file, submissions=unpacked.submissions, points={"ddp": 5}, one_student=True)
    assert unpacked == replace(wanted, late=None), "what is late, Gradescope knows"
    refused = puzzles("gradescope", "--puzzle", "ddp", "--with", "$(rm)", "-o", tmp_path / "a.zip")
    assert (refused.exit_code, "--with" in refused.stderr) == (2, True)
