"""A table of what players of the original puzzles write: each habit works, or the message says what to write instead.

Every case is a notebook of a few cells, the puzzle, its status, and facts that the message and the notes must hold.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import nbformat
import pytest

from puzzles.judge.grader import grade_file
from puzzles.judge.verdict import Verdict
from puzzles.tracks import find
from tests.support.commands import puzzles

pytestmark = pytest.mark.usefixtures("in_this_process")

SOLUTIONS = Path(__file__).parents[2] / "solutions"


class Habit(NamedTuple):
    """Cells of code, and the verdict on them."""

    cells: tuple[str, ...]
    puzzle: str
    status: str
    says: tuple[str, ...] = ()


def solved(slug: str, *changes: tuple[str, str], name: str = "") -> str:
    """The reference with some texts replaced, each of which must be there; `name` is another name for the function."""
    source = (SOLUTIONS / f"{slug}.py").read_text(encoding="utf-8")
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    return source.replace(f"def {slug}(", f"def {name or slug}(")


def unsolved(line: str) -> str:
    """A starter as the original has them: the beginning and the end, and `line` between."""
    return f"""\
from lib import Model
def basic(model: Model) -> Model:
    # Where everything is kept.
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    for l in range(model.LAYERS):
        weights[l], opt_states[l] = model.load_weights(l)
    mine = list([l + 1 for l in range(model.LAYERS)])
    {line}
    for l in mine:
        model.set_final_weight(l, weights[l])
    return model"""


def in_ddp(line: str) -> str:
    """A function ddp that begins as the reference does, and then has one line of its own, its eighth."""
    return f"""\
async def ddp(model):
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    activations[0] = model.get_activation([model.rank])
    for l in range(model.LAYERS):
        weights[l], opt_states[l] = model.load_weights(l)
        activations[l + 1] = model.forward(l, activations[l], weights[l])
    grad_activations[2] = model.loss(activations[2])
    {line}"""


SETUP = "import asyncio\nimport chalk\nfrom lib import Dist, Model\nchalk.set_svg_height(400)"
MY_BASIC = solved("basic", name="my_basic")
ASKS_ORDER = "def basic(model):\n    assert ORDER[-1] == model.BATCHES - 1\n    return my_basic(model)"
PRINTS_ORDER = "def basic(model):\n    print(ORDER)"
BACK = "1, activations[1], grad_activations[2], weights[1]"

HABITS: dict[str, Habit] = {
    # Untouched starters
    "asserts_false": Habit((SETUP, unsolved('assert False, "TODO: Implement me"')), "basic", "not_attempted"),
    "asserts_false_in_short": Habit((unsolved("assert False"),), "basic", "not_attempted"),
    "raises_not_implemented": Habit((unsolved("raise NotImplementedError('me')"),), "basic", "not_attempted"),
    "begun_below_the_assertion": Habit(
        (unsolved("assert False, 'TODO'\n    model.forward(0, activations[0], weights[0])"),),
        "basic",
        "failed",
        ("cell 1, line 8", "AssertionError: TODO"),
    ),
    # Top-level assignments
    "a_list_of_numbers": Habit((MY_BASIC, "N = 4\nORDER = list(range(N))", ASKS_ORDER), "basic", "passed"),
    "a_table": Habit((MY_BASIC, "ORDER = {}\nORDER[-1] = max([1, 3], key=abs)", ASKS_ORDER), "basic", "passed"),
    "another_name": Habit((MY_BASIC, "basic = my_basic"), "basic", "passed"),
    "a_partial": Habit((MY_BASIC, "from functools import partial\nbasic = partial(my_basic)"), "basic", "passed"),
    "a_lambda": Habit((MY_BASIC, "basic = lambda model: my_basic(model)"), "basic", "passed"),
    "another_name_of_a_starter": Habit(
        (unsolved("assert False").replace("basic", "my_basic"), "basic = my_basic"), "basic", "not_attempted"
    ),
    "a_starter_then_a_solution": Habit((unsolved("assert False"), MY_BASIC, "basic = my_basic"), "basic", "passed"),
    "without_its_import": Habit(
        ("async def basic(model) -> Model:\n    pass",),
        "basic",
        "failed",
        ("NameError: name 'Model' is not defined; begin the file with 'from lib import Model'",),
    ),
    "left_out": Habit(
        (SETUP, "ORDER = Dist(4)", PRINTS_ORDER),
        "basic",
        "failed",
        ("cell 3, line 2", "NameError", "cell 2, line 1 defines ORDER", "left out", "calls Dist", "inside a function"),
    ),
    "left_out_with_another": Habit(
        (SETUP, "out = Dist(4)\nORDER = [out]", PRINTS_ORDER),
        "basic",
        "failed",
        ("cell 2, line 2 defines ORDER", "uses out, which was left out too"),
    ),
    "left_out_in_a_loop": Habit(
        ("for i in range(4):\n    ORDER = i", PRINTS_ORDER), "basic", "failed", ("defines ORDER", "'for' statement")
    ),
    "fails_when_loaded": Habit(
        ("ORDER = [1][4]", PRINTS_ORDER), "basic", "failed", ("cell 1, line 1 defines ORDER", "IndexError")
    ),
    "fails_when_loaded_elsewhere": Habit(("ORDER = [1][4]", solved("basic")), "basic", "passed"),
    "results_of_a_run": Habit(
        (SETUP, solved("basic"), "out = basic(Model(2, 4))\nfsdp = await asyncio.gather(*out)"), "fsdp", "not_attempted"
    ),
    # Callable objects
    "an_object": Habit(
        (MY_BASIC, "class Train:\n    def __call__(self, m): return my_basic(m)\nbasic = Train()"), "basic", "passed"
    ),
    "a_wrapper": Habit(
        (
            "import functools\ndef traced(f):\n    @functools.wraps(f)\n    def inner(*args):\n"
            "        return f(*args, name='me')\n    return inner",
            MY_BASIC,
            "@traced\ndef basic(model, name): return my_basic(model)",
        ),
        "basic",
        "passed",
    ),
    "a_function_that_makes_it": Habit((MY_BASIC, "def make(n): return my_basic\nbasic = make(2)"), "basic", "passed"),
    "made_by_something_else": Habit(
        (SETUP, "basic = Model()"), "basic", "failed", ("cell 2, line 1", "defines basic", "calls Model")
    ),
    # async
    "async_is_missing": Habit(
        (solved("basic"), solved("ddp", ("async def", "def"))), "ddp", "failed", ("cell 2, line 6", "'async def ddp'")
    ),
    "async_is_missing_elsewhere": Habit((solved("basic"), solved("ddp", ("async def", "def"))), "basic", "passed"),
    "async_is_missing_in_a_helper": Habit(
        ("def reduce(model, v, l): return await model.allreduce(v, l)", in_ddp("reduce(model, weights[0], 0)")),
        "ddp",
        "failed",
        ("cell 2, line 8", "cell 1, line 1 defines reduce", "'async def reduce'", "await its calls"),
    ),
    "async_is_added_later": Habit((solved("ddp", ("async def", "def")), solved("ddp")), "ddp", "passed"),
    "broken_after_a_solution": Habit(
        (solved("ddp"), "async def ddp(model):\n    x = = 1"), "ddp", "failed", ("cell 2, line 2", "not valid Python")
    ),
    # Calls
    "update_with_a_shard": Habit((solved("ddp", ("opt_states[layer])", "opt_states[layer], 0)")),), "ddp", "passed"),
    "a_label_that_differs": Habit(
        (solved("wsdp", ("(weights[layer], layer)", "(weights[layer], 0)")),),
        "wsdp",
        "passed",
        ("called allgather(layer=1)", "with layer 0", "pass the layer of the value"),
    ),
    "sum": Habit(
        (
            solved(
                "ddp", ("= await", "= sum([await"), ("(grad_weights[layer], layer)", "(grad_weights[layer], layer)])")
            ),
        ),
        "ddp",
        "passed",
    ),
    "all_gather": Habit(
        (in_ddp("await model.all_reduce(weights[0], 0)"),),
        "ddp",
        "failed",
        ("cell 1, line 8", "model.allreduce(v, layer)"),
    ),
    "send": Habit((in_ddp("await model.send(1, weights[0])"),), "ddp", "failed", ("await model.pass_to(rank, v)",)),
    "recv": Habit((in_ddp("await model.recv(0)"),), "ddp", "failed", ("await model.receive(",)),
    "arguments_of_backward": Habit(
        (in_ddp("model.backward(1, grad_activations[2], activations[1], weights[1])"),),
        "ddp",
        "failed",
        ("wrong order", "inp is the activation gradient", "backward(layer, inp, grad, weight)"),
    ),
    "results_of_backward": Habit(
        (in_ddp(f"grad_activations[1], grad_weights[1] = model.backward({BACK})"),),
        "ddp",
        "failed",
        ("got the weight gradient of layer 1", "store it in grad_weights", "returns the weight gradient first"),
    ),
    "a_gradient_of_one_batch": Habit(
        (in_ddp(f"model.update(1, model.backward({BACK})[0], weights[1], opt_states[1])"),),
        "ddp",
        "failed",
        ("rank 0, t=3, update(layer=1)", "covers only batch 0 of 4", "first add batches 1-3", "all-reduce"),
    ),
    "a_value_for_a_number": Habit(
        (in_ddp("model.load_weights(activations[0])"),),
        "ddp",
        "failed",
        ("got the input activation of layer 0, batch 0",),
    ),
    "a_value_for_a_key": Habit(
        (in_ddp("{}[weights[0]]"),), "ddp", "failed", ("KeyError: the weight of layer 0, unsharded",)
    ),
    "a_shard_without_a_total": Habit(
        (in_ddp("model.load_weights(0, model.rank)"),), "ddp", "failed", ("rank 1", "total is 1", "total=")
    ),
    "a_name_that_lib_does_not_have": Habit(
        ("from lib import Modle, Model\ndef basic(model: Modle): pass",),
        "basic",
        "failed",
        ("cell 1, line 1", "no 'Modle' in lib", "did you mean 'Model'?"),
    ),
}


def notebook(folder: Path, *cells: str) -> str:
    path = folder / "mine.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells]), path)
    return str(path)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", HABITS)
def test_a_habit_works_or_is_answered(name: str, tmp_path: Path) -> None:
    cells, slug, status, says = HABITS[name]
    (verdict,) = grade_file(notebook(tmp_path, *cells), [find(slug)]).verdicts
    assert verdict.status == status, verdict.message
    text = " ".join((verdict.message, *verdict.notes))
    assert [fact for fact in says if fact not in text] == [], text
    assert "frozenset" not in text
    assert "{" not in text


# --- The commands name cell and line too ---


@pytest.mark.parametrize("name", ["draw", "run"])
def test_commands_on_a_notebook_name_cell_and_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = notebook(tmp_path, SETUP, in_ddp("await model.receive()"))
    done = puzzles(name, path, "ddp")
    assert done.exit_code == 1
    assert "cell 2, line 8:" in done.output
    assert "2, line 8" in done.output


def test_a_layout_in_a_notebook_names_cell_and_line_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = notebook(tmp_path, "x = 1", "def ffn(graph):\n    graph.nothing()")
    for name in ("draw", "run"):
        assert "cell 2, line 2: " in puzzles(name, path, "ffn").output


# --- What is not a notebook's: scripts ---


def test_a_missing_async_is_reported_once_and_the_rest_is_graded(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("\n".join([solved("basic"), solved("ddp", ("async def", "def")), solved("fsdp")]))
    found: dict[str, Verdict] = {verdict.puzzle: verdict for verdict in grade_file(str(path)).verdicts}
    assert [slug for slug, verdict in found.items() if verdict.status == "passed"] == ["basic", "fsdp"]
    assert [slug for slug, verdict in found.items() if "async def" in verdict.message] == ["ddp"]
    assert found["ddp"].reason == "syntax"


def test_an_import_that_fails_shows_no_path_of_this_machine(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    messages: list[str] = []
    for line in ("from lib import Gradient", "from lib.engine import Engine", "from json import lodas"):
        path.write_text(f"{line}\n{line.split()[-1]}\ndef basic(model): pass\n")
        (verdict,) = grade_file(str(path), [find("basic")]).verdicts
        messages.append(verdict.message)
    assert [message for message in messages if "/" in message or "site-packages" in message] == []
    assert "'Gradient' in lib" in messages[0]
    assert "did you mean 'ShardedEngine'?" in messages[1]
    assert "lodas" in messages[2]
