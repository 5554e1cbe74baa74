"""Plans as code: a program of JAX moves what its plan predicts; JSON says the same."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest

from lib.layout import Graph, LayoutError, code_of, mesh, plan, propagate
from lib.layout.code import ELEMENTWISE
from lib.layout.examples import feed_forward
from lib.layout.operators import GRADS, KINDS, OPTIMIZER
from tests.layout.test_pins import CASES
from tests.screens.texts import approved_refusal
from tests.support.refusals import Refused
from tests.test_imports import ROOT


@pytest.fixture(scope="module")
def tensor_parallel():
    build, layouts, _ = CASES["tensor parallel, x and result by rows"]
    return plan(build(), layouts=layouts)


@pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed: pip install -e '.[jax]'")
def test_programs_of_jax_move_what_is_predicted_on_eight_devices() -> None:
    command = [sys.executable, "-m", "tests.support.plans_in_jax"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found.pop("embedding") == [73_728, 73_728]
    assert found.pop("exchange") == [12_288, 16_384], "an exchange, as named collectives"
    assert found.pop("rest_of_the_kinds") == [3_968, 4_416], "JAX scatters no maximum"
    for name in ("step_of_every_kind", "experts"):
        assert len(set(found.pop(name))) == 1
    assert found == {name: [least, least] for name, (_, _, least) in CASES.items()}


def test_every_kind_of_operator_has_code_in_jax() -> None:
    assert {*KINDS, *GRADS, *OPTIMIZER, "softmax_grad"} == {*ELEMENTWISE, "matmul"}


def test_a_program_of_jax_has_specifications_and_collectives(tensor_parallel) -> None:
    text = code_of(tensor_parallel, "jax")
    assert "    'x': P(('data', 'model'), None)," in text
    assert "    'w1': P(None, 'model')," in text
    assert "lax.all_gather(t3_0, ('model',), axis=0, tiled=True)" in text
    assert "lax.psum_scatter(t5, ('model',), scatter_dimension=0, tiled=True)" in text
    compile(text, "plan", "exec")


def test_json_has_layouts_moves_and_costs(tensor_parallel) -> None:
    data = json.loads(code_of(tensor_parallel, "json"))
    assert data["mesh"] == {"data": 2, "model": 4}
    assert data["tensors"]["w1"]["layout"] == {"split": [[], ["model"]], "piece": [64, 64]}
    assert data["moves"] == [{"tensor": "x", "for": "up", "steps": [{"name": "all-gather", "bytes": 98_304}]}]
    assert data["sums"] == [{"tensor": "out", "steps": [{"name": "reduce-scatter", "bytes": 98_304}]}]
    assert (data["bytes"], data["memory"]) == (tensor_parallel.bytes, tensor_parallel.memory)


def test_what_cannot_be_written_is_refused(tensor_parallel) -> None:
    with Refused("no such framework", framework="jaxx", error=LayoutError):
        code_of(tensor_parallel, "jaxx")
    with approved_refusal("code", "what cannot be written is refused", LayoutError):
        code_of(plan(feed_forward()), "jax")
    uneven = Graph(mesh=mesh(data=2), uneven=True)
    uneven.relu("y", uneven.input("x", (3, 4)))
    uneven.shard("y", ((2, 1),))
    with approved_refusal("code", "what cannot be written is refused, 2", LayoutError):
        code_of(propagate(uneven), "jax")
