"""Pictures in programs that are no browser: CairoSVG and librsvg draw every kind, in its shape, and alike."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from importlib import import_module
from io import BytesIO
from pkgutil import walk_packages

import pytest
from PIL import Image, ImageChops, ImageFilter, ImageStat

import drawing
from docs.generate import gallery
from drawing import (
    draw,
    draw_compare,
    draw_group,
    draw_network,
    draw_plans,
    draw_replay,
    draw_runs,
    draw_steps,
    draw_value,
    draw_waterfall,
    svg,
)
from drawing import files as raster
from drawing.picture import Picture
from drawing.predicted_vs_measured import plain_scene
from lib import Outcome, Weight, run
from lib.planning import Job, Split, gpu, plan, transformer

RSVG = shutil.which("rsvg-convert")


def by_cairo(source: str, width: int | None) -> bytes:
    cairo = raster.cairo()  # which takes long to import
    if cairo is None:
        pytest.skip("needs CairoSVG and the system's Cairo library")
    return bytes(cairo.svg2png(bytestring=source.encode(), output_width=width))


def by_rsvg(source: str, width: int | None) -> bytes:
    if RSVG is None:
        pytest.skip("needs rsvg-convert, of the system package librsvg2-bin")
    wanted = [] if width is None else [f"--width={width}", "--keep-aspect-ratio"]
    return subprocess.run([RSVG, *wanted], input=source.encode(), capture_output=True, check=True).stdout


def small() -> Outcome:
    return run(gallery.one_layer, 1, 1, 1)


def replay() -> Picture:
    trace = small().trace
    return draw_replay(trace, [[(op.start, op.end) for op in trace.events(0)]])


def some_job() -> Job:
    return Job(transformer("llama-3-8b", layers=4), gpu("h100"), 4, 8, 4096)


def some_plans() -> Picture:
    return draw_plans([plan(some_job(), Split(dp=4)), plan(some_job(), Split(dp=2, tp=2))])


IN_THE_GALLERY = {
    "draw": "one_layer", "draw_pareto": "pareto", "draw_layout": "layout_tensor", "draw_plan": "layout_plan",
    "draw_redistribution": "layout_moves", "draw_propagation": "layout_steps", "draw_holders": "layout_holders",
}  # fmt: skip
"""By function of `drawing`: a picture that it drew, from docs/pictures, which another test compares with what is drawn
today."""

MADE: dict[str, Callable[[], str]] = {
    "draw_compare": lambda: svg(draw_compare(small(), small())),
    "draw_group": lambda: svg(draw_group(gallery.values())),
    "draw_network": lambda: svg(draw_network(small().models[0])),
    "draw_plans": lambda: svg(some_plans()),
    "draw_replay": lambda: svg(replay()),
    "draw_runs": lambda: svg(draw_runs({"measured": plain_scene(small().trace)}, "runs", bar={"all": 100.0})),
    "draw_waterfall": lambda: svg(draw_waterfall(plan(some_job(), Split(dp=4)), "Where time goes", 1.0)),
    "draw_steps": lambda: svg(draw_steps(plan(some_job(), Split(dp=4)))),
    "draw_value": lambda: svg(draw_value(Weight(1, 4, 0, {2}, 4))),
}
ODD: dict[str, Callable[[], str]] = {
    "on dark paper": lambda: svg(draw(small(), dark=True)),
    "wider than a page": lambda: svg(draw(run(gallery.gathered, 30, 1, 1))),
}


def source_of(name: str) -> str:
    made = {**MADE, **ODD}.get(name)
    if made is not None:
        return made()
    return (gallery.FOLDER / f"{IN_THE_GALLERY.get(name, name)}.svg").read_text(encoding="utf-8")


def in_grey(png: bytes) -> Image.Image:
    """On white paper, as pictures are shown."""
    picture = Image.open(BytesIO(png)).convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("L")


def test_every_kind_of_picture_is_rendered() -> None:
    kinds = set()
    for found in walk_packages(drawing.__path__, "drawing."):
        for name, function in vars(import_module(found.name)).items():
            returned = getattr(function, "__annotations__", {}).get("return")
            if name.startswith("draw") and getattr(returned, "__name__", returned) in ("Picture", "Timeline"):
                kinds.add(name)
    assert kinds - {"draw_scene"} == {*IN_THE_GALLERY, *MADE}


REST = sorted({path.stem for path in gallery.FOLDER.glob("*.svg")} - {*IN_THE_GALLERY.values()})
NAMES = [*IN_THE_GALLERY, *MADE, *ODD]
CASES = [
    pytest.param(render, name, marks=[] if name in quick else [pytest.mark.slow])
    for render, quick in ((by_cairo, NAMES[::4]), (by_rsvg, NAMES[:1]))
    for name in [*NAMES, *REST]
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("render", "name"), CASES)
def test_it_is_not_blank_and_keeps_its_shape_with_and_without_a_width(render: Callable[..., bytes], name: str) -> None:
    source = source_of(name)
    across, down = raster.size_of(source)
    for width in (None, 500):
        picture = in_grey(render(source, width))
        assert picture.size[0] == width or picture.size == (across, down)
        assert picture.height == pytest.approx(picture.width * down / across, abs=1 + down / across)
        assert ImageStat.Stat(picture).stddev[0] > 5, "it is blank"


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NAMES, *REST])
def test_both_draw_the_same(name: str) -> None:
    """Text is antialiased differently, so what is compared is blurred."""
    one, two = (in_grey(render(source_of(name), 500)) for render in (by_cairo, by_rsvg))
    blurred = [each.resize(one.size).filter(ImageFilter.GaussianBlur(3)) for each in (one, two)]
    assert ImageStat.Stat(ImageChops.difference(*blurred)).mean[0] < 4
