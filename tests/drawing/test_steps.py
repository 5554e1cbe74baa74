"""Pictures of a run of several training steps: each format shows which step an operation belongs to."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest

import drawing
from drawing.html import run_data, web_page
from drawing.run_text import name_of
from drawing.scene import Scene, scene_of
from lib import COSTS, Model, Setting, Trace, event_steps, run
from lib.ledger.values import WeightGrad
from lib.pipelines import pipeline, zb_h2
from tests.screens.texts import approved
from tests.support.schedules import shards


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
        found = [(int(step), start) for step, start in numbers_in(row, column)]
        assert [step for step, _ in found] == [0, 1]
        assert found[1][1] == round(lane.bands(0, scene.end)[1].start * wide)


def numbers_in(row: str, column: int) -> list[tuple[str, int]]:
    groups, at = [], 0
    for digit, letters in groupby(row[column:], key=str.isdigit):
        word = "".join(letters)
        if digit:
            groups.append((word, at))
        at += len(word)
    return groups


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
