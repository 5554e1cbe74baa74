"""Pictures as PNG and PDF: converted by CairoSVG (https://cairosvg.org) if it is here, otherwise by a browser."""

import re
import shutil
import subprocess
from importlib import import_module
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

from lib import PuzzleError
from lib.extras import install_command

SCALE = 2
"""Pixels of a PNG for each pixel of the picture: sharp on slides and on screens with small pixels."""

BROWSERS = "chromium chromium-browser google-chrome google-chrome-stable chrome msedge".split()
ON_A_MAC = Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")
SECONDS = 60.0
"""For a browser that has to start first."""

OPTIONS = "--headless --disable-gpu --hide-scrollbars --no-first-run --no-sandbox".split()
"""The last because Chromium refuses to start as root with its sandbox; the page is our own, and has no script."""

PAGE = """<!doctype html><meta charset="utf-8"><style>@page {{ size: {width}px {height}px; margin: 0 }}
body {{ margin: 0 }} svg {{ display: block }}</style>{svg}"""


def converted(svg: str, ending: str) -> bytes:
    """SVG as the content of a file with the ending .png or .pdf.

    Raises:
        PuzzleError: there is nothing that converts, or it failed.
    """
    if cairo() is not None:
        return by_cairo(svg, ending)
    return by_browser(svg, ending, require_converter())


def require_converter() -> str:
    """The path of the browser that converts; empty if CairoSVG does.

    Raises:
        PuzzleError: there is neither; the text says what to install.
    """
    if cairo() is not None:
        return ""
    found = next(filter(None, map(shutil.which, BROWSERS)), str(ON_A_MAC) if ON_A_MAC.exists() else "")
    if not found:
        raise PuzzleError(
            f"PNG and PDF need CairoSVG ({install_command('pictures')}) or a browser (Chromium, Chrome or "
            "Edge); .svg needs neither"
        )
    return found


def cairo() -> ModuleType | None:
    """CairoSVG; None without it, or without the Cairo library of the system that it needs."""
    try:
        return import_module("cairosvg")
    except (ImportError, OSError):
        return None


def by_cairo(svg: str, ending: str) -> bytes:
    library = cairo()
    assert library is not None
    source = svg.encode()
    data: bytes = (
        library.svg2pdf(bytestring=source) if ending == ".pdf" else library.svg2png(bytestring=source, scale=SCALE)
    )
    return data


def by_browser(svg: str, ending: str, browser: str) -> bytes:
    """A page of exactly the picture's size, printed or photographed.

    Raises:
        PuzzleError: the browser did not do it.
    """
    width, height = size_of(svg)
    with TemporaryDirectory(prefix="puzzles-") as folder:
        page, target = Path(folder, "page.html"), Path(folder, f"picture{ending}")
        page.write_text(PAGE.format(width=width, height=height, svg=svg), encoding="utf-8")
        output = (
            [f"--print-to-pdf={target}", "--no-pdf-header-footer"]
            if ending == ".pdf"
            else [f"--screenshot={target}", f"--window-size={width},{height}", f"--force-device-scale-factor={SCALE}"]
        )
        command = [browser, *OPTIONS, f"--user-data-dir={folder}/profile", *output, page.as_uri()]
        try:
            subprocess.run(command, capture_output=True, timeout=SECONDS, check=True)
            return target.read_bytes()
        except (OSError, subprocess.SubprocessError) as why:
            raise PuzzleError(f"{Path(browser).name} could not make the {ending[1:].upper()} ({why})") from None


def size_of(svg: str) -> tuple[int, int]:
    """Width and height in whole pixels, as the root element states them."""
    root = svg.partition("<svg")[2].partition(">")[0]
    found = {name: re.search(rf'\s{name}="([\d.]+)', root) for name in ("width", "height")}
    width, height = (float(match[1]) if match else 0.0 for match in found.values())
    if not (width and height):
        raise PuzzleError("this SVG does not state its width and height in pixels")
    return ceil(width), ceil(height)
