"""Notebooks and jupytext scripts: definitions are kept, everything else is left out."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import nbformat
import pytest

from puzzles.catalog.schedule import PUZZLES
from puzzles.judge.grader import grade_file
from puzzles.judge.verdict import Verdict
from puzzles.sandbox.worker.reading import FAILED, KeptStatements
from tests.support.commands import solution

pytestmark = pytest.mark.usefixtures("in_this_process")


def notebook(folder: Path, *cells: str) -> Path:
    path = folder / "mine.ipynb"
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    made.cells.insert(0, nbformat.v4.new_markdown_cell("# def basic(model): nothing"))
    nbformat.write(made, path)
    return path


def verdicts(path: Path, *slugs: str) -> list[Verdict]:
    return list(grade_file(str(path), [PUZZLES[slug] for slug in slugs]).verdicts)


SETUP = """\
!pip install -q some-package
%matplotlib inline
from typing import List
from lib import Model, Dist, WeightGrad
from drawing import draw, draw_group
from chalk import vcat
import asyncio
import chalk
import no_such_package
chalk.set_svg_height(5)
"""

RUN = """\
ranks = 4
dist = Dist(ranks)
out = await asyncio.gather(*[ddp(Model(layers=2, batches=4, rank=i, dist=dist)) for i in range(ranks)])
draw(out)
raise RuntimeError("nobody runs this")
"""

CONSTANT = "STEP = 1\nNAMES = {'a': (1, -2)}\n"


def test_a_notebook_of_the_original_puzzles_grades_as_it_is(tmp_path: Path):
    cells = [
        SETUP,
        CONSTANT,
        solution("basic"),
        "out = basic(Model(2, 4, 0, Dist(1)))",
        solution("ddp"),
        RUN,
        "Model.check(out)",
    ]
    found = verdicts(notebook(tmp_path, *cells), "basic", "ddp", "fsdp")
    assert [(v.status, v.timesteps) for v in found] == [("passed", 16.5), ("passed", 5.1), ("not_attempted", None)]


def test_the_last_definition_of_a_name_wins(tmp_path: Path):
    wrong = "def basic(model):\n    raise ValueError"
    assert verdicts(notebook(tmp_path, wrong, solution("basic")), "basic")[0].status == "passed"
    assert verdicts(notebook(tmp_path, solution("basic"), wrong), "basic")[0].reason == "crash"


def test_a_broken_cell_harms_only_its_own_puzzle(tmp_path: Path):
    scratch, broken = "this is = no python", "def ddp(model):\n    x = = 1\n"
    found = verdicts(notebook(tmp_path, scratch, solution("basic"), broken), "basic", "ddp", "fsdp")
    assert [v.status for v in found] == ["passed", "failed", "not_attempted"]
    assert found[1].message.startswith("cell 4, line 2: ")
    assert found[1].source == "x = = 1"


def test_other_languages_in_a_cell_are_skipped(tmp_path: Path):
    cells = [
        "%%bash\nrm -rf nothing",
        "%%time\nx = 1",
        "%%writefile basic.py\ndef basic(model): pass",
        solution("basic"),
    ]
    assert verdicts(notebook(tmp_path, *cells), "basic")[0].status == "passed"


@pytest.mark.parametrize("text", ["", "{}", "[" * 5000, '{"cells": 5, "nbformat": 4}', "no json"])
def test_what_is_not_a_notebook_is_reported(tmp_path: Path, text: str):
    path = tmp_path / "mine.ipynb"
    path.write_text(text)
    (found,) = verdicts(path, "basic")
    assert found.status == "not_attempted"
    assert "as a notebook" in found.message or found.message == ""


PERCENT = """\
# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown]
# # My solutions

# %%
# %matplotlib inline
# !pip install x
import asyncio
from lib import Dist, Model

# %%
{solution}

# %%
out = await asyncio.gather(basic(Model()))
"""


def test_a_percent_script_is_a_notebook_with_the_lines_of_its_file(tmp_path: Path):
    path = tmp_path / "mine.py"
    path.write_text(PERCENT.format(solution=solution("basic")))
    assert verdicts(path, "basic")[0].status == "passed"
    path.write_text(PERCENT.format(solution="def basic(model):\n    1 / 0"))
    (found,) = verdicts(path, "basic")
    line = path.read_text().splitlines().index("    1 / 0") + 1
    assert found.message.startswith(f"line {line}: rank 0, t=0: ZeroDivisionError")
    assert found.source == "1 / 0"


def test_a_light_script_is_a_notebook_too(tmp_path: Path):
    path = tmp_path / "mine.py"
    head = "# ---\n# jupyter:\n#   jupytext:\n#     text_representation:\n#       format_name: light\n# ---\n\n"
    path.write_text(
        head
        + "# # Title\n\n# %%capture\n# !pip install x\nimport asyncio\n\n# +\n"
        + solution("basic")
        + "# -\n\nout = await basic(5)\n"
    )
    assert verdicts(path, "basic")[0].status == "passed"


def test_messages_inside_a_message_name_cells_too(tmp_path: Path):
    body = "async def ddp(model):\n    await model.receive()"
    (found,) = verdicts(notebook(tmp_path, "x = 1\ny = 2", body), "ddp")
    assert "3, line 2" in found.message


def test_advice_names_a_line_by_its_cell(tmp_path: Path):
    """Each rank of the pipeline sends its gradient back after its update."""
    send = "    if not first:\n        await model.pass_to(model.rank - 1, grad_activations[stage[0]])\n"
    before, found, after = solution("pipeline").partition(send)
    assert found
    late = before + after.replace("    return model", f"{send}    return model")
    (verdict,) = verdicts(notebook(tmp_path, "x = 1\ny = 2", late), "pipeline")
    assert "Cell 3, line " in verdict.advice


def test_a_notebook_whose_cells_have_no_ids_is_read_without_a_warning(tmp_path: Path) -> None:
    """The tests turn warnings into errors: a warning would be reported as a notebook that cannot be read."""
    cell = {"cell_type": "code", "metadata": {}, "source": solution("ddp"), "outputs": [], "execution_count": None}
    path = tmp_path / "mine.ipynb"
    path.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell]}))
    assert [verdict.status for verdict in verdicts(path, "ddp")] == ["passed"]


# --- Which assignments are pure ---

PREAMBLE = """
import functools, math, random
from itertools import product as pairs
from functools import partial
from lib import Model
N = 4
TABLE = {}
def mine(x): return x
def max(*x): return x
"""

PURE = [
    "X = list(range(N))", "X, *Y = 1, 2, 3", "X: int = -N", "N += 1", "TABLE['a'] = N",
    "X = [i * j for i, j in pairs((1, 2), repeat=2)]",
    "X = {i: mine for i in range(N) if i}", "X = sorted('ba', key=lambda c: ord(c) if False else c)",
    "X = sorted([N], key=abs)", "X = mine", "X = partial(mine, N)", "X = functools.partial(mine, x=N)", "X = math.pi",
    "X = math.ceil(N / 3)", "X = lambda model: model.LAYERS", "X = f'{N:>4}'", "X = 'a b'.split()",
    "X = TABLE.get(1, N)", "X = N if N > 3 else not N", "X = list(map(str, [N]))", "solution = mine(3)",
]  # fmt: skip

IMPURE = {
    "X = mine(3)": "calls mine",
    "X = max(3)": "calls max",
    "X = print(3)": "calls print",
    "X = random.random()": "calls random.random",
    "X = Model()": "calls Model",
    "X = [mine(i) for i in range(N)]": "calls mine",
    "X = list(map(mine, [N]))": "calls mine",
    "X = sorted([N], key=mine)": "calls mine",
    "X = sorted([N], key=lambda n: print(n))": "calls print",
    "X = partial(mine, 1)(2)": "calls partial(mine, 1)",
    "X = mine.x": "reads mine.x",
    "X = TABLE.pop(1)": "calls TABLE.pop",
    "mine.x = 1": "",
    "X = await mine(3)": "not a plain value",
    "X = (Y := 3)": "not a plain value",
    "X = open('x').read()": "calls open",
    "for X in range(N): pass": "'for' statement",
    "with mine(3) as X: pass": "'with' statement",
    "solution = Model()": "calls Model",
}


def kept(statement: str) -> KeptStatements:
    found = KeptStatements(["solution"])
    for node in ast.parse(PREAMBLE + statement).body:
        found.see(node)
    return found


@pytest.mark.parametrize("statement", PURE)
def test_a_pure_assignment_is_kept(statement: str) -> None:
    found = kept(statement)
    assert len(found.kept) == len(ast.parse(PREAMBLE).body) + 1
    assert found.left_out == {}
    names: dict[str, object] = {}
    exec(compile(ast.Module(found.kept, []), "mine", "exec"), names)
    assert FAILED not in names


@pytest.mark.parametrize("statement", IMPURE)
def test_an_assignment_that_is_not_pure_is_left_out_with_a_reason(statement: str) -> None:
    found = kept(statement)
    assert len(found.kept) == len(ast.parse(PREAMBLE).body)
    assert IMPURE[statement] in "".join(left.why for left in found.left_out.values())


def test_an_assignment_that_fails_is_noted_and_harms_nobody_else() -> None:
    names: dict[str, dict[str, Exception]] = {}
    exec(compile(ast.Module(kept("X = N / 0").kept, []), "mine", "exec"), names)
    assert isinstance(names[FAILED]["X"], ZeroDivisionError)
