"""PNG and PDF: what CairoSVG and a browser make of a picture is the same picture, halos included."""

from __future__ import annotations

import re
import shutil
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image, ImageChops, ImageStat

from docs.generate import gallery
from drawing import draw, save, svg
from drawing import files as raster
from lib import PuzzleError
from puzzles.catalog.schedule import PUZZLES

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
