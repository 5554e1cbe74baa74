"""`puzzles torch --profile` writes what `puzzles profile` reads, and runs the orders that it proposes."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from lib.profiles import Study, sources_of, study
from lib.schedules import one_f_one_b
from lib.torch_csv import read_csv, write_table
from puzzles.commands.main import main
from puzzles.pytorch.run import missing

PATIENCE = "500"

with_torch = pytest.mark.skipif(bool(missing()), reason=missing() or "PyTorch is there")


def invoke(*arguments: str) -> str:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    return done.output


@with_torch
@pytest.mark.slow
def test_an_order_is_recorded_improved_and_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.csv").write_text(write_table(one_f_one_b(4, 8)))
    told = invoke("torch", "mine.csv", "--profile", "before", "--time-limit", PATIENCE)
    assert "next: puzzles profile before" in told
    found = study(sources_of([Path("before")]))
    assert isinstance(found, Study)
    assert found.chosen.step.table == one_f_one_b(4, 8)
    assert found.name.text == "1F1B"
    invoke("profile", "before", "-o", "better.csv")
    better = read_csv(Path("better.csv").read_text())
    assert better != one_f_one_b(4, 8)
    invoke("torch", "better.csv", "--profile", "after", "--time-limit", PATIENCE)
    again = study(sources_of([Path("after")]))
    assert isinstance(again, Study)
    assert again.chosen.step.table == better


def test_a_file_of_a_player_needs_the_name_of_its_puzzle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("puzzles.pytorch.run.missing", str)
    mine = tmp_path / "mine.py"
    mine.write_text("")
    done = CliRunner().invoke(main, ["torch", str(mine)])
    assert done.exit_code == 2
    assert "name the puzzle after the file, as in 'puzzles torch mine.py zb_h1'" in " ".join(done.output.split())


def test_a_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("puzzles.pytorch.run.missing", str)
    mine = tmp_path / "mine.csv"
    mine.write_text("0F0,0B0\n1F0,1B0\n")
    done = CliRunner().invoke(main, ["torch", str(mine), "--profile", str(mine / "traces")])
    assert done.exit_code == 2
    assert "cannot write to" in done.output
