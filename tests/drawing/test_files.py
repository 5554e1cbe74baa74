"""Files: text, JSON for trace viewers, web pages, PNG and PDF, and renderers that are no browser."""

import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from importlib import import_module
from io import BytesIO
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pytest
from PIL import Image, ImageChops, ImageFilter, ImageStat

import drawing
from docs.generate import gallery
from drawing import (
    Timeline,
    draw,
    draw_compare,
    draw_group,
    draw_network,
    draw_pareto,
    draw_plans,
    draw_replay,
    draw_runs,
    draw_steps,
    draw_value,
    draw_waterfall,
    save,
    svg,
    text,
)
from drawing import files as raster
from drawing.files import OF_A_RUN, viewer_json
from drawing.html import web_page
from drawing.predicted_vs_measured import plain_scene
from drawing.scene import needs, scene_of
from lib import Model, Outcome, PuzzleError, Weight, run
from lib.planning import Job, Split, gpu, plan, transformer
from puzzles.catalog.schedule import PUZZLES
from tests.screens.texts import approved, approved_refusal
from tests.support import CLASSICS, Classic

# === Text, JSON and web pages ===


HOSTILE = "\"><script>alert('x')</script> & </script><!--"


def nothing(model: Model) -> None:
    """Every rank is idle."""


def timeline(slug: str) -> Timeline:
    return draw(gallery.solved(slug), slug)


# --- Text ---


def test_a_run_as_text() -> None:
    approved("forms", "a run as text", text(gallery.solved("grad_accum"), "One at a time", 60))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("classic", CLASSICS, ids=lambda classic: classic.slug)
@pytest.mark.parametrize("width", [40, 80, 200])
def test_text_keeps_to_its_width(classic: Classic, width: int) -> None:
    lines = text(run(classic.solution, *classic.size), width=width).splitlines()
    assert max(map(len, lines)) <= width + 1
    lanes = [line for line in lines if line.startswith("rank ")]
    sends = classic.size.ranks > 1
    assert len(lanes) == (3 if sends else 2) * classic.size.ranks


def test_text_has_a_bar_of_what_each_rank_sends() -> None:
    lines = text(gallery.solved("gpipe"), width=60).splitlines()
    heading = lines.index("elements that each rank sends, a letter for each 24,385")
    assert lines[heading + 1 : heading + 3] == [f"rank 0 {'s' * 22} 524,288", f"rank 1 {'s' * 43} 1,048,576"]
    both = f"rank 3 {'<' * 29}{'>' * 14} 3,538,944"
    assert both in text(gallery.solved("fsdp"), width=60).splitlines(), "a weight is gathered twice"
    assert "sends" not in text(gallery.solved("basic")), "one rank sends nothing"


def test_text_has_a_lane_for_each_rank_and_says_what_is_idle() -> None:
    written = text(gallery.solved("gpipe"), width=80)
    assert "rank 3 ..............F-F7" in written
    assert ". idle" in written
    assert ". idle" not in text(gallery.solved("fsdp"))


@pytest.mark.slow
def test_text_of_runs_that_are_hard_to_draw() -> None:
    assert "rank 0 ." in text(run(nothing, 2, 2, 2))
    assert "Not finished" in text(run(nothing, 2, 2, 2))
    many = text(run(gallery.staircase, 1, 1, 130), width=60)
    assert "and 2 more ranks" in many
    assert len(text(run(gallery.forward_often, 1, 1, 4)).splitlines()[4]) <= 100


def test_text_that_is_too_narrow_is_refused() -> None:
    with approved_refusal("forms", "text that is too narrow is refused", PuzzleError):
        text(gallery.solved("ddp"), width=39)


# --- JSON for trace viewers ---


def viewed(slug: str) -> dict[str, Any]:
    return json.loads(viewer_json(scene_of(gallery.solved(slug).trace), slug))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("classic", CLASSICS, ids=lambda classic: classic.slug)
def test_the_viewer_gets_each_event_once_and_each_rank_by_name(classic: Classic) -> None:
    outcome = run(classic.solution, *classic.size)
    events = viewed(classic.slug)["traceEvents"]
    work = Counter(event["tid"] - 1 for event in events if event["ph"] == "X" and event["name"] != "idle")
    assert work == {rank: len(outcome.trace.events(rank)) for rank in range(classic.size.ranks)}
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert names == {rank + 1: f"rank {rank}" for rank in range(classic.size.ranks)}


def test_times_memory_and_waits_in_the_viewer() -> None:
    events = viewed("gpipe")["traceEvents"]
    first = next(event for event in events if event["ph"] == "X")
    assert (first["name"], first["ts"], first["dur"]) == ("F0 b0", 0, 1000)
    assert first["args"].pop("line") > 0
    assert first["args"] == {"layer": 0, "microbatches": [0], "memory": 1_179_648}
    counters = [event for event in events if event["ph"] == "C" and event["name"] == "rank 1"]
    assert max(sum(event["args"].values()) for event in counters) == 4_194_304
    idle = next(event for event in events if event["name"] == "idle")
    approved("forms", "times memory and waits in the viewer", idle["args"]["why"], "waits for rank 1")


def test_messages_and_collectives_have_flow_arrows() -> None:
    events = viewed("pipeline_fsdp")["traceEvents"]
    slices = {(e["tid"], e["ts"]) for e in events if e["ph"] == "X"}
    flows = [event for event in events if event["ph"] in "stf"]
    assert all((event["tid"], event["ts"]) in slices for event in flows)
    by_id: dict[int, list[str]] = {}
    for event in flows:
        by_id.setdefault(event["id"], []).append(event["ph"])
    shapes = Counter("".join(phases) for phases in by_id.values())
    assert shapes == {"sf": 24, "s" + 14 * "t" + "f": 12}


# --- What needs what ---


def described(scene: Any, numbers: Any) -> list[str]:
    marks = list(scene.marks)
    return [f"{marks[i].rank} {marks[i].op.name} {marks[i].op.layer}" for i in numbers]


def test_needs_go_through_what_takes_no_time() -> None:
    scene = scene_of(gallery.solved("gpipe").trace)
    found = needs(scene)
    update = next(mark for mark in scene.marks if mark.op.name == "update")
    assert described(scene, found[update.number]) == ["0 backward 0"] * 4  # summed with '+', batch by batch


def test_a_receive_needs_its_send_and_a_collective_its_group() -> None:
    scene = scene_of(gallery.solved("pipeline_fsdp").trace)
    found = needs(scene)
    receive = next(mark for mark in scene.marks if mark.op.name == "receive")
    assert described(scene, found[receive.number]) == ["1 pass_to None"]
    assert [len(tie.members) for tie in scene.ties] == [16] * 12


def test_nothing_needs_what_comes_later() -> None:
    for classic in CLASSICS:
        scene = scene_of(run(classic.solution, *classic.size).trace)
        marks = list(scene.marks)
        assert all(marks[j].end <= marks[i].start for i, list_ in enumerate(needs(scene)) for j in list_)


# --- The web page ---


class Reader(HTMLParser):
    """The parts of a page."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.links: list[str] = []
        self.texts: dict[str, str] = {}
        self._open = ""
        self.feed(source)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self._open = tag
        self.links += [value or "" for name, value in attributes if name in ("src", "href", "action")]

    def handle_data(self, data: str) -> None:
        self.texts[self._open] = self.texts.get(self._open, "") + data


def test_the_page_loads_nothing_from_anywhere() -> None:
    source = web_page(scene_of(gallery.solved("gpipe").trace), "GPipe")
    reader = Reader(source)
    assert reader.links == []
    assert not re.search(r"https?://|@import|url\(|fetch\(|XMLHttp|import\(", source)
    assert "default-src 'none'" in source


def test_hostile_text_comes_out_as_text() -> None:
    async def schedule(model: Model) -> None:
        model.weights[HOSTILE], _ = model.load_weights(0)
        await model.pass_to(0, HOSTILE)

    source = web_page(scene_of(run(schedule, 1, 1, 1).trace), HOSTILE)
    reader = Reader(source)
    assert reader.texts["title"].startswith(HOSTILE)
    assert reader.texts["h1"].startswith(HOSTILE)
    assert reader.tags["script"] == 2
    assert "<script>alert" not in source


def test_the_page_has_a_text_alternative_and_names_for_its_controls() -> None:
    reader = Reader(web_page(scene_of(gallery.solved("gpipe").trace), "GPipe"))
    assert "rank 0 F0" in reader.texts["pre"]
    assert "33.3 steps" in reader.texts["canvas"]
    assert (reader.tags["button"], reader.tags["canvas"]) == (6, 1)


# --- Files ---


def test_the_format_follows_the_ending(tmp_path: Path) -> None:
    picture = timeline("ddp")
    starts = {
        "svg": "<svg ",
        "html": "<!doctype html>",
        "json": '{"displayTimeUnit"',
        "txt": "ddp\nData parallelism\n5.1 steps",
    }
    for ending, start in starts.items():
        file = tmp_path / f"ddp.{ending}"
        save(picture, file)
        assert file.read_text(encoding="utf-8").startswith(start)
        first = file.read_bytes()
        save(timeline("ddp"), file)
        assert file.read_bytes() == first


def test_a_run_is_saved_without_drawing_it_first(tmp_path: Path) -> None:
    outcome = gallery.solved("ddp")
    for ending in (".svg", *OF_A_RUN):
        save(timeline("ddp"), tmp_path / f"drawn{ending}")
        save(outcome, tmp_path / f"run{ending}", "ddp")
        assert (tmp_path / f"drawn{ending}").read_bytes() == (tmp_path / f"run{ending}").read_bytes()
    save(outcome.models, tmp_path / "x.svg", goal=PUZZLES["ddp"].goal, critical=True)
    assert "critical path" in (tmp_path / "x.svg").read_text(encoding="utf-8")
    with approved_refusal("forms", "a run is saved without drawing it first", PuzzleError):
        save(3, tmp_path / "x.html")  # type: ignore[arg-type]


def test_what_is_no_run_has_no_page(tmp_path: Path) -> None:
    picture = draw_pareto(PUZZLES["ddp"].goal)
    for ending in (".html", ".json", ".txt"):
        with pytest.raises(PuzzleError, match=f"written as {ending}; use"):
            save(picture, tmp_path / f"x{ending}")


def test_a_name_that_no_file_can_have_is_refused() -> None:
    with approved_refusal("forms", "a name that no file can have is refused", PuzzleError):
        save(timeline("ddp"), "a\0b.svg")


# === PNG and PDF ===


needs_cairo = pytest.mark.usefixtures("cairo")
BROWSER = next(filter(None, map(shutil.which, raster.BROWSERS)), "")
needs_browser = pytest.mark.skipif(not BROWSER, reason="needs Chromium")
PEAK = "peak 4,194,304"
"""A label with a halo, alone on white paper."""


@pytest.fixture(scope="module")
def cairo() -> None:
    """Asked for by the tests that need it, since it takes long to import."""
    if raster.cairo() is None:
        pytest.skip("needs CairoSVG and the system's Cairo library")


@pytest.fixture(scope="module")
def gpipe() -> str:
    return svg(draw(gallery.solved("gpipe"), goal=PUZZLES["gpipe"].goal))


def pixels(png: bytes) -> Image.Image:
    return Image.open(BytesIO(png)).convert("L")


def ink_of_label(picture: Image.Image, source: str) -> float:
    """The share of dark pixels around the label of the peak."""
    x, y = map(float, re.findall(rf'<text x="([\d.]+)" y="([\d.]+)"[^>]*>(?:<title>.*?</title>)?{PEAK}', source)[0])
    box = [round(raster.SCALE * edge) for edge in (x - 80, y - 9, x, y)]
    cut = picture.crop((box[0], box[1], box[2], box[3]))
    return sum(cut.histogram()[:100]) / (cut.width * cut.height)


@pytest.mark.slow
@needs_cairo
def test_cairo_draws_labels_with_halos_and_the_whole_picture(gpipe: str) -> None:
    picture = pixels(raster.converted(gpipe, ".png"))
    assert picture.size == tuple(raster.SCALE * length for length in raster.size_of(gpipe)) == (2000, 1444)
    assert ink_of_label(picture, gpipe) > 0.1
    assert ImageStat.Stat(picture).stddev[0] > 20, "it is not empty"


@pytest.mark.slow
@needs_cairo
def test_a_pdf_is_one_page_of_the_pictures_size(gpipe: str) -> None:
    pdf = raster.converted(gpipe, ".pdf")
    (box,) = re.findall(rb"/MediaBox \[ ?0 0 ([\d.]+) ([\d.]+)", pdf)
    width, height = raster.size_of(gpipe)
    assert pdf.startswith(b"%PDF-")
    assert (float(box[0]), float(box[1])) == pytest.approx((0.75 * width, 0.75 * height), abs=1)  # points


@needs_browser
@needs_cairo
@pytest.mark.slow
def test_a_browser_draws_the_same_picture(gpipe: str) -> None:
    mine, theirs = (pixels(png) for png in (raster.converted(gpipe, ".png"), raster.by_browser(gpipe, ".png", BROWSER)))
    assert theirs.size == mine.size
    assert ink_of_label(theirs, gpipe) == pytest.approx(ink_of_label(mine, gpipe), abs=0.05)
    assert ImageStat.Stat(ImageChops.difference(mine, theirs)).mean[0] < 4
    assert raster.by_browser(gpipe, ".pdf", BROWSER).count(b"/Type /Page\n") == 1


@pytest.mark.slow
@needs_cairo
def test_the_ending_decides(tmp_path: Path) -> None:
    outcome = gallery.solved("ddp")
    for ending, start in ((".png", b"\x89PNG"), (".PDF", b"%PDF")):
        save(draw(outcome), tmp_path / f"drawn{ending}")
        save(outcome, tmp_path / f"run{ending}")
        assert (tmp_path / f"drawn{ending}").read_bytes().startswith(start)
        assert (tmp_path / f"run{ending}").read_bytes().startswith(start)


def test_without_cairo_and_browser_one_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raster, "cairo", lambda: None)
    monkeypatch.setattr(raster.shutil, "which", lambda name: None)
    monkeypatch.setattr(raster, "ON_A_MAC", tmp_path / "none")
    with pytest.raises(PuzzleError, match=r"cannot write .*x\.png: .*\[pictures\]'") as why:
        save(gallery.solved("ddp"), tmp_path / "x.png")
    assert ("browser" in str(why.value), ".svg" in str(why.value)) == (True, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("problem", ["exit 1", "exit 0"])
def test_a_browser_that_fails_is_one_clear_line(tmp_path: Path, gpipe: str, problem: str) -> None:
    browser = tmp_path / "chromium"
    browser.write_text(f"#!/bin/sh\n{problem}\n")
    browser.chmod(0o755)
    with pytest.raises(PuzzleError, match="chromium could not make"):
        raster.by_browser(gpipe, ".png", str(browser))


# === Programs that are no browser ===


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


def some_job() -> Job:
    return Job(transformer("llama-3-8b", layers=4), gpu("h100"), 4, 8, 4096)


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
    "draw_plans": lambda: svg(draw_plans([plan(some_job(), Split(dp=4)), plan(some_job(), Split(dp=2, tp=2))])),
    "draw_replay": lambda: svg(draw_replay(small().trace, [[(op.start, op.end) for op in small().trace.events(0)]])),
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
