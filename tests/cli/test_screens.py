"""What a player sees: every page and table on terminals of several widths, without colours, in a pipe; and `watch`."""

import ast
import io
import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from lib.ledger.algebra import counted
from puzzles.catalog.schedule import PUZZLES
from puzzles.judge.progress import PuzzleProgress, save
from puzzles.judge.starters import starter_file
from puzzles.judge.verdict import Graded, Verdict
from puzzles.screens.terminal import report
from puzzles.text_lines import WHOLE, fitted, text_lines, wrapped
from puzzles.tracks import ALL, TRACKS, find_several, groups, track_of
from tests.support.commands import ROOT, puzzles, solution
from tests.support.course import rules
from tests.support.fake_grading import real_verdict, write_verdicts
from tests.support.profiles import TRACES

pytestmark = pytest.mark.usefixtures("in_this_process")

if sys.platform != "win32":
    from tests.support.pseudo_terminal import PseudoTerminal

SIZES = [(80, 24), (120, 40)]
KEYS = "q quit"


@pytest.fixture(autouse=True)
def _no_size_is_set(in_an_empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for size in ("COLUMNS", "LINES"):  # these come before the size of the terminal
        monkeypatch.delenv(size, raising=False)


@pytest.fixture
def environment(home_of_its_own: Path) -> Mapping[str, str]:
    """For a process of its own, whose screen is a pseudo-terminal."""
    if sys.platform == "win32":
        pytest.skip("needs pseudo-terminals")
    return {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT)}


def screen(arguments: list[str], columns: int, rows: int, environment: Mapping[str, str]) -> list[str]:
    """The screen after a command has ended."""
    with PseudoTerminal(arguments, columns, rows, environment) as terminal:
        return terminal.until_end()


LISTED = dict.fromkeys([*TRACKS, *(group.name for group in groups())])
PAGES = [
    ["list"], *(["list", name] for name in LISTED), ["hint", "fsdp"], ["grade", "mine.py"], ["--help"],
]  # fmt: skip
"""Commands whose output has to fit a screen."""


# --- On a terminal ---


@pytest.mark.sampled(6)
@pytest.mark.parametrize("arguments", PAGES)
def test_a_page_fits_the_screen_of_a_player_with_every_star(arguments: list[str]) -> None:
    Path("mine.py").write_text(solution("fsdp"))
    save({slug: PuzzleProgress(attempts=1, stars=3) for slug in ALL})
    result = puzzles(*arguments, code=0)
    lines = result.output.splitlines()
    puzzles_listed = len(find_several(arguments[-1])) if arguments[-1] in LISTED else 0
    assert len(lines) < max(24, puzzles_listed + 9), "a list has a row for each puzzle, and a few for the rest"
    assert [line for line in lines if len(line) > 80] == []


@pytest.mark.slow
@pytest.mark.parametrize("columns", [80, 40])
def test_code_is_shown_whole_on_any_terminal(columns: int, environment: Mapping[str, str]) -> None:
    """Lines that are wider than the terminal go on in its next row, as the terminal itself does it."""
    shown = screen(["show", "pipeline_fsdp"], columns, 400, environment)
    in_rows = [
        line[i : i + columns].rstrip()
        for line in PUZZLES["pipeline_fsdp"].starter.splitlines()
        for i in range(0, len(line) or 1, columns)
    ]
    assert "\n".join(in_rows).rstrip() in "\n".join(shown)


@pytest.mark.parametrize("columns", [80, 100, 200])
@pytest.mark.parametrize("several", [[], ["basic"]], ids=["one puzzle a file", "several"])
def test_a_folder_is_graded_without_breaking_a_file_name(
    columns: int, several: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    names = ["b.py", f"group/{'a very long name ' * 6}.py", f"{'homework_' * 5}.ipynb"]
    files = [
        Graded(f"class/{name}", tuple(Verdict(slug, "schedule", "failed", {}, "rule") for slug in ["fsdp", *several]))
        for name in names
    ]
    screen = Console(width=columns, file=io.StringIO())
    report(screen, files)
    lines = screen.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert "…" not in "".join(lines)
    for name in names:
        (at,) = [number for number, line in enumerate(lines) if name in line]
        wide = [line for line in (lines[at], *lines[at + 1 : at + 2]) if "rule" in line]
        assert wide, "its row is the same line or the next one"
    assert [line for line in lines if len(line) > columns and line.strip() not in names] == []


# --- In a pipe ---


@pytest.mark.sampled(5)
@pytest.mark.parametrize("slug", ALL)
def test_no_call_or_command_is_broken(slug: str) -> None:
    puzzle = track_of(slug).puzzle(slug)
    page = puzzles("show", slug).output + puzzles("hint", slug).output
    pieces = [piece for piece in WHOLE.findall(f"{puzzle.statement} {puzzle.hints[0]}") if len(piece) < 76]
    assert [piece for piece in pieces if piece not in page] == []
    assert f"'puzzles show {slug} --about'" in page


PIECES = ["a", "reduce-scatter", "`x = y + 1`", "'puzzles show fsdp --about'", "< 34", "no-such/long.py" * 5]


@given(st.lists(st.sampled_from(PIECES)), st.integers(20, 90), st.sampled_from(["", "    "]))
def test_lines_end_only_between_words(pieces: list[str], width: int, indent: str) -> None:
    lines = wrapped(" ".join(pieces), width, indent).splitlines()
    assert " ".join(line.removeprefix(indent) for line in lines) == " ".join(pieces)
    assert all(line.startswith(indent) for line in lines)
    for piece in pieces:
        assert len(piece) > width - len(indent) or any(piece in line for line in lines)
    assert [
        line for line in lines if len(line) > width and line.removeprefix(indent) not in (*pieces, PIECES[-1])
    ] == []


# --- Watch ---


def is_at_the_margin(lines: list[str]) -> bool:
    """True if no line begins where the one before has ended, as on a terminal in raw mode."""
    return all(len(line) - len(line.lstrip()) <= 4 for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize(("columns", "rows"), [SIZES[0], pytest.param(*SIZES[1], marks=pytest.mark.slow)])
def test_watch_on_a_terminal(columns: int, rows: int, environment: Mapping[str, str]) -> None:
    mine = Path("mine.py")
    mine.write_text(PUZZLES["basic"].starter)
    statement = " ".join(PUZZLES["basic"].statement.split())[:40]
    with PseudoTerminal(["watch", "mine.py"], columns, rows, environment) as terminal:
        first = terminal.until(lambda text: KEYS in text)
        assert first[0] == "basic: Standard training"
        assert statement in " ".join(first)
        assert is_at_the_margin(first)
        assert not terminal.is_cooked(), "keys arrive one by one"

        mine.write_text(solution("basic").replace("model.loss(", "model.lost("))
        failed = terminal.until(lambda text: "failed" in text and KEYS in text)
        assert "model.lost(" in "\n".join(failed)
        assert statement not in " ".join(failed), "on a save the verdict"
        assert is_at_the_margin(failed)

        mine.write_text(solution("basic"))
        passed = terminal.until(lambda text: "passed" in text and KEYS in text)
        assert passed[0] == "basic: Standard training", "it does not jump"
        assert "Gradient accumulation" in " ".join(passed)
        assert len(passed) < rows
        assert is_at_the_margin(passed)
        has_picture = "memory of each rank" in terminal.text
        assert has_picture == (rows > 24), f"the picture comes where it has room:\n{terminal.text}"

        terminal.press("\x1b[A")  # an arrow is no key of ours
        terminal.press("l")
        listed = terminal.until(lambda text: "> basic" in text and KEYS in text)
        assert any(re.match(r"> basic +★★★ passed", line) for line in listed)
        terminal.press("N")
        assert (
            terminal.until(lambda text: "grad_accum: " in text and KEYS in text)[0]
            == "grad_accum: Gradient accumulation"
        )
        terminal.press("q")
        terminal.until_end()
        assert terminal.status == 0
        assert terminal.is_cooked(), "the terminal is left as it was"


@pytest.mark.slow
def test_an_interrupt_ends_watch_and_leaves_the_terminal_as_it_was(environment: Mapping[str, str]) -> None:
    Path("mine.py").write_text(PUZZLES["basic"].starter)
    with PseudoTerminal(["watch", "mine.py"], 80, 24, environment) as terminal:
        terminal.until(lambda text: KEYS in text)
        terminal.press("\x03")
        terminal.until_end()
        assert (terminal.status, terminal.is_cooked()) == (130, True)
        assert terminal.lines[-1] == "Interrupted."
        assert "Traceback" not in terminal.text


@pytest.mark.slow
def test_an_interrupt_at_a_question_is_no_answer(environment: Mapping[str, str]) -> None:
    with PseudoTerminal(["reset"], 80, 24, environment) as terminal:
        terminal.until(lambda text: "[y/N]" in text)
        terminal.until_it_waits()
        terminal.press("\x03")
        assert (terminal.until_end()[1:], terminal.status) == (["Interrupted."], 130)
    with PseudoTerminal(["reset"], 80, 24, environment) as terminal:
        terminal.until(lambda text: "[y/N]" in text)
        terminal.press("n\n")
        terminal.until_end()
        assert terminal.status == 1


@pytest.mark.slow
def test_watch_uses_asterisks_and_no_colour_where_there_is_neither(environment: Mapping[str, str]) -> None:
    plain = {
        **environment,
        "TERM": "dumb",
        "NO_COLOR": "1",
        "LC_ALL": "C",
        "PYTHONIOENCODING": "ascii",
        "PYTHONUTF8": "0",
    }
    Path("mine.py").write_text(solution("basic"))
    lines = screen(["grade", "mine.py"], 80, 60, plain)
    assert re.search(r"basic +\|\*\*[*-] +\|16\.5 \(< 18\)", "\n".join(lines))
    assert not any("?" in line for line in lines)


# --- Every table fits terminals of 60, 80 and 120 columns, with whole headings and whole figures ---


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


# --- A noun after the number 1 is singular in what every command prints ---


NOUNS = """
batches calls collectives cores devices elements files GPUs inputs layers lines microbatches outputs points processes
puzzles ranks sequences solutions splits stages steps timesteps traces updates
""".split()
PLURAL_AFTER_ONE = re.compile(rf"(?<![\w.,])1\s+(?:more\s+)?(?:{'|'.join(NOUNS)}|are|were)\b")

OF_ONE = (
    "plan --model llama-3-8b --gpus 1 --batch 1 --best 1",
    "plan --model llama-3-8b --gpus 1 --batch 1 --dp 1 --zero 0 --microbatch 1 --recompute none --best 1",
    "plan --model llama-3-8b --gpus 1 --tp 2",
    "plan --model llama-3-70b --gpus 1 --batch 1",
    "solve --ranks 1 --microbatches 1 --effort 0 --proof-seconds 0",
    "run ddp.py ddp --size 1,1,1 --small",
    "class . ddp.py",
    "gradescope --course . -o a.zip",
    "doctor",
)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("command", OF_ONE)
def test_a_noun_after_one_is_singular(command: str, in_an_empty_folder: Path, tmp_path: Path) -> None:
    shutil.copy(ROOT / "solutions" / "ddp.py", "ddp.py")
    rules(tmp_path, "[points]\nddp = 1\n")
    result = puzzles(*command.split())
    assert result.output
    assert not isinstance(result.exception, Exception)
    assert PLURAL_AFTER_ONE.findall(result.output) == []


def test_counted_things() -> None:
    assert [counted(number, "batch") for number in (0, 1, 2, 2048)] == [
        "0 batches",
        "1 batch",
        "2 batches",
        "2,048 batches",
    ]
    assert counted(2, "process") == "2 processes"


# --- Markdown in a terminal: random texts keep every word, their structure as lines, and the width ---


WORDS = st.lists(st.sampled_from(["gradient", "rank", "`a b`", "x = 1", "waits", "sum"]), min_size=1, max_size=12)
TEXT = WORDS.map(" ".join)
ITEMS = st.lists(TEXT, min_size=1, max_size=4)
ROWS = st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=3)


def words_of(text: str) -> list[str]:
    return re.findall(r"\w+", text)


@given(ITEMS, st.sampled_from(["- ", "1. "]), st.integers(30, 90))
def test_every_item_of_a_list_begins_a_line(items: list[str], mark: str, width: int) -> None:
    shown = text_lines("".join(f"{mark}{item}\n" for item in items), width)
    marks = [f"{number}. " if mark == "1. " else mark for number in range(1, len(items) + 1)]
    begun = [line for line in shown if not line.startswith(" ")]
    assert [line[: len(mark)] for mark, line in zip(marks, begun, strict=True)] == marks
    assert words_of(" ".join(line[len(mark) :] for line in shown)) == words_of(" ".join(items))
    assert all(len(line) <= width for line in shown)


@given(ROWS, st.integers(40, 90))
def test_a_table_has_its_cells_in_columns(rows: list[tuple[str, str]], width: int) -> None:
    shown = text_lines("| first | second |\n|:--|--:|\n" + "".join(f"| {a} | {b} |\n" for a, b in rows), width)
    assert words_of(shown[0]) == ["first", "second"]
    assert set(shown[1]) == {"─"}
    assert all(len(line) <= width for line in shown)
    assert sorted(words_of(" ".join(shown[2:]))) == sorted(words_of(" ".join(cell for row in rows for cell in row)))
    assert "|" not in "".join(shown)


def test_blocks_within_blocks() -> None:
    text = "Do:\n\n- one\n  1. a\n  2. b\n- two\n\n3. third\n\n   more\n4. fourth\n\n> said\n\n    code  x\n\n# Head\n"
    assert text_lines(text, 40) == [
        "Do:", "", "- one", "  1. a", "  2. b", "- two", "", "3. third", "", "   more", "", "4. fourth", "",
        "> said", "", "    code  x", "", "Head",
    ]  # fmt: skip


@pytest.mark.slow
def test_no_puzzle_loses_a_word() -> None:
    for slug, track in ALL.items():
        puzzle = track.puzzle(slug)
        for text in (puzzle.statement, puzzle.concept, *puzzle.hints[-1:]):
            assert words_of(" ".join(text_lines(text, 80))) == words_of(text), slug
        assert len([line for line in text_lines(puzzle.statement, 80) if len(line) > 80 and line[0] != " "]) == 0


def test_a_starter_keeps_the_structure() -> None:
    puzzle = track_of("GShardTop2").puzzle("GShardTop2")
    source = starter_file([puzzle], "mine.py")
    assert re.findall(r"^# (\d)\. ", source, re.MULTILINE) == ["1", "2", "3", "4"]
