"""`puzzles layout`: a function of JAX on a mesh, as XLA lays it out and as a plan does; mistakes get one sentence."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from puzzles.cli.layout import merges
from tests.support.commands import said
from tests.test_imports import ROOT

MODEL = """
import jax

def step(p, x):
    h = jax.nn.relu(x @ p["w1"])
    return h @ p["w2"]

args = ({"w1": (64, 256), "w2": (256, 64)}, (128, 64))
"""
GATED = """
import jax

def step(p, x):
    h = jax.numpy.tanh(x)
    return (jax.nn.relu(h @ p["up"]) * (h @ p["gate"])) @ p["down"]

args = ({"up": (64, 64), "gate": (64, 64), "down": (64, 64)}, (4, 16, 64))
"""
COMPILE = """
import os
os.environ |= {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
import jax
from lib.layout.xla import collectives

grid = jax.make_mesh((2, 4), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
P = lambda *axes: jax.sharding.NamedSharding(grid, jax.sharding.PartitionSpec(*axes))
columns, ends = P(None, "model"), P("data", "model")
names = {"P": P}
exec(PROGRAM, names)
given = {"up": columns, "gate": columns, "down": P("model")}, ends
program = jax.jit(names["step"], in_shardings=given, out_shardings=ends)
weights, x = names["args"]
structs = {name: jax.ShapeDtypeStruct(shape, "float32") for name, shape in {**weights, "x": x}.items()}
x = structs.pop("x")
text = program.lower(structs, x).compile().as_text()
print(sum(sum(each.sent) for each in collectives(text, 8)))
"""
"""Prints the bytes that XLA moves for PROGRAM, without anything of the command."""
SPECS = ("--mesh", "data=2,model=4", "--in", "*=data+model", "--out", "*=data+model")
needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed: pip install -e '.[jax]'")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(MODEL, encoding="utf-8")
    return path


def run(*words: object) -> tuple[int, str]:
    """Exit code and output of a process of its own, because JAX decides on its devices when it starts."""
    command = [sys.executable, "-m", "puzzles", "layout", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "COLUMNS": "200"}, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (("model.py", *SPECS), "names no function"),
        (("no.py:step", *SPECS), "there is no file 'no.py'"),
        (("model.py:step", "--mesh", "2x4"), "'2x4' is not a mesh"),
        (("model.py:step", "--mesh", "data=0"), "'data=0' is not a mesh"),
        (("model.py:step", *SPECS, "--in", "w1"), "'w1' has no '='"),
        (("model.py:step", *SPECS, "--memory", "much"), "'much' is not a number"),
        (("model.py:step", *SPECS, "-o", "plan.png"), "does not end in .html"),
    ],
)
def test_mistakes_that_need_no_jax(words: tuple[str, ...], fact: str) -> None:
    assert fact in said("layout", *words, code=2)


def test_a_reshape_that_only_adds_or_removes_dimensions_of_one_merges_nothing() -> None:
    assert merges((8, 2048), (2, 4, 2048))
    assert not merges((8, 1, 2048), (8, 2048, 1))


def test_without_jax_it_is_said_which_extra_is_missing(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    text = said("layout", f"{model}:step", *SPECS, code=2)
    assert "[jax]'" in text


@needs_jax
@pytest.mark.slow
def test_rows_of_xla_propagation_and_plans_with_a_page(model: Path, tmp_path: Path) -> None:
    code, text = run(f"{model}:step", *SPECS, "-o", tmp_path / "plan.html")
    assert code == 0, text
    rows = dict(re.findall(r"^ *(XLA|propagation|best plan|best without recomputing) +([\d,]+) ", text, re.MULTILINE))
    moved = {name: int(number.replace(",", "")) for name, number in rows.items()}
    assert moved["best plan"] == 425_984, "docs/xla.md: MLP, all stored by rows"
    assert moved["XLA"] == 917_504
    assert moved["best plan"] <= moved["best without recomputing"] <= moved["propagation"]
    assert "proven" in text
    assert re.search(r"\d  \S*model\.py:5", text), "what pays names the line of the first product"
    better = re.findall(r"XLA moves ([\d,]+) bytes:", text)
    assert all(int(number.replace(",", "")) < moved["XLA"] for number in better)
    assert better or "No single constraint" in text
    assert "<svg" in (tmp_path / "plan.html").read_text(encoding="utf-8")


@needs_jax
@pytest.mark.slow
def test_the_constraint_that_is_shown_brings_xla_down_to_the_bytes_that_are_shown(model: Path) -> None:
    model.write_text(GATED, encoding="utf-8")
    specs = [
        word for spec in ("*.up=,model", "*.gate=,model", "*.down=model", "x=data,model") for word in ("--in", spec)
    ]
    code, text = run(f"{model}:step", "--mesh", "data=2,model=4", *specs, "--out", "*=data,model")
    assert code == 0, text
    before = re.search(r"^ *XLA +([\d,]+) ", text, re.MULTILINE)
    after = re.search(r"XLA moves ([\d,]+) bytes:", text)
    ((line, column, constraint),) = re.findall(r"model\.py:(\d+):(\d+) .*?: (jax\.lax\..*\))  #", text)
    lines = GATED.splitlines()
    value = min(
        (
            ast.get_source_segment(GATED, node) or ""
            for node in ast.walk(ast.parse(GATED))
            if isinstance(node, ast.BinOp) and (node.lineno, node.col_offset) == (int(line), int(column))
        ),
        key=len,
    )
    lines[int(line) - 1] = lines[int(line) - 1].replace(value, constraint.replace("...", value), 1)
    assert before
    assert after
    shown = [int(number[1].replace(",", "")) for number in (before, after)]
    assert [compiled(GATED), compiled("\n".join(lines))] == shown
    assert shown[1] < shown[0]


def compiled(program: str) -> int:
    """The bytes that XLA moves for a program, compiled in a process of its own."""
    command = [sys.executable, "-c", COMPILE.replace("PROGRAM", repr(program))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@needs_jax
@pytest.mark.slow
def test_the_plan_as_data_and_mistakes_in_the_file(model: Path) -> None:
    code, text = run(f"{model}:step", *SPECS, "--code", "json")
    assert (code, json.loads(text)["bytes"]) == (0, 425_984)
    model.write_text(MODEL.replace("args = ", "shapes = "), encoding="utf-8")
    assert "has no 'args'" in run(f"{model}:step", *SPECS)[1]
    model.write_text(MODEL, encoding="utf-8")
    assert "'stop';" in run(f"{model}:stop", *SPECS)[1]
    code, text = run(f"{model}:step", *SPECS, "--in", "w3=model")
    assert code == 2
    assert "'w3'; there are p.w1," in " ".join(text.split())
    assert "has no axis 'pod'" in " ".join(run(f"{model}:step", *SPECS, "--in", "x=pod")[1].split())
