"""A run as one self-contained web page: zoom and pan along time, dependencies, a play cursor.

The page is a template with a style and three scripts, and the run as data: events by column, with their words, shapes
and colours. All words are made here, so that a page says of an operation what a picture's tooltip says, and all shapes
are the glyphs of the pictures. Placing, zooming and highlighting are the scripts'. A page loads nothing from the
network. The game's site shows the same elements, and fills them with data of the same form; so neither has a viewer of
its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from itertools import chain, groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from drawing import palette
from drawing.glyphs import Frame, batches_text, glyph_of, in_legend_order
from drawing.run_text import SHARED, describe, describe_gap, error_text, reasons, summary, text_of
from drawing.scene import COLOURS, Colouring, LaneMarks, Mark, Paint, Scene, needs, sent_by_kind
from drawing.timeline import KIND_NAMES, highest, highest_traffic, kind_text, shaded_text

if TYPE_CHECKING:
    from jinja2 import Environment

UNIT = 20.0
"""Outlines are given in a square of this size; the page stretches their middle."""
SCRIPTS = ("rendering.js", "legend.js", "interaction.js")
TONES = """
PAPER INK SOFT GRID IDLE IDLE_HATCH STROKE UNDER_WAY STEP STEP_EDGE EDGE MEMORY CRITICAL ALARM TARGET
""".split()


class PageView(NamedTuple):
    """A run on a page, with its heading."""

    heading: str
    scene: Scene


def web_page(scene: Scene, title: str) -> str:
    """The page; it loads nothing from the network."""
    return web_pages([PageView("", scene)], title, [(summary(scene.report), None)], verdict=error_text(scene.report))


def web_pages(
    views: Sequence[PageView],
    title: str,
    lines: Sequence[tuple[str, int | None]],
    bar: Mapping[str, float] = MappingProxyType({}),
    verdict: str = "",
) -> str:
    """A page of several runs, one above the other. `lines` are paragraphs above them; a line with the number of a mark
    links to that mark of the first run. `bar` has parts of a whole, in percent."""
    from markupsafe import Markup

    end = max(scene.end for _, scene in views)
    return (
        environment()
        .get_template("page.html")
        .render(
            title=title,
            views=[
                {**view_words(scene, heading or title), "heading": heading, "data": run_data(scene) | {"end": end}}
                for heading, scene in views
            ],
            lines=lines,
            bar=[(name, max(part, 0.0), f"{part:.1f}", fill) for (name, part), fill in zip(bar.items(), palette.PARTS)],
            verdict=verdict,
            paper=both(palette.PAPER),
            style=Markup(web_file("page.css")),
            script=Markup("".join(map(web_file, SCRIPTS))),
            colours=COLOURS,
        )
    )


def viewer_elements() -> str:
    """The elements that show a run, for a page that fills them with each run's words."""
    words = dict.fromkeys(("label", "summary", "text"), "")
    return environment().get_template("viewer.html").render(words, colours=COLOURS, alone=False)


def view_words(scene: Scene, title: str) -> dict[str, str]:
    """The words of the elements for a run: a name, its figures, and the run as text."""
    return {
        "title": title,
        "label": f"Timeline of {title}",
        "summary": summary(scene.report),
        "text": text_of(scene, title, 120),
    }


def environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    env = Environment(
        loader=FunctionLoader(web_file),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return env


def web_file(name: str) -> str:
    """A template, the style or a script; it may be in an archive that Python imports from."""
    return resources.files(__package__).joinpath("web", name).read_text(encoding="utf-8")


def both(colour: str) -> tuple[str, str]:
    """A colour on light pages and on dark ones."""
    return colour, palette.dark_variant(colour)


def batches_of(scene: Scene) -> list[int]:
    return sorted({min(mark.op.batches) for mark in scene.rows.marks if mark.op.batches})


def legend_items(scene: Scene) -> Iterator[dict[str, Any]]:
    """The legend: for each line its words, the swatches before or after them, and the colours with which it is
    shown."""
    for glyph in map(glyph_of, in_legend_order(mark.op.name for mark in scene.rows.marks)):
        yield {"before": [glyph.mark], "words": glyph.name}
    if batches := batches_of(scene):
        yield {"words": "microbatch", "after": list(map(str, batches)), "colours": ["microbatch"]}
    if any(Colouring.of(by, scene.layers, scene.lanes).bars for by in COLOURS):
        words = "bar in a box: chunk of the rank, from the first (none) to the last (full width)"
        yield {"words": words, "colours": ["microbatch", "operation"]}
    for number, kind in enumerate(palette.KINDS if highest(scene) else ()):
        yield {"words": KIND_NAMES[kind], "kind": number}
    sent = {kind for lane in scene.rows.lanes for kind in sent_by_kind(scene, lane.rank)}
    for number, kind in enumerate(palette.CALLS, len(palette.KINDS)):
        if kind in sent:
            yield {"words": f"sent: {kind_text(kind)}", "kind": number}
    if any(mark.again for mark in scene.rows.marks):
        yield {"words": "hatched forward: computed again (recomputation)"}
    if any(mark.old for mark in scene.rows.marks):
        yield {"words": "fine hatching: forward with old weights"}
    if scene.rows.are_shared:
        yield {"words": SHARED}
    if scene.steps > 1:
        yield {"words": shaded_text(scene.steps)}
    if len(scene.streams) > 1:
        yield {"words": "dotted line: called but not started, or ended but not awaited"}
    if highest(scene):
        yield {"words": "hatched memory: held only in a variable"}


def run_data(scene: Scene) -> dict[str, Any]:
    """The data for the page's script: events by column, and everything around them. Times are in steps.

    Its ranks are the rows of the picture, with their `labels`, and its events those that are drawn.
    """
    rows = scene.rows
    marks, every, needed = list(rows.marks), list(scene.marks), needs(scene)
    number = {mark.number: place for place, mark in enumerate(marks)}

    def shown(mark: Mark) -> int:
        return number[rows.shown(mark).number]

    return {
        "ranks": len(rows.every),
        "labels": [row.label for row in rows.every],
        "end": scene.end,
        # Of a game, the figure that its target is for, the start of the last event, as time and as text.
        "timesteps": scene.goal and [scene.report.timesteps, scene.report.costs.took(scene.report.timesteps)],
        "streams": scene.streams,
        "rank": [rows.places[mark.rank] for mark in marks],
        "stream": [mark.stream for mark in marks],
        # The training steps, where there are several, as [row, stream, from, to, step].
        "bands": [
            [place, stream, band.start, band.end, band.step]
            for place, lane in enumerate(rows.lanes)
            for stream in range(len(scene.streams))
            for band in lane.bands(stream, scene.end)
        ],
        "called": [mark.called for mark in marks],
        "awaited": [mark.awaited for mark in marks],
        "again": [number[mark.number] for mark in marks if mark.again],
        "start": [mark.start for mark in marks],
        "stop": [mark.end for mark in marks],
        "words": [describe(mark, row.first) for row in rows.every for mark in row.lane.marks],
        "needs": [list(dict.fromkeys(shown(every[n]) for n in needed[mark.number])) for mark in marks],
        "groups": [[number[mark.number] for mark in tie.members] for tie in rows.ties(scene.ties)],
        "links": [[shown(link.send), shown(link.receive)] for link in rows.links(scene.links) if link.receive],
        "gaps": [
            [place, gap.start, gap.end, describe_gap(gap, row.first, scene), reasons(gap, scene)[0]]
            for place, row in enumerate(rows.every)
            for gap in row.lane.gaps
        ],
        "critical": [shown(mark) for mark in scene.critical],
        "memory": memory_data(scene),
        "traffic": traffic_data(scene),
        "legend": list(legend_items(scene)),
        "colour": scene.colour,
        "colourings": {by: colouring_data(scene, by) for by in COLOURS},
        "colours": {name.lower(): both(getattr(palette, name)) for name in TONES},
    }


def colouring_data(scene: Scene, by: str) -> dict[str, Any]:
    """Everything that depends on the meaning of the colours: each mark's look and texts, and the legend's swatches."""
    colouring = Colouring.of(by, scene.layers, scene.lanes)
    looks: dict[Look, int] = {}
    shapes = []
    for mark in scene.rows.marks:
        toward, slant = -1 if scene.rows.is_above(mark.partner, mark.rank) else 1, 0.5 if mark.stream else 1.0
        look = Look(mark.op.name, toward, slant, colouring.paint(mark), colouring.bar(mark))
        shapes.append(looks.setdefault(look, len(looks)))
    return {
        "look": shapes,
        "label": [label_of(mark, colouring) for mark in scene.rows.marks],
        "looks": [look_data(look) for look in looks],
        "swatches": swatch_data(scene, by),
    }


class Look(NamedTuple):
    """What determines the shape and the colours of a mark."""

    name: str
    toward: int
    slant: float
    paint: Paint
    bar: float


def label_of(mark: Mark, colouring: Colouring) -> list[str]:
    """The texts of a mark: letters and layer, then microbatches; or the microbatches first. A third text is for a
    narrow box."""
    if mark.partner is not None:
        return [""]  # the wedge is enough
    glyph, batches = glyph_of(mark.op.name), batches_text(mark.op.batches)
    letters = glyph.mark
    if (glyph.letter and not mark.stream) or mark.op.layer is None:
        return [letters]
    if batches and colouring.shows_batches:
        return [batches[1:], letters + colouring.layer_text(mark)]
    narrow = [batches[1:]] if batches and mark.rank not in colouring.varied else []  # the lane has its own layer
    return [*filter(None, [f"{letters}{mark.op.layer}", batches]), *narrow]


def swatch_data(scene: Scene, by: str) -> dict[str, list[tuple[str, str]]]:
    """Fill and ink of the legend's swatches, by letter of an operation or by number of a microbatch."""
    fills: dict[str, str] = {}
    if by == "operation":
        fills = {glyph_of(name).mark: fill for name, fill in palette.OPERATIONS.items()}
    elif by == "microbatch":
        fills = {str(batch): palette.batch_colour(batch) for batch in batches_of(scene)}
    return {key: [both(fill), both(palette.text_on(fill))] for key, fill in fills.items()}


def look_data(look: Look) -> dict[str, Any]:
    """Outline and colours of one kind of mark; a mark without duration is centered at x = 0."""
    glyph = glyph_of(look.name)
    frame = Frame(0, 0, 0.0 if look.name == "loss" else UNIT, UNIT, look.toward, look.slant)
    fill, stroke, line = look.paint
    return {
        "outline": [[round(x, 2), round(y, 2)] for x, y in glyph.outline(frame)],
        "fill": both(fill),
        "stroke": both(stroke),
        "line": line,
        "pin": look.name == "loss",
        "bar": look.bar,
        "ink": both(palette.text_on(fill)),
    }


def memory_data(scene: Scene) -> dict[str, Any]:
    """Per row, levels as [from, to, stored and hidden of each kind in turn]; equal neighbors are merged."""
    goal, peak = scene.goal, scene.report.peak
    return {
        "most": highest(scene),
        "target": goal.memory_limit if goal is not None else 0,
        "peak": [peak.memory, scene.rows.places[peak.rank], peak.time],
        "names": [KIND_NAMES[kind] for kind in palette.KINDS],
        "fills": [both(colour) for colour in palette.KINDS.values()],
        "ranks": [memory_levels(lane) for lane in scene.rows.lanes],
    }


def traffic_data(scene: Scene) -> dict[str, Any]:
    return {
        "most": highest_traffic(scene),
        "target": (scene.goal.traffic_limit or 0) if scene.goal is not None else 0,
        "names": list(map(kind_text, palette.CALLS)),
        "fills": [both(colour) for colour in palette.CALLS.values()],
        "inks": [both(palette.text_on(colour)) for colour in palette.CALLS.values()],
        "ranks": [[sent_by_kind(scene, lane.rank).get(kind, 0) for kind in palette.CALLS] for lane in scene.rows.lanes],
    }


def memory_levels(lane: LaneMarks) -> list[list[float]]:
    runs = ((kinds, list(spans)) for kinds, spans in groupby(lane.memory, key=lambda span: span.kinds))
    levels = ([spans[0].start, spans[-1].end, *chain(*kinds)] for kinds, spans in runs)
    return [level for level in levels if level[1] > level[0]]
