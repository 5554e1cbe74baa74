"""Pictures of layouts and of their plans."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given

from drawing import svg
from drawing.layout_graph import BoxSize, Placing, draw_plan, draw_plans, draw_propagation, rows_of
from drawing.layout_tensor import draw_holders, draw_layout, draw_redistribution, held_part, piece_text, real_part
from drawing.layout_text import explained, holders_text, plan_text, propagation_text
from drawing.palette import ALARM, IDLE, STEP
from drawing.pen import short_text
from lib.layout import (
    Graph,
    GraphPlan,
    LayoutError,
    TensorLayout,
    compared,
    complete,
    mesh,
    mesh_split,
    plan,
    propagate,
    redistribute,
    strategy_text,
    training,
)
from lib.layout.examples import attention, feed_forward, megatron_mlp
from lib.layout.propagation import CRITERIA, compares_of
from puzzles.tracks.layout import LAYOUT_PUZZLES
from tests.screens.texts import approved, approved_refusal
from tests.support.commands import puzzles
from tests.support.examples import examples
from tests.support.layout_strategies import pairs
from tests.support.svg import texts, tips
from tests.test_imports import ROOT

GRID = mesh(data=2, model=4)


def test_a_layout_is_drawn_with_the_holders_of_each_piece():
    told = tips(draw_layout(mesh_split((64, 64), GRID, ("data", -1))))
    approved("layouts", "a layout is drawn with the holders of each piece", told[:2])
    approved("layouts", "a layout is drawn with the holders of each piece, 2", told[2:4])


def test_layouts_of_any_number_of_dimensions_are_drawn():
    for shape in ((), (8,), (2, 8, 8)):
        layout = TensorLayout(shape, GRID, ((),) * len(shape))
        assert "on each of 8" in svg(draw_layout(layout))
    assert "partial over model" in svg(draw_layout(TensorLayout((4,), GRID, ((0,),), (1,))))


def test_a_redistribution_is_drawn_message_by_message():
    source, target = mesh_split((64, 64), GRID, ("data", "model")), mesh_split((64, 64), GRID, ("data", -1))
    told = tips(draw_redistribution(redistribute(source, target)))
    assert len(told) == 8 * 3
    approved("layouts", "a redistribution is drawn message by message", told[0])


@examples(60)
@given(pairs(partial=True))
def test_what_is_drawn_is_what_is_sent_and_received(two):
    for step in redistribute(*two).named_steps:
        table = step.traffic()
        np.testing.assert_array_equal(table.sum(axis=1), step.sent)
        np.testing.assert_array_equal(table.sum(axis=0), step.received)
        assert step.total == table.sum()
        assert table.trace() == 0


def test_a_plan_is_drawn_with_what_its_edges_pay():
    graph = feed_forward()
    graph.shard("matmul1", ((2, 1), (1, 4)))
    graph.shard("relu", ((8, 1),))
    drawn = svg(draw_plan(propagate(graph), "FFN"))
    assert "all-to-all, 12,288 bytes" in drawn
    approved("layouts", "a plan is drawn with what its edges pay", drawn, "12,288 bytes moved, 39,232")
    graph = attention()
    graph.shard("q", ((1, 1, 2), (2, 2)))
    assert "x: all-to-all, 32,768 bytes" in svg(draw_plan(propagate(graph)))


def test_pictures_have_limits():
    many = mesh(a=128)
    with approved_refusal("layouts", "pictures have limits", LayoutError):
        draw_redistribution(redistribute(mesh_split((128,), many, (-1,)), mesh_split((128,), many, ("a",))))
    with approved_refusal("layouts", "pictures have limits, 2", LayoutError):
        draw_layout(mesh_split((8192,), mesh(a=8192), ("a",)))
    graph = Graph(mesh=many)
    graph.relu("y", graph.input("x", (128,)))
    with approved_refusal("layouts", "pictures have limits, 3", LayoutError):
        draw_holders(plan(graph))
    assert [short_text(n) for n in (512, 1536, 2_000_000, 3 * 10**9)] == ["512", "1.54k", "2M", "3G"]


def test_padding_is_grey_and_named():
    uneven, even = (svg(draw_layout(mesh_split((size, 8), GRID, ("model", -1)))) for size in (10, 12))
    assert "padded to (12, 8)" in uneven
    assert (IDLE in uneven, IDLE in even, "padded" in even) == (True, False, False)


def test_a_piece_with_padding_is_drawn_as_far_as_it_is_real():
    layout = mesh_split((10, 8), GRID, ("model", -1))  # pieces of 3 rows, of which the last has 1
    last = next(device for device in range(8) if layout.part(device) == (3, 0))
    assert held_part(layout, last) == (0, 0.75, 1, 1)
    assert real_part(layout, last) == (0, 0.75, 1, pytest.approx(10 / 12))
    nothing = mesh_split((9,), GRID, (("data", "model"),))  # of 8 parts of 2, the last three are padding only
    left, _, right, _ = real_part(nothing, 7)
    assert left == right


# === Plans of layouts ===


def solved_ffn() -> GraphPlan:
    graph = feed_forward()
    graph.shard("matmul1", ((2, 1), (1, 4)))
    graph.shard("relu", ((8, 1),))
    return propagate(graph)


def rule_attention() -> GraphPlan:
    graph = attention()
    graph.shard("q", ((4, 1, 1), (1, 2)))
    return propagate(graph)


def step_plan() -> GraphPlan:
    graph = training(megatron_mlp(), "adam")
    graph.shard("matmul1", ((2, 1), (1, 4)))
    return propagate(graph)


PLANS = {"ffn": solved_ffn, "attention": rule_attention, "step": step_plan}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", PLANS)
def test_every_tensor_and_reason_is_in_the_picture(name):
    found = PLANS[name]()
    written, told = texts(draw_plan(found)), tips(draw_plan(found))
    for tensor in found.graph.shapes:
        assert any(tip.split("; ")[0] == f"{tensor}: {found.layout(tensor)}" for tip in told)
    for name, op in found.operators.items():
        assert f"{name}: {op.output}; strategy {strategy_text(op.strategy)}" in told
        shapes = ", ".join("x".join(map(str, layout.local_shape)) for layout in op.inputs)
        assert any(text.startswith(f"{shapes} -> ") for text in written)
        axes = ", ".join(str(layout).partition(" on ")[0] for layout in op.inputs)
        assert any(text.startswith(f"{axes} -> ") for text in written)
    for operator in found.operators:
        if operator not in found.graph.strategies:
            assert found.reason(operator) in written
    for edge in found.edges:
        assert any(tip.startswith(f"{edge}: ") for tip in told)
        if edge.bytes:
            steps = ", ".join(found.redistribution(edge).names)
            source = f" from the copy of {edge.copied_from}" if edge.copied_from else ""
            assert f"{edge.tensor}: {steps}{source}, {edge.bytes:,} bytes" in written
    counted = [text for text in written if re.fullmatch(r"[\d,]+ bytes", text)]
    assert sum(int(text[:-6].replace(",", "")) for text in counted) == found.memory


def test_who_configured_an_operator_is_said():
    written = texts(draw_plan(solved_ffn(), given=["matmul1"]))
    assert written.count("configured by the puzzle") == written.count("configured") == 1
    assert svg(draw_plan(solved_ffn())).count(STEP) == 2
    graph = megatron_mlp()
    graph.shard("matmul2", ((2, 4), (4, 1)), out=(8, 1))
    assert "configured, out (8, 1)" in texts(draw_plan(propagate(graph)))


def test_limits_are_shown_and_missed_ones_are_red():
    met, missed = (svg(draw_plan(solved_ffn(), target=12288, cap=cap)) for cap in (40000, 30000))
    for drawn, cap in ((met, "40,000"), (missed, "30,000")):
        assert "12,288 bytes moved (target:" in drawn
        assert f"8 devices (cap: {cap})" in drawn
    assert missed.count(ALARM) == met.count(ALARM) + 1


def test_boxes_do_not_overlap_and_sources_are_above_their_readers():
    for make in PLANS.values():
        found = make()
        sizes = {name: BoxSize(100 + 7 * (i % 5), 40 + i % 3) for i, name in enumerate(found.graph.shapes)}
        placing = Placing(found.graph, found.edges, sizes, 10)
        boxes = list(placing.boxes.values())
        for i, a in enumerate(boxes):
            for b in boxes[:i]:
                apart = a.x + a.width <= b.x or b.x + b.width <= a.x
                assert apart or a.y + a.height <= b.y or b.y + b.height <= a.y
        for edge in found.edges:
            path, source, target = placing.path(edge), placing.boxes[edge.tensor], placing.boxes[edge.operator]
            assert source.row < target.row
            assert path[0][1] == source.y + source.height
            assert (target.x < path[-1][0] < target.x + target.width, path[-1][1]) == (True, target.y)
            assert all(x0 == x1 or y0 == y1 for (x0, y0), (x1, y1) in itertools.pairwise(path))
    assert rows_of(feed_forward())[:2] == [["x", "weight1"], ["matmul1", "bias1"]]


# --- Who holds what ---


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", PLANS)
def test_every_piece_of_every_device_is_shown(name):
    found = PLANS[name]()
    told = tips(draw_holders(found))
    expected = []
    for tensor in [*found.storage_layouts, *found.operators]:
        for device in range(found.graph.devices):
            ranges = ", ".join(f"{s.start}:{s.stop}" for s in found.layout(tensor).box(device))
            expected.append(f"device {device}: {tensor}[{ranges}]")
    assert told == expected
    assert any(text.startswith(f"{found.memory:,} bytes on each device") for text in texts(draw_holders(found)))


def test_the_coloured_part_is_where_the_piece_is():
    for axes, dims in ((("model", "data"), (0, 1)), ((-1, "model"), (0, 1)), (("data", -1, "model"), (0, 2))):
        layout = mesh_split((8,) * len(axes), mesh(data=2, model=4), axes)
        for device in range(8):
            down, across = (layout.box(device)[dim] for dim in dims)
            expected = across.start / 8, down.start / 8, across.stop / 8, down.stop / 8
            assert held_part(layout, device) == expected
    assert held_part(mesh_split((8,), mesh(a=2), ("a",)), 1) == (0.5, 0, 1, 1)


def test_padding_is_grey_and_named_in_a_plan():
    graph = Graph(4)
    graph.relu("y", graph.input("x", (10, 8)))
    graph.shard("y", ((4, 1),))
    found = propagate(graph)
    assert IDLE in svg(draw_holders(found))
    assert "Grey is padding." in " ".join(texts(draw_holders(found)))
    assert tips(draw_holders(found))[3] == "device 3: x[9:10, 0:8]"
    approved("layout_plans", "padding is grey and named in a plan", texts(draw_plan(found)), "96 bytes, padded to")
    assert IDLE not in svg(draw_holders(solved_ffn()))


def test_devices_with_copies_of_a_piece_have_its_colour():
    drawn = svg(draw_holders(solved_ffn()))
    colours = {tip: fill for fill, tip in re.findall(r'fill="(#\w+)"[^>]*><title>(device \d: x.*?)</title>', drawn)}
    assert len(set(colours.values())) == 2
    halves = [colours[f"device {d}: x[{32 * (d // 4)}:{32 * (d // 4) + 32}, 0:64]"] for d in range(8)]
    assert halves == [halves[0]] * 4 + [halves[4]] * 4


def test_a_cap_that_is_missed_is_red_below_the_memory():
    met, missed = (svg(draw_holders(solved_ffn(), cap=cap)) for cap in (40000, 30000))
    approved("layout_plans", "a cap that is missed is red below the memory", missed, "39,232 bytes on each")
    assert (ALARM in met, ALARM in missed) == (False, True)


def test_the_text_of_who_holds_what_fits_and_is_complete():
    for make in PLANS.values():
        found = make()
        for width in (60, 80, 160):
            lines = holders_text(found, width).plain.splitlines()
            assert max(map(len, lines)) <= width
            read: dict[str, list[str]] = {}
            for line in lines:
                cells = line.split()
                if cells and cells[0] in found.graph.shapes:
                    after = [cell for cell in cells[1:] if re.fullmatch(r"all|\d+(,\d+)*", cell)]
                    size = f"{found.layout(cells[0]).elements * found.graph.itemsize:,}"
                    read.setdefault(cells[0], []).extend(after[after.index(size) + 1 :] if size in after else after)
            for tensor in found.graph.shapes:
                layout = found.layout(tensor)
                assert read[tensor][-8:] == [piece_text(layout, device) for device in range(8)]
    wide = holders_text(solved_ffn(), 80)
    approved("layout_plans", "the text of who holds what fits and is complete", wide.plain, "x [x, -] on")
    assert len({str(span.style) for span in wide.spans if "on #" in str(span.style)}) > 4


def test_plans_are_drawn_side_by_side_each_with_its_bytes():
    puzzle = LAYOUT_PUZZLES["fsdp_mlp"]
    gspmd = complete(puzzle.graph(), {}).plan
    picture = draw_plans({"left": gspmd, "right": plan(puzzle.graph(), memory_cap=puzzle.memory_cap)}, "Both")
    drawn = svg(picture)
    assert [drawn.count(f">{text}<") for text in ("left", "right", "917,504 bytes moved", "425,984 bytes moved")] == [
        1
    ] * 4
    assert picture.width > 1.8 * draw_plan(gspmd).width


# --- Step by step ---


@pytest.mark.parametrize("name", PLANS)
def test_the_choice_of_every_step_is_the_cheapest_candidate(name):
    found = PLANS[name]()
    assert list(found.decisions)
    assert set(found.decisions) == set(found.operators)
    for operator, decision in found.decisions.items():
        if not decision.reached:
            assert decision.reason == "configured" or decision.reason.startswith("where its weight")
            continue
        options = compared(found.graph, operator, decision.reached, decision.full)
        best = min(options, key=lambda each: each.rank)
        assert best.choice.inputs == found.operators[operator].inputs
        if len(options) > 1:
            ties = [sum(each.rank[:n] == best.rank[:n] for each in options) for n in range(len(best.rank) + 1)]
            deciding = ties.index(min(ties)) - 1
            start = CRITERIA[compares_of(found.graph, operator, decision.reached)[deciding]]
            assert decision.reason.startswith(f"{start} of {ties[deciding]} ")


def test_the_steps_are_in_the_order_of_the_rule_with_their_candidates():
    found = rule_attention()
    written = texts(draw_propagation(found))
    headings = [text for text in written if re.match(r"\d+\. ", text)]
    assert headings == [f"{i}. {name}" for i, name in enumerate(found.decisions, start=1)]
    assert headings[1] == "2. q_heads"
    approved(
        "layout_plans",
        "the steps are in the order of the rule with their candidates",
        written,
        "q leaves [x, -,",
        "scores takes k_turned as",
    )
    assert any(re.match(r"and \d+ more, [\d,]+ to [\d,]+ sent", text) for text in written)
    text = propagation_text(found, 80).plain
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("chosen") == sum(1 for each in found.decisions.values() if each.reached)
    for name, operator in found.operators.items():
        assert re.search(rf"^\d+\. {name}: {re.escape(strategy_text(operator.strategy))},", text, re.MULTILINE)


def test_only_the_rule_has_steps():
    exact = plan(feed_forward())
    assert exact.decisions == {}
    assert exact.reason("relu") == ""
    with approved_refusal("layout_plans", "only the rule has steps", LayoutError):
        draw_propagation(exact)
    assert "candidates" not in svg(draw_plan(exact))


def test_a_long_propagation_says_what_is_left_out():
    graph = Graph(devices=2)
    name = graph.input("x", (4,))
    for i in range(60):
        name = graph.relu(f"relu{i}", name)
    graph.shard("relu0", ((2,),))
    written = texts(draw_propagation(propagate(graph)))
    assert any(text.endswith("the last 12, from 'relu48', are not shown") for text in written)


# --- As text and as a page ---


@pytest.mark.sampled(1)
@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_of_the_text_is_cut(width):
    for make in PLANS.values():
        found = make()
        text = plan_text(found, width, 1, 2).plain
        assert max(map(len, text.splitlines())) <= width
        joined = " ".join(text.split())
        for line in found.explain().splitlines()[:-1]:
            assert " ".join(line.split()) in joined
        assert "(target: 1)" in joined
        assert "(cap: 2)" in joined
        for operator in found.operators:
            assert found.reason(operator) in joined
        short = explained(found, width).plain
        assert max(map(len, short.splitlines())) <= width
        assert short.split() == found.explain().split()


@pytest.mark.usefixtures("in_this_process")
def test_the_commands_draw_everything(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    solution = str(ROOT / "solutions" / "layout" / "ffn.py")
    shown = puzzles("draw", solution, "ffn", "--text", "--width", "60", "-o", "ffn.html", code=0)
    puzzle = LAYOUT_PUZZLES["ffn"]
    for said in ("configured by the puzzle", "Who holds what", "Step by step", f"(cap: {puzzle.memory_cap:,})"):
        assert said in " ".join(shown.output.split()), said
    assert max(map(len, shown.output.splitlines())) <= 60
    page = (tmp_path / "ffn.html").read_text()
    assert page.count("<svg") == 3
    for said in ("The plan", "Who holds what", "Sharding Propagation, step by step", "The same as text"):
        assert said in page
    assert "http://" not in page.replace("http://www.w3.org/", "")
    puzzles("draw", solution, "ffn", "-o", "ffn.txt", code=0)
    assert (tmp_path / "ffn.txt").read_text().count("\n1. matmul1") == 1


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.sampled(1)
@pytest.mark.parametrize("slug", ["fsdp_mlp", "vocabulary_ends"])
def test_the_page_of_given_ends_shows_what_gspmd_makes_of_them(slug, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    solution = str(ROOT / "solutions" / "layout" / f"{slug}.py")
    puzzles("draw", solution, slug, "-o", "ends.html", code=0)
    page = (tmp_path / "ends.html").read_text()
    assert page.count("<svg") == 4
    assert f"{complete(LAYOUT_PUZZLES[slug].graph(), {}).plan.bytes:,} bytes moved" in page
    approved(
        "layout_plans", f"the page of given ends shows what gspmd makes of {slug}", page, "Ends propagated as GSPMD"
    )
