"""Redistribution: at the bound, balanced, named as collectives, executed; and copies as sources."""

from functools import partial
from itertools import chain, combinations, product
from math import ceil, exp, log, prod

import numpy as np
import pytest
from hypothesis import given

from lib.layout import (
    DeviceMatrix,
    Graph,
    GraphPlan,
    LayoutError,
    P,
    TensorLayout,
    bound,
    cut,
    exchange,
    join,
    least_bytes,
    mesh,
    mesh_split,
    plan,
    redistribute,
    replicate,
    same_placement,
)
from lib.layout.exchanges import Step
from lib.layout.layouts import placement
from lib.layout.plans import MemoryTimeline
from lib.layout.redistribution import neighbours
from tests.oracles.sum_messages import cases, fewest_messages
from tests.screens.texts import approved
from tests.support import layout_strategies
from tests.support.examples import examples
from tests.support.layout_strategies import (
    assert_same_program,
    cube_with_summands,
    eight_devices,
    numbers,
    pairs,
    summands,
    triples,
    values,
)

CUBE = eight_devices()
EVERY_PAIR = [(a, b) for a in CUBE for b in CUBE if a != b]


def assert_makes_the_target(plan, pieces=None):
    tensor = numbers(plan.source.shape)
    made, wanted = plan.run(pieces or cut(tensor, plan.source)), cut(tensor, plan.target)
    assert made.keys() == wanted.keys()
    for device, piece in wanted.items():
        np.testing.assert_array_equal(made[device], piece)


def busiest_sender(source: TensorLayout, target: TensorLayout) -> int:
    """By brute force: for every set of devices, what only they hold has to be sent by them (Hall's condition)."""
    element = numbers(source.shape)
    owners, wanted = {}, {}
    for device in range(source.devices):
        held = set(element[source.box(device)].flat)
        for one in held:
            owners.setdefault(one, set()).add(device)
        for one in set(element[target.box(device)].flat) - held:
            wanted[one] = wanted.get(one, 0) + 1
    devices = range(source.devices)
    most = 0
    for some in chain.from_iterable(combinations(devices, n) for n in range(1, len(devices) + 1)):
        load = sum(n for one, n in wanted.items() if owners[one] <= set(some))
        most = max(most, ceil(load / len(some)))
    return most


@pytest.mark.slow
def test_every_pair_of_layouts_on_a_cube_is_exact_and_at_the_bound():
    assert len(EVERY_PAIR) == 2352
    tensor = np.arange(4096, dtype=np.float32).reshape(64, 64)
    pieces = {layout: cut(tensor, layout) for layout in CUBE}
    for a, b in EVERY_PAIR:
        plan = redistribute(a, b)
        assert (plan.received == bound(a, b) * 4).all()
        assert plan.bytes == least_bytes(a, b)
        made = plan.run(pieces[a])
        assert all(np.array_equal(made[device], piece) for device, piece in pieces[b].items())


@pytest.mark.slow
def test_named_collectives_are_within_15_percent_of_the_bound_on_average():
    small = eight_devices((8, 8))  # the ratios do not depend on the size
    ratios = []
    for a, b in ((a, b) for a in small for b in small if a != b):
        least, named = least_bytes(a, b), redistribute(a, b, named_only=True)
        assert "exchange" not in named.names
        assert (named.bytes == 0) == (least == 0)
        ratios.append(log(named.bytes / least) if least else 0.0)
    assert exp(sum(ratios) / len(ratios)) < 1.15


@examples(60)
@given(pairs())
def test_a_plan_makes_the_target_at_the_bound_and_back_again(two):
    a, b = two
    there, back = redistribute(a, b), redistribute(b, a)
    assert (there.received == bound(a, b) * 4).all()
    assert_makes_the_target(there)
    tensor = numbers(a.shape)
    restored = back.run(there.run(cut(tensor, a)))
    assert all(np.array_equal(restored[device], piece) for device, piece in cut(tensor, a).items())


@examples(60)
@given(pairs())
def test_the_busiest_sender_is_as_idle_as_can_be(two):
    a, b = two
    if a.devices <= 8:
        assert exchange(a, b).sent.max() == busiest_sender(a, b)


@examples(60)
@given(pairs())
def test_named_plans_make_the_target_too_and_move_no_less(two):
    plan = redistribute(*two, named_only=True)
    assert plan.bytes >= least_bytes(*two)
    assert_makes_the_target(plan)


@examples(60)
@given(pairs(partial=True))
def test_partial_sums_are_completed_on_the_way(two):
    a, b = two
    pieces = summands(a)
    whole = join(pieces, a)
    for moves in (redistribute(a, b), redistribute(a, b, named_only=True)):
        made = moves.run(pieces)
        assert all(np.array_equal(made[device], piece) for device, piece in cut(whole, b).items())
        assert moves.sent.sum() == moves.received.sum()


def on_four(partial: bool) -> list[TensorLayout]:
    """Every layout of a 2x2 tensor on four devices: 2x2, 4, and 2x2 in another order; with or without summands."""
    found = []
    for matrix in (DeviceMatrix((2, 2)), DeviceMatrix((4,)), DeviceMatrix((2, 2), (0, 3, 1, 2))):
        axes = range(len(matrix.shape))
        for owner in product((None, 0, 1, "partial"), repeat=len(axes)):
            entries = [tuple(a for a in axes if owner[a] == dim) for dim in (0, 1)]
            if all(prod(matrix.shape[a] for a in entry) <= 2 for entry in entries):
                found.append(TensorLayout((2, 2), matrix, entries, tuple(a for a in axes if owner[a] == "partial")))
    return [layout for layout in dict.fromkeys(found) if bool(layout.partial) == partial]


ON_FOUR = [(a, b) for a in on_four(True) for b in on_four(False)]


@pytest.mark.slow
@pytest.mark.parametrize("summed", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_partial_sums_are_completed_with_the_fewest_messages_that_a_search_finds(summed):
    pairs_of_it = [(a, b) for a, b in ON_FOUR if a.summands == summed]
    assert len(pairs_of_it) > 20
    for a, b in pairs_of_it:
        fewest = sum(fewest_messages(case) * number for case, number in cases(a, b).items())
        plan = redistribute(a, b, itemsize=1)
        assert plan.bytes == least_bytes(a, b, 1) == fewest, (a, b)
        whole = join(summands(a), a)
        assert all(np.array_equal(plan.run(summands(a))[d], piece) for d, piece in cut(whole, b).items()), (a, b)


def test_summands_go_straight_to_where_they_are_wanted():
    """The default reduced everywhere first, 98,304 bytes, and was above the named collectives."""
    source = on(-1, -1, partial="y")
    for target in (on("x", "y"), on(("x", "y"), -1), on(-1, ("y", "x"))):
        assert redistribute(source, target).bytes == 3 * 4096 * 4


@examples(60)
@given(pairs(partial=True))
def test_no_plan_moves_more_than_named_collectives(two):
    assert least_bytes(*two) == redistribute(*two).bytes <= redistribute(*two, named_only=True).bytes


@examples(100)
@given(triples())
def test_a_detour_never_moves_less(three):
    a, b, c = three
    assert least_bytes(a, c) <= least_bytes(a, b) + least_bytes(b, c)


@pytest.mark.slow
def test_every_detour_of_partial_sums_on_a_cube():
    cube = cube_with_summands((8, 8))
    whole = [each for each in cube if not each.partial]
    assert len(cube) - len(whole) == 43
    for a in cube:
        for b in (each for each in cube if not each.partial or each.summands == a.summands):
            there = least_bytes(a, b)
            assert all(least_bytes(a, c) <= there + least_bytes(b, c) for c in whole), (a, b)


@pytest.mark.slow
def test_the_plan_of_every_partial_sum_on_a_cube_is_within_the_named_one():
    cube = cube_with_summands((8, 8))
    for a in cube:
        for b in cube:
            if a.partial and not b.partial:
                plan = redistribute(a, b)
                assert plan.bytes == least_bytes(a, b) <= redistribute(a, b, named_only=True).bytes


GRID = mesh(x=2, y=4)


on = partial(layout_strategies.on, shape=(64, 64), grid=GRID)


NAMED = [
    (on("x", -1), on("x", "y"), ("slice",), 0),
    (on("x", "y"), on("x", -1), ("all-gather",), 8 * 3 * 512 * 4),
    (on("x", "y"), on(("x", "y"), -1), ("all-to-all",), 8 * 384 * 4),
    (on("y", -1), on(-1, "y"), ("all-to-all",), 8 * 768 * 4),
    (on(("x", "y"), -1), on(("y", "x"), -1), ("permute",), 6 * 512 * 4),
    (on("x", -1, partial="y"), on("x", -1), ("all-reduce",), 98_304),
    (on("x", -1, partial="y"), on("x", "y"), ("reduce-scatter",), 49_152),
    (on("x", -1, partial="y"), on("x", -1, partial="y"), (), 0),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("source", "target", "names", "moved"), NAMED)
def test_a_plan_that_is_a_collective_has_its_name(source, target, names, moved):
    plan = redistribute(source, target)
    assert (plan.names, plan.bytes) == (names, moved)
    if not source.partial:
        assert_makes_the_target(plan)


def test_a_plan_that_is_no_collective_is_a_general_exchange():
    a, b = on("x", "y", shape=(6, 6), grid=mesh(x=2, y=3)), on("x", "y", shape=(6, 6), grid=mesh(x=3, y=2))
    plan, named = redistribute(a, b), redistribute(a, b, named_only=True)
    assert (plan.names, plan.bytes) == (("exchange",), 96)
    assert (named.names, named.bytes) == (("all-to-all", "all-to-all"), 168)
    approved(
        "redistribution", "a plan that is no collective is a general exchange", plan.explain(), "96 bytes; a device"
    )
    assert_makes_the_target(named)


LARGE = [((8, 8), 114_688), ((16, 4), 61_440), ((4, 4, 4), 196_608)]


@pytest.mark.parametrize(("shape", "moved"), LARGE)
def test_columns_become_rows_by_one_all_to_all_on_64_devices(shape, moved):
    matrix = DeviceMatrix(shape)
    columns, rows = (TensorLayout((64, 64), matrix, entries) for entries in (((), (0,)), ((0,), ())))
    plan = redistribute(columns, rows, named_only=True)
    assert (plan.names, plan.bytes, plan.cheapest) == (("all-to-all",), moved, True)
    assert moved == 64 * (64 * 64 // shape[0]) * (shape[0] - 1) // shape[0] * 4
    assert_makes_the_target(plan)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("shape", [shape for shape, _ in LARGE])
def test_named_collectives_on_64_devices_make_the_target(shape):
    """A pair that whole axes reach at the bound, one that needs parts of axes, and partial sums."""
    matrix = DeviceMatrix(shape)
    last = len(shape) - 1
    pairs_of_it = [
        (TensorLayout((64, 64), matrix, ((0,), (last,))), TensorLayout((64, 64), matrix, ((0, last), ()))),
        (TensorLayout((64, 64), matrix, ((0,), (last,))), TensorLayout((64, 64), matrix, ((last,), (0,)))),
        (TensorLayout((64, 64), matrix, ((), (last,)), (0,)), TensorLayout((64, 64), matrix, ((), (0,)))),
    ]
    for a, b in pairs_of_it:
        plan = redistribute(a, b, named_only=True)
        assert plan.cheapest
        assert plan.bytes >= least_bytes(a, b)
        made = plan.run(summands(a))
        whole = cut(join(summands(a), a), b)
        assert all(np.array_equal(made[device], piece) for device, piece in whole.items())


def test_a_search_that_gives_up_says_so(monkeypatch):
    """Its path is that on whole axes; without one everything is gathered."""
    from lib.layout import redistribution

    monkeypatch.setattr(redistribution, "MAX_LAYOUTS_SEARCHED", 3)
    redistribution._cheapest.cache_clear()
    try:
        source, target = (on(*dims, shape=(36, 36), grid=mesh(x=2, y=3)) for dims in (("x", "y"), ("y", "x")))
        plan = redistribute(source, target, named_only=True)
        assert not plan.cheapest
        assert plan.names == ("all-gather", "slice")
        approved("redistribution", "a search that gives up says so", plan.explain(), "gave up; there may")
        assert_makes_the_target(plan)
        assert "gave up" not in redistribute(source, target).explain()
    finally:
        redistribution._cheapest.cache_clear()


@pytest.mark.parametrize(("names", "others"), [(("x", "y"), "data model"), (("data", "model"), "x y")])
def test_steps_have_the_axis_names_of_their_own_mesh(names, others):
    """Results of the search are shared between meshes that differ only in names."""
    grid = mesh(**dict(zip(names, (2, 4))))
    source, target = (on(*dims, shape=(40, 40), grid=grid) for dims in ((names, -1), (-1, names[::-1])))
    text = redistribute(source, target, named_only=True).explain()
    assert "+".join(names) in text
    assert not any(f"[{other}" in text or f"+{other}" in text for other in others.split())


def test_local_pieces_move_nothing():
    plan = redistribute(replicate((8, 8), 4), mesh_split((8, 8), mesh(a=4), ("a", -1)))
    assert plan.bytes == 0
    approved("redistribution", "local pieces move nothing", plan.explain())
    assert redistribute(on("x", -1), on("x", -1)).explain() == "nothing moves"


def test_a_partial_layout_may_stay_partial():
    source, target = on("x", -1, partial="y"), on(-1, "x", partial="y")
    plan = redistribute(source, target)
    rng = np.random.default_rng(1)
    pieces = {device: rng.integers(0, 9, source.local_shape) for device in range(8)}
    np.testing.assert_array_equal(join(plan.run(pieces), target), join(pieces, source))
    assert plan.bytes == 8 * 1024 * 4


@pytest.mark.slow
def test_a_thousand_devices():
    line = DeviceMatrix((1024,))
    rows, columns = (TensorLayout((2048, 1024), line, m) for m in (((0,), ()), ((), (0,))))
    plan = redistribute(rows, columns)
    assert plan.bytes == 4 * 2048 * 1023
    assert plan.sent.max() == plan.sent.min() == plan.received.max()
    assert same_placement(rows, plan.source)


REFUSED = [
    (
        lambda: redistribute(None, on(-1, -1)),
        "the source of a redistribution is a layout, such as mesh_split returns; got N",
    ),
    (lambda: redistribute(on(-1, -1), (8, 8)), r"the target of a redistribution is a layout, .*; got \(8, 8\)"),
    (lambda: redistribute(on(-1, -1), on(-1, -1, shape=(8, 8))), r"is for shape \(64, 64\), the target layout for"),
    (lambda: redistribute(on(-1, -1), replicate((64, 64), 4)), "has 8 devices, the target layout 4"),
    (lambda: redistribute(on(-1, -1), on(-1, -1, partial="x")), "the target is a sum of 2 pieces, the source of 1"),
    (lambda: redistribute(on("x", -1), on(-1, "x"), itemsize=-4), "whole number of bytes, 1 or more; got -4"),
    (lambda: redistribute(on("x", -1), on(-1, "x"), itemsize=True), "whole number of bytes, 1 or more; got True"),
    (lambda: least_bytes(on("x", -1), on(-1, "x"), 2.5), "whole number of bytes, 1 or more; got 2.5"),
    (lambda: exchange(on(-1, -1, partial="x"), on(-1, -1)), "reduce the partial sums first"),
    (
        lambda: redistribute(on(-1, -1, partial="x"), on(-1, -1, grid=mesh(a=4, b=2), partial="b"), named_only=True),
        "no named collective changes which devices hold a partial sum",
    ),
]


@pytest.mark.parametrize(("build", "sentence"), REFUSED)
def test_what_cannot_be_redistributed_is_refused(build, sentence):
    with pytest.raises(LayoutError, match=sentence):
        build()


SUMMED = [
    on(-1, -1), on("x", "y"), on("y", -1), on(("x", "y"), -1), on(-1, ("y", "x")), on(-1, -1, partial="x"),
    on(-1, -1, partial="y"), on("x", -1, partial="y"), on(-1, "y", partial="x"), on(-1, -1, partial=("x", "y")),
]  # fmt: skip


@pytest.mark.parametrize("here", SUMMED, ids=str)
def test_the_search_charges_each_collective_what_its_messages_move(here):
    for name, after, moved in neighbours(here, on(-1, -1)):
        assert moved == (Step(name, here, after).total if name else 0), (name, after)


def test_a_gather_stays_within_its_group_of_devices():
    grid = mesh(x=4, y=2)
    gather = exchange(on("x", -1, grid=grid), on(-1, -1, grid=grid))
    for sender, receiver in zip(gather.sender.tolist(), gather.receiver.tolist()):
        assert grid.coordinates(sender)[1] == grid.coordinates(receiver)[1], "each copy is gathered by its own devices"


# === Copies as sources ===


def two_products(devices: int = 4, size: int = 8) -> Graph:
    """One product takes all rows of x, the other one its columns."""
    graph = Graph(mesh=mesh(x=devices))
    graph.input("x", (size, size))
    graph.parameter("w1", (size, size))
    graph.parameter("w2", (size, size))
    graph.matmul("whole", "x", "w1")
    graph.matmul("columns", "x", "w2")
    graph.shard("whole", ((1, 1), (1, devices)))
    graph.shard("columns", ((1, devices), (devices, 1)))
    graph.pin("x", P("x", None))
    return graph


def test_columns_are_cut_from_the_copy_that_was_gathered() -> None:
    graph = two_products()
    found = plan(graph)
    first, second = (edge for edge in found.edges if edge.tensor == "x")
    assert (first.bytes, first.copied_from) == (4 * 3 * 16 * 4, "")
    assert (second.bytes, second.copied_from) == (0, "whole")
    approved(
        "copies_as_sources", "columns are cut from the copy that was gathered", found.explain(), "x -> columns: slice"
    )
    assert_same_program(found)
    given = {name: value.astype(np.float32) for name, value in values(graph).items()}
    done = found.on_engine(given)
    assert done.sent == tuple(found.sent)
    assert done.peaks == tuple(found.timeline.peaks)


def test_what_was_gathered_over_eight_devices_is_all_that_moves() -> None:
    """A gather of 64x64 numbers, and the all-to-all of rows to columns that is not needed."""
    graph = two_products(8, 64)
    found = plan(graph)
    apart = GraphPlan(graph, found.operators, found.storage_layouts, taken_from={("columns", 0): None})
    moved = [sum(edge.bytes for edge in each.edges) for each in (found, apart)]
    assert moved == [7 * 64 * 64 * 4, 7 * 64 * 64 * 4 + 7 * 64 * 64 * 4 // 8] == [114_688, 129_024]


def test_the_copy_is_held_until_the_last_input_has_moved_from_it() -> None:
    found = plan(two_products())
    timeline = MemoryTimeline(found.graph, found.operators, found.storage_layouts, found.fetches, remember_all=True)
    held = [(str(moment), "x for whole, input 0" in moment.held) for moment in timeline.moments]
    assert held[2:] == [
        ("'whole' computes", True),
        ("'columns' moves 'x'", True),
        ("'columns' computes", False),
        ("'columns' reduces its output", False),
    ]


def by_trying(graph: Graph) -> int:
    """Of every layout of the sources and every order of sources of the inputs, the fewest bytes."""
    from lib.layout.choices import Choices

    choices = Choices(graph, {}, scatter=True)
    least = None
    for ways in product(*choices.operators.values()):
        for homes in product(*choices.storage_layouts.values()):
            found = GraphPlan(graph, dict(zip(choices.operators, ways)), dict(zip(choices.storage_layouts, homes)))
            least = found.bytes if least is None else min(least, found.bytes)
    assert least is not None
    return least


@pytest.mark.parametrize("pinned", [("x", None), (None, "x")])
def test_the_exact_plan_uses_copies(pinned: tuple[str | None, ...]) -> None:
    graph = Graph(mesh=mesh(x=2))
    graph.input("x", (4, 4))
    graph.relu("relu", "x")
    graph.pin("relu", P(*pinned))
    graph.pin("x", P(*pinned))
    for i in range(3):
        graph.add(f"sum{i}", "relu", "relu")
    graph.shard("sum0", ((1, 1), (1, 1)))
    graph.shard("sum1", ((2, 1), (2, 1)))
    graph.shard("sum2", ((1, 2), (1, 2)))
    found = plan(graph)
    assert found.bytes == by_trying(graph)
    assert_same_program(found)


def test_a_fixed_source_is_taken() -> None:
    graph = two_products()
    free = plan(graph)
    alone = GraphPlan(graph, free.operators, free.storage_layouts, taken_from={("columns", 0): None})
    copy = TensorLayout((8, 8), mesh(x=4), ((), ()))
    same = GraphPlan(graph, free.operators, free.storage_layouts, taken_from={("columns", 0): copy})
    assert alone.bytes == free.bytes + least_for_columns(graph)
    assert (same.bytes, placement(same.edges[2].source)) == (free.bytes, placement(copy))


def least_for_columns(graph: Graph) -> int:
    from lib.layout import least_bytes

    rows, columns = (mesh_split((8, 8), mesh(x=4), axes) for axes in (("x", -1), (-1, "x")))
    return least_bytes(rows, columns)
