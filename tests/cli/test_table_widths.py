"""Every table of every command fits terminals of 60, 80 and 120 columns, with whole headings and whole figures."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from puzzles.judge.progress import PuzzleProgress, save
from puzzles.text_lines import fitted
from puzzles.tracks import ALL
from tests.support.commands import puzzles
from tests.support.course import rules
from tests.support.fake_grading import real_verdict, write_verdicts
from tests.support.profiles import TRACES

pytestmark = pytest.mark.usefixtures("in_this_process")

ROOT = Path(__file__).parents[2]
WIDTHS = (60, 80, 120)
PLAN = "plan --model llama-3-8b --gpus 16 --batch 64 --pp 2 --tp 2 --best 1 --ranks"

COMMANDS = {
    "list": ["puzzles/cli/list.py"],
    "list schedule": [],
    "list frontier": [],
    "list plan": [],
    "status": [],
    "path": [],
    "costs": ["puzzles/cli/show.py"],
    "costs hopper_narrow": [],
    "show zero_or_tensor --about": ["puzzles/text_lines.py"],
    "hint basic": [],
    PLAN: ["puzzles/screens/plans.py"],
    "plan --list": ["puzzles/cli/plan.py"],
    "solve --ranks 4 --microbatches 4 --effort 0 --proof-seconds 0": [],
    f"profile {TRACES / '1f1b'}": [],
    "grade ann.py ben.py": ["puzzles/screens/terminal.py"],
    "grade class": ["puzzles/screens/standings.py"],
    "class .": [],
    "run fsdp.py fsdp --small": ["puzzles/tracks/schedule/run_on_tensors.py"],
    "run ffn.py ffn": ["puzzles/tracks/layout/show.py"],
    "compare fsdp.py fsdp": [],
    "draw fsdp.py fsdp --text": [],
    "draw ffn.py ffn --text": [],
    "doctor": [],
}
"""Commands that print tables, each with the modules whose tables it is the first to show."""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class of two in the current folder, some solutions beside it, and a player who has begun each puzzle."""
    monkeypatch.chdir(tmp_path)
    for name, file in {"fsdp": "fsdp", "FSDP": "engine/fsdp", "ffn": "layout/ffn"}.items():
        shutil.copy(ROOT / "solutions" / f"{file}.py", f"{name}.py")
    for student in ("Ann Lee", "Konstantin Featherstonehaugh"):
        for slug in ("ddp", "gpipe"):
            write_verdicts(Path("class", student, f"{slug}.py"), real_verdict(slug))
    rules(tmp_path, "submissions = 'class'\n[points]\nddp = 2\n")
    write_verdicts("ann.py", real_verdict("fsdp", stars=3))
    write_verdicts("ben.py", real_verdict("FSDP", "over_target", stars=1, message="correct, but it is slow"))
    save({slug: PuzzleProgress(attempts=12, stars=2, hints=1) for slug in list(ALL)[:20]})


@pytest.mark.sampled(6)
@pytest.mark.usefixtures("files", "stated_verdicts")
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("columns", WIDTHS)
def test_what_a_command_prints_fits(command: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    result = puzzles(*command.split())
    assert result.exit_code in (0, 1), result.output
    assert [line for line in result.output.splitlines() if cell_len(line) > columns] == []
    assert "…" not in result.output


def test_every_module_that_makes_tables_is_measured() -> None:
    """A module that makes a table is named beside the command that shows it."""
    makers = set()
    for path in (ROOT / "puzzles").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "Table(" in text else ():
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Table":
                makers.add(path.relative_to(ROOT).as_posix())
    makers -= {"puzzles/cli/layout.py"}  # which needs jax
    measured = {module for modules in COMMANDS.values() for module in modules}
    assert measured >= makers


# --- The parts of a table that does not fit ---


def shown(table: Table, columns: int) -> list[str]:
    console = Console(width=columns, color_system=None)
    with console.capture() as capture:
        for part in fitted(console, table):
            console.print(part)
    return capture.get().splitlines()


def figures(columns: int) -> Table:
    table = Table(box=None)
    table.add_column("name", no_wrap=True)
    for number in range(columns):
        table.add_column(f"figure{number}", justify="right", no_wrap=True)
    table.add_row("first", *(f"{1000 + number}" for number in range(columns)))
    return table


@pytest.mark.parametrize("columns", [16, 20, 37, 60, 200])
def test_each_figure_is_shown_once_and_whole_below_its_heading(columns: int) -> None:
    lines = shown(figures(9), columns)
    words = " ".join(lines).split()
    for number in range(9):
        assert words.count(f"figure{number}") == words.count(f"{1000 + number}") == 1
    assert words.count("name") == words.count("first")
    assert max(map(cell_len, lines)) <= columns


def test_a_word_that_is_wider_than_the_terminal_is_folded() -> None:
    table = Table(box=None)
    table.add_column("name", no_wrap=True)
    table.add_row("x" * 50)
    lines = shown(table, 20)
    assert max(map(cell_len, lines)) <= 20
    assert "".join(lines).count("x") == 50


def test_the_repeated_column_may_be_any() -> None:
    console = Console(width=16)
    parts = list(fitted(console, figures(3), repeated=-1))
    assert [part.columns[0].header for part in parts] == ["figure2"] * len(parts)
