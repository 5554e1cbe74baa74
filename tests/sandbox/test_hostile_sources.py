"""Hostile and changed sources: each is read or refused in one sentence; and every attack has a target."""

import ast
import json
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jupytext
import pytest
from jupytext.magics import comment_magic

import lib
import lib.engine
from puzzles.catalog.engine.trial import MethodCall, Trial
from puzzles.catalog.schedule import PUZZLES
from puzzles.judge.grader import grade_file
from puzzles.judge.submission import Submission
from puzzles.judge.verdict import Verdict
from puzzles.sandbox import client
from puzzles.sandbox.client import SERVER_PROGRAM, command
from puzzles.sandbox.limits import MIB, Limits
from puzzles.sandbox.visible_files import INSTALL_ROOT
from puzzles.sandbox.worker.reading import MAX_CELLS, SubmissionCode, read_cells, without_magics
from puzzles.sandbox.worker.runner import DefinitionRun
from puzzles.tracks.layout import LAYOUT_PUZZLES
from tests.fuzz import __main__ as fuzz
from tests.fuzz import targets
from tests.fuzz.changes import changed_bytes, changed_tree
from tests.fuzz.targets import TARGETS
from tests.hostile import classes_and_layouts, schedules
from tests.support.commands import ROOT

# --- Texts that are made to be slow or large to read: each is read in the sandbox, in time, or refused in one
# sentence ---


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


# --- Every attack names internals that exist: one that misses its target would pass and prove nothing ---


CLASSES = {name: thing for name in lib.__all__ if isinstance(thing := getattr(lib, name), type)}
ROOTS = {"lib": lib, **CLASSES}
"""Names that the imports above every attack bind."""


def attacks() -> dict[str, str]:
    """The whole file of every attack, as its test makes it."""
    found = {
        name: schedules.basic_with(body) for name, (body, *_) in {**schedules.FORGING, **schedules.BREAKING}.items()
    }
    for name, (body, *_) in classes_and_layouts.BODIES.items():
        found[name] = classes_and_layouts.IMPORTS + classes_and_layouts.wrong(body)
    for name, (old, new, *_) in classes_and_layouts.SOLVED.items():
        found[name] = classes_and_layouts.IMPORTS + classes_and_layouts.PARALLEL.replace(old, new, 1)
    for name, (body, *_) in classes_and_layouts.LAYOUTS.items():
        found[name] = f"def ffn(graph):\n    {body}\n"
    return found


def test_every_dotted_name_exists() -> None:
    count = 0
    for name, text in attacks().items():
        for chain in chains(ast.parse(text)):
            count += 1
            found, *rest = chain
            for attribute in rest:
                assert hasattr(found, attribute), f"{name}: {'.'.join(map(str, chain))}"
                found = getattr(found, attribute)
    assert count > 30


def chains(tree: ast.Module) -> Iterator[list[Any]]:
    """Dotted names that begin with a module or a class of ours: the object, and its attributes."""
    roots = dict(ROOTS)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            loaded = {alias.asname: import_module(alias.name) for alias in node.names if is_ours(alias.name)}
            roots.update((name, module) for name, module in loaded.items() if name)
        elif isinstance(node, ast.ImportFrom) and node.module and is_ours(node.module):
            for alias in node.names:
                yield from_import(node.module, alias.name)
    inner = {node.value for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node not in inner:
            names: list[Any] = []
            at: ast.expr = node
            while isinstance(at, ast.Attribute):
                names.insert(0, at.attr)
                at = at.value
            match at:
                case ast.Name(id=first) if first in roots:
                    yield [roots[first], *names]
                case ast.Subscript(value=ast.Attribute(attr="modules"), slice=ast.Constant(value=str(module))):
                    yield [import_module(module), *names]


def from_import(module: str, name: str) -> list[Any]:
    if name == "*":
        return [import_module(module)]
    return [import_module(f"{module}.{name}")] if is_module(module, name) else [import_module(module), name]


def is_module(package: str, name: str) -> bool:
    return hasattr(import_module(package), "__path__") and find_spec(f"{package}.{name}") is not None


def test_every_path_exists() -> None:
    paths = [path for text in attacks().values() for path in re.findall(r"\b(?:puzzles|solutions)/[\w/]+\.py", text)]
    assert paths
    assert [path for path in paths if not (INSTALL_ROOT / path).is_file()] == []


def is_ours(module: str) -> bool:
    return module.partition(".")[0] in ("lib", "puzzles", "solutions")


@pytest.mark.parametrize(
    ("attack", "words"),
    [
        (schedules.FORGING["edits_by_gc"], f"{DefinitionRun.__name__} {DefinitionRun._send.__name__}"),
        (classes_and_layouts.BODIES["finds_the_trials_in_memory"], f"{Trial.__name__} {MethodCall.__name__} wanted"),
        (classes_and_layouts.SOLVED["resets_its_meter"], "_port meter sent"),
    ],
)
def test_names_in_texts_exist(attack: tuple[str, ...], words: str) -> None:
    for word in words.split():
        assert any(word in text for text in attack[:2])


def test_attributes_of_objects_exist() -> None:
    assert {"method", "wanted"} <= set(MethodCall.__annotations__)
    assert "calls" in Trial.__annotations__
    graph = LAYOUT_PUZZLES["ffn"].graph()
    for name in ("strategies", "itemsize", "shapes", "operators", "shard"):
        assert hasattr(graph, name)


# --- Some changed inputs of every kind, always the same ones; `make fuzz` tries others for as long as it is given ---


TRIED = {"trace": 40, "submission": 40, "ipynb": 40, "annotations": 60, "reply": 25, "message": 100, "profile": 60}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what a changed source makes Python warn of
@pytest.mark.parametrize("name", TARGETS)
def test_nothing_is_found_among_the_first_inputs(name: str) -> None:
    for seed in range(TRIED[name]):
        assert fuzz.finding(name, seed) == ""


def test_the_same_seed_makes_the_same_input() -> None:
    text = json.dumps(targets.notebook())
    for seed in range(20):
        made = [changed_tree(fuzz.Random(seed), json.loads(text)) for _ in range(2)]
        assert repr(made[0]) == repr(made[1]) != repr(json.loads(text))
        data = [changed_bytes(fuzz.Random(seed), text.encode(), (b"word",)) for _ in range(2)]
        assert data[0] == data[1]


def test_a_planted_mistake_is_found_and_shown_with_its_seed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(SubmissionCode, "survey", lambda self: {"lines": self.problem.sentence})
    monkeypatch.setattr(sys, "argv", ["fuzz", "--only", "submission", "--seed", "7", "--seconds", "30"])
    assert fuzz.main() == 1
    told = capsys.readouterr().out
    assert "AttributeError" in told
    assert "--only submission --seed" in told


def test_time_is_up(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["fuzz", "--only", "message", "--seed", "1", "--seconds", "0"])
    assert fuzz.main() == 0
    assert "seed 1 on: 1" in capsys.readouterr().out
