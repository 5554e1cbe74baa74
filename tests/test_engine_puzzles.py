"""The engine's puzzles: references meet their targets exactly, wrong solutions are told what is wrong."""

from __future__ import annotations

import ast
import json
import re
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("numpy", reason="the engine needs numpy")
pytest.importorskip("greenlet", reason="devices in one process are greenlets")

from puzzles.cli import main
from puzzles.engine_catalog import ENGINE_PUZZLES, EnginePuzzle, trials_of
from puzzles.engine_grade import grade_engine
from puzzles.engine_judge import judge
from puzzles.engine_pages import engine_starter
from tests.engine_tables import FIGURES, WRONG

ROOT = Path(__file__).parent.parent
every_puzzle = pytest.mark.parametrize("puzzle", [pytest.param(p, id=slug) for slug, p in ENGINE_PUZZLES.items()])


REFERENCES = {
    match[1]: path
    for path in sorted((ROOT / "solutions" / "engine").glob("*.py"))
    for match in re.finditer(r"^class (\w+)\(ShardedEngine\)", path.read_text(encoding="utf-8"), re.MULTILINE)
}


def source(slug: str) -> str:
    return REFERENCES[slug].read_text(encoding="utf-8")


@every_puzzle
def test_the_reference_is_right_and_measures_what_the_table_says(puzzle: EnginePuzzle) -> None:
    cls = getattr(import_module(f"solutions.engine.{REFERENCES[puzzle.slug].stem}"), puzzle.slug)
    judged = judge(puzzle, cls)
    assert judged.missed == ()
    assert trials_of(puzzle)[0]().devices == puzzle.devices
    assert {name: judged.figures[name] for name in puzzle.targets} == FIGURES[puzzle.slug]
    assert judge(puzzle, cls) == judged


@every_puzzle
def test_the_words_are_all_there(puzzle: EnginePuzzle) -> None:
    texts = (puzzle.title, puzzle.statement, puzzle.concept, puzzle.in_practice, puzzle.arithmetic, *puzzle.hints)
    assert all(text.strip() for text in texts)
    assert len(puzzle.hints) >= 3
    assert "`" in puzzle.hints[-1]
    years = {int(year) for year in re.findall(r"\b(?:19|20)\d\d\b", puzzle.concept + puzzle.in_practice)}
    assert years <= {source.year for source in puzzle.sources}
    assert puzzle.sources


@every_puzzle
def test_the_starter_is_not_attempted_and_has_every_method(puzzle: EnginePuzzle, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(engine_starter(puzzle))
    (cls,) = ast.parse(puzzle.starter).body
    assert isinstance(cls, ast.ClassDef)
    assert {"load_checkpoint", "forward", "backward"} <= {f.name for f in cls.body if isinstance(f, ast.FunctionDef)}
    assert grade_engine(str(path)) == ()
    path.write_text(engine_starter(puzzle).replace("raise NotImplementedError", "raise NotImplementedError()"))
    (verdict,) = grade_engine(str(path))
    assert (verdict.status, verdict.reason) == ("failed", "crash")
    assert f"raised on device 0 of {puzzle.devices}" in verdict.message


@pytest.mark.parametrize(("slug", "mistake"), WRONG)
def test_a_wrong_solution_is_told_what_is_wrong(slug: str, mistake: str, tmp_path: Path) -> None:
    old, new, wanted = WRONG[slug, mistake]
    assert old in source(slug)
    path = tmp_path / "mine.py"
    path.write_text(source(slug).replace(old, new))
    (verdict,) = grade_engine(str(path))
    told = verdict.message if wanted.startswith("failed: line ") else re.sub(r"^line \d+: ", "", verdict.message)
    beginning = ".*".join(re.escape(part) for part in wanted.split(" ... "))
    assert re.match(beginning, f"{verdict.status}: {told}"), f"{verdict.status}: {told}"


@every_puzzle
def test_every_puzzle_has_wrong_solutions(puzzle: EnginePuzzle) -> None:
    assert sum(slug == puzzle.slug for slug, _ in WRONG) >= 3


def command(*words: str) -> Result:
    return CliRunner().invoke(main, words, catch_exceptions=False)


def test_the_commands_know_the_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "SequenceParallel" in command("list").output
    assert "FSDP: Gather, compute, discard" in command("show", "FSDP").output
    assert "Fully sharded data parallel" in command("show", "fsdp").output
    assert "A shard of a weight is 1,024 B" in command("show", "FSDP", "--about").output
    assert "hint 2 of 3" in command("hint", "ZeRO1", "-n", "2").output
    assert command("start", "OneBucket", "-o", "mine.py").exit_code == 0
    graded = command("engine", "grade", "mine.py")
    assert (graded.exit_code, "Nothing attempted" in graded.output) == (1, True)


def test_a_file_may_hold_schedules_and_classes(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    basic = (ROOT / "solutions" / "basic.py").read_text(encoding="utf-8")
    path.write_text(f"{basic}\n\n{source('TensorParallel')}")
    assert "1,536" not in command("grade", str(path), "--puzzle", "basic").output
    result = command("engine", "grade", str(path))
    assert result.exit_code == 0, result.output
    assert "1,536 of 1,536 bytes sent" in " ".join(result.output.split())
    told = json.loads(command("engine", "grade", "--json", str(path)).output)
    assert told["engine"][0]["results"][0]["figures"] == FIGURES["TensorParallel"]
    only = command("engine", "grade", str(path), "--puzzle", "TensorParallel")
    assert (only.exit_code, "basic" in only.output) == (0, False)


def test_a_class_of_the_wrong_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("FSDP = 3\n")
    (verdict,) = grade_engine(str(path))
    assert verdict.message == "line 1: FSDP is not a class; write 'class FSDP'"
    path.write_text("class FSDP(:\n")
    assert [v.reason for v in grade_engine(str(path))] in ([], ["syntax"])
