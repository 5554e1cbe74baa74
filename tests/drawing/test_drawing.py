"""Pictures show what happened: which marks are where, with which text. Pixels are for people to judge."""

import ast
import json
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import chalk
import pytest

import drawing
from docs.generate import gallery
from drawing import draw, draw_group, draw_network, draw_value, save, svg
from drawing.html import run_data, web_page
from drawing.run_text import name_of
from drawing.scene import Scene, scene_of
from drawing.timeline import LEFT, Scale, draw_legend
from lib import (
    COSTS,
    Activation,
    ActivationGrad,
    Costs,
    Model,
    OptState,
    PuzzleError,
    Setting,
    Size,
    Trace,
    Value,
    Weight,
    WeightGrad,
    event_steps,
    referee,
    run,
)
from lib import pipelines as schedules
from lib.ledger import costs
from lib.pipelines import pipeline, zb_h2
from tests.screens.texts import approved, approved_refusal
from tests.support import CLASSICS, Classic
from tests.support.schedules import shards
from tests.support.svg import SVG, paths, root, texts, tips

FSDP = next(classic for classic in CLASSICS if classic.slug == "fsdp")
GPIPE = next(classic for classic in CLASSICS if classic.slug == "gpipe")
PALE = drawing.palette.IDLE


def trace_of(classic: Classic) -> Trace:
    return run(classic.solution, *classic.size).trace


def marks(picture: Any) -> list[str]:
    return [tip for tip in tips(picture) if re.match(r"rank \d+(?: \(like .*?\))?: .*, t=", tip)]


def left_edge(path: ET.Element) -> float:
    """The least x of a path of relative steps."""
    x = least = 0.0
    for command, first in re.findall(r"([Mhlv])(-?[\d.]+)", path.get("d", "")):
        x = float(first) if command == "M" else x + float(first) if command in "hl" else x
        least = x if command == "M" else min(least, x)
    return least


# --- The timeline ---


@pytest.mark.sampled(3)
@pytest.mark.parametrize("classic", CLASSICS, ids=lambda classic: classic.slug)
def test_every_classic_shows_each_of_its_events_once(classic: Classic) -> None:
    trace = trace_of(classic)
    picture = draw(trace)
    drawn = Counter(tip.split(":")[0] for tip in marks(picture))
    assert drawn == {f"rank {rank}": len(trace.events(rank)) for rank in range(classic.size.ranks)}
    assert {f"rank {rank}" for rank in range(classic.size.ranks)} <= set(texts(picture))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("classic", CLASSICS, ids=lambda classic: classic.slug)
def test_a_picture_costs_no_more_bytes_than_a_notebook_can_bear(classic: Classic) -> None:
    trace = trace_of(classic)
    events = sum(len(trace.events(rank)) for rank in range(classic.size.ranks))
    assert len(svg(draw(trace)).encode()) < 12_000 + 600 * events


def test_draw_prints_the_two_lines_that_people_know(capsys: pytest.CaptureFixture[str]) -> None:
    draw(run(FSDP.solution, *FSDP.size).models)
    approved("drawing", "draw prints the two lines that people know", capsys.readouterr().out)  # fmt: skip


def test_models_one_model_a_trace_and_an_outcome_are_the_same_run() -> None:
    outcome = run(CLASSICS[0].solution, *CLASSICS[0].size)
    ways: list[Any] = [outcome, outcome.trace, outcome.models, list(outcome.models), outcome.models[0]]
    assert len({svg(draw(way)) for way in ways}) == 1


def test_operations_are_drawn_where_they_happened() -> None:
    trace = trace_of(GPIPE)
    picture = draw(trace)
    scale = Scale(33.8, 4)
    for path in root(picture).iter(f"{SVG}path"):
        tip = "".join(path.itertext())
        if match := re.match(r"rank \d: (?:forward|backward|send|receive) .*t=([\d.]+) to", tip):
            assert left_edge(path) == pytest.approx(scale.x(float(match[1])) + 12, abs=0.11), tip


def test_batches_and_layers_are_written_on_the_marks() -> None:
    written = Counter(texts(draw(trace_of(GPIPE))))
    for layer in range(8):
        assert written[f"F{layer}"] == written[f"B{layer}"] == 4
    assert {"b0", "b1", "b2", "b3", "L"} <= set(written)


@pytest.mark.slow
def test_the_legend_has_only_what_occurs() -> None:
    names = {"loss", "backward", "update", "all-gather", "reduce-scatter", "all-reduce", "send", "receive", "idle"}
    assert names & set(texts(draw(trace_of(FSDP)))) == {
        "loss", "backward", "update", "all-gather", "reduce-scatter"
    }  # fmt: skip
    assert names & set(texts(draw(trace_of(GPIPE)))) == {
        "loss", "backward", "update", "send", "receive", "idle"
    }  # fmt: skip
    assert any(line.startswith("forward: layer 0,") for line in texts(draw(trace_of(FSDP))))
    free = run(schedules.pipeline(schedules.zb_h1), 2, 2, 2, setting=Setting("parts")).trace
    assert names & set(texts(draw(free))) == {"loss", "idle"}  # messages and updates take no time there


def test_the_legend_has_the_layers_that_are_painted() -> None:
    """The input of layer 0 and the output of the last one have labels beyond the layers, and no colour."""
    cut = run(schedules.tensor_parallel, 2, 1, 2, setting=Setting("twentieths", layer="block")).trace
    labelled = {op.layer for ops in cut.ranks for op in ops if op.name == "allreduce"}
    assert labelled - {0, 1}
    scene = scene_of(cut)
    assert {"0", "1"} <= set(texts(draw_legend([scene], 1000)))
    assert not {str(layer) for layer in labelled - {0, 1}} & set(texts(draw_legend([scene], 1000)))


def test_the_halves_of_backward_have_letters_of_one_size() -> None:
    trace = run(schedules.pipeline(schedules.zb_v), 8, 8, 4, setting=Setting("parts")).trace
    sizes = {
        node.text: node.get("font-size")
        for node in root(draw(trace)).iter(f"{SVG}text")
        if node.text in ("F3", "I3", "W3")
    }
    assert len(sizes) == 3
    assert len(set(sizes.values())) == 1


def test_idle_time_is_a_pale_area_and_a_full_schedule_has_none() -> None:
    gaps = "".join(path.get("d", "") for path in paths(draw(trace_of(GPIPE)), "fill", PALE))
    assert gaps.count("M") == 1 + sum(len(lane.gaps) for lane in drawing.scene.scene_of(trace_of(GPIPE)).lanes)
    assert paths(draw(trace_of(FSDP)), "fill", PALE) == []


def test_each_message_is_a_link_and_each_collective_one_tie() -> None:
    scene = drawing.scene.scene_of(trace_of(CLASSICS[7]))
    sends = [mark for mark in scene.marks if mark.op.name == "pass_to"]
    assert len(scene.links) == len(sends) == 24
    assert all(link.received is not None and link.received >= link.sent for link in scene.links)
    assert Counter(tie.name for tie in scene.ties) == {"allgather": 8, "scatterreduce": 4}
    assert {(tie.members[0].rank, tie.members[-1].rank) for tie in scene.ties} == {(0, 15)}


def test_memory_is_continuous_and_reaches_the_peak() -> None:
    scene = drawing.scene.scene_of(trace_of(FSDP))
    for lane in scene.lanes:
        assert lane.memory[0][0] == 0
        assert lane.memory[-1][1] == scene.end
        assert all(left[1] == right[0] for left, right in zip(lane.memory, lane.memory[1:], strict=False))
    assert max(m for lane in scene.lanes for *_, m in lane.memory) == FSDP.peak_memory
    assert "peak 2,359,296" in texts(draw(trace_of(FSDP)))


@pytest.mark.slow
def test_sixteen_ranks_fit_the_width_of_a_notebook() -> None:
    picture = root(draw(trace_of(CLASSICS[7])))
    assert int(picture.get("width", "")) <= 1000


def test_marks_differ_in_shape_not_only_in_colour() -> None:
    shapes: dict[str, set[str]] = {}
    for name, glyph in drawing.glyphs.GLYPHS.items():
        outline = tuple(glyph.outline(drawing.glyphs.Frame(0, 0, 20, 20)))
        shapes.setdefault(str(outline), set()).add(name)
    assert all(len(names) == 1 for names in shapes.values())


def test_layers_get_lighter_in_order() -> None:
    for layers in (2, 6, 8, 12):
        ramp = [drawing.palette.luminance(drawing.palette.layer_colour(layer, layers)) for layer in range(layers)]
        assert ramp == sorted(ramp)


# --- Runs of every kind ---


async def nothing(model: Model) -> None:
    """Every rank is idle."""


def forward_on_rank_1(model: Model) -> None:
    if model.rank == 1:
        weight, _ = model.load_weights(0)
        model.forward(0, model.get_activation([0]), weight)


def many(model: Model) -> None:
    weight, _ = model.load_weights(0)
    activation = model.get_activation([0])
    for _ in range(2_000):
        model.forward(0, activation, weight)


async def gather_and_forward(model: Model) -> None:
    activation = model.get_activation([0])
    for layer in range(model.LAYERS):
        shard, _ = model.load_weights(layer, model.rank, model.RANKS)
        weight = await model.allgather(shard, layer)
        activation = model.forward(layer, activation, weight)


async def pizza(model: Model) -> None:
    """Values that take no memory; one message is never read."""
    if model.rank == 0:
        await model.pass_to(1, "<script>alert('pizza')</script>")
        await model.pass_to(3, "extra cheese")
    if model.rank == 3:
        await model.receive()


async def wait_for_ever(model: Model) -> None:
    if model.rank:
        model.weights[0], model.opt_states[0] = model.load_weights(0)
        await model.allgather(model.weights[0], 0)
    await model.receive()


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("schedule", "size"),
    [
        (nothing, (1, 1, 1)),
        (nothing, (2, 2, 3)),
        (forward_on_rank_1, (1, 1, 2)),
        (many, (1, 1, 1)),
        (gather_and_forward, (130, 1, 2)),
        (gather_and_forward, (2, 1, 64)),
        (gallery.staircase, (1, 1, 40)),
        pytest.param(gather_and_forward, (1, 1, 300), marks=pytest.mark.slow),
        (pizza, (1, 1, 4)),
        (wait_for_ever, (1, 1, 2)),
    ],
)
def test_any_run_is_drawn_finished_or_not(schedule: Callable[[Model], Any], size: tuple[int, int, int]) -> None:
    trace = run(schedule, *size).trace
    picture = draw(trace)
    assert len(marks(picture)) == sum(len(trace.events(row.lane.rank)) for row in scene_of(trace).rows.every)
    assert svg(picture) == svg(draw(trace))


def test_a_run_without_events_says_so() -> None:
    assert "nothing has happened yet" in texts(draw(run(nothing, 2, 2, 2)))


def test_an_error_is_shown_and_the_rest_of_the_run_is_drawn() -> None:
    trace = run(pizza, 1, 1, 4).trace
    picture = draw(trace)
    assert any(text.startswith("Not correct: rank 0") for text in texts(picture))
    assert "never received" in root(picture).findtext(f"{SVG}desc", "")
    assert [node.get("d") for node in paths(picture, "stroke-dasharray", "3 3")] != []


def test_an_illegal_trace_is_drawn_to_its_end() -> None:
    trace = trace_of(FSDP)
    first, *others = trace.ranks
    forged = Trace(trace.size, (tuple(op for op in first if op.name != "load_weights"), *others))
    assert referee(forged).error is not None
    assert len(marks(draw(forged))) == 148


def test_a_forged_trace_with_nonsense_in_it_is_still_drawn() -> None:
    trace = trace_of(GPIPE)
    forged = Trace(trace.size, tuple(tuple(op._replace(args=("x", 99), layer=99) for op in ops) for ops in trace.ranks))
    assert len(marks(draw(forged))) == 124


def test_something_else_than_models_is_refused() -> None:
    with pytest.raises(PuzzleError, match="got NoneType"):
        draw([None])  # type: ignore[list-item]
    with approved_refusal("drawing", "something else than models is refused", PuzzleError):
        draw(None)  # type: ignore[arg-type]
    with approved_refusal("drawing", "something else than models is refused, 2", PuzzleError):
        draw(Trace(Size(1, 1, 1), ()))
    with pytest.raises(PuzzleError, match="got none"):
        draw([])


# --- Values and groups ---

VALUES: list[Value] = [
    Weight(1, 4, 0),
    Weight(1, 4, 1, {2}, 4),
    OptState(1, 4, 0, {0, 1}, 4),
    WeightGrad(1, 4, {0, 2}, 4, {3}, 4),
    WeightGrad(1, 4, set(), 4),
    Activation(2, 4, {1}, 4),
    Activation(4, 4, {0, 1, 2, 3}, 4),
    ActivationGrad(3, 4, {0, 1}, 4),
    ActivationGrad(-1, 4, {0}, 4),
    Weight(0, 1, 0, {5}, 1024),
    OptState(77, 130, 0),
    Activation(130, 130, {0}, 1024),
    Weight(4_999, 5_000, 0),
]


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_a_value_is_drawn_with_the_words_it_calls_itself(value: Value) -> None:
    assert f"{value} ({value.memory():,} elements)" in texts(draw_value(value))
    assert value._repr_html_() == svg(draw_value(value)) == svg(value.draw())


def test_equal_values_have_equal_pictures_and_others_do_not() -> None:
    pictures = [re.sub("<(title|desc|text).*", "", svg(draw_value(value))) for value in VALUES[:9]]
    assert len(set(pictures)) == 9
    assert svg(draw_value(Weight(1, 4, 0))) == svg(draw_value(VALUES[0]))


def test_a_gradient_is_at_the_output_of_the_layer_whose_backward_uses_it() -> None:
    held = drawing.values.held
    for layer in range(4):
        weight, grad = held(Weight(layer, 4, 0)), held(ActivationGrad(layer, 4, {0}, 4))
        inp, out = held(Activation(layer, 4, {0}, 4)), held(Activation(layer + 1, 4, {0}, 4))
        assert (inp.place, weight.place, grad.place) == (2 * layer, 2 * layer + 1, out.place)
        assert (inp.feeds, grad.feeds) == (1, -1)
    after_all = held(ActivationGrad(-1, 4, {0}, 4))
    assert (after_all.place, after_all.feeds) == (held(Activation(0, 4, {0}, 4)).place, 0)


def test_kinds_have_their_own_pattern() -> None:
    patterns = {drawing.values.held(value).mark[0]: drawing.values.held(value).pattern for value in VALUES[:8]}
    assert patterns == {"W": "plain", "o": "dots", "∇": "hatch", "A": "plain"}


def test_a_group_shows_its_keys_in_order() -> None:
    model = Model(layers=2, batches=4)
    model.activations[0] = model.get_activation([2, 3])
    model.activations[1, "b"] = model.get_activation([0])
    title, *rest = texts(draw_group(model.activations))
    approved("drawing", "a group shows its keys in order", title)
    first, second = str(model.activations[0]), str(model.activations[1, "b"])
    places = [i for i, text in enumerate(rest) if text == "(1, 'b')" or text.startswith((first, second))]
    assert [rest[i].split(" (")[0] for i in places] == [first, "(1, 'b')", second]


def test_a_value_under_two_keys_counts_once() -> None:
    weight = Weight(0, 1, 0)
    approved("drawing", "a value under two keys counts once", texts(draw_group({0: weight, 1: weight}))[0])


def test_the_group_of_final_weights_says_what_it_shows() -> None:
    finals = run(CLASSICS[0].solution, *CLASSICS[0].size).models[0].final_weights
    title, *rest = texts(draw_group(finals))
    approved("drawing", "the group of final weights says what it shows", title)
    assert str(finals[1]) in " ".join(rest)
    assert texts(draw_group(Model().final_weights)) == ["final weights: empty"]


@pytest.mark.parametrize(
    "shown", [draw(trace_of(FSDP)), Weight(0, 1, 0), draw_group({})], ids=["run", "value", "group"]
)
def test_a_notebook_stores_a_picture_once(shown: object) -> None:
    from IPython.core.formatters import DisplayFormatter

    formatter = DisplayFormatter()
    formatter.active_types = formatter.format_types
    stored, _ = formatter.format(shown)
    assert set(stored) == {"text/html", "text/plain"}
    assert stored["text/html"].count("<svg") == 1


def test_an_empty_group_and_a_large_one() -> None:
    assert texts(draw_group({})) == ["values: empty"]
    assert texts(draw_group({i: Weight(0, 1, 0) for i in range(1_000)}))[-1] == "and 952 more"


def test_whatever_a_player_stores_is_shown_as_text() -> None:
    class Rude:
        def __repr__(self) -> str:
            raise RuntimeError

    things = {"<script>alert('x')</script>": '"&<>\x00\ud800', 1: Rude(), Rude(): [Weight(0, 1, 0)]}
    picture = svg(draw_group(things))
    assert "<script" not in picture
    written = texts(draw_group(things))
    assert any(text.startswith('"<script>alert(') for text in written)
    assert written.count("<Rude>") == 2


def test_a_title_cannot_break_out_of_the_picture() -> None:
    picture = draw(run(nothing), title='"><script>alert(1)</script>')
    assert "<script" not in svg(picture)
    assert texts(picture)[0] == '"><script>alert(1)</script>'
    assert root(picture).get("aria-label") == '"><script>alert(1)</script>'


def test_what_is_no_value_or_no_dictionary_is_refused() -> None:
    with pytest.raises(PuzzleError, match="draw_value shows a Weight"):
        draw_value(3)  # type: ignore[arg-type]
    with pytest.raises(PuzzleError, match="draw_group shows a dictionary"):
        draw_group([Weight(0, 1, 0)])  # type: ignore[arg-type]
    with pytest.raises(PuzzleError, match="svg takes a diagram"):
        svg("x")  # type: ignore[arg-type]


def test_a_network_shows_all_that_a_model_holds() -> None:
    model = run(FSDP.solution, *FSDP.size).models[2]
    written = texts(draw_network(model))
    assert written[0] == f"rank 2, t=20.4: {model.memory():,} elements stored"
    for storage in model.storage():
        assert any(text.startswith(f"{storage.name}:") for text in written)
    approved("drawing", "a network shows all that a model holds", written, "final weights: 6 keys,")


# --- Pictures in notebooks and files ---


@pytest.mark.slow
def test_a_picture_is_a_chalk_diagram_that_chalk_can_use(tmp_path: Path) -> None:
    picture = draw(trace_of(FSDP))
    value = draw_value(Weight(0, 2, 0))
    assert isinstance(picture, chalk.Diagram)
    both = chalk.vcat([picture, value])
    assert both.get_envelope().height == pytest.approx(picture.height + value.height)
    both.render_svg(str(tmp_path / "both.svg"), height=500)
    assert "F5" in (tmp_path / "both.svg").read_text(encoding="utf-8")
    assert svg(both) == svg(chalk.vcat([picture, value]))


def test_chalk_sets_the_height_that_a_notebook_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chalk.core, "SVG_HEIGHT", chalk.core.SVG_HEIGHT)
    monkeypatch.setattr(chalk.core, "SVG_DRAW_HEIGHT", None)
    picture = draw(trace_of(FSDP))
    assert root(picture).get("width") == "1000"
    chalk.set_svg_height(650)
    chalk.set_svg_draw_height(600)
    assert root(picture).get("height") == "650"
    small = draw_value(Weight(0, 2, 0))
    assert root(small).get("height") == str(round(2 * small.height))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("asked", [1, 100, 400])
def test_no_height_makes_a_timeline_illegible(asked: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chalk.core, "SVG_HEIGHT", asked)
    shown = root(draw(trace_of(FSDP)))
    width, height = map(float, shown.get("viewBox", "").split()[2:])
    scale = int(shown.get("height", "0")) / height
    letters = [float(node.get("font-size", "inf")) for node in shown.iter()]
    assert min(letters) * scale == pytest.approx(8, abs=0.02)
    assert int(shown.get("width", "0")) == pytest.approx(width * scale, abs=1)


def test_a_picture_has_words_for_those_who_do_not_see_it() -> None:
    picture = draw(trace_of(FSDP))
    node = root(picture)
    assert node.get("role") == "img"
    approved("drawing", "a picture has words for those who do not see it", node.findtext(f"{SVG}title"))
    assert "19.9 steps" in node.findtext(f"{SVG}desc", "")
    assert "19.9 steps" in repr(picture)


def test_save_writes_what_svg_returns(tmp_path: Path) -> None:
    picture = draw_value(Weight(0, 2, 0))
    save(picture, tmp_path / "a.svg")
    save(svg(picture), str(tmp_path / "b.SVG"))
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.SVG").read_bytes() == svg(picture).encode()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.bmp", "the ending '.bmp' is unknown; use .svg, .png, .pdf, .html, .json or .txt"),
        ("a", "a name without an ending is unknown; use .svg, .png, .pdf, .html, .json or .txt"),
        ("no/such/folder/a.svg", "no such file or directory"),
    ],
)
def test_a_file_that_cannot_be_written_is_one_clear_line(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(PuzzleError, match=re.escape(message)) as caught:
        save(draw_value(Weight(0, 2, 0)), tmp_path / name)
    assert "\n" not in str(caught.value)


# --- The package ---


def test_drawing_takes_only_what_lib_exports() -> None:
    import lib
    from lib import layout, pipelines, planning

    exported = {module.__name__: {*module.__all__} for module in (lib, planning, pipelines, layout)}
    exported["lib.errors"] = {"install_command"}
    exported["lib.ledger.algebra"] = {"consecutive", "counted", "named"}
    exported["lib.planning.plans"] = {"LEAST_PART", "PARTS", "time_parts"}
    for path in sorted(Path(drawing.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").startswith("lib"):
                assert {alias.name for alias in node.names} <= exported.get(node.module or "", set()), path.name


def test_a_trace_with_other_costs_is_drawn_in_its_own_times() -> None:
    """Every operation three times as long: the scene follows the trace, and agrees with the referee."""
    trace = run(FSDP.solution, *FSDP.size).trace
    slow = Costs("slow", ticks={name: 3 * ticks for name, ticks in costs.CLASSIC_TICKS.items()})
    ranks = tuple(tuple(op._replace(start=3 * op.start, end=3 * op.end) for op in ops) for ops in trace.ranks)
    classic, scene = scene_of(trace), scene_of(Trace(trace.size, ranks, Setting(slow)))
    assert scene.report.error is None
    assert scene.end == scene.report.makespan == pytest.approx(3 * classic.end)
    assert [mark.start for mark in scene.marks] == pytest.approx([3 * mark.start for mark in classic.marks])
    assert len(scene.ties) == len(classic.ties) > 0


def test_the_length_of_a_step_is_that_of_the_trace() -> None:
    trace = run(FSDP.solution, *FSDP.size).trace
    end = scene_of(trace).end
    scene = scene_of(replace(trace, setting=Setting(Costs("half", unit=2 * costs.TICKS_PER_STEP))))
    assert scene.end == scene.report.makespan == end / 2
    assert Scale(10, 1).x(0) == LEFT


# === Runs of several training steps ===


@pytest.fixture(scope="module")
def trace() -> Trace:
    return run(pipeline(zb_h2), 2, 4, 2, setting=Setting("parts", steps=2)).trace


@pytest.fixture(scope="module")
def scene(trace: Trace) -> Scene:
    return scene_of(trace)


async def late_updates(model: Model) -> None:
    """Each gradient is summed beside computation, and its update comes in the forward of the next step."""
    weights, states, handles, layers = {}, {}, {}, range(model.LAYERS)
    for layer in layers:
        weights[layer], states[layer] = model.load_weights(layer)
    for step in range(model.dist.setting.steps):
        inputs = [model.get_activation([model.rank], step)]
        for layer in layers:
            if step:
                grad = await handles.pop(layer)
                weights[layer], states[layer] = model.update(layer, grad, weights[layer], states[layer])
            inputs.append(model.forward(layer, inputs[layer], weights[layer]))
        back = model.loss(inputs[-1])
        for layer in reversed(layers):
            grad, back = model.backward(layer, inputs[layer], back, weights[layer])
            handles[layer] = model.allreduce(grad, layer)
    for layer in layers:
        weights[layer], _ = model.update(layer, await handles.pop(layer), weights[layer], states[layer])
        model.set_final_weight(layer, weights[layer])


def test_an_event_belongs_to_the_step_of_its_data(scene: Scene) -> None:
    """Every rank does the same number of things in each step, one step after the other."""
    assert scene.report.error is None
    for lane in scene.lanes:
        half = len(lane.marks) // 2
        assert [mark.step for mark in lane.marks] == [0] * half + [1] * half


def test_an_average_belongs_to_the_step_that_it_ends() -> None:
    trace = run(shards.local_sgd(2), 1, 2, 2, setting=Setting("slow", steps=4, task="local")).trace
    steps = [mark.step for mark in scene_of(trace).lanes[1].marks if mark.op.name == "allreduce"]
    assert steps == [1, 3]


def test_a_gather_of_updated_weights_belongs_to_the_step_that_uses_them() -> None:
    async def gather_twice(model: Model) -> None:
        weight, state = model.load_weights(0, model.rank, 2)
        for step in range(2):
            whole = await model.allgather(weight, 0)
            inp = model.get_activation([model.rank], step)
            grad, _ = model.backward(0, inp, model.loss(model.forward(0, inp, whole)), whole)
            weight, state = model.update(0, await model.scatterreduce(grad, 0), weight, state)
        model.set_final_weight(0, await model.allgather(weight, 0))

    scene = scene_of(run(gather_twice, 1, 2, 2, setting=Setting(steps=2)).trace)
    assert scene.report.error is None
    assert [mark.step for mark in scene.lanes[0].marks if mark.op.name == "allgather"] == [0, 1, 1]


def test_steps_of_one_rank_may_alternate_and_streams_have_their_own() -> None:
    scene = scene_of(run(late_updates, 2, 2, 2, setting=Setting("overlap", steps=2)).trace)
    assert scene.report.error is None
    for lane in scene.lanes:
        assert [band.step for band in lane.bands(0, scene.end)] == [0, 1, 0, 1]
        assert [band.step for band in lane.bands(1, scene.end)] == [0, 1]
        for stream in (0, 1):
            bands = lane.bands(stream, scene.end)
            assert bands[0].start == 0.0
            assert bands[-1].end == scene.end
            for mark in lane.on(stream):
                assert any(b.step == mark.step and b.start <= mark.start <= mark.end <= b.end for b in bands)


def test_a_run_of_one_step_is_drawn_as_ever(trace: Trace) -> None:
    once = scene_of(run(pipeline(zb_h2), 2, 4, 2, setting=Setting("parts")).trace)
    assert {mark.step for mark in once.marks} == {None}
    assert [lane.bands(0, once.end) for lane in once.lanes] == [[], []]
    assert "step 0" not in drawing.svg(drawing.draw(once.trace))
    assert "training step" not in drawing.text(once.trace)


def test_the_picture_has_bands_borders_and_numbers(trace: Trace, scene: Scene) -> None:
    picture = drawing.svg(drawing.draw(trace))
    assert ">step 0<" in picture
    assert ">step 1<" in picture
    assert "shaded: step 1" in picture
    border = scene.lanes[1].bands(0, scene.end)[1].start
    assert f"1: step 1, t={border:g} to {scene.end:g}" in picture
    approved("steps", "the picture has bands borders and numbers", picture, "rank 1: forward layer")
    assert name_of(scene).endswith("2 steps")


def test_the_text_has_a_row_of_steps_below_each_rank(trace: Trace, scene: Scene) -> None:
    rows = drawing.text(trace).splitlines()
    below = [rows[i + 1] for i, row in enumerate(rows) if row.startswith("rank ")][:2]
    column = rows[next(i for i, row in enumerate(rows) if row.startswith("rank 0"))].index("F")
    wide = (len(below[0]) - column) / scene.end
    for lane, row in zip(scene.lanes, below):
        assert row.startswith("step")
        found = [(int(step[0]), step.start()) for step in re.finditer(r"\d+", row[column:])]
        assert [step for step, _ in found] == [0, 1]
        assert found[1][1] == round(lane.bands(0, scene.end)[1].start * wide)


def test_page_and_viewer_say_the_step_of_each_operation(trace: Trace, scene: Scene, tmp_path: Path) -> None:
    data = run_data(scene)
    assert [band[4] for band in data["bands"]] == [0, 1, 0, 1]
    assert all(f"of step {mark.step}," in words for mark, words in zip(scene.marks, data["words"], strict=True))
    assert "shaded: step 1" in web_page(scene, "two steps")
    drawing.save(trace, str(tmp_path / "run.json"))
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    shown = [event["args"]["step"] for event in events if event["ph"] == "X" and event["cat"] != "idle"]
    assert shown == [mark.step for mark in scene.marks]


def test_a_refused_run_is_drawn_as_far_as_it_is_known(trace: Trace) -> None:
    ops = trace.ranks[0]
    at = next(i for i, op in enumerate(ops) if op.name == "forward")
    broken = replace(trace, ranks=((*ops[:at], ops[at]._replace(end=99), *ops[at + 1 :]), trace.ranks[1]))
    scene = scene_of(broken)
    assert scene.report.error is not None
    assert scene.lanes[0].marks[0].step is None
    assert ">step 0<" not in drawing.svg(drawing.draw(broken))


def test_every_kind_of_value_has_a_step() -> None:
    """Parked values, buckets and zeros too."""

    async def parks(model: Model) -> None:
        weight, state = model.load_weights(0)
        for step in range(2):
            parked = await model.offload(model.get_activation([0], step))
            inp = await model.fetch(parked)
            grad, _ = model.backward(0, inp, model.loss(model.forward(0, inp, weight)), weight)
            total: WeightGrad = grad + model.fake_grad(0, [], step)
            weight, state = model.update(0, total, weight, state)
        model.set_final_weight(0, weight)

    trace = run(parks, 1, 1, 1, setting=Setting(COSTS["copies"], steps=2)).trace
    (steps,) = event_steps(trace)
    named = [(op.name, step) for op, step in zip(trace.ranks[0], steps) if op.name not in ("load_weights", "await")]
    assert [step for name, step in named if name == "offload"] == [0, 1]
    assert sorted(named, key=lambda pair: pair[1]) == named
