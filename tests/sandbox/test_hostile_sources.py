"""Texts that are made to be slow or large to read: each is read in the sandbox, in time, or refused in one sentence."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jupytext
import pytest
from jupytext.magics import comment_magic

from puzzles.catalog.schedule import PUZZLES
from puzzles.judge.grader import grade_file
from puzzles.judge.submission import Submission
from puzzles.judge.verdict import Verdict
from puzzles.sandbox import client
from puzzles.sandbox.client import SERVER_PROGRAM, command
from puzzles.sandbox.limits import MIB, Limits
from puzzles.sandbox.worker.reading import MAX_CELLS, read_cells, without_magics

ROOT = Path(__file__).parents[2]
SOLVED = (ROOT / "solutions" / "basic.py").read_text(encoding="utf-8")
LIMITS = Limits(seconds=2, memory=512 * MIB)


def graded(name: str, source: str | bytes) -> Verdict:
    submission = Submission(Path(name), source if isinstance(source, bytes) else source.encode())
    return grade_file(name, [PUZZLES["basic"]], LIMITS, submission=submission).verdicts[0]


# --- Encodings ---

NO_TEXTS = ("zlib", "rot13", "hex", "base64", "bz2", "uu", "quopri")
SLOW_OR_ODD = ("punycode", "idna", "utf-7", "utf-16", "cp1252", "unicode_escape", "raw_unicode_escape")


@pytest.mark.parametrize("coding", [*NO_TEXTS, *SLOW_OR_ODD])
def test_other_encodings_are_refused_before_anything_is_decoded(coding: str) -> None:
    failure = Submission(Path("x.py"), f"# coding: {coding}\n".encode() + b"a" * MIB).failure
    assert failure is not None
    assert failure.sentence.startswith("this file declares the encoding ")
    assert failure.sentence.endswith("; save it as UTF-8 or Latin-1")


@pytest.mark.parametrize("coding", ["utf-8", "UTF8", "utf-8-sig", "latin-1", "iso-8859-15", "us-ascii", "nonsense"])
def test_encodings_of_texts_are_read(coding: str) -> None:
    failure = Submission(Path("x.py"), f"# coding: {coding}\n".encode()).failure
    refused = {"iso-8859-15": "declares the encoding iso-8859-15", "nonsense": "unknown encoding: nonsense"}
    assert failure is None if coding not in refused else failure is not None and refused[coding] in failure.sentence


# --- Notebooks and scripts ---

BOMB = "".join(f"#   a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else '1'}]\n" for n in range(12))
HEADER = f"# ---\n# jupyter:\n{BOMB}#   jupytext:\n#     text_representation: {{}}\n# ---\n\n"
LONG = "# a line\n" * 60_000

READ = {
    "aliases.py": HEADER + "# %%\n" + SOLVED,
    "light.py": HEADER + "# +\n" + SOLVED,
    "alike.py": f"# %%\n{LONG}y = 1\n# %%\n{LONG}y = 2\n# %%\n{SOLVED}",
    "marks.py": "# %% [markdown]\n" * (MAX_CELLS - 1) + "# %%\n" + SOLVED,
    "newlines.py": "\n" * 1_900_000 + SOLVED,
}
"""By name: files with a solution in them. They were slow or large to read, and are no more."""


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", READ)
def test_a_solution_passes_however_it_is_wrapped(name: str) -> None:
    found = graded(name, READ[name])
    assert found.status == "passed", found.message


def ipynb(*cells: str, **more: Any) -> str:
    made = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": cell} for cell in cells]
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": made, **more})


REFUSED = {
    "newlines.py": (
        lambda: "\n" * 15_000_000,
        "this file has 15,000,000 characters of code; at most 4,000,000 are read",
    ),
    "lines.py": (lambda: "\n" * 3_000_000, "this file has 3,000,001 lines of code; at most 2,000,000 are read"),
    "cells.py": (lambda: "# %%\nx\n" * 30_000, "this file has 30,001 cells of code; at most 1,000 are read"),
    "cells.ipynb": (lambda: ipynb(*["x"] * 30_000), "this file has 30,000 cells of code; at most 1,000 are read"),
    "code.ipynb": (lambda: ipynb("x\n" * 2_100_000), "this file has 4,200,000 characters of code"),
    "nested.ipynb": (lambda: "[" * 5_000_000, "it cannot be read as a notebook (RecursionError"),
    "empty.ipynb": (lambda: "[" + "{}," * 5_000_000 + "{}]", "it cannot be read as a notebook"),
    "arrays.ipynb": (
        lambda: '{"nbformat": 4, "cells": [' + "[]," * 5_000_000 + "[]]}",
        "it cannot be read as a notebook",
    ),
    "sources.ipynb": (
        lambda: '{"nbformat": 4, "cells": [{"cell_type": "code", "source": [7]}]}',
        "it cannot be read as a",
    ),
    "large.py": (lambda: "#" * (16 * MIB + 1), "this file has 16,777,217 bytes; at most 16,777,216 are read"),
}
"""By name: what makes a text, which is large, and what is said of it."""


LARGE = ("arrays.ipynb", "empty.ipynb", "code.ipynb")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in LARGE else []) for n in REFUSED])
def test_too_much_is_refused_in_one_sentence(name: str) -> None:
    text, words = REFUSED[name]
    found = graded(name, text())
    assert (found.status, found.figures) == ("not_attempted", {})
    assert words in found.message
    assert len(found.message) < 300


def test_a_notebook_for_which_memory_runs_out_is_called_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(_: str) -> None:
        raise MemoryError

    monkeypatch.setattr(json, "loads", exhausted)
    with pytest.raises(ValueError, match="MemoryError"):
        read_cells("x.ipynb", "{}")


@pytest.mark.slow
def test_what_is_slow_for_python_itself_ends() -> None:
    """Python 3.11 compiles an f-string in the square of its parts; later ones run out of memory or do it."""
    found = graded("f.py", "def basic(model):\n    return f'" + "{x}" * 600_000 + "'\n")
    assert found.status == "failed"
    assert any(words in found.message for words in ("took too long to read it", "too deeply", "line 2"))


# --- Cells are those that jupytext sees ---


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.py")), ids=lambda path: path.stem)
def test_cells_of_a_script_are_those_of_jupytext(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    mine = [cell for cell in read_cells(path.name, text) if without_comments(cell.text)]
    theirs = [cell for cell in jupytext.reads(text, fmt="py:percent").cells if cell.cell_type == "code"]
    expected = ["\n".join(comment_magic(cell.source.split("\n"))) for cell in theirs]
    assert [without_comments(cell.text) for cell in mine] == [*filter(None, map(without_comments, expected))]
    lines = text.split("\n")
    for cell in mine:
        assert lines[cell.first_line - 1 :][: cell.text.count("\n")] == cell.text.split("\n")[:-1]


def without_comments(code: str) -> str:
    return "\n".join(line for line in code.splitlines() if line.strip() and not line.startswith("#"))


MAGICS = (
    *(
        "%matplotlib inline",
        "!pip install x",
        "?help",
        "help?",
        "help??",
        "x = !ls",
        "x = %time 3",
        "y=%%x",
        "ls",
        "mv",
    ),
    *("ls -l", "cat = 3", "rm, x = 1, 2", "cd ..", "echo", "x = a % b", "    % b)", "x != y", "!=", "!(a)", "%  foo"),
    *("cat(3)", "rm()", "help(x)?", "x = 5 # why?", "print('?')", "def f(): pass # ok?"),
    *("%time \\\n  f(x)", "!ls \\\nhere", "%time f()\nx = 1"),
)


@pytest.mark.parametrize("code", MAGICS)
def test_lines_for_ipython_are_those_of_jupytext(code: str) -> None:
    assert without_magics(code) == "\n".join(comment_magic(code.split("\n")))


def test_a_line_in_a_string_is_left_as_it_is() -> None:
    text = ipynb(SOLVED.replace("def basic(model):\n", 'def basic(model):\n    assert """\n%s\nls\n""" != "# %s"\n', 1))
    assert graded("x.ipynb", text).status == "passed"


# --- The time that reading may take ---

PATCHED = "import os; from puzzles.sandbox.worker import server as supervisor; {}; " + SERVER_PROGRAM


def with_server(monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    """Servers that make a change in themselves before they begin."""
    program = PATCHED.format(change)
    monkeypatch.setattr(client, "command", lambda: command(program))


@pytest.mark.slow
@pytest.mark.own_server
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel counts processor time")
def test_reading_is_limited_in_processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = "supervisor.SubmissionCode = lambda *_: next(zero for zero in iter(int, 1) if zero)"
    with_server(monkeypatch, f"supervisor.READING_SECONDS = 1; {endless}")
    found = graded("basic.py", SOLVED)
    assert found.reason != "lost"
    assert "SIGXCPU)" in found.message


@pytest.mark.slow
@pytest.mark.own_server
@pytest.mark.skipif(sys.platform == "win32", reason="no supervisor reads a file there")
def test_a_machine_too_busy_to_read_a_file_fails_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    idle = "supervisor.SubmissionCode = lambda *_: os.read(os.pipe()[0], 1)"
    with_server(monkeypatch, f"supervisor.READING_PATIENCE = 0.1; {idle}")
    found = graded("basic.py", SOLVED)
    assert found.reason == "lost", found.message
    assert "grade it again" in found.message
