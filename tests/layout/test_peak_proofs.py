"""Plans under a cap on their peak beside a second opinion: CP-SAT, on a model that shares nothing with the planner."""

import warnings

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lib.layout import DeviceMatrix, Graph, LayoutError, plan, training
from lib.layout.examples import attention, feed_forward, megatron_mlp
from tests.layout.test_peak import trained
from tests.layout.test_propagation import small_graphs
from tests.oracles.peak_solver import PeakModel
from tests.support.examples import examples
from tests.support.layout_examples import layer_norm, rotary, swiglu, transformer
from tests.support.refusals import Refused

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of its bindings, which are generated
    pytest.importorskip("ortools.sat.python.cp_model", reason="needs the extra: pip install -e '.[proof]'")

pytestmark = pytest.mark.slow

GRAPHS = {
    "feed_forward": (feed_forward, 26_080, 49_152),
    "megatron_mlp": (megatron_mlp, 70_314, 49_152),
    "swiglu": (swiglu, 50_176, 73_728),
    "layer_norm": (layer_norm, 8_409, 2_560),
    "rotary": (lambda: rotary(4), 30_000, 0),
    "transformer": (lambda: transformer(1, DeviceMatrix((8,))), 329_252_864, 587_202_560),
    "attention": (lambda: attention(2, heads=2, width=8), 11_500, None),
    "a step": (lambda: training(megatron_mlp(4, tokens=16, width=8), "sgd"), 3_600, None),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_plan_moves_as_little_as_the_solver_finds(name: str) -> None:
    build, cap, moved = GRAPHS[name]
    found = plan(build(), peak=cap)
    assert found.at_least is None
    assert found.peak <= cap
    assert found.bytes == PeakModel(build()).least(cap)
    assert moved in (None, found.bytes)


def assert_as_the_solver(graph: Graph, part: float) -> None:
    free = plan(graph)
    cap = int(free.peak * part)
    least = PeakModel(graph).least(cap)
    if least is not None:
        found = plan(graph, peak=cap)
        assert (found.bytes, found.at_least) == (least, None)
    else:
        with Refused("peak too small", smallest=PeakModel(graph).least(), error=LayoutError):
            plan(graph, peak=cap)


@examples(20)
@given(small_graphs(), st.floats(0.4, 1))
def test_any_small_graph(graph: Graph, part: float) -> None:
    assert_as_the_solver(graph, part)


@examples(10)
@given(trained(), st.floats(0.4, 1))
def test_any_small_step(graph: Graph, part: float) -> None:
    assume(len(graph.operators) <= 9)
    assert_as_the_solver(graph, part)
