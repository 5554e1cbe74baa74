"""Colours: told apart with each kind of colour blindness, and what each box of a coloured run shows.

Simulated as in Machado, Oliveira and Fernandes (2009), "A Physiologically-based Model for Simulation of Color Vision
Deficiency", for full deficiency; distances are those of CIELAB, where 2 is just noticeable.
"""

import json
import re
from collections import Counter
from collections.abc import Callable
from itertools import combinations, pairwise
from math import dist
from pathlib import Path
from typing import Any

import pytest

from drawing import draw, draw_compare, draw_replay, save, svg, text
from drawing.glyphs import draw_text, glyph_of
from drawing.html import run_data
from drawing.palette import (
    BATCHES,
    CALLS,
    CRITICAL,
    INK,
    KINDS,
    OPERATIONS,
    PAPER,
    STROKE,
    batch_colour,
    dark_variant,
    layer_colour,
    luminance,
    text_on,
)
from drawing.scene import COLOURS, PAINTS, Colouring, Scene, chunk_bars, scene_of, tinted
from drawing.timeline import Scale, frame_of
from lib import PuzzleError, Setting, Trace, run
from lib.pipelines import gpipe, interleaved, one_f_one_b, pipeline, zb_h1, zb_v
from puzzles import text_lines

RGB = tuple[float, ...]
VISION: dict[str, tuple[RGB, RGB, RGB]] = {
    "full": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
XYZ = ((0.4339, 0.3762, 0.1899), (0.2126, 0.7152, 0.0722), (0.0178, 0.1095, 0.8730))
"""From linear sRGB, relative to white."""


def seen(colour: str, vision: str) -> RGB:
    """A colour in CIELAB, as somebody sees it."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    light = [min(max(sum(a * b for a, b in zip(row, linear, strict=True)), 0), 1) for row in VISION[vision]]
    x, y, z = (curve(sum(a * b for a, b in zip(row, light, strict=True))) for row in XYZ)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def curve(t: float) -> float:
    return t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116


def apart(one: str, other: str, vision: str) -> float:
    return dist(seen(one, vision), seen(other, vision))


def contrast(one: str, other: str) -> float:
    """As WCAG defines it, from 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("tone", [str, dark_variant], ids=["light", "dark"])
def test_colours_can_be_told_apart(vision: str, tone: Callable[[str], str]) -> None:
    kinds = [tone(colour) for colour in KINDS.values()]
    assert min(apart(a, b, vision) for a, b in combinations(kinds, 2)) > 15
    calls = [tone(colour) for colour in CALLS.values()]
    assert min(apart(a, b, vision) for a, b in combinations(calls, 2)) > 10
    layers = [tone(layer_colour(layer, 8)) for layer in range(8)]
    assert min(apart(a, b, vision) for a, b in pairwise(layers)) > 5
    assert min(apart(a, b, vision) for a, b in zip(layers, layers[3:], strict=False)) > 20
    assert min(apart(tone(CRITICAL), tone(other), vision) for other in (STROKE, INK)) > 20


# === Runs coloured by microbatch or by operation ===


NEW = ("microbatch", "operation")
TONES = [str, dark_variant]


def trace_of(order: Any, layers: int, batches: int, ranks: int, costs: str = "stages", **sizes: int) -> Trace:
    return run(pipeline(order, **sizes), layers, batches, ranks, setting=Setting(costs=costs)).trace


@pytest.fixture(scope="module")
def eight() -> Trace:
    return trace_of(one_f_one_b, 4, 8, 4)


@pytest.fixture(scope="module")
def halves() -> Trace:
    return trace_of(zb_v, 8, 8, 4, "parts")


def shapes(picture: Any, fill: str) -> int:
    return svg(picture).count(f'fill="{fill}"')


# --- The palettes ---


@pytest.mark.parametrize("tone", TONES, ids=["light", "dark"])
def test_text_on_every_box_has_the_contrast_that_wcag_asks_of_small_text(tone: Callable[[str], str]) -> None:
    fills = [PAINTS[name](hue)[0] for hue in BATCHES for name in ("forward", "backward_weight", "backward")]
    fills += OPERATIONS.values()
    assert min(contrast(tone(fill), tone(text_on(fill))) for fill in fills) >= 4.5


@pytest.mark.parametrize("vision", VISION)
def test_microbatches_that_meet_differ_and_of_32_no_two_are_alike(vision: str) -> None:
    assert len(BATCHES) == 32
    neighbours = [pair for n in range(1, 5) for pair in zip(BATCHES, BATCHES[n:], strict=False)]
    assert min(apart(a, b, vision) for a, b in neighbours) > 14
    assert min(apart(tinted(a)[0], tinted(b)[0], vision) for a, b in neighbours) > 6.5
    assert min(apart(a, b, vision) for a, b in combinations(BATCHES, 2)) > (14 if vision == "full" else 5.9)
    assert min(apart(tinted(hue)[0], hue, vision) for hue in BATCHES) > 14  # forward and backward of a microbatch


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("tone", TONES, ids=["light", "dark"])
def test_operations_can_be_told_apart(vision: str, tone: Callable[[str], str]) -> None:
    assert min(apart(tone(a), tone(b), vision) for a, b in combinations(OPERATIONS.values(), 2)) > 14


# --- What a box shows ---


@pytest.mark.slow
def test_without_the_option_a_picture_is_as_ever(eight: Trace) -> None:
    assert svg(draw(eight)) == svg(draw(eight, colour="layer"))
    assert len({svg(draw(eight, colour=colour)) for colour in COLOURS}) == 3


@pytest.mark.slow
def test_by_microbatch_each_has_a_hue_pale_in_forward_and_full_in_backward(eight: Trace) -> None:
    picture = draw(eight, colour="microbatch")
    for batch in range(8):
        hue = batch_colour(batch)
        samples = 2 if batch == 0 else 1  # in the legend: its swatch, and of the first one the operation
        assert shapes(picture, tinted(hue)[0]) == shapes(picture, hue) == 4 + samples


@pytest.mark.slow
def test_by_microbatch_the_halves_of_backward_differ(halves: Trace) -> None:
    picture = draw(halves, colour="microbatch")
    for batch in range(1, 8):
        hue = batch_colour(batch)
        assert (shapes(picture, hue), shapes(picture, PAINTS["backward_weight"](hue)[0])) == (8 + 1, 8)


def test_by_operation_forward_and_both_halves_have_one_colour_each(halves: Trace) -> None:
    picture = draw(halves, colour="operation")
    for name in ("forward", "backward_input", "backward_weight"):
        assert shapes(picture, OPERATIONS[name]) == 8 * 8 + 1
    assert not shapes(picture, OPERATIONS["backward"])


def first_line(scene: Scene, mark: Any, scale: Scale) -> str:
    """The bold text of a box, from top to bottom."""
    labels = draw_text(mark, glyph_of(mark.op.name), frame_of(mark, scene, scale), PAPER, scene.colouring)
    return "".join(label.shape.text for label in labels)  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("colour", NEW)
def test_of_32_microbatches_every_box_keeps_its_number(colour: str) -> None:
    scene = scene_of(trace_of(one_f_one_b, 4, 32, 4), colour=colour)
    scale = Scale.of(scene)
    boxes = [mark for mark in scene.marks if mark.op.name in ("forward", "backward")]
    wrong = [
        mark.op for mark in boxes if not re.fullmatch(rf"{min(mark.op.batches)}[FB]?", first_line(scene, mark, scale))
    ]
    assert (len(boxes), wrong) == (4 * 32 * 2, [])
    legend = svg(draw(scene.trace, colour="microbatch")).rpartition(">microbatch<")[2]
    assert all(f">{batch}<" in legend for batch in range(32))


@pytest.mark.slow
def test_a_rank_with_several_layers_also_shows_the_layer(eight: Trace) -> None:
    two = scene_of(trace_of(gpipe, 8, 4, 4), colour="microbatch")
    assert {two.colouring.layer_text(mark) for mark in two.lanes[1].marks if mark.op.name == "forward"} == {"2", "3"}
    assert {scene_of(eight, colour="microbatch").colouring.layer_text(mark) for mark in two.lanes[0].marks} == {""}


# --- Chunks ---


@pytest.mark.parametrize("v", [2, 3])
def test_a_bar_shows_the_chunk(v: int) -> None:
    bars = scene_of(trace_of(interleaved, 4 * v, 4, 4, v=v), colour="operation").colouring.bars
    assert bars == {(rank, rank + 4 * chunk): chunk / (v - 1) for rank in range(4) for chunk in range(v)}


@pytest.mark.slow
def test_chunks_that_touch_at_the_turn_of_a_v_are_two(halves: Trace) -> None:
    bars = scene_of(halves, colour="microbatch").colouring.bars
    assert bars == {(rank, layer): float(layer > 3) for rank in range(4) for layer in (rank, 7 - rank)}
    assert "bar: chunk" in svg(draw(halves, colour="microbatch"))
    assert "bar: chunk" not in svg(draw(halves))


def test_stages_of_unequal_length_are_not_chunks() -> None:
    assert chunk_bars({0: [0, 1], 1: [2, 3], 2: [4], 3: []}) == {}
    assert chunk_bars({0: [0, 1, 4, 5], 1: [2, 3, 6, 7]}) == {
        (rank, layer): float(layer > 3) for rank, layers in ((0, (0, 1, 4, 5)), (1, (2, 3, 6, 7))) for layer in layers
    }
    assert chunk_bars({}) == {}


# --- Every form ---


def test_text_has_the_microbatch_behind_the_letter(eight: Trace, halves: Trace) -> None:
    shown = text(eight, colour="microbatch")
    assert "rank 0 F0F1F2F3" in shown
    assert "number: the microbatch" in shown
    assert "number: the microbatch" not in text(eight)
    assert "number: the microbatch" not in text(halves, colour="microbatch")  # a column for each box


def page_data(path: Path) -> Any:
    """The data of a page for the colours that it begins with; it can show the others too."""
    data = json.loads(path.read_text(encoding="utf-8").partition('id="run">')[2].partition("</script>")[0])
    assert set(data["colourings"]) == set(COLOURS)
    return {**data, **data["colourings"][data["colour"]]}


@pytest.mark.slow
def test_the_page_has_the_same_colours_numbers_and_bars(halves: Trace, tmp_path: Path) -> None:
    page = tmp_path / "x.html"
    for picture in (halves, draw(halves, colour="microbatch")):  # of a run, and of its picture
        save(picture, page, colour="microbatch")
        data = page_data(page)
        looks = {
            data["looks"][look]["fill"][0] for look, words in zip(data["look"], data["words"]) if "forward" in words
        }
        assert looks == {tinted(batch_colour(batch))[0] for batch in range(8)}
        assert {tuple(label) for label in data["label"] if label[-1] == "F7"} == {(str(b), "F7") for b in range(8)}
        assert {look["bar"] for look in data["looks"]} == {0, 1}
        assert [data["swatches"][str(batch)][0][0] for batch in range(8)] == [batch_colour(batch) for batch in range(8)]
    save(halves, page, colour="operation")
    assert page_data(page)["swatches"]["W"][0][0] == OPERATIONS["backward_weight"]
    save(halves, page)
    assert (page_data(page)["swatches"], {look["bar"] for look in page_data(page)["looks"]}) == ({}, {0})


@pytest.mark.slow
def test_comparisons_and_replays_are_coloured_too(eight: Trace) -> None:
    other = trace_of(zb_h1, 4, 8, 4, "parts")
    times = [[(op.start * 1e-3, op.end * 1e-3) for op in eight.events(rank)] for rank in range(4)]
    for picture in (
        draw_compare(eight, other, colour="operation"),
        draw_replay(eight, times, colour="operation"),
    ):
        assert shapes(picture, OPERATIONS["forward"]) == 2 * 4 * 8 + 1


def test_an_unknown_colour_is_one_clear_error(eight: Trace, tmp_path: Path) -> None:
    calls: list[Callable[[str], Any]] = [
        lambda colour: draw(eight, colour=colour),
        lambda colour: draw_compare(eight, eight, colour=colour),
        lambda colour: draw_replay(eight, [[]] * 4, colour=colour),
        lambda colour: text(eight, colour=colour),
        lambda colour: save(eight, tmp_path / "x.svg", colour=colour),
    ]
    for call in calls:
        for wrong in ("stage", "Microbatch", ""):
            with pytest.raises(PuzzleError) as refusal:
                call(wrong)
            assert all(repr(word) in str(refusal.value) for word in (*COLOURS, wrong))
    assert list(tmp_path.iterdir()) == []


def test_commands_know_the_colours_that_drawing_has() -> None:
    assert text_lines.COLOURS == COLOURS


@pytest.mark.slow
def test_a_narrow_box_keeps_its_microbatch_where_its_lane_has_one_layer() -> None:
    one = trace_of(one_f_one_b, 4, 12, 4, "stages")
    assert Colouring.of("layer", 4, scene_of(one).lanes).varied == frozenset()
    drawn = svg(draw(one))
    shown = Counter(re.findall(r">b?(\d+)<", drawn))
    assert all(shown[str(batch)] >= 2 * 4 for batch in range(12))  # in forward and in backward, on every rank
    labels = run_data(scene_of(one))["colourings"]["layer"]["label"]
    assert ["F0", "b11", "11"] in labels
    two = trace_of(interleaved, 8, 8, 4, "stages")  # here the layer says more
    assert ["F4", "b7"] in run_data(scene_of(two))["colourings"]["layer"]["label"]
