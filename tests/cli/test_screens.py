"""What a player sees: the commands on terminals of 80x24 and 120x40, without colours, and in a pipe; and `watch`."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from puzzles.catalog.schedule import PUZZLES
from puzzles.judge.progress import PuzzleProgress, save
from puzzles.judge.verdict import Graded, Verdict
from puzzles.screens.terminal import report
from puzzles.text_lines import WHOLE, wrapped
from puzzles.tracks import ALL, TRACKS, find_several, groups, track_of
from tests.support.commands import puzzles, solution

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="needs pseudo-terminals"),
    pytest.mark.usefixtures("in_this_process"),
]

if sys.platform != "win32":
    from tests.support.pseudo_terminal import PseudoTerminal

ROOT = Path(__file__).parents[2]
SIZES = [(80, 24), (120, 40)]
KEYS = "q quit"


@pytest.fixture(autouse=True)
def _no_size_is_set(in_an_empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for size in ("COLUMNS", "LINES"):  # these come before the size of the terminal
        monkeypatch.delenv(size, raising=False)


@pytest.fixture
def environment(home_of_its_own: Path) -> Mapping[str, str]:
    return {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT)}


def screen(arguments: list[str], columns: int, rows: int, environment: Mapping[str, str]) -> list[str]:
    """The screen after a command has ended."""
    with PseudoTerminal(arguments, columns, rows, environment) as terminal:
        return terminal.until_end()


LISTED = dict.fromkeys([*TRACKS, *(group.name for group in groups())])
PAGES = [
    ["list"], *(["list", name] for name in LISTED), ["hint", "fsdp"], ["status"], ["grade", "mine.py"], ["--help"],
]  # fmt: skip
"""Commands whose output has to fit a screen."""


def least_rows(name: str) -> int:
    """The rows of a list of a track or chapter that has a row for each puzzle: the list, and a few for the rest."""
    return len(find_several(name)) + 9 if name in LISTED else 0


# --- On a terminal ---


@pytest.mark.sampled(6)
@pytest.mark.parametrize("arguments", PAGES)
@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_a_page_fits_the_screen(arguments: list[str], columns: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("mine.py").write_text(solution("fsdp"))
    monkeypatch.setenv("COLUMNS", str(columns))
    result = puzzles(*arguments)
    lines = result.output.splitlines()
    assert (result.exit_code, len(lines) < max(rows, least_rows(arguments[-1]))) == (0, True), result.output
    assert [line for line in lines if len(line) > columns] == []


@pytest.mark.sampled(6)
@pytest.mark.parametrize("words", [[], *([name] for name in LISTED)])
def test_a_list_of_a_player_with_every_star_fits_too(words: list[str]) -> None:
    save({slug: PuzzleProgress(attempts=1, stars=3) for slug in ALL})
    assert len(puzzles("list", *words).output.splitlines()) < max(24, *map(least_rows, ["", *words]))


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
