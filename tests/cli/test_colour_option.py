"""`--colour` of the commands whose pictures are only one of their outputs; `draw` and `run` are in test_draw.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from drawing.palette import OPERATIONS, batch_colour
from puzzles.cli.main import main
from tests.test_imports import ROOT

pytestmark = pytest.mark.usefixtures("in_an_empty_folder")

GPIPE = str(ROOT / "solutions" / "gpipe.py")
GRADE = ("grade", GPIPE, "--puzzle", "gpipe")
SOLVE = ("solve", "--ranks=3", "--microbatches=4", "--memory=3", "--effort=0.02", "--proof-seconds=0")
PLAN = ("plan", "--model=llama-3-8b", "--gpus=8", "--gpu=h100", "--batch=8", "--best=1", "--pp=4")


def puzzles(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, list(words))
    assert result.exit_code == code, result.output
    return " ".join(result.output.replace("│", "").split())


@pytest.mark.slow
def test_the_picture_in_a_report_has_the_colours_that_are_asked_for() -> None:
    batches = [batch_colour(batch) for batch in range(4)]
    puzzles(*GRADE, "-o", "layers.html")
    assert not any(colour in Path("layers.html").read_text() for colour in batches)
    puzzles(*GRADE, "-o", "batches.html", "--colour", "microbatch")
    assert all(colour in Path("batches.html").read_text() for colour in batches)


@pytest.mark.slow
def test_the_pictures_in_the_pages_of_a_class_have_them_too() -> None:
    puzzles(*GRADE, "-o", "pages", "--colour", "operation")
    (page,) = Path("pages/students").iterdir()
    assert page.read_text().count(OPERATIONS["backward"]) > 4 * 8


@pytest.mark.slow
def test_what_is_solved_imported_or_planned_is_drawn_in_them() -> None:
    puzzles(*SOLVE, "-o", "solved.svg", "-o", "solved.csv", "--colour", "operation")
    assert Path("solved.svg").read_text().count(OPERATIONS["forward"]) > 2 * 4
    puzzles("import", "solved.csv", "-o", "read.svg", "--colour", "microbatch")
    assert all(batch_colour(batch) in Path("read.svg").read_text() for batch in range(4))
    puzzles(*PLAN, "-o", "plan.svg", "--colour", "operation")
    assert OPERATIONS["forward"] in Path("plan.svg").read_text()


@pytest.mark.parametrize("command", [GRADE, SOLVE, PLAN, ("import", GPIPE)], ids=lambda words: words[0])
def test_a_colour_that_there_is_not_is_refused(command: tuple[str, ...]) -> None:
    output = puzzles(*command, "--colour", "stage", code=2)
    assert [fact for fact in ("--colour", "'stage'", "layer", "microbatch", "operation") if fact not in output] == []


@pytest.mark.parametrize(
    ("command", "option"),
    [(GRADE, "-o page.html"), (SOLVE, "-o"), (PLAN, "-o"), (("import", GPIPE), "-o")],
    ids=lambda x: x[0],
)
def test_a_colour_without_a_picture_is_refused(command: tuple[str, ...], option: str) -> None:
    output = puzzles(*command, "--colour", "layer", code=2)
    assert option in output
