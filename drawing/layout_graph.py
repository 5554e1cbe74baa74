"""Picture of a plan: inputs, weights and operators, each with its layout and memory, and the bytes that edges move; and
of Sharding Propagation step by step: the candidates of each operator, what the edge costs, and the choice.

Operators stand in rows by their depth in the graph. An edge to the next row goes straight down or turns in a track of
the gap; an edge over several rows goes down a lane at the right, so that no edge crosses a box. What moves bytes is
red, and is drawn last. The figures are the plan's own, and none is computed here.

The steps are after the figure of "Sharding Propagation" in the documentation of MindSpore 2.1, a panel for each.
"""

from collections.abc import Collection, Iterable, Mapping
from math import inf
from typing import NamedTuple

from chalk.style import Style
from chalk.types import Diagram

from drawing.layout_tensor import held_text, limits_text, move_text
from drawing.palette import ALARM, EDGE, EMPTY, GRID, INK, KINDS, PAPER, SOFT, STEP, STEP_EDGE, STROKE, mix
from drawing.pen import Point, box, label, lines, panel, stack, style, text_width, tooltip
from drawing.picture import Picture
from lib.layout import Candidate, Decision, Edge, Graph, GraphPlan, LayoutError, TensorLayout, compared, strategy_text

ACROSS, TRACK, LANE = 24.0, 8.0, 16.0
CORNER = 8.0
"""Edges leave a box at least this far from its corner."""
ABOVE, BELOW = 10.0, 20.0
"""Room in a gap above its first track and below its last."""


class BoxSize(NamedTuple):
    width: float
    height: float


class Box(NamedTuple):
    """Left, top, width, height, and the number of the row."""

    x: float
    y: float
    width: float
    height: float
    row: int


def rows_of(graph: Graph) -> list[list[str]]:
    """Names by row: operators in program order, then the sources that the next row is the first to read."""
    depth: dict[str, int] = {}
    for name, op in graph.operators.items():
        depth[name] = 1 + max((depth.get(tensor, 0) for tensor in op.inputs), default=0)
    for name in graph.sources:
        readers = [depth[op.name] for op, _ in graph.consumers(name)]
        depth[name] = min(readers, default=1) - 1
    order = [*graph.operators, *graph.sources]
    rows = [[name for name in order if depth[name] == d] for d in range(max(depth.values(), default=-1) + 1)]
    return [row for row in rows if row]


class Placing:
    """Boxes and the paths of edges, for boxes of these sizes."""

    def __init__(self, graph: Graph, edges: Iterable[Edge], sizes: Mapping[str, BoxSize], top: float) -> None:
        self.graph = graph
        self.edges = list(edges)
        rows = rows_of(graph)
        row_of = {name: i for i, row in enumerate(rows) for name in row}
        far = [e.tensor for e in self.edges if row_of[e.operator] - row_of[e.tensor] > 1]
        self.lanes = {tensor: i for i, tensor in enumerate(dict.fromkeys(far))}
        self.tracks: list[dict[str, int]] = [{} for _ in rows]
        """By gap: the number of the track of each tensor."""
        for edge in self.edges:
            for gap in {row_of[edge.tensor], row_of[edge.operator] - 1}:
                self.tracks[gap].setdefault(edge.tensor, len(self.tracks[gap]))
        self.boxes: dict[str, Box] = {}
        self.bottoms: list[float] = []
        """By row: the top of the gap below it."""
        y = top
        for i, row in enumerate(rows):
            x = 0.0
            for name in row:
                self.boxes[name] = Box(x, y, *sizes[name], i)
                x += sizes[name].width + ACROSS
            self.bottoms.append(y + max(sizes[name].height for name in row))
            y = self.bottoms[-1] + ABOVE + TRACK * len(self.tracks[i]) + BELOW
        self.right = max((box.x + box.width for box in self.boxes.values()), default=0.0) + ACROSS
        self.width = self.right + LANE * len(self.lanes)
        self.height = self.bottoms[-1] if self.bottoms else top

    def path(self, edge: Edge) -> list[Point]:
        """An edge from the lower side of a tensor's box to its port at the operator."""
        source, target = self.boxes[edge.tensor], self.boxes[edge.operator]
        ports = len(self.graph.operators[edge.operator].inputs)
        x0, x1 = source.x + source.width / 2, target.x + target.width * (edge.place + 1) / (ports + 1)
        near = target.row - source.row == 1
        if near and source.x + CORNER < x1 < source.x + source.width - CORNER:
            return [(x1, source.y + source.height), (x1, target.y)]
        gaps = (source.row, target.row - 1)
        first, last = (self.bottoms[gap] + ABOVE + TRACK * self.tracks[gap][edge.tensor] for gap in gaps)
        turns = [(x0, first)]
        if not near:
            lane = self.right + LANE * (self.lanes[edge.tensor] + 0.5)
            turns += [(lane, first), (lane, last)]
        return [(x0, source.y + source.height), *turns, (x1, last), (x1, target.y)]


LINE, PAD, SIZE = 14.0, 7.0, 11.0
HEAD = 76.0
BETWEEN = 40.0
"""Room between two plans."""
LEAST = {True: 110.0, False: 180.0}
"""Minimum width of a box, for a source and for an operator."""
FILLS = {
    "input": mix(KINDS["activations"], PAPER, 0.6),
    "parameter": mix(KINDS["weights"], PAPER, 0.75),
    "state": mix(KINDS["opt_states"], PAPER, 0.6),
}
ROLES = {"input": "input", "parameter": "weight", "state": "optimizer state"}
LEGEND = "Gold: configured. Red: bytes move. Shapes are per device, with the axes that split them."

TextLine = tuple[str, str, bool]
"""Text, colour, and whether it is bold."""


def draw_plan(
    plan: GraphPlan,
    title: str = "Where tensors live",
    dark: bool = False,
    target: float = inf,
    cap: float = inf,
    given: Collection[str] = (),
) -> Picture:
    """Sources and operators from top to bottom; what moves bytes is red, configured operators are gold.

    `target` and `cap` limit the moved bytes and the bytes on each device; a figure that misses its limit is red.
    Operators in `given` were configured by the puzzle.
    """
    content, words = plan_panel(plan, title, target, cap, given)
    return Picture(content, title, words, dark)


def draw_plans(plans: Mapping[str, GraphPlan], title: str, dark: bool = False, cap: float = inf) -> Picture:
    """Several plans of one graph side by side, each below its name."""
    x, parts, said = 0.0, [], []
    for name, plan in plans.items():
        content, words = plan_panel(plan, name, inf, cap, ())
        parts.append(content.translate(x, 0))
        x += float(content.get_envelope().width) + BETWEEN
        said.append(f"{name}: {words}")
    height = max(float(each.get_envelope().height) for each in parts)
    return Picture(panel(x - BETWEEN, height, parts), title, "; ".join(said), dark)


def plan_panel(plan: GraphPlan, title: str, target: float, cap: float, given: Collection[str]) -> tuple[Diagram, str]:
    """The content of the picture, and the line below its title."""
    texts = {name: _source_lines(plan, name) for name in plan.storage_layouts}
    texts |= {name: _operator_lines(plan, name, given) for name in plan.operators}
    sizes = {}
    for name, found in texts.items():
        width = max(text_width(text, SIZE, bold) for text, _, bold in found) + 2 * PAD
        sizes[name] = BoxSize(max(LEAST[name in plan.storage_layouts], width), len(found) * LINE + 2 * PAD)
    placing = Placing(plan.graph, plan.edges, sizes, HEAD)
    parts = [_edge(plan, edge, placing) for edge in sorted(plan.edges, key=lambda each: each.bytes)]
    for name, (x, y, width, height, _) in placing.boxes.items():
        said = f"{name}: {plan.layout(name)}"
        if name in plan.operators:
            said += f"; strategy {strategy_text(plan.operators[name].strategy)}"
        parts.append(tooltip(box(x, y, x + width, y + height, _style(plan, name)), said))
        for i, (text, colour, bold) in enumerate(texts[name]):
            parts.append(label(x + PAD, y + PAD + (i + 0.5) * LINE, text, SIZE, colour, "start", bold=bold))
    moved, held = limits_text(plan, target, cap)
    parts += [
        label(0, 10, title, 15, INK, "start", bold=True),
        label(0, 28, moved, 11, ALARM if plan.bytes > target else SOFT, "start"),
        label(0, 43, held, 11, ALARM if plan.memory > cap else SOFT, "start"),
        label(0, 58, LEGEND, 11, SOFT, "start"),
    ]
    words = f"{moved}, {held}"
    width = max(placing.width, text_width(held, 11), text_width(LEGEND, 11))
    return panel(width, placing.height + 10, parts), words


def _style(plan: GraphPlan, name: str) -> Style:
    if name in plan.storage_layouts:
        return style(FILLS[plan.graph.sources[name]], EDGE, 1)
    if name in plan.graph.strategies:
        return style(STEP, STEP_EDGE, 1.8)
    pays = plan.collective_bytes(name) > 0
    return style(EMPTY, ALARM if pays else EDGE, 1.5 if pays else 1)


def _source_lines(plan: GraphPlan, name: str) -> list[TextLine]:
    layout = plan.storage_layouts[name]
    return [
        (f"{name}: {ROLES[plan.graph.sources[name]]}", INK, True),
        (f"{_shape(layout.local_shape)} of {_shape(layout.shape)}", INK, False),
        (str(layout), SOFT, False),
        (held_text(plan, name), SOFT, False),
    ]


def _operator_lines(plan: GraphPlan, name: str, given: Collection[str]) -> list[TextLine]:
    """The lines of a box: name and kind, shapes on each device, their axes, the reason, what moves, the output."""
    op = plan.operators[name]
    shapes = ", ".join(_shape(layout.local_shape) for layout in op.inputs)
    axes = ", ".join(_axes(layout) for layout in op.inputs)
    kind = "" if name == op.operator.kind else f": {op.operator.kind}"
    found: list[TextLine] = [
        (f"{name}{kind}", INK, True),
        (f"{shapes} -> {_shape(op.local.local_shape)}", INK, False),
        (f"{axes} -> {_axes(op.local)}", SOFT, False),
    ]
    why = plan.reason(name)
    if name in plan.graph.strategies:
        why = "configured by the puzzle" if name in given else "configured"
        why += f", out {plan.graph.outs[name]}" if name in plan.graph.outs else ""
    if why:
        found.append((why, STEP_EDGE if name in plan.graph.strategies else SOFT, name in plan.graph.strategies))
    for edge in plan.edges:
        if edge.operator == name and (edge.bytes or edge.moved_for or edge.copied_from):
            found.append((move_text(plan, edge), ALARM if edge.bytes else SOFT, edge.bytes > 0))
    for step in op.reduction:
        moved = int(step.received.sum()) * plan.graph.itemsize
        found.append((f"{step.name}: {moved:,} bytes", ALARM, True))
    return [*found, (str(op.output), SOFT, False), (held_text(plan, name), SOFT, False)]


def _shape(sizes: Iterable[int]) -> str:
    return "x".join(map(str, sizes)) or "number"


def _axes(layout: TensorLayout) -> str:
    """The axes of each dimension, without the devices."""
    return str(layout).rpartition(" on ")[0]


def _edge(plan: GraphPlan, edge: Edge, placing: Placing) -> Diagram:
    path = placing.path(edge)
    x, y = path[-1]
    colour, width = (ALARM, 1.8) if edge.bytes else (STROKE, 1.0)
    head = [(x - 3.5, y - 6), (x, y), (x + 3.5, y - 6)]
    return tooltip(lines([path, head], style(stroke=colour, width=width)), f"{edge}: {move_text(plan, edge)}")


# --- The steps of Sharding Propagation ---

STEP_LINE, STEP_SIZE, STEPS_HEAD = 17.0, 10.5, 46.0
DOT_WIDTH, DOT_HEIGHT, DOT_DOWN = 15.0, 8.0, 15.0
BAR, TABLE = 110.0, 720.0
MAX_CANDIDATES, MAX_STEPS, MAX_ROWS = 6, 48, 40


class StepTexts:
    """The texts of a step: its heading, the layout at the settled end, and the candidates, cheapest first."""

    def __init__(self, plan: GraphPlan, decision: Decision, number: int) -> None:
        self.decision = decision
        self.chosen = plan.operators[decision.operator]
        self.heading = f"{number}. {decision.operator}"
        self.at = f"{strategy_text(self.chosen.strategy)}, {decision.reason}"
        self.found: list[Candidate] = []
        known = []
        for edge in decision.reached:
            if edge.place is None:
                what = f"takes {edge.tensor} as"
            else:
                what = "is taken elsewhere as" if edge.neighbor in plan.storage_layouts else "leaves"
            known.append(f"{edge.neighbor} {what} {edge.known}")
        self.known = "; ".join(known)
        if decision.reached:
            options = compared(plan.graph, decision.operator, decision.reached, decision.full)
            self.found = sorted(options, key=lambda each: each.rank)

    @property
    def shown(self) -> list[Candidate]:
        return self.found[:MAX_CANDIDATES]

    @property
    def rest(self) -> str:
        """How many candidates are not shown, and their costs."""
        others = self.found[MAX_CANDIDATES:]
        if not others:
            return ""
        costs = [each.edges.communication for each in others]
        return f"and {len(others)} more, {min(costs):,.0f} to {max(costs):,.0f} sent"

    def is_chosen(self, candidate: Candidate) -> bool:
        return candidate.choice.inputs == self.chosen.inputs


def draw_propagation(plan: GraphPlan, title: str = "Sharding Propagation, step by step", dark: bool = False) -> Picture:
    """How the breadth-first rule completed a graph: a panel for each operator, in the order in which it was settled."""
    if not plan.decisions:
        raise LayoutError("only a plan that propagate made has steps; draw_plan shows any plan")
    steps = list(plan.decisions.values())
    words = f"{len(steps)} operators, settled one after the other along the edge that is cheapest"
    left = steps[MAX_STEPS:]
    if left:
        words += f"; the last {len(left)}, from '{left[0].operator}', are not shown"
    head = [label(0, 10, title, 15, INK, "start", bold=True), label(0, 28, words, 11, SOFT, "start")]
    note = "Left: the operators, those settled so far filled. Gold: chosen. "
    note += "A bar: bytes that the edge sends, as MindSpore counts them."
    head.append(label(0, 42, note, 10, SOFT, "start"))
    dots = _dots(plan)
    panels = [panel(max(TABLE, text_width(note, 10)), 58, head)]
    for i, decision in enumerate(steps[:MAX_STEPS]):
        settled = {each.operator for each in steps[:i]}
        panels.append(_panel(plan, StepTexts(plan, decision, i + 1), settled, dots))
    return Picture(stack(panels), title, words, dark)


def _dots(plan: GraphPlan) -> Mapping[str, tuple[float, float]]:
    """A place for each operator in the small map of the graph; none if there are too many rows."""
    rows = [[name for name in row if name in plan.operators] for row in rows_of(plan.graph)]
    rows = [row for row in rows if row]
    if len(rows) > MAX_ROWS:
        return {}
    across = DOT_WIDTH + 7
    places = [(name, column, row) for row, names in enumerate(rows) for column, name in enumerate(names)]
    return {name: (column * across, row * DOT_DOWN) for name, column, row in places}


def _panel(plan: GraphPlan, step: StepTexts, settled: set[str], dots: Mapping[str, tuple[float, float]]) -> Diagram:
    left = max((x for x, _ in dots.values()), default=-26.0) + DOT_WIDTH + 24
    parts = _map(plan, step.decision, settled, dots) if step.found else []
    parts.append(label(left, 16, step.heading, 12, INK, "start", bold=True))
    parts.append(label(left + text_width(step.heading, 12, True) + 12, 16, step.at, STEP_SIZE, SOFT, "start"))
    parts.append(label(left, 33, step.known, STEP_SIZE, SOFT, "start"))
    most = max((each.edges.communication for each in step.found), default=0) or 1
    y = STEPS_HEAD
    for each in step.shown:
        mine = step.is_chosen(each)
        if mine:
            parts.append(box(left - 6, y - 1, left + TABLE, y + STEP_LINE - 2, style(STEP, STEP_EDGE, 1)))
        middle = y + STEP_LINE / 2 - 1
        parts.append(label(left, middle, strategy_text(each.choice.strategy), STEP_SIZE, INK, "start", bold=mine))
        bar = left + 210
        sent = each.edges.communication
        if sent:
            parts.append(box(bar, y + 3, bar + BAR * sent / most, y + STEP_LINE - 5, style(ALARM)))
        parts.append(label(bar + BAR + 86, middle, f"{sent:,.0f} sent", STEP_SIZE, ALARM if sent else INK, "end"))
        rest = f"{each.edges.computation:,.0f} copied, {each.own.computation:,.0f} read, "
        rest += f"{each.own.communication:,.0f} all-reduced"
        parts.append(label(left + TABLE - 6, middle, rest, STEP_SIZE - 0.5, SOFT, "end"))
        y += STEP_LINE
    if step.rest:
        parts.append(label(left, y + STEP_LINE / 2 - 1, step.rest, STEP_SIZE, SOFT, "start"))
        y += STEP_LINE
    lowest = max((top for _, top in dots.values()), default=0.0) + DOT_HEIGHT + 16
    height = max(y, lowest) + 10 if step.found else 30.0
    parts.append(lines([[(0, 1), (left + TABLE, 1)]], style(stroke=GRID, width=1)))
    return panel(left + TABLE + 4, height, parts)


def _map(
    plan: GraphPlan, decision: Decision, settled: set[str], dots: Mapping[str, tuple[float, float]]
) -> list[Diagram]:
    """The graph as small boxes: settled ones filled, the current one gold, its edge thick."""
    found: list[Diagram] = []
    top = 12.0
    for edge in plan.edges:
        if edge.tensor in dots and edge.operator in dots:
            (x0, y0), (x1, y1) = dots[edge.tensor], dots[edge.operator]
            line = [(x0 + DOT_WIDTH / 2, top + y0 + DOT_HEIGHT), (x1 + DOT_WIDTH / 2, top + y1)]
            mine = any({edge.tensor, edge.operator} == {each.neighbor, decision.operator} for each in decision.reached)
            found.append(lines([line], style(stroke=STEP_EDGE if mine else EDGE, width=2.2 if mine else 0.8)))
    for name, (x, y) in dots.items():
        dot = style(mix(STROKE, PAPER, 0.55) if name in settled else EMPTY, EDGE, 0.8)
        if name == decision.operator:
            dot = style(STEP_EDGE, STEP_EDGE, 1.2)
        found.append(tooltip(box(x, top + y, x + DOT_WIDTH, top + y + DOT_HEIGHT, dot), name))
    return found
