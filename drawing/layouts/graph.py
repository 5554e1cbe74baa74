"""Picture of a plan: a box for each operator with its strategy, and on every edge the bytes it moves."""

from __future__ import annotations

from chalk.types import Diagram

from drawing.palette import ALARM, EDGE, EMPTY, INK, PAPER, SOFT, WIRE
from drawing.pen import Point, box, label, lines, look, panel, text_width, tip
from drawing.picture import Picture
from lib.layout import Edge, GraphPlan, strategy_text

WIDTH, LINE, PAD = 250.0, 14.0, 7.0
ACROSS, DOWN, HEAD, LANE = 34.0, 44.0, 48.0, 26.0


def draw_plan(plan: GraphPlan, title: str = "Where tensors live", dark: bool = False) -> Picture:
    """Operators from top to bottom by their distance from the sources; what moves bytes is red, with the number."""
    rows = _rows(plan)
    texts = {name: _lines(plan, name) for name in plan.operators}
    places: dict[str, tuple[float, float, float]] = {}
    y = HEAD
    for row in rows:
        high = max(len(texts[name]) for name in row) * LINE + 2 * PAD
        for column, name in enumerate(row):
            places[name] = (column * (WIDTH + ACROSS), y, len(texts[name]) * LINE + 2 * PAD)
        y += high + DOWN
    right = max(map(len, rows)) * (WIDTH + ACROSS)
    depth = {name: i for i, row in enumerate(rows) for name in row}
    parts: list[Diagram] = []
    lanes = 0
    for edge in plan.edges:
        if edge.tensor in plan.operators:
            far = depth[edge.operator] - depth[edge.tensor] > 1
            parts += _edge(plan, edge, places, right + lanes * LANE if far else None)
            lanes += far
    for name, (x, top, high) in places.items():
        pays = plan.collective_bytes(name) > 0
        parts.append(box(x, top, x + WIDTH, top + high, look(EMPTY, ALARM if pays else EDGE, 1.5 if pays else 1)))
        for i, (text, colour, bold) in enumerate(texts[name]):
            parts.append(label(x + PAD, top + PAD + (i + 0.5) * LINE, text, 10.5, colour, "start", bold=bold))
    words = f"{plan.bytes:,} bytes moved, {plan.memory:,} bytes on each of {plan.graph.devices} devices"
    parts += [label(0, 10, title, 15, INK, "start", bold=True), label(0, 28, words, 11, SOFT, "start")]
    width = max(right + lanes * LANE + 60, 6.0 * len(words))
    return Picture(panel(width, y - DOWN + 10, parts), title, words, dark)


def _rows(plan: GraphPlan) -> list[list[str]]:
    depth: dict[str, int] = {}
    for name, op in plan.graph.operators.items():
        depth[name] = 1 + max((depth[tensor] for tensor in op.inputs if tensor in depth), default=-1)
    return [[name for name in depth if depth[name] == d] for d in range(max(depth.values(), default=-1) + 1)]


def _lines(plan: GraphPlan, name: str) -> list[tuple[str, str, bool]]:
    """The lines of a box: name and kind, strategy, local shapes, collectives, sources that had to move."""
    op = plan.operators[name]
    shapes = " x ".join("x".join(map(str, layout.local_shape)) for layout in op.inputs)
    kind = "" if name == op.operator.kind else f": {op.operator.kind}"
    found = [
        (f"{name}{kind}", INK, True),
        (strategy_text(op.strategy), INK, False),
        (f"{shapes} -> {'x'.join(map(str, op.local.local_shape))}", SOFT, False),
    ]
    for step in op.reduction:
        moved = int(step.received.sum()) * plan.graph.itemsize
        found.append((f"{step.name}: {moved:,} bytes", ALARM, True))
    for edge in plan.edges:
        if edge.operator == name and edge.bytes and edge.tensor in plan.homes:
            found.append(
                (f"{edge.tensor}: {', '.join(plan.redistribution(edge).names)}, {edge.bytes:,} bytes", ALARM, True)
            )
    return found


def _edge(
    plan: GraphPlan, edge: Edge, places: dict[str, tuple[float, float, float]], lane: float | None
) -> list[Diagram]:
    (x0, y0, h0), (x1, y1, _) = places[edge.tensor], places[edge.operator]
    shift = 18.0 * edge.place
    start, end = (x0 + WIDTH / 2, y0 + h0), (x1 + WIDTH / 2 + shift, y1)
    path: list[Point]
    if lane is None:
        path = [start, (start[0], end[1] - DOWN / 2), (end[0], end[1] - DOWN / 2), end]
        at = (end[0], end[1] - DOWN / 2)
    else:
        out, back = y0 + h0 + 9 + shift / 3, end[1] - 9 - shift / 3
        path = [
            (x0 + WIDTH / 2 + 9, y0 + h0),
            (x0 + WIDTH / 2 + 9, out),
            (lane, out),
            (lane, back),
            (end[0], back),
            end,
        ]
        at = (lane, (out + back) / 2)
    colour = ALARM if edge.bytes else WIRE
    steps = f"as for {edge.moved_for}" if edge.moved_for else ", ".join(plan.redistribution(edge).names)
    found = [tip(lines([path], look(stroke=colour, width=1.6 if edge.bytes else 1)), f"{edge}: {steps or 'as it is'}")]
    head = [(end[0] - 3.5, end[1] - 6), end, (end[0] + 3.5, end[1] - 6)]
    found.append(lines([head], look(stroke=colour, width=1.2)))
    if steps:
        text = f"{steps}, {edge.bytes:,} bytes" if edge.bytes else steps
        anchor = "start" if lane is None or text_width(text, 10) < LANE else "middle"
        found.append(label(at[0] + (5 if anchor == "start" else 0), at[1] - 6, text, 10, colour, anchor, halo=PAPER))
    return found
