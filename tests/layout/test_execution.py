"""Execution: plans on the engine give the right numbers, and meters read what was predicted, device by device."""

import os
import re
import subprocess
import sys
from functools import partial
from importlib import import_module
from math import inf

import numpy as np
import pytest
from hypothesis import given

from lib import RuleError
from lib.engine import launch
from lib.layout import (
    DeviceMatrix,
    Graph,
    GraphPlan,
    LayoutError,
    P,
    Redistribution,
    TensorLayout,
    candidates,
    complete,
    cut,
    join,
    mesh,
    mesh_split,
    plan,
    propagate,
    redistribute,
    training,
)
from lib.layout.choices import BYTES, Choices
from lib.layout.examples import attention, embedding_and_head, feed_forward, megatron_mlp
from lib.layout.exchanges import REDUCING
from lib.layout.execution import MovingDevice, PlannedDevice
from lib.layout.integer_program import IntegerProgram, Solved
from lib.layout.layouts import placement, prime_factors
from lib.layout.plans import ends
from puzzles.tracks.layout import LAYOUT_PUZZLES
from tests.layout.test_peak import assert_peaks_are_measured
from tests.layout.test_propagation import configured_ffn, small_graphs
from tests.screens.texts import approved
from tests.support import layout_strategies
from tests.support.examples import examples
from tests.support.layout_examples import transformer
from tests.support.layout_strategies import assert_same_program, eight_devices, numbers, pairs, summands, values
from tests.support.mpi import mpiexec_or_skip
from tests.support.refusals import Refused
from tests.test_imports import ROOT

GRID = mesh(x=2, y=4)


on = partial(layout_strategies.on, shape=(16, 16), grid=GRID)


class Receiving(MovingDevice):
    """Counts what arrives, from the arrays themselves: of a ring's collectives as much as is sent."""

    arrived = 0

    def receive(self, src_id):
        array = super().receive(src_id)
        self.arrived += array.nbytes
        return array

    def _collective(self, name, arr, op, axis, group):
        before = self._port.meter.sent
        result = super()._collective(name, arr, op, axis, group)
        self.arrived += self._port.meter.sent - before
        return result

    def total(self):
        return self.arrived


def assert_moves_as_predicted(moves: Redistribution, pieces) -> None:
    """Executed device by device: the target's pieces to the bit, and the bytes of every device."""
    done = moves.on_engine(pieces)
    for device, piece in moves.run(pieces).items():
        np.testing.assert_array_equal(done.pieces["tensor"][device], piece)
    with launch(Receiving, moves.source.devices, moves.named_steps) as run:
        run.forward([pieces[device] for device in range(moves.source.devices)])
        received = run.call("total")
    if even(moves):
        assert done.sent == tuple(moves.sent)
        assert received == list(moves.received)
    assert abs(done.bytes - moves.bytes) < moves.itemsize * moves.source.devices * max(1, len(moves.named_steps))


def even(moves: Redistribution) -> bool:
    """True if sums divide among those who add them up: a meter counts the average, a plan whole elements."""
    return all(step.source.elements % len(step.group(0)) == 0 for step in moves.named_steps if step.name in REDUCING)


def test_every_kind_of_step_is_the_engines_call_of_that_name():
    kinds = {
        "slice": (on("x", -1), on("x", "y"), {}),
        "all-gather": (on("x", "y"), on("x", -1), {"all_gather": 1}),
        "all-gather of both": (on("x", "y"), on(-1, -1), {"all_gather": 1}),
        "all-to-all": (on("y", -1), on(-1, "y"), {"all_to_all": 1}),
        "permute": (on(("x", "y"), -1), on(("y", "x"), -1), {"receive": 1, "send": 1}),
        "all-reduce": (on("x", -1, partial="y"), on("x", -1), {"all_reduce": 1}),
        "reduce-scatter": (on("x", -1, partial="y"), on("x", "y"), {"reduce_scatter": 1}),
    }
    for told, (source, target, calls) in kinds.items():
        moves = redistribute(source, target)
        assert moves.names == (told.removesuffix(" of both"),)
        pieces = cut(numbers(source.shape).astype(np.float32), source)
        assert dict(moves.on_engine(pieces).meters[1].calls) == calls, told
        assert_moves_as_predicted(moves, pieces)


def test_a_sum_exchange_sends_summands_to_owners_and_sums_to_the_others():
    source, target = on(-1, "y", partial="x"), on(("y", "x"), -1)
    moves = redistribute(source, target)
    assert moves.names == ("sum exchange",)
    assert_moves_as_predicted(moves, {d: piece.astype(np.float32) for d, piece in summands(source).items()})
    assert moves.bytes <= redistribute(source, target, named_only=True).bytes


@pytest.mark.slow
def test_layouts_of_a_cube_in_both_kinds_of_plan():
    cube = eight_devices((8, 8))
    for a, b in [(a, b) for a in cube for b in cube if a != b][::29]:
        pieces = cut(np.arange(64, dtype=np.float64).reshape(8, 8), a)  # a message has 8 bytes
        assert_moves_as_predicted(redistribute(a, b, 8), pieces)
        assert_moves_as_predicted(redistribute(a, b, 8, named_only=True), pieces)


@examples(60)
@given(pairs(partial=True))
def test_any_redistribution_moves_what_it_predicts(two):
    source, target = two
    pieces = {device: piece.astype(np.float64) for device, piece in summands(source).items()}  # a message has 8 bytes
    assert_moves_as_predicted(redistribute(source, target, 8), pieces)
    assert_moves_as_predicted(redistribute(source, target, 8, named_only=True), pieces)


def test_a_sum_that_stays_partial_moves_too():
    source, target = on("x", -1, partial="y"), on(-1, "x", partial="y")
    pieces = {device: piece.astype(np.float32) for device, piece in summands(source).items()}
    assert_moves_as_predicted(redistribute(source, target), pieces)


def assert_runs_as_predicted(found: GraphPlan) -> None:
    """Every tensor as the stand-alone program has it, and each device's bytes, flops and memory as planned.

    The arrays are doubles, and the longest sum has 2**12 terms. In another order it differs by roundings of 2**12 *
    2**-53 of its terms, which is below 1e-12. A plan is for elements of `itemsize` bytes; the meters read as many times
    more as a double is larger.
    """
    given, wider = values(found.graph), 8 // found.graph.itemsize
    alone, done, side_by_side = found.graph.run(given), found.on_engine(given), found.run(given)
    for name, tensor in alone.items():
        np.testing.assert_allclose(done.value(name), tensor, rtol=0, atol=1e-12 * abs(tensor).max(), err_msg=name)
        for device, piece in side_by_side[name].items():
            np.testing.assert_array_equal(done.pieces[name][device], piece)
    assert done.sent == tuple(wider * found.sent)
    assert (done.bytes, sum(found.received)) == (wider * found.bytes, found.bytes)
    products = sum(op.flops for op in found.operators.values() if op.operator.kind in ("matmul", "einsum"))
    assert {reading.flops for reading in done.meters} == {products}
    assert done.peaks == tuple(wider * found.timeline.peaks), found.explain()
    freed = {name for names in ends(found.graph).values() for name in names}
    stay = sum(found.layout(name).elements for name in found.graph.shapes if name not in freed)
    assert {reading.live for reading in done.meters} == {8 * stay}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("cap", [None, 8192, 4096, 2048])
def test_the_network_of_the_documentation_and_its_exact_plans(cap):
    graph = configured_ffn()
    assert_runs_as_predicted(plan(graph, tensor_caps={"weight2": cap} if cap else None))
    assert_runs_as_predicted(plan(graph, tensor_caps={"weight2": cap} if cap else None, scatter=False))


def test_the_breadth_first_plan_sends_an_all_reduce_in_groups_of_four():
    done = propagate(configured_ffn()).on_engine(values(feed_forward()))  # 8 bytes an element
    assert done.sent == (2 * 12_288,) * 8
    assert dict(done.meters[0].calls) == {"all_reduce": 1}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("slug", LAYOUT_PUZZLES)
def test_the_reference_plan_of_every_puzzle(slug):
    graph = LAYOUT_PUZZLES[slug].graph()
    getattr(import_module(f"solutions.layout.{slug}"), slug)(graph)
    found = propagate(graph)
    assert found.bytes == LAYOUT_PUZZLES[slug].best
    assert_runs_as_predicted(found)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("example", [megatron_mlp, attention, embedding_and_head])
def test_exact_plans_of_the_examples(example):
    graph = example()
    first = graph.operators[next(iter(graph.operators))]
    whole = sum(int(np.prod(shape)) for shape in graph.shapes.values()) * graph.itemsize
    found = plan(graph, memory_cap=whole // 3)
    assert first.name in found.operators
    assert_runs_as_predicted(found)


@pytest.mark.slow
def test_a_block_on_a_mesh_of_two_axes():
    graph = transformer(1, mesh(data=2, model=2), batch=4, length=4, heads=4, width=8)
    graph.itemsize = 4
    assert_runs_as_predicted(plan(graph, memory_cap=6_000))


@pytest.mark.slow
def test_completed_annotations():
    annotations = {
        "x": mesh_split((64, 64), mesh(data=2, model=4), ("data", -1)),
        "residual": mesh_split((64, 64), mesh(data=2, model=4), (-1, "data")),
    }
    assert_runs_as_predicted(complete(megatron_mlp(), annotations).plan)


@pytest.mark.slow
def test_the_same_on_mpi():
    """One process for each device; all of them see the same figures, compared in `tests/support/layout_over_mpi.py`."""
    command = [*mpiexec_or_skip(), "-n", "4", sys.executable, "-m", "tests.support.layout_over_mpi"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout.count("6 plans as predicted\n")) == (0, 4), ended.stderr


def test_an_einsum_program_annotated_completed_and_run():
    """Two annotations in the words of GSPMD; the rest follows, and costs one all-reduce of the result."""
    graph = Graph(mesh=mesh(data=2, model=4))
    grid = graph.mesh
    graph.input("x", (16, 32))
    graph.parameter("w0", (32, 64))
    graph.parameter("w1", (64, 32))
    graph.relu("z", graph.einsum("hidden", "x", "w0", spec="bd,df->bf"))
    graph.einsum("out", "z", "w1", spec="bf,fd->bd")
    annotations = {
        "x": mesh_split(graph.shapes["x"], grid, ("data", -1)),
        "w0": mesh_split(graph.shapes["w0"], grid, (-1, "model")),
    }
    done = complete(graph, annotations)
    assert done.conflicts == ()
    assert_runs_as_predicted(done.plan)
    assert done.plan.bytes == 8 * (2 * 3 * (8 * 32 * 4) // 4)  # 2 (n-1)/n S on each device


def test_what_is_missing_is_refused_before_a_device_starts():
    with Refused("no value given", source="parameter", name="weight1", shape=(64, 64), error=LayoutError):
        propagate(configured_ffn()).on_engine({"x": np.zeros((64, 64))})
    with pytest.raises(LayoutError, match="got pieces for \\[0\\]"):
        redistribute(on("x", -1), on(-1, "x")).on_engine({0: np.zeros((8, 16))})
    with (
        launch(PlannedDevice, 8, propagate(configured_ffn())) as run,
        pytest.raises(LayoutError, match="only runs forward"),
    ):
        run.backward({})


def test_masked_arrays_are_refused_wherever_a_tensor_enters():
    found, move = propagate(configured_ffn()), redistribute(on("x", -1), on(-1, "x"))
    given = values(found.graph)
    pieces = cut(np.zeros(move.source.shape), move.source)
    masked = np.ma.masked_array(pieces[3], pieces[3] == 0)
    name = next(iter(given))
    tensors = {**given, name: np.ma.masked_array(given[name], given[name] > 0)}
    refused = {
        lambda: cut(tensors[name], found.storage_layouts[name]): "cut()",
        lambda: join({**pieces, 3: masked}, move.source): "the piece of device 3",
        lambda: move.run({**pieces, 3: masked}): "the piece of device 3",
        lambda: move.on_engine({**pieces, 3: masked}): "the piece of device 3",
        lambda: found.graph.run(tensors): f"the value of {found.graph.sources[name]} '{name}'",
        lambda: found.run(tensors): f"the value of {found.graph.sources[name]} '{name}'",
        lambda: found.on_engine(tensors): f"the value of {found.graph.sources[name]} '{name}'",
    }
    for call, place in refused.items():
        with pytest.raises(RuleError, match=re.escape(f"{place}: this array is")):
            call()


@pytest.mark.slow
def test_planning_loads_no_engine():
    code = "import sys, lib.layout as l, lib.layout.examples as e; l.plan(e.feed_forward()); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "lib.layout" in loaded
    assert {"lib.engine", "greenlet"} & set(loaded) == set()


# === Plans on an axis for each prime factor of the devices ===


@pytest.mark.parametrize(("number", "factors"), [(1, []), (2, [2]), (8, [2, 2, 2]), (12, [2, 2, 3]), (7, [7])])
def test_prime_factors(number: int, factors: list[int]):
    assert prime_factors(number) == factors


@examples(60)
@given(small_graphs())
def test_more_choices_never_move_more(graph):
    found = plan(graph, every_split=True)
    assert found.bytes <= plan(graph).bytes
    assert_same_program(found)


def test_the_devices_of_a_mesh_stay_where_they_are():
    """An axis of 4 becomes two of 2: the same split of the same devices."""
    graph = Graph(mesh=DeviceMatrix((4, 2), (7, 6, 5, 4, 3, 2, 1, 0)))
    finer = graph.on_prime_axes().mesh
    assert finer.shape == (2, 2, 2)
    before = TensorLayout((8, 8), graph.mesh, ((0,), (1,)))
    after = TensorLayout((8, 8), finer, ((0, 1), (2,)))
    assert [before.part(d) for d in range(8)] == [after.part(d) for d in range(8)]


@pytest.mark.slow
def test_parts_of_axes_may_move_less():
    graph = embedding_and_head()
    full, every = (plan(graph, memory_cap=52_000, every_split=each) for each in (False, True))
    assert (full.bytes, every.bytes) == (178_176, 163_840)
    assert every.memory <= 52_000
    assert_peaks_are_measured(every)
    known = {
        name: {tuple(map(placement, c.inputs)) for c in candidates(graph, op)} for name, op in graph.operators.items()
    }
    new = [name for name, op in every.operators.items() if tuple(map(placement, op.inputs)) not in known[name]]
    assert new, "otherwise the plan without every_split would have been as cheap"


@pytest.mark.slow
def test_configured_strategies_hold_there_too():
    graph = megatron_mlp()
    graph.shard("matmul1", ((2, 1), (1, 4)))
    found = plan(graph, every_split=True)
    assert found.operators["matmul1"].strategy == ((2, 1), (1, 4))
    step = training(graph, "sgd")
    assert step.on_prime_axes().step is step.step
    assert step.on_prime_axes().strategies == step.strategies


@pytest.mark.slow
@pytest.mark.parametrize("is_found", [False, True])
def test_without_a_proof_the_plan_on_the_given_axes_counts_too(monkeypatch: pytest.MonkeyPatch, is_found: bool) -> None:
    """A search over parts of axes that ends with nothing, or with a dearer plan, is no reason for a worse answer."""
    graph, solve = embedding_and_head(), IntegerProgram.solve
    graph = graph.copied(mesh(data=2, model=4))
    own = plan(graph, memory_cap=52_000)
    finer = graph.on_prime_axes()
    finer.shard("head", ((1, 1, 8), (1, 8)))
    finer.shard("gelu", ((8, 1, 1),))
    dearer = propagate(finer)
    assert dearer.bytes > own.bytes

    def ended(program: IntegerProgram, effort: int, known: float = inf) -> Solved:
        if len(program.graph.mesh.shape) == 2:
            return solve(program, effort, known)
        return Solved(dearer if is_found else None, 1_000)

    monkeypatch.setattr(IntegerProgram, "solve", ended)
    found = plan(graph, memory_cap=52_000, every_split=True)
    assert (found.bytes, found.at_least) == (own.bytes, 1_000)
    assert found.gap > 0
    monkeypatch.setattr(IntegerProgram, "solve", lambda *_: Solved(None, 1_000))
    with pytest.raises(LayoutError, match="no plan was found"):
        plan(graph, memory_cap=52_000, every_split=True)


def test_a_program_that_is_too_large_to_write_down_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lib.layout.integer_program.MAX_VARIABLES", 1_000)
    program = IntegerProgram(Choices(embedding_and_head(), {}, True), BYTES, 52_000)
    assert program.solve(60) == (None, 0)


# === Computing costs time ===


def product(grid=None) -> Graph:
    graph = Graph(mesh=grid or mesh(data=2, model=4))
    graph.input("x", (64, 512))
    graph.parameter("w", (512, 512))
    graph.matmul("y", "x", "w")
    return graph


@pytest.mark.slow
def test_a_layer_of_8_billion_parameters_on_32_devices_does_its_work_once() -> None:
    graph = transformer(1, mesh(data=4, model=8), batch=8, length=4096, heads=32, width=4096)
    free = plan(graph)
    assert free.redundancy > 1
    for cap in (free.memory, free.memory // 2):
        found = plan(graph, memory_cap=cap)
        assert found.redundancy == 1
        assert "flops on each device" not in found.explain()


def test_what_computing_costs_decides_between_moving_and_computing_twice() -> None:
    whole = {"x": P(), "y": P()}
    graph = product()
    free, dear = plan(graph, layouts=whole), plan(graph, layouts=whole, flops=100)
    assert (free.bytes, free.redundancy) == (0, 8)
    approved(
        "computing",
        "what computing costs decides between moving and computing twice",
        free.explain(),
        "33,554,432 flops on each",
    )
    assert dear.redundancy < 8
    assert dear.bytes > 0
    # one more price: of all plans, none has a smaller sum of bytes and of what could be sent while all compute
    assert dear.bytes + 8 * dear.flops // 100 <= free.bytes + 8 * free.flops // 100


@pytest.mark.parametrize("flops", [0, -1, 2.5])
def test_a_price_that_is_none_is_refused(flops: object) -> None:
    with pytest.raises(LayoutError, match="flops are a whole"):
        plan(product(), flops=flops)  # type: ignore[arg-type]
