"""`puzzles solve`, `export` and `import`: what they write, and what they say to what they cannot do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lib import referee, trace_from_json
from lib.pipelines.torch_csv import read_csv, write_csv
from tests.support.commands import puzzles
from tests.test_imports import ROOT

pytestmark = pytest.mark.usefixtures("in_an_empty_folder", "in_this_process")

SOLUTIONS = ROOT / "solutions"
SMALL = ("--ranks", "3", "--microbatches", "4", "--memory", "3", "--effort", "0.02", "--proof-seconds", "0")


@pytest.mark.slow
def test_what_is_solved_is_the_same_in_all_its_files(capsys: pytest.CaptureFixture[str]) -> None:
    result = puzzles("solve", *SMALL, *(f"-osolved.{ending}" for ending in ("json", "csv", "py", "txt", "html")))
    assert result.exit_code == 0, result.output
    assert "longest span 14" in result.output
    trace = trace_from_json(Path("solved.json").read_text())
    assert referee(trace).makespan == 14
    table = read_csv(Path("solved.csv").read_text())
    names: dict[str, object] = {"__name__": "__main__"}
    exec(compile(Path("solved.py").read_text(), "solved.py", "exec"), names)
    assert names["TABLE"] == table
    assert "longest span 14" in capsys.readouterr().out
    played = puzzles("draw", "solved.py", "solved", "--size", "3,4,3", "--costs", "parts", "--text")
    assert "makespan 14" in played.output


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (("--ranks", "4"), "--microbatches"),
        ((*SMALL, "--memory", "0.5"), "0.5|memory=1"),
        ((*SMALL, "-o", "found.gif"), "found.gif|.svg|.py"),
        ((*SMALL, "-o", "no/where.csv"), "cannot write no/where.csv"),
        ((*SMALL, "--forward", "0.00001"), "forward|0.001"),
        ((*SMALL, "--placement", "ring"), "contiguous"),
        ((*SMALL, "--forward", "1,2"), "forward must be a number or a list of 3, one for each of the stages; got 2"),
        ((*SMALL, "--memory", "1,2,x"), "'1,2,x' is neither a number nor a list of numbers such as 1,1,2,1"),
        ((*SMALL, "--forward", "1,2,1", "-o", "found.svg"), "one time for all stages|-o writes .csv only"),
    ],
)
def test_a_wrong_call_of_solve_is_one_error(words: tuple[str, ...], facts: str) -> None:
    result = puzzles("solve", *words)
    assert result.exit_code == 2
    assert [fact for fact in facts.split("|") if fact not in result.output] == []


def test_stages_that_differ_are_solved_and_written() -> None:
    lists = ("--forward", "1,1,2", "--backward-input", "1,1,2", "--memory", "3,2,1")
    result = puzzles("solve", *SMALL, *lists, "-o", "uneven.csv")
    assert result.exit_code == 0, result.output
    assert re.search(r"a rank holds at most \d of \d on rank \d\.", result.output)
    table = read_csv(Path("uneven.csv").read_text())
    assert str(table) in result.output
    same = puzzles("solve", *SMALL, "--forward", "1,1,1", "-o", "same.csv")
    assert same.output.replace("same", "one") == puzzles("solve", *SMALL, "-o", "one.csv").output
    assert Path("same.csv").read_bytes() == Path("one.csv").read_bytes()


@pytest.mark.slow
def test_a_solution_goes_to_a_file_and_comes_back() -> None:
    assert puzzles("export", SOLUTIONS / "zb_v.py", "zb_v", "-o", "zb.csv").output == "Wrote zb.csv.\n"
    printed = puzzles("export", SOLUTIONS / "zb_v.py", "zb_v", "--format", "torch-csv")
    assert printed.output == Path("zb.csv").read_text()
    result = puzzles("import", "zb.csv", "-o", "back.json", "-o", "again.csv", "-o", "back.svg")
    assert result.exit_code == 0, result.output
    assert "Correct: ZB-V" in result.output
    assert Path("again.csv").read_text() == Path("zb.csv").read_text()
    assert referee(trace_from_json(Path("back.json").read_text())).makespan == 51
    assert Path("back.svg").read_text().startswith("<svg")


def test_cells_that_overlap_survive_an_import_and_an_export() -> None:
    order = "0F0,0F1,(0F2;0B0)OVERLAP_F_B,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n"
    Path("dual.csv").write_text(order)
    result = puzzles("import", "dual.csv", "-o", "dual.json", "-o", "again.csv")
    assert result.exit_code == 0, result.output
    assert "costs parts with pairs" in result.output
    assert "Note: here" not in result.output
    trace = trace_from_json(Path("dual.json").read_text())
    assert write_csv(trace) == Path("again.csv").read_text() == order
    exchanged = write_csv(trace, communication=True)
    assert "(0F2;0B0)OVERLAP_F_B" in exchanged
    assert read_csv(exchanged) == read_csv(order)
    deep = puzzles("import", "dual.csv", "--layers", "2", "-o", "deep.csv")
    assert "1 OVERLAP_F_B" in deep.output
    assert Path("deep.csv").read_text() == order


def test_a_schedule_that_cannot_be_said_is_refused_with_the_reason() -> None:
    for name, size, why in (
        ("ddp", (), "this is not a pipeline"),
        ("zb_h1", ("--steps", "2"), "2 steps"),
        ("checkpoint", (), "a second time"),
        ("tensor_parallel", (), "part of a weight"),
    ):
        result = puzzles("export", SOLUTIONS / f"{name}.py", name, *size)
        assert result.exit_code == 1, name
        assert why in result.output, result.output


def test_a_file_that_cannot_be_read_is_one_error() -> None:
    Path("bad.csv").write_text("0F0,0Q0\n")
    Path("binary.csv").write_bytes(b"\xff\xfe\x00")
    Path("halves.csv").write_text("0F0,0I0,0W0\n")
    for words, why in (
        (("bad.csv",), "row 1, column 2"),
        (("binary.csv",), "not a text file"),
        (("halves.csv", "--costs", "stages"), "backward_input has no price in the costs 'stages'"),
        (("halves.csv", "--layers", "0"), "1<=x<=64"),
        (("halves.csv", "-o", "x.docx"), ".docx"),
        (("missing.csv",), "does not exist"),
    ):
        result = puzzles("import", *words)
        assert result.exit_code == 2, result.output
        assert why in " ".join(result.output.split()), result.output


def test_only_a_correct_run_is_exported() -> None:
    Path("mine.py").write_text("async def one(model):\n    model.get_activation([7])\n")
    result = puzzles("export", "mine.py", "one", "--size", "1,1,1")
    assert result.exit_code == 1
    assert "one is not correct" in result.output
    assert "line 2" in result.output
    assert "has no" in puzzles("export", "mine.py", "two", "--size", "1,1,1").output
