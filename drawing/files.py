"""Runs and pictures as files: the file ending selects the format.

Decided here is which endings exist, which of them suit a run and which any picture, and who converts SVG to PNG and
PDF. What a picture shows is decided elsewhere: SVG, text and pages are made by `picture`, `run_text` and `html`, and
are only written here. The JSON for trace viewers is of Chrome's tracing tool, and Perfetto reads it too ("Trace Event
Format", Google 2016): one thread per rank, flow arrows for communication; one step is shown as one millisecond.

PNG and PDF come from CairoSVG where it is installed, since it takes no start; else from a browser, which most machines
have. Neither is a dependency, because SVG needs nothing.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any, cast

from chalk.core import BaseDiagram
from chalk.types import Diagram

from drawing.glyphs import batches_text, glyph_of
from drawing.html import web_page
from drawing.picture import svg
from drawing.run_text import describe_gap, error_text, name_of, summary, text_of
from drawing.scene import LaneMarks, Mark, RunLike, Scene, scene_from
from drawing.timeline import Timeline, draw_scene
from lib import COLLECTIVES, Goal, PuzzleError, group_of
from lib.errors import install_command

# --- The JSON of trace viewers ---

RANKS, MEMORY = 1, 2
"""The two groups (processes) in which viewers show threads and counters."""


def viewer_json(scene: Scene, title: str = "") -> str:
    """The trace, one event per line, so that files can be compared."""
    head = {"title": title, "summary": summary(scene.report), "verdict": error_text(scene.report), "step": "1 ms"}
    events = ",\n".join(json.dumps(event, separators=(",", ":")) for event in all_events(scene))
    return f'{{"displayTimeUnit":"ms","otherData":{json.dumps(head)},"traceEvents":[\n{events}\n]}}\n'


def all_events(scene: Scene) -> Iterator[dict[str, Any]]:
    yield process(RANKS, "ranks")
    if scene.shows_memory:
        yield process(MEMORY, "memory in elements")
    for lane in scene.lanes:
        for stream, name in enumerate(scene.streams):
            row = place(lane.rank, stream, scene)
            words = f"rank {lane.rank}{f' {name}' if stream else ''}"
            yield {"ph": "M", "name": "thread_name", **row, "args": {"name": words}}
            yield {"ph": "M", "name": "thread_sort_index", **row, "args": {"sort_index": row["tid"] - 1}}
    for lane in scene.lanes:
        yield from (operation(mark, scene) for mark in lane.marks)
        yield from waits(lane, scene)
        yield from counters(lane)
    # A message is an arrow from the send to the receive, if there is one; a collective a line through all its members.
    messages = [("message", (link.send, link.receive) if link.receive else ()) for link in scene.links]
    for number, (name, marks) in enumerate([*messages, *((tie.name, tie.members) for tie in scene.ties)]):
        for i, mark in enumerate(marks):
            phase = "s" if i == 0 else "f" if i == len(marks) - 1 else "t"
            where = place(mark.rank, mark.stream, scene)
            what = {"ph": phase, "name": name, "cat": "communication", **where}
            yield {**what, **({"bp": "e"} if phase == "f" else {}), "ts": at(mark.start), "id": number}


def process(number: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "process_name", "pid": number, "tid": 1, "args": {"name": name}}


def place(rank: int, stream: int, scene: Scene) -> dict[str, int]:
    """Process and thread; viewers reserve thread 0."""
    return {"pid": RANKS, "tid": rank * len(scene.streams) + stream + 1}


def at(time: float) -> int:
    """A time in steps as whole microseconds."""
    return round(time * 1000)  # in microseconds


def operation(mark: Mark, scene: Scene) -> dict[str, Any]:
    op = mark.op
    layer = "" if op.layer is None else str(op.layer)
    details = {
        "layer": op.layer,
        "microbatches": sorted(op.batches) or None,
        "partner": mark.partner,
        "tag": mark.tag or None,
        "group": group_of(op) if op.name in COLLECTIVES else None,
        "step": mark.step,
        "called": mark.called,
        "awaited": mark.awaited,
        "again": mark.again or None,
        "memory": mark.memory,
        "line": op.line or None,
    }
    return {
        "ph": "X",
        "name": f"{glyph_of(op.name).mark}{layer} {batches_text(op.batches)}".rstrip(),
        "cat": op.name,
        "ts": at(mark.start),
        "dur": at(mark.end) - at(mark.start),
        **place(mark.rank, mark.stream, scene),
        "args": {key: value for key, value in details.items() if value is not None},
    }


def waits(lane: LaneMarks, scene: Scene) -> Iterator[dict[str, Any]]:
    """Idle time, with what the rank waited for."""
    for gap in lane.gaps:
        if gap.before is not None:
            when = {"ts": at(gap.start), "dur": at(gap.end) - at(gap.start)}
            why = {"why": describe_gap(gap, f"rank {lane.rank}", scene)}
            yield {"ph": "X", "name": "idle", "cat": "idle", **when, **place(lane.rank, 0, scene), "args": why}


def counters(lane: LaneMarks) -> Iterator[dict[str, Any]]:
    """Memory by kind, from the start of each level."""
    for span in lane.memory:
        elements = {kind: sum(share) for kind, share in span.kinds._asdict().items()}
        yield {"ph": "C", "name": f"rank {lane.rank}", "pid": MEMORY, "ts": at(span.start), "args": elements}


# --- Files ---

SCALE = 2
"""Pixels of a PNG for each pixel of the picture, so that it is sharp on slides and on dense screens."""

BROWSERS = "chromium chromium-browser google-chrome google-chrome-stable chrome msedge".split()
ON_A_MAC = Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")
SECONDS = 60.0
"""The time limit of a conversion; a browser has to start first."""

OPTIONS = "--headless --disable-gpu --hide-scrollbars --no-first-run --no-sandbox".split()
"""The last option is needed because Chromium refuses to start as root with its sandbox; the page is ours, and has no
script."""

PAGE = """<!doctype html><meta charset="utf-8"><style>@page {{ size: {width}px {height}px; margin: 0 }}
body {{ margin: 0 }} svg {{ display: block }}</style>{svg}"""


def converted(svg: str, ending: str) -> bytes:
    """SVG converted to the content of a .png or .pdf file."""
    if (library := cairo()) is None:
        return by_browser(svg, ending, require_converter())
    source = svg.encode()
    return bytes(
        library.svg2pdf(bytestring=source) if ending == ".pdf" else library.svg2png(bytestring=source, scale=SCALE)
    )


def require_converter() -> str:
    """The path of the browser that converts; empty if CairoSVG does it."""
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
    """CairoSVG; None if it is missing, or the Cairo library that it needs."""
    try:
        return import_module("cairosvg")
    except (ImportError, OSError):
        return None


def by_browser(svg: str, ending: str, browser: str) -> bytes:
    """Prints or photographs a page of exactly the picture's size."""
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


OF_A_RUN: Mapping[str, Callable[[Scene, str], str]] = {".html": web_page, ".json": viewer_json, ".txt": text_of}
"""Formats that only a run has: each turns a scene and a title into the text of a file."""

OF_A_PICTURE = (".svg", ".png", ".pdf")
ENDINGS = (*OF_A_PICTURE, *OF_A_RUN)


def save(
    picture: Diagram | str | RunLike,
    path: str | Path,
    title: str = "",
    goal: Goal | None = None,
    critical: bool = False,
    colour: str = "layer",
) -> None:
    """Writes a diagram, or SVG text, to `path`; a run, or the timeline of one, in any of the formats.

    `title`, `goal`, `critical` and `colour` apply to a run, as in `draw`.

    Raises:
        PuzzleError: the ending is not known or does not suit the picture, nothing here makes PNG or PDF, or the file
            cannot be written.
    """
    path = Path(path)
    ending = path.suffix.lower()
    require_ending(path, of_a_run=not isinstance(picture, BaseDiagram | str) or isinstance(picture, Timeline))
    if isinstance(picture, Timeline) and ending in OF_A_RUN:
        text = in_form(picture.scene, picture.title, ending)
    elif isinstance(picture, BaseDiagram | str):
        text = picture if isinstance(picture, str) else svg(picture)
    else:
        scene = scene_from(cast(RunLike, picture), goal, colour)  # chalk's diagrams are all BaseDiagrams
        text = in_form(scene, title, ending) if ending in OF_A_RUN else svg(draw_scene(scene, title, critical))
    data = text.encode() if ending in (".svg", *OF_A_RUN) else converted(text, ending)
    try:
        path.write_bytes(data)
    except (OSError, ValueError) as why:
        reason = getattr(why, "strerror", None) or str(why) or "unknown error"
        raise PuzzleError(f"cannot write {path}: {reason.lower()}") from None


def in_form(scene: Scene, title: str, ending: str) -> str:
    """A run as the text of a file with this ending."""
    return OF_A_RUN[ending](scene, title or name_of(scene))


def is_picture(path: str | Path) -> bool:
    """True for the name of a picture, false for the other formats of a run."""
    return Path(path).suffix.lower() in OF_A_PICTURE


def require_ending(path: str | Path, of_a_run: bool = True) -> None:
    """Refuses a name whose ending is not a format, does not suit the picture, or is not available here.

    Raises:
        PuzzleError: naming the possible endings, or what to install.
    """
    ending, problem = Path(path).suffix, ""
    if ending.lower() not in ENDINGS:
        what = f"the ending '{ending}'" if ending else "a name without an ending"
        problem = f"{what} is unknown; use {known(ENDINGS)}"
    elif ending.lower() in OF_A_RUN and not of_a_run:
        problem = f"only the timeline of one run can be written as {ending}; use {known(OF_A_PICTURE)}"
    elif ending.lower() in (".png", ".pdf"):
        try:
            require_converter()
        except PuzzleError as why:
            problem = str(why)
    if problem:
        raise PuzzleError(f"cannot write {path}: {problem}")


def known(endings: tuple[str, ...]) -> str:
    return f"{', '.join(endings[:-1])} or {endings[-1]}"
