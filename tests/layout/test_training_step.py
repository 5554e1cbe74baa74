"""Training steps: gradients by differences, plans that equal one device, and figures derived again by loops."""

from itertools import product

import numpy as np
import pytest

from lib.layout import Graph, GraphPlan, LayoutError, P, mesh, plan, propagate, redistribute, same_placement, training
from lib.layout.choices import Choices
from lib.layout.examples import attention, boundary, embedding_and_head, feed_forward, megatron_mlp
from tests.support.layout_examples import transformer
from tests.support.refusals import Refused


def numbers(graph: Graph, whole: bool = False) -> dict[str, np.ndarray]:
    """A value for every source; states are positive, as averages of squares are."""
    rng = np.random.default_rng(0)
    rows = {op.inputs[1]: op.input_shapes[0][0] for op in graph.operators.values() if op.kind == "gather"}
    found = {}
    for name, shape in graph.shapes.items():
        if name in rows:
            found[name] = rng.integers(0, rows[name], shape)
        elif name in graph.sources:
            found[name] = rng.integers(-2, 3, shape).astype(np.float32) if whole else rng.standard_normal(shape) / 3
            found[name] = abs(found[name]) if graph.sources[name] == "state" else found[name]
    return found


def rotary_and_gates() -> Graph:
    """Every operator that the examples lack and that has a gradient."""
    graph = Graph(4)
    graph.input("x", (4, 8))
    graph.parameter("w", (8, 8))
    graph.parameter("scale", (8,))
    graph.parameter("column", (4, 1))
    graph.silu("silu", graph.matmul("gate", "x", "w"))
    graph.multiply("gated", "silu", graph.matmul("up", "x", "w"))
    graph.concat("halves", graph.slice("a", "gated", 1, 0, 4), graph.negative("b", graph.slice("c", "gated", 1, 4, 8)),
                 axis=1)  # fmt: skip
    graph.multiply("scaled", "halves", "scale")
    graph.divide("divided", "scaled", graph.exp("exp", "column"))
    graph.subtract("centered", "divided", graph.repeat("wide", graph.reduce_mean("mean", "divided", 1), 1, 8))
    squares = graph.reduce_sum("squares", graph.multiply("squared", "centered", "centered"), 1)
    graph.parameter("small", (4,))
    root = graph.rsqrt("root", graph.add("positive", squares, graph.exp("exp2", "small")))
    wide = graph.repeat("root_wide", root, 1, 8)
    best = graph.top_k("best", graph.multiply("normal", "centered", wide), 3)
    graph.pad("padded", graph.tanh("tanh", best), 0, after=4)
    graph.einsum("sums", "padded", spec="ij->j")
    return graph


def functions_and_masks() -> Graph:
    """A weight through each function of one element, and through a select by a mask."""
    graph = Graph(4)
    graph.input("x", (4, 8))
    graph.input("threshold", (1,))
    graph.parameter("w", (4, 8))
    graph.parameter("row", (8,))
    positive = graph.exp("positive", "w")
    made = [graph.operator(kind, kind, positive) for kind in ("sqrt", "log", "reciprocal")]
    made += [graph.operator(kind, kind, "w") for kind in ("logistic", "sin", "cos", "erf")]
    total = made[0]
    for i, each in enumerate(made[1:]):
        total = graph.add(f"total{i}", total, graph.multiply(f"by{i}", each, "x"))
    graph.select("chosen", total, "row", graph.compare("mask", "x", "threshold", "greater"))
    return graph


PROGRAMS = {
    "feed-forward": lambda: feed_forward(devices=4, batch=8, width=8, hidden=8),
    "residual": lambda: megatron_mlp(devices=4, tokens=8, width=4),
    "attention": lambda: attention(devices=2, batch=2, length=4, heads=2, width=4),
    "tied embedding": lambda: embedding_and_head(devices=4, batch=4, length=2, words=8, width=4),
    "a mean": lambda: boundary(devices=4, batch=4, width=4, hidden=8),
    "gates": rotary_and_gates,
    "functions": functions_and_masks,
}

every_program = pytest.mark.parametrize("program", PROGRAMS)


@every_program
def test_gradients_are_those_of_small_differences(program):
    graph = PROGRAMS[program]()
    (result,) = (name for name in graph.operators if not graph.consumers(name))
    step = training(graph, "sgd")
    values = numbers(step)
    tensors = step.run(values)
    assert step.step is not None
    assert set(step.step.gradients) == {name for name, role in graph.sources.items() if role == "parameter"}

    def loss(changed: dict[str, np.ndarray]) -> float:
        return 0.5 * float(((graph.run(changed)[result] - values[f"{result}.target"]) ** 2).sum())

    rng = np.random.default_rng(1)
    for weight, gradient in step.step.gradients.items():
        direction = rng.standard_normal(step.shapes[weight])
        up, down = ({**values, weight: values[weight] + sign * 1e-5 * direction} for sign in (1, -1))
        slope = (loss(up) - loss(down)) / 2e-5
        assert np.isclose((tensors[gradient] * direction).sum(), slope, rtol=1e-5, atol=1e-8), (weight, slope)
        assert np.allclose(tensors[f"{weight}.new"], values[weight] - 0.125 * tensors[gradient])


@pytest.mark.sampled(2)
@every_program
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_every_plan_of_a_step_equals_one_device_and_replaces_in_place(program, optimizer):
    step = training(PROGRAMS[program](), optimizer)
    step.shard(next(iter(step.operators)), ((1,) * len(s) for s in next(iter(step.operators.values())).input_shapes))
    values = numbers(step)
    alone = step.run(values)
    for found in (propagate(step), plan(step)):
        together = found.values(values)
        for name in step.shapes:
            assert np.allclose(together[name], alone[name]), name
        assert step.step is not None
        for new, old in step.step.replaces.items():
            assert same_placement(found.layout(new), found.layout(old)), new


def test_adam_is_that_of_kingma_and_ba():
    step = training(feed_forward(devices=1, batch=4, width=4, hidden=4))
    values = numbers(step)
    tensors = step.run(values)
    (m, v), g = values["weight1.state"], tensors["weight1.grad"]
    m, v = 0.5 * m + 0.5 * g, 0.75 * v + 0.25 * g * g
    assert np.allclose(tensors["weight1.state.new"], np.stack([m, v]))
    assert np.allclose(tensors["weight1.new"], values["weight1"] - 0.125 * m / (np.sqrt(v) + 1))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("program", ["feed-forward", "residual"])
def test_a_step_on_the_engine_moves_what_its_plan_predicts(program):
    step = training(PROGRAMS[program](), "momentum")
    found = plan(step, memory_cap=plan(step).memory * 9 // 10)
    values = numbers(step, whole=True)
    done = found.on_engine(values)
    assert sum(done.sent) == found.bytes == int(found.sent.sum())
    for name, right in step.run(values).items():
        assert np.allclose(done.value(name), right), name


def data_parallel(batch: int = 512, optimizer: str = "adam") -> Graph:
    graph = Graph(mesh=mesh(data=8))
    graph.input("x", (batch, 64))
    graph.parameter("w", (64, 64))
    graph.matmul("y", "x", "w")
    return training(graph, optimizer)


WEIGHT = 64 * 64 * 4
ONE_WAY = 7 * WEIGHT
"""Bytes of an all-gather or a reduce-scatter of the weight among eight devices."""


def roles(found: GraphPlan) -> tuple[int, int, int]:
    """Bytes on each device: weights, gradients, optimizer state."""
    held = found.memory_by_role
    return held["weights"], held["gradients"], held["optimizer state"]


def test_the_stages_of_zero_are_plans_under_caps():
    """Rajbhandari et al. 2020, figure 1: 2 Psi of traffic up to stage 2, 3 Psi for stage 3."""
    step = data_parallel()
    step.shard("y", ((8, 1), (1, 1)))
    free = plan(step)
    assert free.bytes == 2 * ONE_WAY, "an all-reduce, or a reduce-scatter and an all-gather"
    first = plan(step, tensor_caps={"w.state": 2 * WEIGHT // 8})
    second = plan(step, tensor_caps={"w.state": 2 * WEIGHT // 8, "w.grad": WEIGHT // 8})
    assert (first.bytes, second.bytes) == (2 * ONE_WAY, 2 * ONE_WAY)
    assert roles(first)[2] == roles(second)[2] == 2 * WEIGHT // 8
    third = plan(step, memory_cap=second.memory - roles(second)[0] + WEIGHT // 8)
    assert roles(third) == (WEIGHT // 8, WEIGHT // 8, 2 * WEIGHT // 8)
    assert third.bytes == 2 * ONE_WAY, "x needs no gradient, so backward does not gather the weight again"


def test_stage_three_gathers_a_weight_in_forward_and_again_in_backward():
    graph = Graph(mesh=mesh(data=8))
    graph.input("x", (512, 64))
    graph.parameter("first", (64, 64))
    graph.parameter("w", (64, 64))
    graph.matmul("y", graph.matmul("h", "x", "first"), "w")
    step = training(graph)
    for name in ("h", "y"):
        step.shard(name, ((8, 1), (1, 1)))
    caps = {
        name: WEIGHT // 8 * (1 + name.endswith("state")) for name in ("first.state", "w.state", "first.grad", "w.grad")
    }
    found = plan(step, tensor_caps=caps)
    assert found.bytes == 4 * ONE_WAY
    stored = plan(step, tensor_caps=caps, layouts=dict.fromkeys(("first", "w"), P("data", None)))
    assert roles(stored) == (2 * WEIGHT // 8, 2 * WEIGHT // 8, 4 * WEIGHT // 8)
    assert stored.bytes == 5 * ONE_WAY, "first is gathered once, w twice, both gradients are scattered"


@pytest.mark.slow
def test_the_batch_decides_between_data_and_tensor_parallelism():
    def capped(batch: int, cap: int) -> GraphPlan:
        return plan(training(megatron_mlp(devices=8, tokens=batch, width=64), "sgd"), memory_cap=cap)

    def split_of_weights(found: GraphPlan) -> bool:
        return found.operators["matmul1"].strategy[1] != (1, 1)

    assert split_of_weights(capped(64, 62_668))
    assert not split_of_weights(capped(8192, 4_327_833))


def documented(batch: int, forward: GraphPlan) -> Graph:
    """A training step of the documentation's network on a mesh, whose forward is that of a plan."""
    graph = Graph(mesh=mesh(data=2, model=4))
    plain = feed_forward(batch=batch)
    for name, role in plain.sources.items():
        getattr(graph, role)(name, plain.shapes[name])
    for op in plain.operators.values():
        graph.operator(op.kind, op.name, *op.inputs)
        graph.shard(op.name, forward.operators[op.name].strategy)
    return training(graph, "sgd")


def forwards(batch: int) -> tuple[GraphPlan, GraphPlan]:
    """The rule's forward, and the one with full rows in the second half."""
    graph = feed_forward(batch=batch)
    graph.shard("matmul1", ((2, 1), (1, 4)))
    rule = propagate(graph)
    graph.shard("relu", ((2, 4),))
    graph.shard("matmul2", ((8, 1), (1, 1)))
    return rule, propagate(graph)


@pytest.mark.slow
def test_the_forward_that_moves_eight_times_less_makes_a_dearer_step_until_the_batch_is_large():
    shared = 2 * 2 * 16 * 8
    """bias1.grad reads the copy that moved for weight1.grad; alone it would all-reduce 16 numbers in pairs."""
    rule, cheap = forwards(64)
    assert (rule.bytes, cheap.bytes) == (98_304, 12_288)
    assert plan(documented(64, rule), scatter=False).bytes == 197_632 - shared
    assert plan(documented(64, rule)).bytes == 148_480 - shared
    assert plan(documented(64, cheap), scatter=False).bytes == 211_456 - shared
    rule, cheap = forwards(1024)
    assert (rule.bytes, cheap.bytes) == (1_572_864, 196_608)
    assert plan(documented(1024, rule)).bytes == 1_542_656
    assert plan(documented(1024, cheap)).bytes == 759_296


@pytest.mark.slow
def test_a_step_of_two_layers_under_a_cap_is_planned_to_the_end():
    step = training(transformer(2, mesh(data=2, model=2), batch=4, length=8, heads=4, width=16))
    found = plan(step, tensor_caps={"l0.up": 16 * 64 * 4 // 2}, effort=2_000)
    assert found.at_least is None


@pytest.mark.slow
def test_the_exact_plan_of_a_step_is_the_best_of_all_plans_one_by_one():
    """Independent of the planner's tables: bytes and memory of every plan that can be made of the candidates."""
    graph = Graph(mesh=mesh(x=2))
    graph.input("x", (2, 2))
    graph.parameter("w", (2, 2))
    graph.matmul("y", "x", "w")
    step = training(graph, "sgd")
    step.shard("y", ((2, 1), (1, 1)))
    choices = Choices(step, {}, scatter=True)
    plans = (
        GraphPlan(step, dict(zip(choices.operators, ways)), dict(zip(choices.storage_layouts, homes)))
        for ways in product(*choices.operators.values())
        for homes in product(*choices.storage_layouts.values())
    )
    pairs = [(each.memory, each.bytes) for each in plans if same_placement(each.layout("w.new"), each.layout("w"))]
    for cap in {memory for memory, _ in pairs}:
        assert plan(step, memory_cap=cap).bytes == min(moved for memory, moved in pairs if memory <= cap)


def test_memory_counts_weights_gradients_state_and_what_backward_uses():
    step = training(feed_forward(devices=1, batch=8, width=4, hidden=16))
    (held,) = {str(plan(step).memory_by_role)}
    weights = 4 * (4 * 16 + 16 + 16 * 4 + 4)
    expected = {
        "inputs": 4 * (8 * 4 + 8 * 4),  # x and the target
        "weights": weights,
        "optimizer state": 2 * weights,
        "activations": 4 * (8 * 16 + 8 * 4),  # relu, for weight2 and its own derivative; add2, for the loss
        "gradients": weights,
    }
    assert held == str({name: expected[name] for name in plan(step).memory_by_role})


def test_the_optimizer_can_be_configured_apart_from_the_weight():
    step = data_parallel()
    step.shard("y", ((8, 1), (1, 1)))
    step.shard("w.grad", ((8, 1), (8, 1)), out=(8, 1))
    step.shard("w.state.new", ((1, 8, 1), (8, 1)))
    found = propagate(step)
    assert roles(found) == (WEIGHT, WEIGHT // 8, 2 * WEIGHT // 8)
    assert found.bytes == 2 * ONE_WAY
    assert [edge.tensor for edge in found.edges if edge.bytes] == ["w.update"]
    assert redistribute(found.layout("w.update"), found.layout("w.new")).names == ("all-gather",)


REFUSED = [
    (lambda g: training("g"), "only a Graph"),
    (lambda g: training(g, "adamw"), "there is no optimizer 'adamw'; did you mean 'adam'?"),
    (lambda g: training(training(g)), "is a training step already"),
    (lambda g: (g.relu("other", "x"), training(g)), "has one result; this one has 2: 'add2', 'other'"),
    (lambda g: training(Graph(2)), "has one result; this one has 0: none"),
]


@pytest.mark.parametrize(("act", "sentence"), REFUSED)
def test_what_cannot_be_trained_is_refused(act, sentence):
    with pytest.raises(LayoutError) as refusal:
        act(feed_forward())
    assert sentence in str(refusal.value)


def test_a_program_without_weights_or_gradients_is_refused():
    graph = Graph(2)
    graph.input("x", (2, 4))
    graph.relu("y", "x")
    with Refused("no parameter", result="y", error=LayoutError):
        training(graph)
    graph = Graph(2)
    graph.input("x", (2, 4))
    graph.parameter("w", (4, 4))
    graph.reduce_max("highest", graph.matmul("y", "x", "w"), 1)
    with Refused("no gradient", name="highest", kind="reduce_max", error=LayoutError):
        training(graph)


def test_negative_and_boolean_caps_are_refused():
    for caps in ({"memory_cap": -1}, {"memory_cap": True}, {"tensor_caps": {"x": -4}}, {"tensor_caps": {"x": False}}):
        with pytest.raises(LayoutError, match="whole number of bytes"):
            plan(feed_forward(), **caps)  # type: ignore[arg-type]


def test_an_option_that_does_not_exist_is_refused_with_the_nearest():
    with pytest.raises(LayoutError, match="'memory_cap'"):
        plan(feed_forward(), memorycap=40_000)  # type: ignore[call-arg]


# === Figures of the feed-forward network, derived again ===


# A device's piece is a mask over the 64 x 64 elements. What a tensor costs on its way is the number of elements that
# devices need and do not hold; a sum over b devices of pieces of S bytes costs each 2 (b-1)/b S, or (b-1)/b S if
# each keeps only its part.

N, DEVICES, ITEM = 64, 8, 4
WHOLE = N * N * ITEM
TRIPLES = [(a, b, c) for a, b, c in product((1, 2, 4, 8), repeat=3) if a * b * c == DEVICES]
PAIRS = [(p, q) for p, q in product((1, 2, 4, 8), repeat=2) if p * q == DEVICES]


def block(row: int, rows: int, column: int, columns: int) -> np.ndarray:
    mask = np.zeros((N, N), dtype=bool)
    mask[row * N // rows : (row + 1) * N // rows, column * N // columns : (column + 1) * N // columns] = True
    return mask


def elementwise(p: int, q: int) -> list[np.ndarray]:
    """Strategy ((p, q)): devices count columns first."""
    return [block(d // q, p, d % q, q) for d in range(DEVICES)]


def matmul(a: int, b: int, c: int) -> tuple[list, dict[str, tuple[list, int]]]:
    """Strategy ((a, b), (b, c)): what it needs of its input; by what is done with sums, its output and their bytes."""
    places = [(d // (b * c), d // c % b, d % c) for d in range(DEVICES)]
    needs = [block(i, a, k, b) for i, k, _ in places]
    piece = WHOLE // (a * c)
    once = DEVICES * (b - 1) * piece // b
    ways = {"all-reduce": ([block(i, a, j, c) for i, _, j in places], 2 * once)}
    if b > 1:
        ways["to rows"] = ([block(i * b + k, a * b, j, c) for i, k, j in places], once)
        ways["to columns"] = ([block(i, a, j * b + k, c * b) for i, k, j in places], once)
    return needs, ways


def moved(held: list, needed: list) -> int:
    return ITEM * sum(int((need & ~hold).sum()) for hold, need in zip(held, needed))


def least(weight_cap: int, scatter: bool) -> int:
    """All strategies of add1, relu, matmul2 and add2 after matmul1 as ((2, 1), (1, 4)); biases live where needed."""
    first = elementwise(2, 4)  # what matmul1 leaves: nothing is summed up
    reached = {
        pq: min(moved(first, elementwise(*before)) + moved(elementwise(*before), elementwise(*pq)) for before in PAIRS)
        for pq in PAIRS
    }
    best = []
    for a, b, c in TRIPLES:
        if WHOLE // (b * c) > weight_cap:
            continue
        needs, ways = matmul(a, b, c)
        arrive = min(cost + moved(elementwise(*pq), needs) for pq, cost in reached.items())
        for way, (output, summed) in ways.items():
            if scatter or way == "all-reduce":
                best.append(arrive + summed + min(moved(output, elementwise(*pq)) for pq in PAIRS))
    return min(best)


FIGURES = [
    (WHOLE, 12_288, 12_288),
    (WHOLE // 2, 24_576, 24_576),
    (WHOLE // 4, 49_152, 32_768),
    (WHOLE // 8, 90_112, 73_728),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("cap", "all_reduced", "scattered"), FIGURES)
def test_exact_plans_cost_what_masks_and_loops_find(cap: int, all_reduced: int, scattered: int) -> None:
    assert (least(cap, scatter=False), least(cap, scatter=True)) == (all_reduced, scattered)
    graph = feed_forward()
    graph.shard("matmul1", ((2, 1), (1, 4)))
    for scatter, moved_bytes in ((False, all_reduced), (True, scattered)):
        found = plan(graph, tensor_caps={"weight2": cap}, scatter=scatter)
        assert found.bytes == moved_bytes
        assert found.operators["matmul2"].inputs[1].elements * ITEM <= cap


def test_the_rule_that_never_moves_an_activation_pays_an_all_reduce() -> None:
    """Everything keeps ((2, 4)) up to matmul2, which sums over 4; add2 then finds what it needs."""
    needs, ways = matmul(2, 4, 1)
    output, summed = ways["all-reduce"]
    assert moved(elementwise(2, 4), needs) + summed + moved(output, elementwise(2, 4)) == 98_304
